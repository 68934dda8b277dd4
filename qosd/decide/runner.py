"""Runs the strategies of one tick independently of each other, and returns a result with a sentence for each.

    disabled   no opinions: all files that the strategy held are released
    gated      likewise: its feature gate is off
    frozen     an input that it needs is too old, or the policy is unknown: its last opinions stay, and it states no
               shortage
    failed     it raised: likewise, and the error is counted and logged
    active     its decision, in which its last opinion replaces a keep; a strategy that reads windows decides once for
               each set of samples, unless it counts them itself: it integrates no sample twice, and ``plan`` shows
               what it decided

Pure but for the log line of an error: same snapshot, strategies and states, same answer. Invariants: one strategy's
error or stale input never changes another's opinions; an unchanged mapping of opinions is passed on as the same object,
so that nothing downstream works for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from qosd.decide import gates, rehearsal, relief, reliefsteps
from qosd.decide.decision import NO_OPINIONS, Act, AnyStrategy, Decision, Eviction, Op, Opinions, S, Stage, Strategy
from qosd.decide.reliefstate import NOTHING_DONE, Relief, ReliefState
from qosd.decide.shortage import ReliefStep, ShortageClaim
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import NodeSnapshot, PressureTrigger, Window
from qosd.policy import scheduling

_log = logging.getLogger(__name__)
NOT_DECIDED = Decision("")
A = TypeVar("A", bound=Act)


class UndeclaredLimits(AssertionError):
    """A strategy limits best-effort pods without declaring ``limits_best_effort``: an error of ours."""


class StrategyStatus(StrEnum):
    ACTIVE = "active"
    FROZEN = "frozen"
    DISABLED = "disabled"
    GATED = "switched off"
    FAILED = "failed"


class StrategyState(msgspec.Struct, Generic[S], frozen=True):
    """The runner's state of one strategy from the last tick.

    ``own``: the strategy's own state; ``returned``: its opinions as it returned them; ``decision``: what lasts of its
    decision, with keeps resolved; ``sampled_ns``: of the newest samples that ``own`` includes.
    """

    own: S | None = None
    returned: Opinions = NO_OPINIONS
    decision: Decision = NOT_DECIDED
    decided: bool = False
    errors: int = 0
    error: str = ""
    sampled_ns: int | None = None


StrategyStates = Mapping[str, StrategyState[Any]]
"""By the name of the strategy, whose class has the type of its state."""
BY_OPERATOR = "by the operator"
NO_STATES: StrategyStates = MappingProxyType({})


class StrategyResult(msgspec.Struct, frozen=True):
    """One strategy's result of a tick: ``decision`` is in force.

    ``decided``: has it decided since the start, or is it off? Until then, what it left behind in an earlier run
    stays. ``errors``: how often it has raised.
    """

    name: str
    stage: Stage
    state: StrategyStatus
    decision: Decision
    decided: bool = True
    errors: int = 0

    @property
    def sentence(self) -> str:
        return self.decision.sentence

    @property
    def opinions(self) -> Opinions:
        return self.decision.opinions

    @property
    def is_off(self) -> bool:
        """Is the strategy off, so that all that it held is released?"""
        return self.state in (StrategyStatus.DISABLED, StrategyStatus.GATED)


class Decisions(msgspec.Struct, frozen=True):
    """All strategies' results, in their order, with the tick and the clocks of the snapshot."""

    tick: int
    wall_ns: int
    monotonic_ns: int
    results: tuple[StrategyResult, ...]
    cpus_unknown: str = ""
    """Why no CPU set may be widened (``NodeSettings.cpus_unknown``); "" = each may."""
    limits: BestEffortLimits = NO_LIMITS
    """The limits of best-effort pods from this tick on."""

    @property
    def undecided(self) -> frozenset[str]:
        """The strategies that have not decided since the start: what they left in an earlier run stays."""
        return frozenset([result.name for result in self.results if not result.decided])

    @property
    def evictions(self) -> tuple[tuple[str, Eviction], ...]:
        """The evictions, each with its strategy: the relief of shortages, which alone names victims."""
        reliefs = [(each.name, each.decision) for each in self.results if isinstance(each.decision, Relief)]
        return tuple((name, eviction) for name, decision in reliefs for eviction in decision.evictions)

    @property
    def emergency(self) -> str:
        """Why no eviction may be waited for, since a resource is soon used up; "" = there is time."""
        for result in self.results:
            for lack in result.decision.shortages:
                if lack.left_s is not None and ReliefStep.EVICT in lack.steps:
                    return f"it is too late in {lack.left_s:.0f} s ({result.name}: {lack.why})"
        return ""

    def acts(self, kind: type[A]) -> Iterator[tuple[str, A]]:
        """Yields the acts of one kind, each with the strategy that wants it, in the strategies' order."""
        for result in self.results:
            for act in result.decision.acts:
                if isinstance(act, kind):
                    yield result.name, act


