"""Eviction by the node's CPU usage: the worked example, the window and its newest sample, settings, ages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from koord.model.formulas import recompute
from qosd.decide.runner import StrategyStatus
from qosd.decide.shortage import Measure, ReliefStep, Resource
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import NodeSnapshot
from qosd.sense.node import NodeRow
from qosd.strategies import formulas
from qosd.strategies.eviction.cpuusage import CPUUsage
from qosd.strategies.eviction.windows import cpu_window
from tests.qosd.eviction.nodes import YOUNG, amount, decided, mean, node, ruled, stated, turn

EVICTING, METRIC = CPUUsage(), NodeRow.cpu_usage_cores
THRESHOLD, LOWER = "cpu_evict_threshold_percent", "cpu_evict_lower_percent"
PRIORITY = "evict_enabled_priority_threshold"
SETTINGS: dict[str, Any] = {THRESHOLD: 80, LOWER: 78, PRIORITY: 5999}


def at(
    mean_milli: float, last_milli: float | None = None, policy: EffectivePolicy | None = None, **aggregate: Any
) -> NodeSnapshot:
    policy = policy or ruled(**SETTINGS)
    values = {METRIC: {"": (mean_milli if last_milli is None else last_milli) / 1000}}
    return node(policy, values=values, windows={cpu_window(METRIC, policy): {"": mean(mean_milli / 1000, **aggregate)}})


@pytest.mark.parametrize(
    ("mean_milli", "last_milli", "settings", "release_milli"),
    [
        (27_200, None, SETTINGS, 2240),  # 85 %
        (27_519, None, SETTINGS, 2240),  # whole percents
        (27_520, None, SETTINGS, 2560),
        (25_600, None, SETTINGS, 640),  # 80 %
        (25_599, None, SETTINGS, 0),
        (27_200, None, {**SETTINGS, LOWER: None}, 2240),  # two below the threshold
        (27_200, None, {**SETTINGS, LOWER: 0}, 27_200),
        (27_200, None, {**SETTINGS, THRESHOLD: 1, LOWER: None}, 27_200),
        # the window still holds what has gone
        (27_200, 25_600, SETTINGS, 640),
        (27_200, 24_960, SETTINGS, 0),
        (27_200, 32_000, SETTINGS, 2240),
        (25_599, 32_000, SETTINGS, 0),
    ],
)
def test_release(mean_milli: int, last_milli: int | None, settings: Mapping[str, Any], release_milli: int) -> None:
    assert amount(EVICTING, at(mean_milli, last_milli, ruled(**settings))) == release_milli


def test_what_it_states() -> None:
    shortage = stated(EVICTING, at(27_200, 26_000))
    assert shortage is not None
    assert (shortage.resource, shortage.measure, shortage.steps) == (
        Resource.CPU_MILLI,
        Measure.USAGE,
        frozenset(ReliefStep),
    )
    victims = shortage.victims
    assert (victims.classes, victims.gate) == (None, "CPUEvict")
    assert (victims.is_opt_in, victims.priority_at_most) == (True, 5999)
    keys = ["eviction priority", "priority", "sub-priority", "amount", "owner", "lost work"]
    assert [key.value for key in shortage.order] == keys
    assert recompute(shortage.inputs, formulas()) == shortage.amount == 960
    assert shortage.why == "85 % of 32 CPUs is in use; eviction starts at 80 % and stops at 78 %"


SAID = "resourceUsedThresholdWithBE."


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({PRIORITY: 5999}, "cpuEvictThresholdPercent is not set, and nothing is done without it"),
        ({THRESHOLD: 80}, "evictEnabledPriorityThreshold is not set, and nothing is done without it"),
        ({**SETTINGS, THRESHOLD: 0, LOWER: None}, "cpuEvictThresholdPercent: 0 is not in 1..100"),
        ({**SETTINGS, THRESHOLD: 101}, "cpuEvictThresholdPercent: 101 is not in 1..100"),
        ({**SETTINGS, LOWER: 80}, "cpuEvictLowerPercent: 80 is not in 0..79, below cpuEvictThresholdPercent"),
        ({**SETTINGS, LOWER: -1}, "cpuEvictLowerPercent: -1 is not in 0..79, below cpuEvictThresholdPercent"),
    ],
)
def test_settings_that_make_no_sense(settings: Mapping[str, Any], sentence: str) -> None:
    decision = decided(EVICTING, at(32_000, policy=ruled(**settings)))
    assert (decision.sentence, decision.shortages) == (SAID + sentence, ())


@pytest.mark.parametrize(("seconds", "is_refused"), [(1800, False), (1801, True), (5400, True), (6000, True)])
def test_a_window_longer_than_samples_are_kept_is_refused(seconds: int, is_refused: bool) -> None:
    policy = ruled(**SETTINGS, cpu_evict_time_window_seconds=seconds)
    assert bool(EVICTING.windows_under(policy)) is not is_refused
    result = turn(EVICTING, at(27_200, policy=policy))
    said = f"resourceUsedThresholdWithBE.cpuEvictTimeWindowSeconds: {seconds} is more than 1800, the seconds for which"
    assert result.sentence.startswith(said) is is_refused
    assert result.state is (StrategyStatus.ACTIVE if is_refused else StrategyStatus.FROZEN), (
        "60 samples are less than a third of 1800"
    )
    assert not result.decision.shortages


@pytest.mark.parametrize(("seconds", "count", "is_frozen"), [(30, 10, False), (30, 9, True), (None, 1, False)])
def test_a_third_of_the_windows_samples_is_needed(seconds: int | None, count: int, is_frozen: bool) -> None:
    policy = ruled(**SETTINGS, cpu_evict_time_window_seconds=seconds)
    result = turn(EVICTING, at(27_200, policy=policy, count=count))
    assert (result.state is StrategyStatus.FROZEN, bool(result.decision.shortages)) == (is_frozen, not is_frozen)


def test_what_is_not_measured_evicts_nobody() -> None:
    there = at(27_200)
    for changed in (structs.replace(there, values={}), structs.replace(there, windows={})):
        assert decided(EVICTING, changed).sentence == "the node's CPU usage has not been measured yet"


@pytest.mark.parametrize("name", ["node", "usage", "pods", "kubelet"])
def test_what_is_too_old_evicts_nobody(name: str) -> None:
    limit_s = 90.0 if name in ("pods", "kubelet") else 3.0
    for age_s, state in ((limit_s, StrategyStatus.ACTIVE), (limit_s + 0.001, StrategyStatus.FROZEN)):
        result = turn(EVICTING, structs.replace(at(27_200), ages_s={**YOUNG, name: age_s}))
        assert (result.state, bool(result.decision.shortages)) == (state, state is StrategyStatus.ACTIVE)


def test_it_rests_on_the_oldest_of_its_samples() -> None:
    shortage = stated(EVICTING, structs.replace(at(27_200), ages_s={**YOUNG, "node": 2.0, "usage": 1.0}))
    assert shortage is not None and shortage.sampled_ns == 998 * 10**9
