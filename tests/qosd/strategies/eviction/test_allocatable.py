"""Eviction by the ledger of the batch and mid bands: the worked example, whose requests count, what nobody tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from koord.model.formulas import recompute
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, PriorityClass
from qosd.decide.decision import Decision
from qosd.decide.runner import StrategyStatus, decide_all
from qosd.decide.shortage import Measure, ReliefStep, Resource
from qosd.model.snapshot import PodView
from qosd.strategies import formulas
from qosd.strategies.eviction.allocatable import Allocatable, CPUAllocatable, MemoryAllocatable
from tests.qosd.contexts import extended
from tests.qosd.decide.scenes import be
from tests.qosd.eviction.nodes import YOUNG, decided, node, ruled, turn

CPU, MEMORY = CPUAllocatable(), MemoryAllocatable()
PRIORITY = "allocatable_evict_priority_threshold"
NAMES = [
    f"{resource}_allocatable_evict_{which}_percent"
    for resource in ("cpu", "memory")
    for which in ("threshold", "lower")
]
SETTINGS = {**dict(zip(NAMES, (110, 100, 110, 100), strict=True)), PRIORITY: 5999}
ALL = {BATCH_CPU: "20000", BATCH_MEMORY: "20Ki", MID_CPU: "20000", MID_MEMORY: "20Ki"}


def asks(name: str, amount: str, priority: int | None = 5500, kind: str = "batch", **said: Any) -> PodView:
    """A pod that requested ``amount`` milli-CPU, and as many bytes, of its band's resources."""
    band = {"batch": PriorityClass.BATCH, "mid": PriorityClass.MID}[kind]
    pod = be(name, priority=priority, EXTENDED=extended(kind=kind, request=amount, memory_request=amount), **said)
    return structs.replace(pod, priority_class=band)


def of(strategy: Allocatable, *pods: PodView, allocatable: Mapping[str, str] = ALL, **settings: Any) -> Decision:
    return decided(strategy, node(ruled(allocatable, **{**SETTINGS, **settings}), *pods))


def amounts(decision: Decision) -> dict[str, int]:
    return {shortage.extended_resource: shortage.amount for shortage in decision.shortages}


@pytest.mark.parametrize(
    ("requests", "allocatable", "settings", "release"),
    [
        (["30000"], "20000", {}, 10_000),  # 150 %
        (["15000", "15000"], "20000", {}, 10_000),
        (["22000"], "20000", {}, 0),  # 110 % are not more than 110 %
        (["22001"], "20000", {}, 2001),
        (["22001"], "20000", {"cpu_allocatable_evict_lower_percent": 109}, 201),
        (["1"], "0", {}, 1),  # nothing is allocatable: all has to go
        ([], "0", {}, 0),
        (["30000"], "20000", {"cpu_allocatable_evict_threshold_percent": 151}, 0),
        (["1"], "20000", {"cpu_allocatable_evict_threshold_percent": 1, "cpu_allocatable_evict_lower_percent": 0}, 0),
    ],
)
def test_release(requests: list[str], allocatable: str, settings: Mapping[str, int], release: int) -> None:
    pods = [asks(f"p{number}", request) for number, request in enumerate(requests)]
    decision = of(CPU, *pods, allocatable={BATCH_CPU: allocatable}, **settings)
    assert amounts(decision) == ({BATCH_CPU: release} if release else {})


@pytest.mark.parametrize(
    ("pod", "counts"),
    [
        (asks("p", "30000"), True),
        (asks("p", "30000", priority=5999), True),
        (asks("p", "30000", priority=6000), False),
        (asks("p", "30000", priority=None), False),  # kubelet has not told it
        (asks("p", "30000", labels={"koordinator.sh/eviction-enabled": "false"}), True),  # willing or not
        (asks("p", "30000", qos="LS"), True),  # the band decides, not the class
        (structs.replace(asks("p", "30000"), priority_class=PriorityClass.MID), False),
        (structs.replace(asks("p", "30000"), priority_class=PriorityClass.PROD), False),
        (asks("p", "30000", containers=(), state="SANDBOX_NOTREADY"), False),  # it has ended
        (be("p", cpu_request_milli=30_000), False),  # native requests are never drained
    ],
)
def test_whose_requests_count(pod: PodView, counts: bool) -> None:
    assert amounts(of(CPU, pod)) == ({BATCH_CPU: 10_000} if counts else {})


def test_each_band_has_its_own_account() -> None:
    batch, mid = asks("a", "30000"), asks("b", "25000", kind="mid", qos="LS")
    of_memory = (MEMORY, (BATCH_MEMORY, MID_MEMORY), 20_480)
    for strategy, names, capacity in ((CPU, (BATCH_CPU, MID_CPU), 20_000), of_memory):
        decision = of(strategy, batch, mid)
        assert amounts(decision) == dict(zip(names, (30_000 - capacity, 25_000 - capacity), strict=True))
        bands = [shortage.victims.bands for shortage in decision.shortages]
        assert bands == [frozenset({PriorityClass.BATCH}), frozenset({PriorityClass.MID})]
    assert amounts(of(CPU, batch)) == {BATCH_CPU: 10_000}, "a band is not in want because another is"