def decide_all(
    snapshot: NodeSnapshot,
    strategies: Iterable[AnyStrategy],
    states: StrategyStates = NO_STATES,
    switched_off: Container[str] = (),
    off_by: str = BY_OPERATOR,
) -> tuple[Decisions, StrategyStates]:
    """Returns a result of every strategy, and the states for the next call. ``switched_off``: names of strategies;
    ``off_by`` says who has switched them off.

    Strategies that may limit best-effort pods decide first; the others see the new limits. An error of a strategy
    never raises here.
    """
    every = tuple(strategies)
    decided: dict[str, tuple[StrategyResult, StrategyState[Any]]] = {}

    def decide(seen: NodeSnapshot, some: Iterable[AnyStrategy]) -> None:
        for strategy in some:
            before = states.get(strategy.name, StrategyState())
            why_off = off_by if strategy.name in switched_off else ""
            evaluate = partial(_evaluate, seen, strategy, before, why_off)
            decided[strategy.name] = _guarded(strategy, before, evaluate)

    decide(snapshot, (each for each in every if each.limits_best_effort))
    limits = _limits(snapshot, [result for result, _ in decided.values()])
    decide(snapshot.limited(limits), (each for each in every if not each.limits_best_effort))
    results = tuple([decided[each.name][0] for each in every])
    unknown = snapshot.policy.node.cpus_unknown
    decisions = Decisions(snapshot.tick, snapshot.wall_ns, snapshot.monotonic_ns, results, unknown, limits)
    return decisions, {name: state for name, (_, state) in decided.items()}


def _limits(snapshot: NodeSnapshot, limiting: Sequence[StrategyResult]) -> BestEffortLimits:
    """Returns the limits of best-effort pods by the strategies that may set them. While one of these has not decided
    since the start, the limits of the last run stay: a restart must not give them the CPUs of a full node."""
    if not all(result.decided for result in limiting):
        return snapshot.limits
    left = {result.name: result.decision.best_effort for result in limiting}
    return scheduling.limits_on(snapshot, {name: each for name, each in left.items() if each is not None})


class EvictionStrategy(Strategy[ReliefState]):
    """The strategy ``eviction``: relieves the shortages that the others state. It is always on: without a shortage it
    holds nothing, and it must be able to thaw what it has frozen, also while policy or inputs are unknown."""

    name: ClassVar[str] = "eviction"
    stage: ClassVar[Stage] = Stage.RELIEF
    rows: ClassVar[frozenset[str]] = reliefsteps.ROWS
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({})

    def __init__(self, claims: tuple[ShortageClaim, ...] = ()) -> None:
        self._claims = claims

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return True

    def decide(self, snapshot: NodeSnapshot, last: ReliefState | None) -> tuple[Decision, ReliefState]:
        is_rehearsal = snapshot.policy.node.eviction_dry_run
        engine = rehearsal.rehearse if is_rehearsal else relief.relieve
        return engine(self._claims, snapshot, (last or NOTHING_DONE).of_kind(is_rehearsal))


