"""Takes steps against the CPU waits that best-effort pods cause, the cheapest first, and keeps only what helps.

    (weights)   best-effort pods have the lowest weight, always: it costs them nothing that other pods do not want
    slices      their tasks run in long slices, so that others are preempted, and woken, less often (Linux 6.12)
    idle        cpu.idle of their pods (Linux 5.15)
    time        less CPU time, regulated by the wait
    cpus        fewer CPUs, regulated likewise

Less time and fewer CPUs can make it worse: best-effort work then bunches at the beginning of each period, or on fewer
CPUs. So a step is an experiment with an end (``trial``): if the wait does not fall, the step is undone, and not tried
again with these workloads for ``REFUSED_NS``, nor with others for a minute, then two, four and so on. If a step has
helped and the wait goes on, the next one is tried.

A limit at its floor that does not help is undone likewise. A step that has helped stays until the wait has been next to
nothing for ``CALM_NS``, since other workloads may run by then; the regulator lifts a limit sooner.

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
"""From so many times the set point on a baseline of ``SEVERE_SAMPLES`` will do."""
SEVERE_SAMPLES = 3
FIRST_CUT = 0.75
"""The first limit, as a part of what best-effort pods use."""
CALM = 0.1
"""A wait below this part of the set point is next to nothing."""
CALM_NS = 600 * SECOND_NS
_KEPT = 30


class SuppressionStep(IntEnum):
    SLICES = 1
    IDLE = 2
    TIME = 3
    CPUS = 4


LIMITING = (SuppressionStep.TIME, SuppressionStep.CPUS)


class TrialOutcome(msgspec.Struct, frozen=True):
    """The result of a trial: mean waits before and after. A refusal holds for ``workloads`` until ``until_ns``."""

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
    """The input of a decision. ``waits``: of each latency-sensitive container, by its name.

    ``load_milli``: others' use; ``steps``: the steps that this node can take; ``workloads``: of the container that
    waits most and of best-effort pods.
    """

    now_ns: int
    waits: Mapping[str, CPUWait]
    used_milli: int
    load_milli: int
    bounds: LimitBounds
    steps: tuple[SuppressionStep, ...]
    workloads: frozenset[str]


class SuppressionState(msgspec.Struct, frozen=True):
    """``samples``: of ``sufferer`` since the last change of a step or limit, the newest last.

    ``wait``: the filtered wait, for the container ``limited_for`` without what it would wait by its ``baseline``.
    ``calm_ns``: since when the wait is next to nothing; 0: it is not.
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
    """Returns the state after one sample."""
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
    """Adds the newest sample under a limit that has settled to the baseline."""
    is_limited = state.trial is None and state.limited_for in inputs.waits
    if not is_limited:
        return state
    return replace(state, baseline=state.baseline.fed(inputs.used_milli, _waited(inputs, state.limited_for)))


def _sufferer(state: SuppressionState, inputs: SuppressionInput) -> str:
    """Returns the container that waits most; the last one while it waits at least half as long."""
    worst = max(inputs.waits, key=lambda name: inputs.waits[name].caused, default="")
    before = inputs.waits.get(state.sufferer)
    return state.sufferer if before is not None and before.caused * 2 >= inputs.waits[worst].caused else worst


def _wait(state: SuppressionState, name: str, wait: CPUWait) -> float:
    """Returns the caused wait, of a container with a limit at most what exceeds its baseline."""
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
    """Continues or ends the trial; ends it without a verdict if its container is gone."""
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
    """Ends the trial of ``step``; the step stays in force if it ``keeps``."""
    taken = state.taken | {step} if keeps else state.taken - {step}
    is_lifted = step in LIMITING and not keeps
    state = _restarted(replace(state, trial=None, tried=None, taken=taken), inputs.now_ns)
    return replace(state, limit=None, baseline=LoadBaseline(), limited_for="") if is_lifted else state


def _restarted(state: SuppressionState, now_ns: int) -> SuppressionState:
    """Drops the samples: those from before a change say nothing about the time after it."""
    return replace(state, changed_ns=now_ns, samples=(), waits=())


def _refused(
    state: SuppressionState, step: SuppressionStep, outcome: TrialOutcome, inputs: SuppressionInput
) -> SuppressionState:
    count = state.refused[step].count + 1 if step in state.refused else 1
    refusal = replace(outcome, workloads=inputs.workloads, until_ns=inputs.now_ns + REFUSED_NS, count=count)
    return replace(state, refused={**state.refused, step: refusal})


def _forgotten(state: SuppressionState) -> SuppressionState:
    """Ends the steps that limit nothing; returns the state itself if there are none."""
    free = state.taken.difference(LIMITING)
    if not free:
        return state
    helped = {step: outcome for step, outcome in state.helped.items() if step not in free}
    return _restarted(replace(state, taken=state.taken - free, helped=helped), state.sampled_ns)


def _regulated(state: SuppressionState, limit: Limit, inputs: SuppressionInput) -> SuppressionState:
    """Regulates the limit by this sample; lifts it if it is needless or in vain."""
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
    """Does the wait still hurt with the limit at its floor? Then best-effort work does not cause it."""
    bounds = inputs.bounds
    hurts = wait.slow > (1 + DEAD_BAND) * bounds.set_point
    return bounds.of(limit) <= bounds.floor_milli and hurts and inputs.now_ns - limit.changed_ns >= DWELL_NS


def _stepped(state: SuppressionState, inputs: SuppressionInput) -> SuppressionState:
    """Begins the trial of the next step, if the wait hurts."""
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
    """Does the wait hurt over the recent samples, with enough samples for a baseline?"""
    recent = mean(state.waits[-RECENT:])
    if len(state.waits) >= SEVERE_SAMPLES and recent > SEVERE * set_point:
        return True
    return len(state.waits) >= SAMPLES and recent > (1 + DEAD_BAND) * set_point


def _may_try(state: SuppressionState, step: SuppressionStep, inputs: SuppressionInput) -> bool:
    if step in state.taken or (step in LIMITING and state.limit is not None):
        return False
    refusal = state.refused.get(step)
    return refusal is None or not refusal.forbids(inputs.workloads, inputs.now_ns)
