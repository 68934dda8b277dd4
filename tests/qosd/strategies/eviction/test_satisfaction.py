"""Eviction of best-effort pods by their CPU satisfaction: the worked example, each gate of it, and who says no."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from koord.model.formulas import recompute
from koord.model.priority import BATCH_CPU
from koord.model.qos import QoSClass
from koord.model.slo import CPUEvictPolicy
from qosd.decide.runner import StrategyStatus
from qosd.decide.shortage import Measure, ReliefStep, Resource
from qosd.model.metric import Metric
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import NodeSnapshot
from qosd.sense.besteffort import BestEffortRow
from qosd.strategies import formulas
from qosd.strategies.eviction.satisfaction import BestEffortSatisfaction
from qosd.strategies.eviction.windows import cpu_window
from tests.qosd.eviction.nodes import YOUNG, amount, best_effort_cpu, decided, mean, node, renamed, ruled, stated, turn

EVICTING = BestEffortSatisfaction()
PERCENTS: dict[str, Any] = {
    "cpu_evict_be_satisfaction_lower_percent": 60,
    "cpu_evict_be_satisfaction_upper_percent": 80,
}
Figures = tuple[float, float, float | None]
"""Usage, requests and limit, in thousandths of a CPU."""


def at(
    means: Figures,
    last: Figures | None = None,
    policy: EffectivePolicy | None = None,
    count: int = 60,
    **aggregate: Any,
) -> NodeSnapshot:
    policy = policy or ruled(**PERCENTS)
    windows = {
        cpu_window(metric, policy): {"": mean(by_object[""], count, **aggregate)}
        for metric, by_object in best_effort_cpu(*means).items()
    }
    return node(policy, values=best_effort_cpu(*(last or means)), windows=windows)


def by_allocatable(amount_: str | None, **thresholds: Any) -> EffectivePolicy:
    said = {} if amount_ is None else {BATCH_CPU: amount_}
    return ruled(said, **PERCENTS, cpu_evict_policy=CPUEvictPolicy.BY_ALLOCATABLE, **thresholds)


@pytest.mark.parametrize(
    ("means", "last", "release_milli"),
    [
        ((9500, 20000, 10000), None, 6000),
        ((9000, 20000, 10000), None, 6000),  # 90 % are used
        ((8999, 20000, 10000), None, 0),
        ((0, 20000, 999), None, 15001),  # less than a CPU is too little, whatever is used of it
        ((0, 20000, 1000), None, 0),
        ((900, 20000, 1000), None, 15000),
        ((9500, 20000, 0), None, 0),  # no limit, no satisfaction
        ((12000, 20000, 12000), None, 4000),  # 60 % are too little yet
        ((12001, 20000, 12001), None, 0),
        ((9500, 0, 10000), None, 0),  # nobody has requested anything
        ((9500, 16667, 10000), None, 3333),  # 3333.6
        # the newest samples
        ((9500, 20000, 10000), (8999, 20000, 10000), 0),
        ((9500, 20000, 10000), (9500, 14000, 10000), 0),  # some have gone since
        ((9500, 20000, 10000), (9500, 18000, 10000), 4400),
        ((9500, 20000, 10000), (9500, 24000, 10000), 6000),
        ((9500, 20000, 10000), (9500, 20000, 9000), 6000),
        ((10800, 20000, 10000), (10800, 20000, 11000), 5000),
        ((10800, 20000, 10000), (10800, 20000, 12001), 0),
    ],
)
def test_release(means: Figures, last: Figures | None, release_milli: int) -> None:
    assert amount(EVICTING, at(means, last)) == release_milli


@pytest.mark.parametrize(
    ("usage_percent", "usage", "release_milli"), [(None, 8999, 0), (80, 7999, 0), (80, 8000, 6000), (0, 0, 6000)]
)
def test_the_use_of_the_limit_is_a_setting(usage_percent: int | None, usage: int, release_milli: int) -> None:
    policy = ruled(**PERCENTS, cpu_evict_be_usage_threshold_percent=usage_percent)
    assert amount(EVICTING, at((usage, 20000, 10000), policy=policy)) == release_milli


def test_what_it_states() -> None:
    shortage = stated(EVICTING, at((9500, 20000, 10000), (9500, 18000, 10000)))
    assert shortage is not None
    assert (shortage.resource, shortage.measure, shortage.steps) == (
        Resource.CPU_MILLI,
        Measure.REQUEST,
        {ReliefStep.EVICT},
    )
    assert (shortage.extended_resource, shortage.victims.gate) == (BATCH_CPU, "BECPUEvict")
    assert (shortage.victims.classes, shortage.victims.is_opt_in) == (frozenset({QoSClass.BE}), False)
    assert [key.value for key in shortage.order] == ["priority", "use of request", "owner", "lost work"]
    assert recompute(shortage.inputs, formulas()) == shortage.amount == 4400
    assert shortage.why == (
        "best-effort pods use 9500 of 10000 milli-CPU and requested 20000, of which they get less than 60 %"
    )


@pytest.mark.parametrize(
    ("allocatable", "means", "release_milli"),
    [
        ("10000", (9500, 20000, 99000), 6000),
        ("10000", (9500, 20000, None), 6000),  # the tier's own limit is not looked at
        ("0", (0, 20000, 99000), 15999),  # nothing is allocatable: as good as nothing, 1
        ("10000", (8999, 20000, 1), 0),
    ],
)
def test_by_what_is_allocatable(allocatable: str, means: Figures, release_milli: int) -> None:
    assert amount(EVICTING, at(means, policy=by_allocatable(allocatable))) == release_milli


def test_by_what_nobody_tells_is_allocatable() -> None:
    decision = decided(EVICTING, at((9500, 20000, 10000), policy=by_allocatable(None)))
    assert (decision.shortages, decision.sentence) == (
        (),
        "node.allocatable says nothing of kubernetes.io/batch-cpu, so nobody is evicted by it",
    )


LOWER, UPPER = (f"cpu_evict_be_satisfaction_{name}_percent" for name in ("lower", "upper"))
SAID = "resourceUsedThresholdWithBE.cpuEvictBESatisfaction"


@pytest.mark.parametrize(
    ("percents", "sentence"),
    [
        ({LOWER: None, UPPER: 80}, f"{SAID}LowerPercent is not set, and nothing is done without it"),
        ({LOWER: 60, UPPER: None}, f"{SAID}UpperPercent is not set, and nothing is done without it"),
        ({}, f"{SAID}LowerPercent is not set, and nothing is done without it"),
        ({LOWER: 0, UPPER: 80}, f"{SAID}LowerPercent: 0 is not in 1..60"),
        ({LOWER: 61, UPPER: 80}, f"{SAID}LowerPercent: 61 is not in 1..60"),
        ({LOWER: 60, UPPER: 100}, f"{SAID}UpperPercent: 100 is not in 1..99"),
        ({LOWER: 60, UPPER: 0}, f"{SAID}UpperPercent: 0 is not in 1..99"),
        ({LOWER: 60, UPPER: 59}, f"{SAID}UpperPercent: 59 is less than the lower percent, 60"),
    ],
)
def test_settings_that_make_no_sense(percents: Mapping[str, Any], sentence: str) -> None:
    decision = decided(EVICTING, at((9500, 20000, 10000), policy=ruled(**percents)))
    assert (decision.sentence, decision.shortages) == (sentence, ())


def test_equal_percents_make_sense() -> None:
    equal: dict[str, Any] = {LOWER: 60, UPPER: 60}
    policy = ruled(**equal)
    assert amount(EVICTING, at((9500, 20000, 10000), policy=policy)) == 2000


@pytest.mark.parametrize(("seconds", "is_refused"), [(1800, False), (1801, True), (5400, True), (6000, True)])
def test_a_window_longer_than_samples_are_kept_is_refused(seconds: int, is_refused: bool) -> None:
    policy = ruled(**PERCENTS, cpu_evict_time_window_seconds=seconds)
    assert bool(EVICTING.windows_under(policy)) is not is_refused
    result = turn(EVICTING, at((9500, 20000, 10000), policy=policy))
    said = f"resourceUsedThresholdWithBE.cpuEvictTimeWindowSeconds: {seconds} is more than 1800, the seconds for which"
    assert result.sentence.startswith(said) is is_refused
    assert result.state is (StrategyStatus.ACTIVE if is_refused else StrategyStatus.FROZEN), (
        "60 samples are less than a third of 1800"
    )
    assert not result.decision.shortages


@pytest.mark.parametrize(
    ("seconds", "count", "span_s", "state"),
    [
        (None, 1, 0.0, StrategyStatus.ACTIVE),
        (60, 20, 19.0, StrategyStatus.ACTIVE),
        (60, 19, 19.0, StrategyStatus.FROZEN),
        (61, 20, 19.0, StrategyStatus.ACTIVE),
        (63, 20, 20.0, StrategyStatus.FROZEN),
        (2, 1, 0.0, StrategyStatus.ACTIVE),
    ],
)
def test_a_third_of_the_windows_samples_is_needed(
    seconds: int | None, count: int, span_s: float, state: StrategyStatus
) -> None:
    policy = ruled(**PERCENTS, cpu_evict_time_window_seconds=seconds)
    result = turn(EVICTING, at((9500, 20000, 10000), policy=policy, count=count, span_s=span_s))
    assert result.state is state
    assert bool(result.decision.shortages) is (state is StrategyStatus.ACTIVE)


def test_samples_between_two_beats_are_no_more_of_the_past() -> None:
    policy = ruled(**PERCENTS, cpu_evict_time_window_seconds=60)
    decision = decided(EVICTING, at((9500, 20000, 10000), policy=policy, count=40, span_s=8.0))
    assert (decision.shortages, decision.sentence) == ((), "the CPU of best-effort pods has not been measured yet")


@pytest.mark.parametrize("metric", [BestEffortRow.be_cpu_usage_cores, BestEffortRow.be_cpu_real_limit_cores])
def test_what_is_not_measured_evicts_nobody(metric: Metric) -> None:
    there = at((9500, 20000, 10000))
    for changed in (
        structs.replace(there, values={each: by for each, by in there.values.items() if each is not metric}),
        structs.replace(there, windows={each: by for each, by in there.windows.items() if each.metric is not metric}),
    ):
        assert not decided(EVICTING, changed).shortages


@pytest.mark.parametrize(
    ("name", "age_s", "is_frozen"),
    [
        ("besteffort", 3.0, False),
        ("besteffort", 3.001, True),
        ("usage", 3.0, False),
        ("usage", 3.001, True),
        ("pods", 90.0, False),
        ("pods", 90.001, True),
        ("kubelet", 3600.0, False),  # the label says who goes, and what kubelet has told of them holds
    ],
)
def test_what_is_too_old_evicts_nobody(name: str, age_s: float, is_frozen: bool) -> None:
    result = turn(EVICTING, structs.replace(at((9500, 20000, 10000)), ages_s={**YOUNG, name: age_s}))
    assert (result.state is StrategyStatus.FROZEN, bool(result.decision.shortages)) == (is_frozen, not is_frozen)


def test_it_is_off_without_its_gate_and_without_enable() -> None:
    there = at((9500, 20000, 10000))
    shut = structs.replace(there, policy=renamed(there.policy, features={}))
    disabled = structs.replace(there, policy=ruled(enable=False, **PERCENTS))
    assert [turn(EVICTING, each).state for each in (shut, disabled)] == [StrategyStatus.GATED, StrategyStatus.DISABLED]
    assert [EVICTING.windows_under(each.policy) for each in (shut, disabled)] == [(), ()]