def with_relief(
    snapshot: NodeSnapshot,
    decisions: Decisions,
    states: StrategyStates,
    before: StrategyStates,
    switched_off: Container[str] = (),
    off_by: str = BY_OPERATOR,
) -> tuple[Decisions, StrategyStates]:
    """Returns ``decisions`` with the relief of all their shortages as one more result. ``before``: the last states.

    If relief fails, all that it held is released: nothing else would end a freeze.
    """
    claims = [
        ShortageClaim(result.name, shortage) for result in decisions.results for shortage in result.decision.shortages
    ]
    strategy, state = EvictionStrategy(tuple(claims)), before.get(EvictionStrategy.name, StrategyState())
    result, after = _guarded(
        strategy,
        state,
        lambda: (
            _off(strategy, state, StrategyStatus.DISABLED, f"disabled {off_by}")
            if strategy.name in switched_off
            else _decided(snapshot, strategy, state)
        ),
    )
    if result.state is StrategyStatus.FAILED:
        result = msgspec.structs.replace(result, decision=Decision(result.sentence))
    return (
        msgspec.structs.replace(decisions, results=(*decisions.results, result)),
        {**states, strategy.name: after},
    )


def triggers_of(strategies: Iterable[AnyStrategy], decisions: Decisions) -> tuple[PressureTrigger, ...]:
    """Returns the triggers of the strategies that are on, each once."""
    on = {result.name for result in decisions.results if not result.is_off}
    awake = (strategy for strategy in strategies if strategy.name in on)
    return tuple(dict.fromkeys(trigger for strategy in awake for trigger in strategy.triggers))


def windows_of(strategies: Iterable[AnyStrategy], policy: EffectivePolicy, decisions: Decisions) -> frozenset[Window]:
    """Returns the windows to work out of the next samples: those of the strategies that are not known to be off."""
    off = {result.name for result in decisions.results if result.is_off}
    awake = (strategy for strategy in strategies if strategy.name not in off)
    return frozenset(window for strategy in awake for window in strategy.windows_under(policy))


def _evaluate(
    snapshot: NodeSnapshot, strategy: Strategy[S], state: StrategyState[S], off_by: str
) -> tuple[StrategyResult, StrategyState[S]]:
    if off_by:
        return _off(strategy, state, StrategyStatus.DISABLED, f"disabled {off_by}")
    if snapshot.policy.policy_unknown:
        why = f"no policy is known ({snapshot.policy.policy_unknown})"
        return _standing(strategy, StrategyStatus.FROZEN, why, state)
    if shut := gates.why_shut(strategy, snapshot.policy):
        return _off(strategy, state, StrategyStatus.GATED, f"{StrategyStatus.GATED}: {shut}")
    if not strategy.enabled(snapshot):
        return _off(strategy, state, StrategyStatus.DISABLED, "disabled by configuration")
    windows = strategy.windows_under(snapshot.policy)
    stale = _stale(snapshot, strategy, windows)
    if stale:
        return _standing(strategy, StrategyStatus.FROZEN, stale, state)
    is_seen = state.decided and state.sampled_ns == snapshot.sampled_ns
    if windows and is_seen and not strategy.counts_samples:
        return _result_of(strategy, StrategyStatus.ACTIVE, state.decision, state), state
    return _decided(snapshot, strategy, state)


def _guarded(
    strategy: Strategy[S], state: StrategyState[S], decide: Callable[[], tuple[StrategyResult, StrategyState[S]]]
) -> tuple[StrategyResult, StrategyState[S]]:
    """Returns ``decide()``; if that raises, the result of a failed strategy."""
    try:
        return decide()
    except Exception as error:  # noqa: BLE001 - the root of a strategy: its error is its own, the others go on
        text = f"{type(error).__name__}: {error}"
        if text != state.error:
            _log.error("strategy %s: %s", strategy.name, text, exc_info=error)
        state = msgspec.structs.replace(state, errors=state.errors + 1, error=text)
        return _standing(strategy, StrategyStatus.FAILED, text, state)


