"""Steps against the pain of latency-sensitive containers, the cheapest first, each kept only if it helps.

    (weights)   best-effort pods have the lowest weight, always: it costs them nothing that nobody else wants
    slices      their tasks run in long slices, so that others are preempted, and woken, less often (Linux 6.12)
    idle        cpu.idle of their pods (Linux 5.15)
    time        less CPU time, regulated by the pain
    cpus        fewer CPUs, regulated likewise

Less time and fewer CPUs can make it worse: all of best-effort's work then bunches at the beginning of each period, or
on fewer CPUs. So a step is an experiment with an end (``trial``): if the pain does not fall, it is undone, and not
tried again with these workloads for ``REFUSED_NS``, and with others not before a minute has passed, two, four... Where
a step has helped and the pain goes on, the next one is tried.

A limit that is at its floor and does not help is undone likewise. What has helped stays until next to nothing has hurt
for ``CALM_NS``, for by then others may run; a limit is lifted sooner, by its regulator.

Pure: a new state for each sample. Invariants: one trial at a time; what is in force is what helped, and the trial; a
limit is regulated only while its step is in force; nothing is tried without a baseline of samples, of which none is
older than the last change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from qosd.strategies.suppression import regulator
from qosd.strategies.suppression.line import Line
from qosd.strategies.suppression.pain import Pain
from qosd.strategies.suppression.regulator import DEAD_BAND, Bounds, Filtered, Limit
from qosd.strategies.suppression.trial import (
    DWELL_NS,
    SAMPLES,
    SECOND_NS,
    SETTLE_NS,
    Sample,
    Trial,
    Verdict,
    mean,
)

REFUSED_NS = 1800 * SECOND_NS
REST_NS = 60 * SECOND_NS
"""After a step was refused, before it is tried with other workloads; twice as long each time, up to ``REFUSED_NS``."""
RECENT = 5
SEVERE = 5.0
"""So many times the set point: a baseline of ``SEVERE_SAMPLES`` will do."""
SEVERE_SAMPLES = 3
FIRST_CUT = 0.75
"""What is left of what best-effort pods use when their time is limited first."""
CALM = 0.1
"""So little of the set point is next to nothing."""
CALM_NS = 600 * SECOND_NS
_KEPT = 30


class Rung(IntEnum):
    SLICES = 1
    IDLE = 2
    TIME = 3
    CPUS = 4


LIMITING = (Rung.TIME, Rung.CPUS)


class Outcome(msgspec.Struct, frozen=True):
    """What a trial has shown: mean wait before and after. A refusal holds for ``workloads`` until ``until_ns``."""

    before: float
    after: float
    at_ns: int
    workloads: frozenset[str] = frozenset()
    until_ns: int = 0
    count: int = 0

    def forbids(self, workloads: frozenset[str], now_ns: int) -> bool:
        rested_ns = self.at_ns + min(REFUSED_NS, REST_NS * 2 ** (self.count - 1))
        return now_ns < (self.until_ns if workloads == self.workloads else rested_ns)


Outcomes = Mapping[Rung, Outcome]
_NONE: Outcomes = MappingProxyType({})


class Scene(msgspec.Struct, frozen=True):
    """What a step is decided by. ``pains``: of every container that may have any, by what it is called.

    ``load_milli``: others' use; ``rungs``: those that this node can have; ``workloads``: of who suffers and who is
    best-effort.
    """

    now_ns: int
    pains: Mapping[str, Pain]
    used_milli: int
    load_milli: int
    bounds: Bounds
    rungs: tuple[Rung, ...]
    workloads: frozenset[str]


class LadderState(msgspec.Struct, frozen=True):
    """``samples``: of ``sufferer``, since a step was taken or undone, or a limit moved, the newest last.

    ``pain``: without what a container waits anyway, as ``line`` tells of ``limited_for``, for whose sake there is a
    limit. ``calm_ns``: since when next to nothing hurts; 0: it does.
    """

    taken: frozenset[Rung] = frozenset()
    trial: Trial | None = None
    tried: Rung | None = None
    limit: Limit | None = None
    pain: Filtered = Filtered()
    sampled_ns: int = 0
    changed_ns: int = 0
    calm_ns: int = 0
    samples: tuple[Sample, ...] = ()
    pains: tuple[float, ...] = ()
    sufferer: str = ""
    line: Line = Line()
    limited_for: str = ""
    helped: Outcomes = _NONE
    refused: Outcomes = _NONE

    @property
    def in_force(self) -> frozenset[Rung]:
        return self.taken if self.tried is None else self.taken | {self.tried}

    @property
    def limiting(self) -> Rung | None:
        """The step in force that limits, if any."""
        return next((rung for rung in LIMITING if rung in self.in_force), None)


def climbed(state: LadderState, scene: Scene) -> LadderState:
    """The state after one sample."""
    state = _sampled(state, scene)
    if state.trial is not None:
        return _tried(state, state.trial, scene)
    if state.limit is not None:
        state = _regulated(state, state.limit, scene)
    if state.calm_ns and scene.now_ns - state.calm_ns >= CALM_NS:
        return _forgotten(state)
    return _stepped(state, scene)


def _sampled(state: LadderState, scene: Scene) -> LadderState:
    now_ns, sufferer = scene.now_ns, _sufferer(state, scene)
    passed_s = (now_ns - state.sampled_ns) / SECOND_NS if state.sampled_ns else math.inf
    pain = max((_pain(state, name, each) for name, each in scene.pains.items()), default=0.0)
    filtered = state.pain.fed(pain, passed_s)
    is_calm = filtered.slow <= CALM * scene.bounds.set_point
    state = replace(
        state,
        pain=filtered,
        calm_ns=(state.calm_ns or now_ns) if is_calm else 0,
        sampled_ns=now_ns,
        trial=_continued(state.trial, scene) if state.trial else None,
    )
    if state.changed_ns and now_ns - state.changed_ns < SETTLE_NS:
        return state
    state = _learned(state, scene)
    known = (state.samples, state.pains) if state.sufferer == sufferer else ((), ())
    sample = Sample(_waited(scene, sufferer), scene.used_milli)
    samples, pains = (*known[0], sample)[-_KEPT:], (*known[1], pain)[-_KEPT:]
    return replace(state, samples=samples, pains=pains, sufferer=sufferer)


def _learned(state: LadderState, scene: Scene) -> LadderState:
    """The line with what a limit shows that has settled."""
    is_limited = state.trial is None and state.limited_for in scene.pains
    if not is_limited:
        return state
    return replace(state, line=state.line.fed(scene.used_milli, _waited(scene, state.limited_for)))


def _sufferer(state: LadderState, scene: Scene) -> str:
    """Whose samples count: the container with most pain; the one of before while it has not much less."""
    worst = max(scene.pains, key=lambda name: scene.pains[name].pain, default="")
    before = scene.pains.get(state.sufferer)
    return state.sufferer if before is not None and before.pain * 2 >= scene.pains[worst].pain else worst


def _pain(state: LadderState, name: str, pain: Pain) -> float:
    """Without what the container waits anyway."""
    return pain.pain if name != state.limited_for else min(pain.pain, max(0.0, pain.waited - state.line.at_zero))


def _waited(scene: Scene, name: str) -> float:
    return scene.pains[name].waited if name in scene.pains else 0.0


def _continued(trial: Trial, scene: Scene) -> Trial:
    if trial.sufferer not in scene.pains:
        return trial
    return trial.continued(Sample(_waited(scene, trial.sufferer), scene.used_milli), scene.now_ns)


def _tried(state: LadderState, trial: Trial, scene: Scene) -> LadderState:
    """The trial goes on, or ends; without a verdict if the container is gone for whose sake it was."""
    verdict, rung = trial.verdict(scene.now_ns), state.tried
    if rung is None:
        return state
    if trial.sufferer not in scene.pains:
        return _ended(state, rung, scene, keeps=False)
    if verdict is Verdict.OPEN:
        return state
    outcome = Outcome(*trial.waited, scene.now_ns)
    if verdict is Verdict.NO_HELP:
        return _refused(_ended(state, rung, scene, keeps=False), rung, outcome, scene)
    refused = {each: other for each, other in state.refused.items() if each is not rung}
    state = replace(_ended(state, rung, scene, keeps=True), helped={**state.helped, rung: outcome}, refused=refused)
    return replace(state, line=trial.line, limited_for=trial.sufferer) if rung in LIMITING else state


def _ended(state: LadderState, rung: Rung, scene: Scene, keeps: bool) -> LadderState:
    """No trial of ``rung`` any more; the step stays if it ``keeps``."""
    taken = state.taken | {rung} if keeps else state.taken - {rung}
    is_lifted = rung in LIMITING and not keeps
    state = _restarted(replace(state, trial=None, tried=None, taken=taken), scene.now_ns)
    return replace(state, limit=None, line=Line(), limited_for="") if is_lifted else state


def _restarted(state: LadderState, now_ns: int) -> LadderState:
    """Samples from before a change say nothing of after it."""
    return replace(state, changed_ns=now_ns, samples=(), pains=())


def _refused(state: LadderState, rung: Rung, outcome: Outcome, scene: Scene) -> LadderState:
    count = state.refused[rung].count + 1 if rung in state.refused else 1
    refusal = replace(outcome, workloads=scene.workloads, until_ns=scene.now_ns + REFUSED_NS, count=count)
    return replace(state, refused={**state.refused, rung: refusal})


def _forgotten(state: LadderState) -> LadderState:
    """Without the steps that limit nothing; the state itself if there are none."""
    free = state.taken.difference(LIMITING)
    if not free:
        return state
    helped = {rung: outcome for rung, outcome in state.helped.items() if rung not in free}
    return _restarted(replace(state, taken=state.taken - free, helped=helped), state.sampled_ns)


def _regulated(state: LadderState, limit: Limit, scene: Scene) -> LadderState:
    """The limit after this sample; lifted where it is needless."""
    bounds = scene.bounds
    after = regulator.regulated(limit, bounds, state.pain, scene.used_milli, scene.load_milli, scene.now_ns)
    if after.is_needless(scene.now_ns):
        return _ended(state, _limiting(state), scene, keeps=False)
    if _is_in_vain(after, state.pain, scene):
        rung, waited = _limiting(state), _waited(scene, state.sufferer)
        before = state.helped[rung].before if rung in state.helped else waited
        return _refused(_ended(state, rung, scene, keeps=False), rung, Outcome(before, waited, scene.now_ns), scene)
    if after.milli != limit.milli:
        return _restarted(replace(state, limit=after), scene.now_ns)
    return state if after is limit else replace(state, limit=after)


def _limiting(state: LadderState) -> Rung:
    rung = state.limiting
    assert rung is not None, "there is a limit"
    return rung


def _is_in_vain(limit: Limit, pain: Filtered, scene: Scene) -> bool:
    """Best-effort work has next to nothing, and it hurts as before: it was not its doing."""
    bounds = scene.bounds
    hurts = pain.slow > (1 + DEAD_BAND) * bounds.set_point
    return bounds.of(limit) <= bounds.floor_milli and hurts and scene.now_ns - limit.changed_ns >= DWELL_NS


def _stepped(state: LadderState, scene: Scene) -> LadderState:
    """The next step on trial, if it hurts."""
    if not _hurts(state, scene.bounds.set_point):
        return state
    rung = next((each for each in scene.rungs if _may_try(state, each, scene)), None)
    if rung is None:
        return state
    limit = state.limit
    if rung in LIMITING:
        milli = int(min(scene.used_milli, scene.bounds.ceiling_milli) * FIRST_CUT)
        limit = Limit(max(scene.bounds.floor_milli, milli), scene.now_ns)
    trial = Trial(scene.now_ns, state.sufferer, state.samples[-SAMPLES:])
    return _restarted(replace(state, trial=trial, tried=rung, limit=limit), scene.now_ns)


def _hurts(state: LadderState, set_point: float) -> bool:
    """Over some samples, and enough of them to compare with."""
    recent = mean(state.pains[-RECENT:])
    if len(state.pains) >= SEVERE_SAMPLES and recent > SEVERE * set_point:
        return True
    return len(state.pains) >= SAMPLES and recent > (1 + DEAD_BAND) * set_point


def _may_try(state: LadderState, rung: Rung, scene: Scene) -> bool:
    if rung in state.taken or (rung in LIMITING and state.limit is not None):
        return False
    refusal = state.refused.get(rung)
    return refusal is None or not refusal.forbids(scene.workloads, scene.now_ns)