def test_what_it_states() -> None:
    (shortage,) = of(MEMORY, asks("a", "30000")).shortages
    assert (shortage.resource, shortage.measure) == (Resource.MEMORY_BYTES, Measure.REQUEST)
    assert (shortage.steps, shortage.extended_resource) == (frozenset({ReliefStep.EVICT}), BATCH_MEMORY)
    victims = shortage.victims
    assert (victims.gate, victims.is_opt_in, victims.priority_at_most) == ("MemoryAllocatableEvict", True, 5999)
    keys = ["eviction priority", "priority", "sub-priority", "amount", "owner", "lost work"]
    assert [key.value for key in shortage.order] == keys
    assert recompute(shortage.inputs, formulas()) == shortage.amount == 9520
    assert shortage.why == (
        "30000 of 20480 kubernetes.io/batch-memory are requested by pods of a priority of 5999 at most, more than 110 %"
    )


@pytest.mark.parametrize("allocatable", [{}, {BATCH_MEMORY: "1"}])
def test_without_anything_allocatable_it_says_so_and_does_nothing(allocatable: Mapping[str, str]) -> None:
    decision = of(CPU, asks("a", "30000"), allocatable=allocatable)
    assert (decision.shortages, decision.sentence) == (
        (),
        "node.allocatable says nothing of kubernetes.io/batch-cpu nor of kubernetes.io/mid-cpu, so nobody is evicted "
        "by them",
    )


def test_of_a_band_that_nobody_tells_nothing_is_demanded() -> None:
    decision = of(CPU, asks("a", "30000"), asks("b", "9", kind="mid"), allocatable={BATCH_CPU: "20000"})
    assert amounts(decision) == {BATCH_CPU: 10_000}
    assert decision.sentence.endswith("; node.allocatable says nothing of kubernetes.io/mid-cpu")


SAID = "resourceUsedThresholdWithBE."
UNSET = "is not set, and nothing is done without it"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({NAMES[0]: None}, f"cpuAllocatableEvictThresholdPercent {UNSET}"),
        ({NAMES[1]: None}, f"cpuAllocatableEvictLowerPercent {UNSET}"),
        ({PRIORITY: None}, f"allocatableEvictPriorityThreshold {UNSET}"),
        ({NAMES[0]: -1, NAMES[1]: -2}, "cpuAllocatableEvictThresholdPercent: -1 is negative"),
        (
            {NAMES[1]: 110},
            "cpuAllocatableEvictLowerPercent: 110 is not less than cpuAllocatableEvictThresholdPercent, 110",
        ),
        ({PRIORITY: 8000}, "allocatableEvictPriorityThreshold: 8000 is more than 7999"),
    ],
)
def test_settings_that_make_no_sense_cost_their_own_strategy(settings: Mapping[str, Any], sentence: str) -> None:
    decision = of(CPU, asks("a", "30000"), **settings)
    assert (decision.sentence, decision.shortages) == (SAID + sentence, ())
    if PRIORITY not in settings:
        assert of(MEMORY, asks("a", "30000"), **settings).shortages


@pytest.mark.parametrize("name", ["usage", "pods", "kubelet"])
def test_what_is_too_old_evicts_nobody(name: str) -> None:
    limit_s = 3.0 if name == "usage" else 90.0
    there = node(ruled(ALL, **SETTINGS), asks("a", "30000"))
    for age_s, state in ((limit_s, StrategyStatus.ACTIVE), (limit_s + 0.001, StrategyStatus.FROZEN)):
        result = turn(CPU, structs.replace(there, ages_s={**YOUNG, name: age_s}))
        assert (result.state, bool(result.decision.shortages)) == (state, state is StrategyStatus.ACTIVE)


def test_requests_are_summed_again_only_if_pods_or_the_threshold_changed() -> None:
    there = node(ruled(ALL, **SETTINGS), asks("a", "30000"))
    sums = []
    others = node(there.policy, asks("a", "40000"))
    higher = structs.replace(there, policy=ruled(ALL, **{**SETTINGS, PRIORITY: 5000}))
    states: Any = {}
    for each in (there, structs.replace(there, tick=2), others, there, higher):
        _, states = decide_all(each, (CPU,), states)
        sums.append(states[CPU.name].own)
    assert [sums[0] is sums[1], sums[1] is sums[2], sums[3] is sums[4]] == [True, False, False]
    assert [each.by_resource[BATCH_CPU] for each in sums] == [30_000, 30_000, 40_000, 30_000, 0]