def _off(
    strategy: Strategy[S], state: StrategyState[S], off: StrategyStatus, why: str
) -> tuple[StrategyResult, StrategyState[S]]:
    result = StrategyResult(strategy.name, strategy.stage, off, Decision(why), errors=state.errors)
    return result, StrategyState(decided=True, errors=state.errors)


def _standing(
    strategy: Strategy[S], standing: StrategyStatus, why: str, state: StrategyState[S]
) -> tuple[StrategyResult, StrategyState[S]]:
    """Returns a result by which the last opinions stay in force, without shortages."""
    stays = f"what was decided stays ({state.decision.sentence})" if state.decided else "it has not decided yet"
    decision = msgspec.structs.replace(state.decision, sentence=f"{standing}: {why}; {stays}", shortages=())
    return _result_of(strategy, standing, decision, state), state


def _result_of(
    strategy: Strategy[S], state: StrategyStatus, decision: Decision, after: StrategyState[S]
) -> StrategyResult:
    return StrategyResult(strategy.name, strategy.stage, state, decision, after.decided, after.errors)


def _stale(snapshot: NodeSnapshot, strategy: Strategy[S], windows: Iterable[Window]) -> str:
    """Returns which inputs of ``strategy`` are too old, and how old; "" if none is."""
    problems = []
    for name, limit_s in strategy.needs.items():
        age_s = snapshot.ages_s.get(name)
        if name in snapshot.absent:
            continue
        if age_s is None:
            problems.append(f"input {name} has never been read")
        elif age_s > limit_s:
            problems.append(f"input {name} is {age_s:.1f} s old (at most {limit_s:g} s)")
    problems += [problem for window in windows if (problem := _short(snapshot, window))]
    return ", ".join(problems)


def _short(snapshot: NodeSnapshot, window: Window) -> str:
    """Returns what the window lacks; "" if some object has enough samples, or no object is there.

    The first object with enough ends the search: reading an object works its window out.
    """
    most = 0
    for aggregate in snapshot.windows.get(window, {}).values():
        most = max(most, aggregate.count)
        if most >= window.at_least:
            return ""
    if not most:
        return ""
    return f"{window.metric.name} has {most} samples in {window.over_s:g} s (at least {window.at_least})"


def _decided(
    snapshot: NodeSnapshot, strategy: Strategy[S], state: StrategyState[S]
) -> tuple[StrategyResult, StrategyState[S]]:
    decision, own = strategy.decide(snapshot, state.own)
    if decision.best_effort is not None and not strategy.limits_best_effort:
        raise UndeclaredLimits(f"{strategy.name} limits best-effort pods, and does not say that it may")
    unchanged = state.decided and decision.opinions is state.returned
    opinions = state.decision.opinions if unchanged else _without_keeps(decision.opinions, state.decision.opinions)
    in_force = decision if opinions is decision.opinions else msgspec.structs.replace(decision, opinions=opinions)
    after = StrategyState(
        own, decision.opinions, in_force.lasting(), True, state.errors, sampled_ns=snapshot.sampled_ns
    )
    return _result_of(strategy, StrategyStatus.ACTIVE, in_force, after), after


def _without_keeps(opinions: Opinions, last: Opinions) -> Opinions:
    """Returns ``opinions`` with each keep replaced by the last opinion on its file, if there is one."""
    if not any(opinion.op is Op.KEEP for opinion in opinions.values()):
        return opinions
    return {
        target: last.get(target, opinion) if opinion.op is Op.KEEP else opinion for target, opinion in opinions.items()
    }
