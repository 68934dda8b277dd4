"""Eviction by memory: the worked example, both walls, page cache, who fills memory fast, settings, ages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from msgspec import structs

from koord.model.formulas import recompute
from koord.model.qos import KubeQoS, QoSClass
from qosd.decide.decision import Strategy
from qosd.decide.runner import StrategyStatus
from qosd.decide.shortage import Measure, ReliefStep, Resource, Shortage
from qosd.model.metric import Metric, Scope
from qosd.model.snapshot import NodeSnapshot, PressureTrigger, Window
from qosd.sense.limits import LIMITS
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE
from qosd.strategies import formulas
from qosd.strategies.eviction.memoryusage import GROWTH, HORIZON_S, SLOPE_S, BestEffortMemory, MemoryByPriority
from tests.qosd.eviction.nodes import (
    GIB,
    MIB,
    ROOT,
    TIER,
    YOUNG,
    amount,
    decided,
    mean,
    memory,
    node,
    ruled,
    stated,
    turn,
)
from tests.qosd.podviews import view

BEST_EFFORT, BY_PRIORITY = BestEffortMemory(), MemoryByPriority()
THRESHOLD, LOWER, PRIORITY = (
    "memory_evict_threshold_percent", "memory_evict_lower_percent", "evict_enabled_priority_threshold",
)  # fmt: skip
BOTH = pytest.mark.parametrize("strategy", [BEST_EFFORT, BY_PRIORITY], ids=lambda strategy: strategy.name)
NODE_SLOPE, ROOT_SLOPE = Window(NodeRow.memory_usage_bytes, SLOPE_S), Window(TIER.memory_usage_bytes, SLOPE_S)

HOARD = structs.replace(
    view("hoard", "BE", labels={"koordinator.sh/eviction-enabled": "true"}), priority=5500, phase="Running"
)


def at(
    values: Mapping[Metric, Mapping[str, float]],
    node_slope: float = 0,
    root_slope: float = 0,
    samples: tuple[int, float] = (6, 5.0),
    evictable: float | None = None,
    **settings: Any,
) -> NodeSnapshot:
    """A node with a best-effort pod that has ``evictable`` bytes, all that the pods use where nobody says otherwise.

    ``samples``: how many the slopes are of, and over how many seconds.
    """
    count, span_s = samples
    has = values.get(TIER.memory_unreclaimable_bytes, {}).get(ROOT, 0.0) if evictable is None else evictable
    values = {**values, USAGE[Scope.POD].memory_unreclaimable_bytes: {HOARD.cgroup: float(has)}}
    windows = {
        NODE_SLOPE: {"": mean(0, count, span_s, node_slope)},
        ROOT_SLOPE: {ROOT: mean(0, count, span_s, root_slope)},
    }
    return node(ruled(**{PRIORITY: 5999, **settings}), HOARD, values=values, windows=windows)


@BOTH
@pytest.mark.parametrize(
    ("used", "settings", "release"),
    [
        (75 * GIB, {}, 7 * GIB),  # the threshold is 70 by default
        (76 * GIB - 1, {}, 7 * GIB),  # whole percents
        (70 * GIB, {}, 2 * GIB),
        (70 * GIB - 1, {}, 0),
        (75 * GIB, {THRESHOLD: 75, LOWER: 50}, 25 * GIB),
        (75 * GIB, {THRESHOLD: 76}, 0),
        (75 * GIB, {LOWER: 0}, 75 * GIB),
        (99 * GIB, {THRESHOLD: 100}, 0),
    ],
)
def test_release(strategy: Strategy[Any], used: int, settings: Mapping[str, Any], release: int) -> None:
    assert amount(strategy, at(memory(used), **settings)) == release


def test_what_they_state() -> None:
    for strategy, classes, at_most, keys in (
        (BEST_EFFORT, frozenset({QoSClass.BE}), None, ["priority", "amount", "owner", "lost work"]),
        (BY_PRIORITY, None, 5999, ["eviction priority", "priority", "sub-priority", "amount", "owner", "lost work"]),
    ):
        shortage = stated(strategy, at(memory(75 * GIB)))
        assert shortage is not None
        assert (shortage.resource, shortage.measure) == (Resource.MEMORY_BYTES, Measure.USAGE)
        assert (shortage.steps, shortage.growth, shortage.left_s) == (frozenset(ReliefStep), GROWTH, None)
        victims = shortage.victims
        assert (victims.classes, victims.gate, victims.priority_at_most) == (classes, strategy.gate, at_most)
        assert victims.is_opt_in is (at_most is not None)
        assert [key.value for key in shortage.order] == keys
        assert recompute(shortage.inputs, formulas()) == shortage.amount == 7 * GIB
        assert shortage.why == (
            "75 % of the node's memory (100 GiB) is in use; eviction starts at 70 % and stops at 68 %"
        )


# -- the pods' own limit


def root(**of_pods: int) -> NodeSnapshot:
    """A node with room, whose pods have a limit of 256 MiB; amounts in MiB."""
    return at(memory(10 * GIB, limit=256 * MIB, **{name: value * MIB for name, value in of_pods.items()}))


@pytest.mark.parametrize(
    ("of_pods", "release_percent", "steps"),
    [
        ({"anonymous": 180}, 2, frozenset(ReliefStep)),  # 70 %
        ({"anonymous": 179}, 0, None),
        ({"anonymous": 170, "kernel": 10}, 2, frozenset(ReliefStep)),
        ({"anonymous": 231, "idle_cache": 25}, 22, frozenset(ReliefStep)),  # 90 %, whatever cache there is besides
        ({"anonymous": 100, "idle_cache": 150}, 0, None),  # what the kernel takes back by itself
        ({"anonymous": 100, "active_cache": 150}, 29, frozenset({ReliefStep.RECLAIM})),
        ({"anonymous": 100, "active_cache": 79}, 0, None),
        ({"anonymous": 40, "slab": 60}, 0, None),
        ({"anonymous": 40, "slab": 200}, 25, frozenset({ReliefStep.RECLAIM})),  # dentries and inodes are taken back too
        ({"anonymous": 180, "slab": 60}, 2, frozenset(ReliefStep)),
        ({"anonymous": 180, "active_cache": 76}, 2, frozenset(ReliefStep)),
    ],
)
def test_the_pods_limit_is_a_wall_of_its_own(
    of_pods: Mapping[str, int], release_percent: int, steps: frozenset[ReliefStep] | None
) -> None:
    shortage = stated(BEST_EFFORT, root(**of_pods))
    assert (shortage.amount if shortage else 0) == 256 * MIB * release_percent // 100
    assert (shortage.steps if shortage else None) == steps


def test_page_cache_alone_is_reclaimed_and_no_more() -> None:
    shortage = stated(BEST_EFFORT, root(anonymous=20, active_cache=200))
    assert shortage is not None
    assert shortage.why == ("85 % of the pods' limit (256 MiB) is in use with page cache, which can be reclaimed")
    assert recompute(shortage.inputs, formulas()) == shortage.amount


@BOTH
@pytest.mark.parametrize(
    ("used", "evictable", "slope", "steps", "left_s"),
    [
        (76, 10, 0.0, frozenset(ReliefStep), None),  # 66 % without them
        (76, 6.1, 0.0, frozenset(ReliefStep), None),
        (76, 6, 0.0, frozenset({ReliefStep.RECLAIM}), None),  # 70 % without them
        (76, 2, 0.0, frozenset({ReliefStep.RECLAIM}), None),
        (98, 2, 0.0, frozenset({ReliefStep.RECLAIM}), None),
        (98, 2, 1.0, frozenset(ReliefStep), 2.0),  # the limit is hit soon: evicting them gives time
        (99, 2, 0.0, frozenset(ReliefStep), 0.0),
        (69, 2, 0.0, None, None),
    ],
)
def test_what_no_eviction_brings_below_the_threshold_evicts_nobody(
    strategy: Strategy[Any],
    used: int,
    evictable: float,
    slope: float,
    steps: frozenset[ReliefStep] | None,
    left_s: float | None,
) -> None:
    values = memory(10 * GIB, limit=100 * GIB, anonymous=used * GIB)
    shortage = stated(strategy, at(values, root_slope=slope * GIB, evictable=evictable * GIB))
    assert (shortage.steps if shortage else None) == steps
    assert (shortage.left_s if shortage else None) == left_s
    if shortage and steps == frozenset({ReliefStep.RECLAIM}):
        assert recompute(shortage.inputs, formulas()) == shortage.amount
        assert shortage.why == (
            f"{used} % of the pods' limit (100 GiB) is in use; without the pods that may be evicted it would be "
            f"{used - evictable:.0f} %, and eviction starts at 70 %: page cache alone is reclaimed"
        )


@BOTH
@pytest.mark.parametrize(
    ("evictable", "slope", "stops_at"),
    [
        (10, 0.0, 68),
        (8, 0.0, 68),
        (7.5, 0.0, 68),  # 68.5 % without them
        (7, 0.0, 69),
        (6.1, 0.0, 69),
        (7, 3.0, 68),  # the limit is hit in 8 s
    ],
)
def test_no_more_goes_than_can_be_reached(
    strategy: Strategy[Any], evictable: float, slope: float, stops_at: int
) -> None:
    values = memory(10 * GIB, limit=100 * GIB, anonymous=76 * GIB)
    shortage = stated(strategy, at(values, root_slope=slope * GIB, evictable=evictable * GIB))
    assert shortage is not None and shortage.steps == frozenset(ReliefStep)
    assert shortage.amount == recompute(shortage.inputs, formulas()) == (76 - stops_at) * GIB
    said = f"76 % of the pods' limit (100 GiB) is in use; eviction starts at 70 % and stops at {stops_at} %"
    assert shortage.why == said + (", what it would be without the pods that may be evicted" if stops_at > 68 else "")


def test_the_nodes_need_does_not_wait_for_what_the_pods_limit_lacks_in_vain() -> None:
    values = memory(75 * GIB, limit=90 * GIB, anonymous=74 * GIB)
    shortage = stated(BEST_EFFORT, at(values, evictable=GIB))
    assert shortage is not None and shortage.steps == frozenset(ReliefStep)
    assert shortage.why.startswith("75 % of the node's memory")


def test_of_two_walls_the_one_counts_for_which_more_has_to_go() -> None:
    shortage = stated(BEST_EFFORT, at(memory(75 * GIB, limit=80 * GIB, anonymous=70 * GIB)))
    assert shortage is not None and "87 % of the pods' limit" in shortage.why
    assert shortage.amount == 80 * GIB * 19 // 100
    node_first = stated(BEST_EFFORT, at(memory(75 * GIB, limit=99 * GIB, anonymous=70 * GIB)))
    assert node_first is not None and "75 % of the node's memory" in node_first.why
    hurried = stated(BEST_EFFORT, at(memory(75 * GIB, limit=80 * GIB, anonymous=70 * GIB), node_slope=9 * GIB))
    assert hurried is not None and "of the pods' limit" in hurried.why
    assert hurried.left_s == pytest.approx(25 / 9), "the wall that is hit first says how soon"
    cached = stated(BEST_EFFORT, at(memory(70 * GIB, limit=99 * GIB, anonymous=9 * GIB, active_cache=90 * GIB)))
    assert cached is not None and cached.steps == frozenset(ReliefStep), (
        "what page cache wants does not hide the node's need"
    )


@pytest.mark.parametrize(
    "lacking",
    [
        LIMITS[Scope.TIER].memory_limit_bytes,
        TIER.memory_unreclaimable_bytes,
        TIER.memory_working_set_bytes,
    ],
)
def test_a_wall_of_which_something_is_not_known_is_none(lacking: Metric) -> None:
    there = root(anonymous=250)
    assert amount(BEST_EFFORT, there)
    values = {metric: by_object for metric, by_object in there.values.items() if metric is not lacking}
    assert not amount(BEST_EFFORT, structs.replace(there, values=values))
    nowhere = structs.replace(there, tiers={})
    assert not amount(BEST_EFFORT, nowhere)


def test_without_any_wall_it_says_so() -> None:
    assert decided(BEST_EFFORT, at({})).sentence == "the node's memory has not been measured yet"


# -- who fills memory fast


@pytest.mark.parametrize(
    ("used_gib", "gib_per_s", "samples", "release_gib", "left_s"),
    [
        (69, 3.1, (6, 5.0), 1, 10.0),  # below the threshold, and at the wall in ten seconds
        (69, 3.09, (6, 5.0), 0, None),  # a little later
        (69, -3.1, (6, 5.0), 0, None),
        (68, 9.0, (6, 5.0), 0, None),  # nothing above the lower percent
        (40, 90.0, (6, 5.0), 0, None),
        (69, 31.0, (6, 5.0), 1, 1.0),
        (75, 31.0, (6, 5.0), 7, 25 / 31),
        (75, 1.0, (6, 5.0), 7, None),
        (69, 31.0, (2, 5.0), 0, None),  # two samples
        (69, 31.0, (9, 1.4), 0, None),  # many between two beats
        (69, 31.0, (3, 1.5), 1, 1.0),
    ],
)
def test_the_wall_is_as_near_as_the_time_until_it_is_hit(
    used_gib: int, gib_per_s: float, samples: tuple[int, float], release_gib: int, left_s: float | None
) -> None:
    there = at(memory(used_gib * GIB), node_slope=gib_per_s * GIB, samples=samples)
    shortage = stated(BEST_EFFORT, there)
    assert (shortage.amount if shortage else 0) == release_gib * GIB
    assert (shortage.left_s if shortage else None) == (None if left_s is None else pytest.approx(left_s))


def test_the_pods_limit_is_hit_by_the_pods_own_growth() -> None:
    values = memory(10 * GIB, limit=256 * MIB, anonymous=177 * MIB)
    fast = stated(BEST_EFFORT, at(values, root_slope=79 * MIB / HORIZON_S))
    assert fast is not None and fast.why == (
        "69 % of the pods' limit (256 MiB) is in use, and all of it in 10 s if that goes on"
    )
    assert fast.amount == 256 * MIB // 100
    assert not amount(BEST_EFFORT, at(values, root_slope=78 * MIB / HORIZON_S))
    assert not amount(BEST_EFFORT, at(values, node_slope=79 * MIB / HORIZON_S))


@pytest.mark.parametrize(
    ("used", "gib_per_s", "left_s"),
    [
        (99 * GIB, 0.0, 0.0),
        (99 * GIB, -9.0, 0.0),
        (99 * GIB, 0.5, 0.0),
        (99 * GIB - 1, 0.0, None),
        (99 * GIB - 1, -9.0, None),
        (99 * GIB - 1, 1.0, 1.0),
    ],
)
def test_what_has_nothing_left_to_grow_into_is_late(used: int, gib_per_s: float, left_s: float | None) -> None:
    shortage = stated(BEST_EFFORT, at(memory(used), node_slope=gib_per_s * GIB))
    assert shortage is not None
    assert shortage.left_s == (None if left_s is None else pytest.approx(left_s, rel=1e-6))


def test_a_wall_that_has_been_passed_is_hit_now() -> None:
    shortage = stated(BEST_EFFORT, at(memory(10 * GIB, limit=MIB, anonymous=2 * MIB), root_slope=5.0))
    assert shortage is not None and shortage.left_s == 0


# -- settings, gates, ages

SAID = "resourceUsedThresholdWithBE."


@pytest.mark.parametrize(
    ("strategy", "settings", "sentence"),
    [
        (BY_PRIORITY, {PRIORITY: None}, "evictEnabledPriorityThreshold is not set, and nothing is done without it"),
        (BEST_EFFORT, {THRESHOLD: 0}, "memoryEvictThresholdPercent: 0 is not in 1..100"),
        (BEST_EFFORT, {LOWER: 70}, "memoryEvictLowerPercent: 70 is not in 0..69, below memoryEvictThresholdPercent"),
        (BY_PRIORITY, {LOWER: 71}, "memoryEvictLowerPercent: 71 is not in 0..69, below memoryEvictThresholdPercent"),
    ],
)
def test_settings_that_make_no_sense(strategy: Strategy[Any], settings: Mapping[str, Any], sentence: str) -> None:
    decision = decided(strategy, at(memory(99 * GIB), **settings))
    assert (decision.sentence, decision.shortages) == (SAID + sentence, ())


def test_a_missing_priority_does_not_stop_best_effort() -> None:
    assert amount(BEST_EFFORT, at(memory(75 * GIB), **cast(Any, {PRIORITY: None})))


@BOTH
@pytest.mark.parametrize("name", ["node", "usage", "limits", "pods", "kubelet"])
def test_what_is_too_old_evicts_nobody(strategy: Strategy[Any], name: str) -> None:
    limit_s = {"limits": 30.0, "pods": 90.0, "kubelet": 90.0}.get(name, 3.0)
    is_needed = name != "kubelet" or strategy is BY_PRIORITY  # else a label says who goes, and what was told holds
    for age_s, state in (
        (limit_s, StrategyStatus.ACTIVE),
        (limit_s + 0.001, StrategyStatus.FROZEN if is_needed else StrategyStatus.ACTIVE),
    ):
        result = turn(strategy, structs.replace(at(memory(75 * GIB)), ages_s={**YOUNG, name: age_s}))
        assert (result.state, bool(result.decision.shortages)) == (state, state is StrategyStatus.ACTIVE)


@BOTH
def test_the_kernel_wakes_the_daemon_while_it_is_on(strategy: Strategy[Any]) -> None:
    tiers = {each.tier for each in strategy.triggers}
    assert tiers == {None, KubeQoS.GUARANTEED}
    assert {(each.resource, each.degree) for each in strategy.triggers} == {("memory", "some")}
    assert all(isinstance(each, PressureTrigger) for each in strategy.triggers)


@BOTH
def test_windows_are_wanted_while_it_is_on(strategy: Strategy[Any]) -> None:
    on = ruled()
    assert set(strategy.windows_under(on)) == {NODE_SLOPE, ROOT_SLOPE, GROWTH}
    assert strategy.windows_under(ruled(enable=False)) == ()
    assert GROWTH.metric is USAGE[Scope.POD].memory_usage_bytes


def test_it_rests_on_the_oldest_of_its_samples() -> None:
    there = structs.replace(at(memory(75 * GIB)), ages_s={**YOUNG, "node": 1.0, "usage": 2.0, "limits": 9.0})
    shortage: Shortage | None = stated(BEST_EFFORT, there)
    assert shortage is not None and shortage.sampled_ns == 998 * 10**9
