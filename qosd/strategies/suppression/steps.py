"""Steps against the CPU waits that best-effort pods cause, the cheapest first, each kept only if it helps.

    (weights)   best-effort pods have the lowest weight, always: it costs them nothing that other pods do not want
    slices      their tasks run in long slices, so that others are preempted, and woken, less often (Linux 6.12)
    idle        cpu.idle of their pods (Linux 5.15)
    time        less CPU time, regulated by the wait
    cpus        fewer CPUs, regulated likewise

Less time and fewer CPUs can make it worse: all of best-effort's work then bunches at the beginning of each period, or
on fewer CPUs. So a step is an experiment with an end (``trial``): if the wait does not fall, it is undone, and not
tried again with these workloads for ``REFUSED_NS``, and with others not before a minute has passed, two, four... Where
a step has helped and the wait goes on, the next one is tried.

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
from qosd.strategies.suppression.cpuwait import CPUWait
from qosd.strategies.suppression.loadbaseline import LoadBaseline
from qosd.strategies.suppression.regulator import DEAD_BAND, Filtered, Limit, LimitBounds
from qosd.strategies.suppression.trial import (
    DWELL_NS,
    SAMPLES,
    SECOND_NS,
    SETTLE_NS,
    Trial,
    TrialVerdict,
    WaitSample,
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


class SuppressionStep(IntEnum):
    SLICES = 1
    IDLE = 2
    TIME = 3
    CPUS = 4


LIMITING = (SuppressionStep.TIME, SuppressionStep.CPUS)


class TrialOutcome(msgspec.Struct, frozen=True):
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


Outcomes = Mapping[SuppressionStep, TrialOutcome]
_NONE: Outcomes = MappingProxyType({})


class SuppressionInput(msgspec.Struct, frozen=True):
    """What a step is decided by. ``waits``: of each latency-sensitive container, by its name.

    ``load_milli``: others' use; ``steps``: those that this node can have; ``workloads``: of the containers that wait
    and of best-effort pods.
    """

    now_ns: int
    waits: Mapping[str, CPUWait]
    used_milli: int
    load_milli: int
    bounds: LimitBounds
    steps: tuple[SuppressionStep, ...]
    workloads: frozenset[str]


class SuppressionState(msgspec.Struct, frozen=True):
    """``samples``: of ``sufferer``, since a step was taken or undone, or a limit moved, the newest last.

    ``wait``: without what a container waits anyway, which ``baseline`` tells of ``limited_for``, the container for
    which there is a limit. ``calm_ns``: since when next to nothing hurts; 0: it does.
    """

    taken: frozenset[SuppressionStep] = frozenset()
    trial: Trial | None = None
    tried: SuppressionStep | None = None
    limit: Limit | None = None
    wait: Filtered = Filtered()
    sampled_ns: int = 0
    changed_ns: int = 0
    calm_ns: int = 0
    samples: tuple[WaitSample, ...] = ()
    waits: tuple[float, ...] = ()
    sufferer: str = ""
    baseline: LoadBaseline = LoadBaseline()
    limited_for: str = ""
    helped: Outcomes = _NONE
    refused: Outcomes = _NONE

    @property
    def in_force(self) -> frozenset[SuppressionStep]:
        return self.taken if self.tried is None else self.taken | {self.tried}

    @property
    def limiting(self) -> SuppressionStep | None:
        """The step in force that limits, if any."""
        return next((step for step in LIMITING if step in self.in_force), None)


def advanced(state: SuppressionState, inputs: SuppressionInput) -> SuppressionState:
    """The state after one sample."""
    state = _sampled(state, inputs)
    if state.trial is not None:
        return _tried(state, state.trial, inputs)
    if state.limit is not None:
        state = _regulated(state, state.limit, inputs)
    if state.calm_ns and inputs.now_ns - state.calm_ns >= CALM_NS:
        return _forgotten(state)
    return _stepped(state, inputs)


def _sampled(state: SuppressionState, inputs: SuppressionInput) -> SuppressionState:
    now_ns, sufferer = inputs.now_ns, _sufferer(state, inputs)
    passed_s = (now_ns - state.sampled_ns) / SECOND_NS if state.sampled_ns else math.inf
    wait = max((_wait(state, name, each) for name, each in inputs.waits.items()), default=0.0)
    filtered = state.wait.fed(wait, passed_s)
    is_calm = filtered.slow <= CALM * inputs.bounds.set_point
    state = replace(
        state,
        wait=filtered,
        calm_ns=(state.calm_ns or now_ns) if is_calm else 0,
        sampled_ns=now_ns,
        trial=_continued(state.trial, inputs) if state.trial else None,
    )
    if state.changed_ns and now_ns - state.changed_ns < SETTLE_NS:
        return state
    state = _learned(state, inputs)
    known = (state.samples, state.waits) if state.sufferer == sufferer else ((), ())
    sample = WaitSample(_waited(inputs, sufferer), inputs.used_milli)
    samples, waits = (*known[0], sample)[-_KEPT:], (*known[1], wait)[-_KEPT:]
    return replace(state, samples=samples, waits=waits, sufferer=sufferer)


def _learned(state: SuppressionState, inputs: SuppressionInput) -> SuppressionState:
    """The baseline with the newest sample under a limit that has settled."""
    is_limited = state.trial is None and state.limited_for in inputs.waits
    if not is_limited:
        return state
    return replace(state, baseline=state.baseline.fed(inputs.used_milli, _waited(inputs, state.limited_for)))


def _sufferer(state: SuppressionState, inputs: SuppressionInput) -> str:
    """The container whose samples count: the one that waits most; the one of before while it does not wait much
    less."""
    worst = max(inputs.waits, key=lambda name: inputs.waits[name].caused, default="")
    before = inputs.waits.get(state.sufferer)
    return state.sufferer if before is not None and before.caused * 2 >= inputs.waits[worst].caused else worst


def _wait(state: SuppressionState, name: str, wait: CPUWait) -> float:
    """Without what the container waits anyway."""
    return (
        wait.caused if name != state.limited_for else min(wait.caused, max(0.0, wait.waited - state.baseline.at_zero))
    )


def _waited(inputs: SuppressionInput, name: str) -> float:
    return inputs.waits[name].waited if name in inputs.waits else 0.0


def _continued(trial: Trial, inputs: SuppressionInput) -> Trial:
    if trial.sufferer not in inputs.waits:
        return trial
    return trial.continued(WaitSample(_waited(inputs, trial.sufferer), inputs.used_milli), inputs.now_ns)


def _tried(state: SuppressionState, trial: Trial, inputs: SuppressionInput) -> SuppressionState:
    """The trial goes on, or ends; without a verdict if the container is gone for whose sake it was."""
    verdict, step = trial.verdict(inputs.now_ns), state.tried
    if step is None:
        return state
    if trial.sufferer not in inputs.waits:
        return _ended(state, step, inputs, keeps=False)
    if verdict is TrialVerdict.OPEN:
        return state
    outcome = TrialOutcome(*trial.waited, inputs.now_ns)
    if verdict is TrialVerdict.NO_HELP:
        return _refused(_ended(state, step, inputs, keeps=False), step, outcome, inputs)
    refused = {each: other for each, other in state.refused.items() if each is not step}
    state = replace(_ended(state, step, inputs, keeps=True), helped={**state.helped, step: outcome}, refused=refused)
    return replace(state, baseline=trial.baseline, limited_for=trial.sufferer) if step in LIMITING else state


def _ended(state: SuppressionState, step: SuppressionStep, inputs: SuppressionInput, keeps: bool) -> SuppressionState:
    """No trial of ``step`` any more; the step stays if it ``keeps``."""
    taken = state.taken | {step} if keeps else state.taken - {step}
    is_lifted = step in LIMITING and not keeps
    state = _restarted(replace(state, trial=None, tried=None, taken=taken), inputs.now_ns)
    return replace(state, limit=None, baseline=LoadBaseline(), limited_for="") if is_lifted else state


def _restarted(state: SuppressionState, now_ns: int) -> SuppressionState:
    """Samples from before a change say nothing of after it."""
    return replace(state, changed_ns=now_ns, samples=(), waits=())


def _refused(
    state: SuppressionState, step: SuppressionStep, outcome: TrialOutcome, inputs: SuppressionInput
) -> SuppressionState:
    count = state.refused[step].count + 1 if step in state.refused else 1
    refusal = replace(outcome, workloads=inputs.workloads, until_ns=inputs.now_ns + REFUSED_NS, count=count)
    return replace(state, refused={**state.refused, step: refusal})


def _forgotten(state: SuppressionState) -> SuppressionState:
    """Without the steps that limit nothing; the state itself if there are none."""
    free = state.taken.difference(LIMITING)
    if not free:
        return state
    helped = {step: outcome for step, outcome in state.helped.items() if step not in free}
    return _restarted(replace(state, taken=state.taken - free, helped=helped), state.sampled_ns)


def _regulated(state: SuppressionState, limit: Limit, inputs: SuppressionInput) -> SuppressionState:
    """The limit after this sample; lifted where it is needless."""
    bounds = inputs.bounds
    after = regulator.regulated(limit, bounds, state.wait, inputs.used_milli, inputs.load_milli, inputs.now_ns)
    if after.is_needless(inputs.now_ns):
        return _ended(state, _limiting(state), inputs, keeps=False)
    if _is_in_vain(after, state.wait, inputs):
        step, waited = _limiting(state), _waited(inputs, state.sufferer)
        before = state.helped[step].before if step in state.helped else waited
        return _refused(
            _ended(state, step, inputs, keeps=False), step, TrialOutcome(before, waited, inputs.now_ns), inputs
        )
    if after.milli != limit.milli:
        return _restarted(replace(state, limit=after), inputs.now_ns)
    return state if after is limit else replace(state, limit=after)


def _limiting(state: SuppressionState) -> SuppressionStep:
    step = state.limiting
    assert step is not None, "there is a limit"
    return step


def _is_in_vain(limit: Limit, wait: Filtered, inputs: SuppressionInput) -> bool:
    """Best-effort work has next to nothing, and it hurts as before: it was not its doing."""
    bounds = inputs.bounds
    hurts = wait.slow > (1 + DEAD_BAND) * bounds.set_point
    return bounds.of(limit) <= bounds.floor_milli and hurts and inputs.now_ns - limit.changed_ns >= DWELL_NS


def _stepped(state: SuppressionState, inputs: SuppressionInput) -> SuppressionState:
    """The next step on trial, if it hurts."""
    if not _hurts(state, inputs.bounds.set_point):
        return state
    step = next((each for each in inputs.steps if _may_try(state, each, inputs)), None)
    if step is None:
        return state
    limit = state.limit
    if step in LIMITING:
        milli = int(min(inputs.used_milli, inputs.bounds.ceiling_milli) * FIRST_CUT)
        limit = Limit(max(inputs.bounds.floor_milli, milli), inputs.now_ns)
    trial = Trial(inputs.now_ns, state.sufferer, state.samples[-SAMPLES:])
    return _restarted(replace(state, trial=trial, tried=step, limit=limit), inputs.now_ns)


def _hurts(state: SuppressionState, set_point: float) -> bool:
    """Over some samples, and enough of them to compare with."""
    recent = mean(state.waits[-RECENT:])
    if len(state.waits) >= SEVERE_SAMPLES and recent > SEVERE * set_point:
        return True
    return len(state.waits) >= SAMPLES and recent > (1 + DEAD_BAND) * set_point


def _may_try(state: SuppressionState, step: SuppressionStep, inputs: SuppressionInput) -> bool:
    if step in state.taken or (step in LIMITING and state.limit is not None):
        return False
    refusal = state.refused.get(step)
    return refusal is None or not refusal.forbids(inputs.workloads, inputs.now_ns)
