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

What has helped stays until next to nothing has hurt for ``CALM_NS``, for by then others may run; a limit is lifted
sooner, by its regulator.

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
from qosd.strategies.suppression.regulator import DEAD_BAND, Bounds, Filtered, Limit
from qosd.strategies.suppression.trial import SAMPLES, SECOND_NS, SETTLE_NS, Sample, Trial, Verdict, mean

REFUSED_NS = 1800 * SECOND_NS
REST_NS = 60 * SECOND_NS
"""After a step was refused, before it is tried with other workloads; twice as long each time, up to ``REFUSED_NS``."""
RECENT = 5
SEVERE = 5.0
"""So many times the set point: a baseline of ``SEVERE_SAMPLES`` will do."""
SEVERE_SAMPLES = 3
FIRST_CUT = 0.75
"""What is left of what best-effort pods use when their time is limited first."""
LIFTED_NS = 10 * SECOND_NS
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
    """What a trial has shown: mean pain before and after. A refusal holds for ``workloads`` until ``until_ns``."""

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
    """What a step is decided by. ``pain``: of the container that has most, in µs per second; ``load_milli``: others'
    use; ``rungs``: those that this node can have; ``workloads``: of who suffers and who is best-effort."""

    now_ns: int
    pain: float
    used_milli: int
    load_milli: int
    bounds: Bounds
    rungs: tuple[Rung, ...]
    workloads: frozenset[str]


class LadderState(msgspec.Struct, frozen=True):
    """``samples``: since a step was taken or undone, or a limit moved, the newest last.

    ``calm_ns``: since when next to nothing hurts; 0: it does.
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
    passed_s = (scene.now_ns - state.sampled_ns) / SECOND_NS if state.sampled_ns else math.inf
    sample = Sample(scene.now_ns, scene.pain)
    settled = scene.now_ns - state.changed_ns >= SETTLE_NS or not state.changed_ns
    pain = state.pain.fed(scene.pain, passed_s)
    is_calm = pain.slow <= CALM * scene.bounds.set_point
    return replace(
        state,
        pain=pain,
        calm_ns=(state.calm_ns or scene.now_ns) if is_calm else 0,
        sampled_ns=scene.now_ns,
        samples=(*state.samples, sample)[-_KEPT:] if settled else state.samples,
        trial=state.trial.continued(sample) if state.trial else None,
    )


def _tried(state: LadderState, trial: Trial, scene: Scene) -> LadderState:
    """The trial goes on, or ends."""
    verdict, rung = trial.verdict(scene.now_ns), state.tried
    if state.limit is not None:
        state = replace(state, limit=regulator.bounded(state.limit, scene.bounds, scene.now_ns))
    if verdict is Verdict.OPEN or rung is None:
        return state
    outcome = Outcome(mean(trial.before), mean(trial.after), scene.now_ns)
    ended = replace(state, trial=None, tried=None, changed_ns=scene.now_ns, samples=())
    if verdict is Verdict.HELPS:
        refused = {each: other for each, other in state.refused.items() if each is not rung}
        helped = {**state.helped, rung: outcome}
        return replace(ended, taken=state.taken | {rung}, helped=helped, refused=refused)
    count = state.refused[rung].count + 1 if rung in state.refused else 1
    refusal = replace(outcome, workloads=scene.workloads, until_ns=scene.now_ns + REFUSED_NS, count=count)
    limit = None if rung in LIMITING else state.limit
    return replace(ended, limit=limit, refused={**state.refused, rung: refusal})


def _forgotten(state: LadderState) -> LadderState:
    """Without the steps that limit nothing; the state itself if there are none."""
    free = state.taken.difference(LIMITING)
    if not free:
        return state
    helped = {rung: outcome for rung, outcome in state.helped.items() if rung not in free}
    return replace(state, taken=state.taken - free, helped=helped, changed_ns=state.sampled_ns, samples=())


def _regulated(state: LadderState, limit: Limit, scene: Scene) -> LadderState:
    """The limit after this sample; lifted where it has reached its ceiling and nothing hurts any more."""
    bounds = scene.bounds
    after = regulator.regulated(limit, bounds, state.pain, scene.used_milli, scene.load_milli, scene.now_ns)
    is_calm = bool(after.calm_ns) and scene.now_ns - max(after.calm_ns, after.changed_ns) >= LIFTED_NS
    is_patient = bool(after.hurt_milli) and scene.now_ns < after.patient_ns
    if after.milli >= bounds.ceiling_milli and is_calm and not is_patient:
        taken = state.taken.difference(LIMITING)
        return replace(state, limit=None, taken=taken, changed_ns=scene.now_ns, samples=())
    if after.milli != limit.milli:
        return replace(state, limit=after, changed_ns=scene.now_ns, samples=())
    return state if after is limit else replace(state, limit=after)


def _stepped(state: LadderState, scene: Scene) -> LadderState:
    """The next step on trial, if it hurts."""
    if not _hurts(state, scene.bounds.set_point):
        return state
    rung = next((each for each in scene.rungs if _may_try(state, each, scene)), None)
    if rung is None:
        return state
    before = tuple([sample.pain for sample in state.samples[-SAMPLES:]])
    limit = state.limit
    if rung in LIMITING:
        milli = int(min(scene.used_milli, scene.bounds.ceiling_milli) * FIRST_CUT)
        limit = Limit(max(scene.bounds.floor_milli, milli), scene.now_ns)
    trial = Trial(scene.now_ns, before)
    return replace(state, trial=trial, tried=rung, limit=limit, changed_ns=scene.now_ns, samples=())


def _hurts(state: LadderState, set_point: float) -> bool:
    """Over some samples, and enough of them to compare with."""
    pains = [sample.pain for sample in state.samples]
    recent = mean(pains[-RECENT:])
    if len(pains) >= SEVERE_SAMPLES and recent > SEVERE * set_point:
        return True
    return len(pains) >= SAMPLES and recent > (1 + DEAD_BAND) * set_point


def _may_try(state: LadderState, rung: Rung, scene: Scene) -> bool:
    if rung in state.taken or (rung in LIMITING and state.limit is not None):
        return False
    refusal = state.refused.get(rung)
    return refusal is None or not refusal.forbids(scene.workloads, scene.now_ns)
