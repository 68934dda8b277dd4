"""The frame of the strategies: what an error, a stale input or a switch does to one, and to no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from koord.host.files import Target
from koord.model.formulas import Formula
from koord.model.qos import QoSClass
from qosd.decide import relief
from qosd.decide.decision import Decision, OneShot, Op, Opinion, Stage, Strategy
from qosd.decide.runner import (
    Decisions,
    StrategyResult,
    StrategyStates,
    StrategyStatus,
    decide_all,
    triggers_of,
    windows_of,
    with_relief,
)
from qosd.decide.shortage import ReliefStep, Resource, Shortage, Victims
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits, BestEffortScheduling
from qosd.model.policy import EffectivePolicy, NodeSettings
from qosd.model.snapshot import Aggregate, NodeSnapshot, PressureTrigger, Window
from qosd.sense.node import NodeRow
from tests.qosd.decide.scenes import be, node
from tests.qosd.podviews import snapshot as picture

A, B = Target("/a", "cpu_quota"), Target("/b", "cpu_quota")
LACK = Shortage(Resource.MEMORY_BYTES, 1 << 20, Victims(frozenset({QoSClass.BE}), "BEMemoryEvict"), (), "too much")
ORDER = OneShot(Target("/a", "memory.reclaim"), 4096, "too much")
ORDERED = Decision("one", {A: Opinion.set(1, "because")}, one_shots=(ORDER,), shortages=(LACK,))


@dataclass
class Scripted:
    """Says what it is told to say; counts what it is asked."""

    name: str = "scripted"
    stage: Stage = Stage.SPEC
    gate: str = ""
    rows: frozenset[str] = frozenset()
    needs: Mapping[str, float] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    counts_samples: bool = False
    triggers: tuple[PressureTrigger, ...] = ()
    limits_best_effort: bool = False
    is_enabled: bool = True
    says: Decision | Callable[[Any], Decision] = Decision("nothing to do")  # noqa: RUF009 - frozen
    asked: int = 0
    formulas: tuple[Formula, ...] = ()
    grants: tuple[str, ...] = ()
    seen: BestEffortLimits | None = None
    """What was left to best-effort pods when it decided last."""

    def windows_under(self, policy: EffectivePolicy) -> tuple[Window, ...]:
        return self.windows

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return self.is_enabled

    def decide(self, snapshot: NodeSnapshot, memory: Any) -> tuple[Decision, Any]:
        self.asked, self.seen = self.asked + 1, snapshot.limits
        said = self.says(memory) if callable(self.says) else self.says
        return said, (memory or 0) + 1


def opinions(**values: int) -> dict[Target, Opinion]:
    return {Target(f"/{cgroup}", "cpu_quota"): Opinion.set(value, "because") for cgroup, value in values.items()}


@pytest.fixture
def snapshot() -> NodeSnapshot:
    return picture(EffectivePolicy())


class Run:
    """Several ticks of some strategies."""

    def __init__(self, snapshot: NodeSnapshot, *strategies: Strategy[Any]) -> None:
        self.snapshot, self.strategies = snapshot, strategies
        self.memories: StrategyStates = {}

    def tick(self, *off: str, **ages_s: float) -> list[StrategyResult]:
        snapshot = replace(self.snapshot, ages_s=ages_s)
        decisions, self.memories = decide_all(snapshot, self.strategies, self.memories, off)
        return list(decisions.results)


def failing(_: Any) -> Decision:
    raise ZeroDivisionError("no CPU")


def test_an_error_is_contained_counted_and_said(snapshot: NodeSnapshot, caplog: pytest.LogCaptureFixture) -> None:
    broken, other = Scripted("broken", says=Decision("one", opinions(a=1))), Scripted("other")
    run = Run(snapshot, broken, other)
    run.tick()
    broken.says = failing
    for errors in (1, 2):
        result, second = run.tick()
        assert (result.state, result.errors, result.opinions) == (StrategyStatus.FAILED, errors, opinions(a=1))
        assert result.sentence == "failed: ZeroDivisionError: no CPU; what was decided stays (one)"
        assert second.state is StrategyStatus.ACTIVE
    assert len(caplog.records) == 1, "the same error is logged once"
    broken.says = Decision("fine again", opinions(b=2), shortages=(LACK,))
    result, _ = run.tick()
    assert (result.state, result.opinions, result.decision.shortages) == (StrategyStatus.ACTIVE, opinions(b=2), (LACK,))


def test_an_error_of_the_first_decision_decides_nothing(snapshot: NodeSnapshot) -> None:
    (result,) = Run(snapshot, Scripted(says=failing)).tick()
    assert (result.decided, result.opinions, result.state) == (False, {}, StrategyStatus.FAILED)
    assert result.sentence.endswith("it has not decided yet")


@pytest.mark.parametrize(
    ("ages_s", "why"),
    [
        ({}, "input pods has never been read, input node has never been read"),
        ({"pods": 61.25, "node": 1.0}, "input pods is 61.2 s old (at most 60 s)"),
    ],
)
def test_stale_inputs_freeze(snapshot: NodeSnapshot, ages_s: dict[str, float], why: str) -> None:
    strategy = Scripted(needs={"pods": 60.0, "node": 5.0}, says=ORDERED)
    run = Run(snapshot, strategy)
    (first,) = run.tick(**ages_s)
    assert (first.state, first.decided, first.opinions, strategy.asked) == (StrategyStatus.FROZEN, False, {}, 0)
    (fresh,) = run.tick(pods=1.0, node=5.0)
    assert (fresh.state, fresh.decision.one_shots, fresh.decision.shortages) == (
        StrategyStatus.ACTIVE,
        (ORDER,),
        (LACK,),
    )
    (frozen,) = run.tick(**ages_s)
    assert frozen.sentence == f"frozen: {why}; what was decided stays (one)"
    assert frozen.opinions is fresh.opinions
    assert (frozen.decision.one_shots, frozen.decision.shortages, strategy.asked) == ((), (), 1)


@pytest.mark.parametrize("switched_off", [True, False])
def test_disabled_has_no_opinions_and_forgets(snapshot: NodeSnapshot, switched_off: bool) -> None:
    remembered: list[Any] = []

    def says(memory: Any) -> Decision:
        remembered.append(memory)
        return Decision("one", opinions(a=1))

    strategy = Scripted(says=says)
    run = Run(snapshot, strategy)
    run.tick()
    strategy.is_enabled = switched_off
    (result,) = run.tick(*(["scripted"] if switched_off else []))
    assert (result.state, result.opinions, result.decided) == (StrategyStatus.DISABLED, {}, True)
    assert result.sentence == f"disabled by {'the operator' if switched_off else 'configuration'}"
    strategy.is_enabled = True
    run.tick()
    assert remembered == [None, None]


def ruled(flags: Mapping[str, bool], features: Mapping[str, bool]) -> EffectivePolicy:
    return EffectivePolicy(node=NodeSettings(features=features), gate_flags=flags)


@pytest.mark.parametrize(
    ("gate", "flags", "features", "shut"),
    [
        ("BECPUEvict", {}, {}, "feature gate BECPUEvict is off (default)"),
        ("CPUBurst", {"CPUBurst": False}, {}, "feature gate CPUBurst is off (by --feature-gates)"),
        ("CPUBurst", {"CPUBurst": True}, {"CPUBurst": False}, "feature gate CPUBurst is off (by node.features)"),
        ("BECPUEvict", {"BECPUEvict": False}, {"BECPUEvict": True}, ""),
        ("BECPUEvict", {"BECPUEvict": True}, {}, ""),
        ("BECPUEvict", {"AllAlpha": True}, {}, ""),
        ("CPUBurst", {}, {}, ""),
        ("", {"AllAlpha": False, "AllBeta": False}, {}, ""),
    ],
)
def test_a_strategy_behind_a_gate_that_is_off_does_not_run(
    snapshot: NodeSnapshot, gate: str, flags: dict[str, bool], features: dict[str, bool], shut: str
) -> None:
    strategy, other = Scripted(gate=gate, says=Decision("one", opinions(a=1))), Scripted("other")
    run = Run(replace(snapshot, policy=ruled(flags, features)), strategy, other)
    result, beside = run.tick()
    assert (result.state, beside.state) == (
        StrategyStatus.GATED if shut else StrategyStatus.ACTIVE,
        StrategyStatus.ACTIVE,
    )
    assert result.sentence == (f"switched off: {shut}" if shut else "one")
    assert (strategy.asked, result.is_off, result.decided) == (0 if shut else 1, bool(shut), True)
    assert result.opinions == ({} if shut else opinions(a=1))
    (silenced, _) = run.tick("scripted")
    assert silenced.sentence == "disabled by the operator", "who would have to enable it, too"


def test_a_gate_is_switched_live_and_what_the_strategy_knew_is_forgotten(snapshot: NodeSnapshot) -> None:
    remembered: list[Any] = []

    def says(memory: Any) -> Decision:
        remembered.append(memory)
        return Decision("one", opinions(a=1))

    run = Run(snapshot, Scripted(gate="BECPUEvict", says=says))
    on, off = ({"BECPUEvict": is_on} for is_on in (True, False))
    found = []
    for features in (off, on, on, off, on):
        run.snapshot = replace(snapshot, policy=ruled({}, features))
        (result,) = run.tick()
        found.append((result.state, bool(result.opinions)))
    active, gated = (StrategyStatus.ACTIVE, True), (StrategyStatus.GATED, False)
    assert found == [gated, active, active, gated, active]
    assert remembered == [None, 1, None]


@pytest.mark.parametrize(
    ("strategy", "off", "wakes"),
    [
        (Scripted(is_enabled=False), (), False),
        (Scripted(gate="BECPUEvict"), (), False),
        (Scripted(), ("scripted",), False),
        (Scripted(), (), True),
        (Scripted(needs={"pods": 1.0}), (), True),
        (Scripted(says=failing), (), True),
    ],
    ids=["disabled by configuration", "gated", "disabled by the operator", "active", "frozen", "failed"],
)
def test_only_a_strategy_that_is_on_wakes_the_loop_and_costs_windows(
    snapshot: NodeSnapshot, strategy: Scripted, off: tuple[str, ...], wakes: bool
) -> None:
    node, tier = (PressureTrigger(resource, "some", 50_000, 1_000_000) for resource in ("memory", "cpu"))
    strategy.triggers = (node, tier)
    strategies = (strategy, Scripted("other", triggers=(tier,)))
    decisions, _ = decide_all(snapshot, strategies, switched_off=off)
    assert triggers_of(strategies, decisions) == ((node, tier) if wakes else (tier,))
    strategy.windows = (LOAD,)
    assert windows_of(strategies, snapshot.policy, decisions) == (frozenset({LOAD}) if wakes else frozenset())
    assert windows_of(strategies, snapshot.policy, Decisions(0, 0, 0, ())) == {LOAD}, "nobody knows yet who is on"


def test_nobody_is_gated_while_no_policy_is_known(snapshot: NodeSnapshot) -> None:
    """``node.features`` might have said otherwise, and what is held must stay."""
    unknown = EffectivePolicy(policy_unknown="rules.yaml: is not YAML", gate_flags={"CPUBurst": False})
    (result,) = Run(replace(snapshot, policy=unknown), Scripted(gate="CPUBurst")).tick()
    assert result.state is StrategyStatus.FROZEN


def test_unchanged_opinions_keep_their_identity(snapshot: NodeSnapshot) -> None:
    strategy = Scripted(says=Decision("one", opinions(a=1)))
    run = Run(snapshot, strategy)
    (first,), (second,) = run.tick(), run.tick()
    assert first.opinions is second.opinions
    strategy.says = Decision("another sentence", first.opinions)
    (third,) = run.tick()
    assert third.opinions is first.opinions
    assert third.sentence == "another sentence"


def test_a_keep_is_the_last_opinion(snapshot: NodeSnapshot) -> None:
    strategy = Scripted(says=Decision("one", {A: Opinion.set(1, ""), B: Opinion.release("")}))
    run = Run(snapshot, strategy)
    run.tick()
    strategy.says = Decision("two", {A: Opinion.keep(""), B: Opinion.keep("")})
    (second,) = run.tick()
    (third,) = run.tick()
    assert dict(second.opinions) == {A: Opinion.set(1, ""), B: Opinion.release("")}
    assert third.opinions is second.opinions


def test_a_keep_of_what_was_never_said_stays_one(snapshot: NodeSnapshot) -> None:
    (result,) = Run(snapshot, Scripted(says=Decision("", {A: Opinion.keep("no data")}))).tick()
    assert result.opinions == {A: Opinion.keep("no data")}


OPINION = (
    st.builds(Opinion.set, st.integers(0, 3), st.just("")) | st.just(Opinion.release("")) | st.just(Opinion.keep(""))
)


@given(st.lists(st.dictionaries(st.sampled_from([A, B]), OPINION), min_size=1, max_size=6))
def test_keeps_are_resolved_by_what_was_said_before(said: list[dict[Target, Opinion]]) -> None:
    strategy = Scripted()
    run = Run(picture(EffectivePolicy()), strategy)
    known: dict[Target, Opinion] = {}
    for given_now in said:
        strategy.says = Decision("", given_now)
        (result,) = run.tick()
        known = {
            target: known.get(target, opinion) if opinion.op is Op.KEEP else opinion
            for target, opinion in given_now.items()
        }
        assert dict(result.opinions) == known


def test_the_decisions_carry_the_clocks_of_the_snapshot(snapshot: NodeSnapshot) -> None:
    decisions, _ = decide_all(replace(snapshot, tick=7, wall_ns=1, monotonic_ns=2), [])
    assert decisions == Decisions(7, 1, 2, ())


@pytest.mark.parametrize(
    ("lacks", "emergency"),
    [
        ((LACK,), ""),
        ((replace(LACK, left_s=9.6),), "it is too late in 10 s (scripted: too much)"),
        ((LACK, replace(LACK, left_s=0.0, why="all")), "it is too late in 0 s (scripted: all)"),
        ((replace(LACK, left_s=3.0, steps=frozenset({ReliefStep.RECLAIM})),), ""),
    ],
)
def test_an_emergency_is_a_shortage_for_which_there_is_no_time(
    snapshot: NodeSnapshot, lacks: tuple[Shortage, ...], emergency: str
) -> None:
    decisions, states = decide_all(snapshot, [Scripted(says=Decision("lacks", shortages=lacks))])
    assert decisions.emergency == emergency
    assert with_relief(snapshot, decisions, states, states)[0].emergency == emergency


def test_a_policy_that_nobody_can_tell_freezes_all_and_disables_none(snapshot: NodeSnapshot) -> None:
    first, off = Scripted("first", says=Decision("one", opinions(a=1))), Scripted("off", is_enabled=False)
    run = Run(snapshot, first, off)
    run.tick()
    run.snapshot = replace(snapshot, policy=EffectivePolicy(policy_unknown="rules.yaml: is not YAML"))
    results = run.tick()
    assert [result.state for result in results] == [StrategyStatus.FROZEN, StrategyStatus.FROZEN]
    assert results[0].opinions == opinions(a=1)
    assert results[0].sentence.startswith("frozen: no policy is known (rules.yaml: is not YAML)")
    assert run.tick("first")[0].state is StrategyStatus.DISABLED, "the operator's own word counts"


# --- windows ---------------------------------------------------------------------------------------------------------

LOAD = Window(NodeRow.cpu_usage_cores, 10.0, at_least=3)


def at(snapshot: NodeSnapshot, sampled_ns: int, counts: Mapping[str, int]) -> NodeSnapshot:
    aggregates = {subject: Aggregate(count, 1.0, 1.0, 0.0) for subject, count in counts.items()}
    return replace(snapshot, sampled_ns=sampled_ns, windows={LOAD: aggregates})


def test_a_strategy_with_windows_sees_each_set_of_samples_once(snapshot: NodeSnapshot) -> None:
    """A token bucket: each beat adds one; ticks in between, and any number of plans, add nothing."""
    bucket = Scripted(
        windows=(LOAD,),
        says=lambda memory: replace(ORDERED, sentence=f"{memory or 0}", opinions=opinions(a=memory or 0)),
    )
    states: StrategyStates = {}
    seen = []
    for sampled_ns in (1, 1, 2, 2, 2, 3):
        picture_now = at(snapshot, sampled_ns, {"": 3})
        planned, _ = decide_all(picture_now, [bucket], states)
        decisions, states = decide_all(picture_now, [bucket], states)
        assert decisions == planned
        (result,) = decisions.results
        seen.append((result.state, result.sentence, result.opinions[A].value, len(result.decision.one_shots)))
        assert result.decision.shortages == (LACK,), "it lacks until newer samples say otherwise"
        again, _ = decide_all(picture_now, [bucket], states)
        assert again.results[0].opinions is result.opinions
        assert again.results[0].decision.one_shots == ()
    active = StrategyStatus.ACTIVE
    assert seen == [
        (active, *each) for each in (("0", 0, 1), ("0", 0, 0), ("1", 1, 1), ("1", 1, 0), ("1", 1, 0), ("2", 2, 1))
    ]


@pytest.mark.parametrize(
    ("strategy", "asked"),
    [(Scripted(), 2), (Scripted(windows=(LOAD,)), 1), (Scripted(windows=(LOAD,), counts_samples=True), 2)],
    ids=["without windows", "with windows", "that counts its samples"],
)
def test_who_decides_at_every_tick(snapshot: NodeSnapshot, strategy: Scripted, asked: int) -> None:
    run = Run(at(snapshot, 1, {"": 3}), strategy)
    run.tick(), run.tick()
    assert strategy.asked == asked


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ({"": 2}, "node_cpu_usage_cores has 2 samples in 10 s (at least 3)"),
        ({"a": 1, "b": 2}, "node_cpu_usage_cores has 2 samples in 10 s (at least 3)"),
        ({"": 3}, ""),
        ({"a": 1, "b": 3}, ""),
        ({}, ""),
    ],
)
def test_a_window_with_too_few_samples_freezes(snapshot: NodeSnapshot, counts: Mapping[str, int], why: str) -> None:
    (result,) = Run(at(snapshot, 1, counts), Scripted(windows=(LOAD,))).tick()
    assert (result.state, why in result.sentence) == (StrategyStatus.FROZEN if why else StrategyStatus.ACTIVE, True)


def test_an_error_is_tried_again_with_the_same_samples(snapshot: NodeSnapshot) -> None:
    """Its memory has not taken a step."""
    strategy = Scripted(windows=(LOAD,), says=failing)
    run = Run(at(snapshot, 1, {"": 3}), strategy)
    run.tick()
    strategy.says = Decision("better", opinions(a=1))
    (result,) = run.tick()
    assert (result.state, result.sentence) == (StrategyStatus.ACTIVE, "better")


def test_what_a_node_cannot_have_freezes_nobody_and_what_is_late_does(snapshot: NodeSnapshot) -> None:
    strategy = Scripted(needs={"pressure": 5.0, "node": 5.0})
    without = replace(snapshot, absent={"pressure": "PSI is off"})
    (result,) = Run(without, strategy).tick(node=1.0)
    assert result.state is StrategyStatus.ACTIVE
    (result,) = Run(without, strategy).tick(node=6.0)
    assert (result.state, "input node is 6.0 s old" in result.sentence) == (StrategyStatus.FROZEN, True)
    (result,) = Run(snapshot, strategy).tick(node=1.0)
    assert (result.state, "pressure has never been read" in result.sentence) == (StrategyStatus.FROZEN, True)


# --- the CPUs that are left to best-effort ---------------------------------------------------------------------------


class TestRelief:
    """What becomes of the shortages in a tick's results."""

    POD = be("job")
    LACKING = Scripted("lack", says=Decision("lacks", shortages=(LACK,)))

    def tick(self, states: StrategyStates, at_s: float, **more: Any) -> tuple[StrategyResult, StrategyStates]:
        now = node(at_s, [self.POD], {"job": 64 << 20})
        decisions, after = decide_all(now, [self.LACKING], states)
        decisions, after = with_relief(now, decisions, after, states, **more)
        return decisions.results[-1], after

    def test_it_is_one_result_more_with_a_state_of_its_own(self) -> None:
        result, states = self.tick({}, 1)
        assert (result.name, result.stage, result.state) == ("eviction", Stage.RELIEF, StrategyStatus.ACTIVE)
        assert [order.target.name for order in result.decision.one_shots] == ["memory.reclaim"]
        result, _ = self.tick(states, 1)
        assert result.decision.one_shots == (), "of these samples the step has been made"

    def test_a_strategy_that_stands_still_makes_nobody_give(self) -> None:
        now = node(1, [self.POD], {"job": 64 << 20})
        frozen = Scripted("lack", says=Decision("lacks", shortages=(LACK,)), needs={"node": 5.0})
        decisions, after = decide_all(now, [frozen], {})
        assert with_relief(now, decisions, after, {})[0].results[-1].decision.one_shots == ()

    def test_switched_off_it_lets_go(self) -> None:
        _, states = self.tick({}, 1)
        result, states = self.tick(states, 4)
        assert result.opinions
        result, _ = self.tick(states, 5, switched_off={"eviction"})
        assert (result.state, result.opinions) == (StrategyStatus.DISABLED, {})

    def test_if_it_fails_it_lets_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _, states = self.tick({}, 1)
        result, states = self.tick(states, 4)
        assert result.opinions

        def raising(*_: object) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(relief, "relieve", raising)
            result, states = self.tick(states, 5)
            assert (result.state, result.opinions) == (StrategyStatus.FAILED, {})
        result, _ = self.tick(states, 6)
        assert (result.state, bool(result.opinions)) == (StrategyStatus.ACTIVE, True)


ONE_CPU, EARLIER = BestEffortScheduling("busy", "0"), BestEffortScheduling("by an earlier run", "1")


def left(
    snapshot: NodeSnapshot, states: StrategyStates, *strategies: Strategy[Any], off: str = ""
) -> tuple[Any, StrategyStates]:
    decisions, states = decide_all(snapshot, strategies, states, (off,))
    return decisions.limits.by_strategy, states


def test_what_is_left_to_best_effort_stays_while_its_strategy_is_frozen_and_ends_with_it(
    snapshot: NodeSnapshot,
) -> None:
    says, needs = Decision("held", best_effort=ONE_CPU), {"node": 5.0}
    hold, other = Scripted("hold", says=says, needs=needs, limits_best_effort=True), Scripted("other")
    snapshot = replace(snapshot, limits=BestEffortLimits(by_strategy={"hold": EARLIER}))
    fresh, stale = replace(snapshot, ages_s={"node": 1.0}), replace(snapshot, ages_s={"node": 9.0})
    found, states = left(stale, {}, hold, other)
    assert found == {"hold": EARLIER}, "until it decides, what the last run left stays"
    found, states = left(fresh, states, hold, other)
    assert found == {"hold": ONE_CPU}
    found, states = left(stale, states, hold, other)
    assert found == {"hold": ONE_CPU}
    hold.says = failing
    found, states = left(fresh, states, hold, other)
    assert found == {"hold": ONE_CPU}
    found, states = left(fresh, states, hold, other, off="hold")
    assert found == {}
    hold.says = Decision("calm")
    found, states = left(fresh, states, hold, other)
    assert found == {}


def test_all_others_go_by_it_in_the_same_tick_and_it_by_what_was_left_before(snapshot: NodeSnapshot) -> None:
    hold = Scripted("hold", says=Decision("held", best_effort=ONE_CPU), limits_best_effort=True)
    first, last = Scripted("first"), Scripted("last")
    decisions, _ = decide_all(snapshot, (first, hold, last))
    assert [result.name for result in decisions.results] == ["first", "hold", "last"]
    assert first.seen is last.seen is decisions.limits
    assert (decisions.limits.by_strategy, hold.seen) == ({"hold": ONE_CPU}, NO_LIMITS)
    again = replace(snapshot, limits=decisions.limits)
    assert decide_all(again, (first, hold, last))[0].limits is decisions.limits


def test_a_strategy_that_limits_them_and_does_not_say_that_it_may_has_failed(snapshot: NodeSnapshot) -> None:
    decisions, _ = decide_all(snapshot, (Scripted("hold", says=Decision("held", best_effort=ONE_CPU)),))
    assert (decisions.results[0].state, decisions.limits) == (StrategyStatus.FAILED, NO_LIMITS)
