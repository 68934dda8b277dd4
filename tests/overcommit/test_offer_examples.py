"""The worked examples of the reference as tables, to the thousandth of a CPU and the byte."""

from __future__ import annotations

from typing import Any

import pytest

from koord.model.core import Node
from koord.model.nodemetric import NodeMetric
from koord.overcommit.amounts import ZERO, CPUMemory
from koord.overcommit.strategy import CalculatePolicy, MidReclaimMode
from tests.overcommit.nodes import GIB, NOW_S, G, Size, batch, metric, mid, node, offered, pod, strategy

REQUEST, MAXIMUM = CalculatePolicy.REQUEST, CalculatePolicy.MAX_USAGE_REQUEST
HUNDRED = node((100, 120))
PODS = [
    pod("a", (20, 20), qos="LS", priority="koord-prod"),
    pod("b", qos="BE", kube_qos="BestEffort"),
    pod("c", (10, 20), (10, 20)),
    pod("d", qos="BE", kube_qos="BestEffort", phase="Succeeded"),
]
USED: dict[str, Size] = {"a": (11, 11), "b": (10, 10), "c": (22, 22)}
REPORT = metric((7, 12), USED)


def reclaim(cpu: int, memory: int) -> dict[str, int]:
    return {"cpu_reclaim_threshold_percent": cpu, "memory_reclaim_threshold_percent": memory}


def reserving(text: str) -> Node:
    return node((100, 120), reservation=text)


def application(cls: str) -> NodeMetric:
    return metric((4, 6), USED, applications=[(cls, (3, 6))])


@pytest.mark.parametrize(
    ("of", "report", "settings", "cpu_milli", "memory_g"),
    [
        pytest.param(HUNDRED, REPORT, {}, 25000, 33, id="1 nothing special"),
        pytest.param(reserving('{"reservedCPUs":"0-19"}'), REPORT, {}, 12000, 33, id="2 reserved CPUs"),
        pytest.param(reserving('{"resources":{"cpu":"20"}}'), REPORT, {}, 12000, 33, id="2 reserved amount"),
        pytest.param(
            reserving('{"resources":{"cpu":"20"},"reservedCPUs":"0-9"}'), REPORT, {}, 22000, 33, id="3 CPUs win"
        ),
        pytest.param(reserving('{"resources":{"memory":"20G"}}'), REPORT, {}, 25000, 25, id="4 reserved memory"),
        pytest.param(
            node((100, 120), (90, 100), reservation='{"resources":{"cpu":"2","memory":"5G"}}'),
            REPORT,
            {},
            22000,
            25,
            id="5 kubelet keeps more",
        ),
        pytest.param(
            HUNDRED, REPORT, {**reclaim(70, 80), "memory_calculate_policy": REQUEST}, 30000, 36, id="6 by request"
        ),
        pytest.param(
            HUNDRED,
            REPORT,
            {**reclaim(70, 80), "memory_calculate_policy": REQUEST, "cpu_calculate_policy": MAXIMUM},
            21000,
            36,
            id="7 by the larger one",
        ),
        pytest.param(
            HUNDRED,
            REPORT,
            {**reclaim(150, 120), "memory_calculate_policy": REQUEST, "cpu_calculate_policy": MAXIMUM},
            101000,
            84,
            id="8 more than there is",
        ),
        pytest.param(
            HUNDRED,
            REPORT,
            {
                **reclaim(150, 120),
                "memory_calculate_policy": REQUEST,
                "cpu_calculate_policy": MAXIMUM,
                "batch_cpu_threshold_percent": 100,
            },
            100000,
            84,
            id="9 limited",
        ),
        pytest.param(
            HUNDRED, REPORT, {**reclaim(150, 120), "memory_calculate_policy": MAXIMUM}, 110000, 72, id="10 memory by it"
        ),
        pytest.param(HUNDRED, application("koord-prod"), {}, 25000, 33, id="11 prod host application"),
        pytest.param(HUNDRED, application("koord-mid"), {}, 25000, 33, id="11 mid host application"),
        pytest.param(HUNDRED, application("koord-batch"), {}, 28000, 39, id="12 batch host application"),
    ],
)
def test_a_node_of_100_cpus(
    of: Node, report: NodeMetric, settings: dict[str, Any], cpu_milli: int, memory_g: int
) -> None:
    assert batch(of, PODS, report, **{**reclaim(65, 65), **settings}) == CPUMemory(cpu_milli, memory_g * G)


def test_13_cpus_of_lse_pods_count_whole() -> None:
    pods = [
        pod("lse", (10, 10), qos="LSE", priority="koord-prod"),
        pod("prod", (10, 10), qos="LS", priority="koord-prod"),
        pod("batch", qos="BE", priority="koord-batch"),
        pod("mid", mid(20000, "20G"), qos="LS", priority="koord-mid", phase="Pending"),
        pod("gone", (10, 10), phase="Succeeded"),
    ]
    report = metric((7, 12), {"lse": (5, 5), "prod": (6, 6), "batch": (10, 10), "mid": (22, 22)})
    assert batch(HUNDRED, pods, report, **reclaim(65, 65)) == CPUMemory(20000, 33 * G)


SMALL = node((8, "16Gi"), ("7500m", "15Gi"))
SMALL_PODS = [pod("old", (2, "4Gi"), priority="koord-prod"), pod("new", (1, "1Gi"), priority="koord-prod")]
SMALL_REPORT = metric(("400m", "800Mi"), {"old": ("500m", "1Gi")})


@pytest.mark.parametrize(
    ("policy", "cpu_milli"),
    [
        pytest.param(CalculatePolicy.USAGE, 2800, id="14 as the reference"),
        pytest.param(MAXIMUM, 1300, id="14 upstream has 2300: a pod without a measurement is forgotten"),
    ],
)
def test_14_the_node_of_the_quick_start(policy: CalculatePolicy, cpu_milli: int) -> None:
    assert batch(SMALL, SMALL_PODS, SMALL_REPORT, cpu_calculate_policy=policy) == CPUMemory(cpu_milli, 7945689498)


def test_14_an_idle_node_offers_at_most_what_the_margin_leaves() -> None:
    assert batch(node((8, "16Gi")), [], metric((0, 0))) == CPUMemory(4800, 11166914970)


YARN = (
    '{"allocations":[{"name":"hadoop-yarn","priority":"koord-batch",'
    '"resources":{"kubernetes.io/batch-cpu":"10000","kubernetes.io/batch-memory":"10Gi"}},'
    '{"name":"other","priority":"koord-mid","resources":{"kubernetes.io/batch-cpu":"1000"}}]}'
)


@pytest.mark.parametrize(
    ("system", "original", "published"),
    [
        pytest.param((50, "120Gi"), (50000, 120 * GIB), (40000, 110 * GIB), id="15"),
        pytest.param((95, "235Gi"), (5000, 5 * GIB), (0, 0), id="more is taken than there is"),
    ],
)
def test_15_what_other_schedulers_gave_away(
    system: Size, original: tuple[int, int], published: tuple[int, int]
) -> None:
    found = offered(node((100, "240Gi"), thirdPartyAllocations=YARN), [], metric(system), strategy(**reclaim(100, 100)))
    assert (found.batch, found.original_batch, found.published_batch) == (
        CPUMemory(*original),
        CPUMemory(*original),
        CPUMemory(*published),
    )


@pytest.mark.parametrize(
    ("ratio", "cpu_milli"),
    [
        pytest.param(1.2, 3360, id="17"),
        pytest.param(1.0, 2800, id="nominal"),
        pytest.param(0.5, 2800, id="no ratio below 1 counts"),
        pytest.param(1.15, 3220, id="of two decimals, exactly"),
        pytest.param(2.333, 6524, id="a third decimal does not count"),
    ],
)
def test_17_normalized_cpus(ratio: float, cpu_milli: int) -> None:
    found = offered(SMALL, SMALL_PODS, SMALL_REPORT, normalization_ratio=ratio)
    assert found.batch == found.original_batch == CPUMemory(cpu_milli, 7945689498)


MID_NODE, MID_PODS = node((100, 210), (100, 200)), [pod("p", (20, 40), priority="koord-prod")]


def thresholds(cpu: int, memory: int, **more: Any) -> dict[str, Any]:
    return {"mid_cpu_threshold_percent": cpu, "mid_memory_threshold_percent": memory, **more}


def static(cpu: int, memory: int) -> dict[str, Any]:
    return {
        "mid_reclaim_mode": MidReclaimMode.STATIC,
        "mid_static_cpu_reserved_percent": cpu,
        "mid_static_memory_reserved_percent": memory,
    }


@pytest.mark.parametrize(
    ("reclaimable", "used", "settings", "cpu_milli", "memory_g"),
    [
        pytest.param((10, 15), (20, 45), {}, 10000, 15, id="a by the prediction"),
        pytest.param((15, 30), (30, 50), thresholds(10, 20, mid_unallocated_percent=10), 10000, 42, id="b limited"),
        pytest.param((20, 20), (90, 200), {}, 10000, 10, id="c by what is unused"),
        pytest.param(None, (0, 0), thresholds(10, 20, **static(100, 100)), 10000, 42, id="d static, limited"),
        pytest.param(None, (0, 0), thresholds(10, 20, **static(10, 10)), 10000, 21, id="d static"),
        pytest.param((10, 15), (None, 45), {}, 0, 0, id="e use of CPU not known"),
        pytest.param((10, 15), (20, None), {}, 0, 0, id="e use of memory not known"),
        pytest.param(None, (20, 45), {}, 0, 0, id="no prediction"),
        pytest.param((10, 15), (101, 211), {}, 0, 0, id="more is used than there is"),
        pytest.param(None, (20, 45), {"mid_unallocated_percent": 50}, 40000, 80, id="half of the unallocated"),
    ],
)
def test_mid_resources(
    reclaimable: Size | None, used: Size, settings: dict[str, Any], cpu_milli: int, memory_g: int
) -> None:
    report = metric((0, 0), node_usage=used, reclaimable=reclaimable)
    assert offered(MID_NODE, MID_PODS, report, strategy(**settings)).mid == CPUMemory(cpu_milli, memory_g * G)


@pytest.mark.parametrize(
    ("pods", "applications", "cpu_milli"),
    [
        pytest.param([], [], 90000, id="nothing but the system"),
        pytest.param([pod("p", (20, 0))], [], 70000, id="a pod without a class counts as prod"),
        pytest.param([pod("p", (20, 0), priority="koord-free")], [], 90000, id="free"),
        pytest.param([pod("p", mid(20000, 0), priority="koord-mid")], [], 90000, id="mid"),
        pytest.param([pod("p", (20, 0), phase="Pending")], [], 70000, id="pending"),
        pytest.param([pod("p", (20, 0), phase="Failed")], [], 90000, id="failed"),
        pytest.param([], [("koord-prod", (5, 0))], 85000, id="prod host application"),
        pytest.param([], [("koord-mid", (5, 0))], 90000, id="mid host application"),
    ],
)
def test_what_is_unallocated_beside_prod(pods: list[Any], applications: list[Any], cpu_milli: int) -> None:
    report = metric((10, 0), node_usage=(0, 0), applications=applications)
    found = offered(node((100, 0)), pods, report, strategy(mid_unallocated_percent=100))
    assert found.mid == CPUMemory(cpu_milli, 0)


def test_requests_beyond_the_capacity_take_nothing_from_what_is_reclaimable() -> None:
    report = metric((10, 0), node_usage=(0, 0), reclaimable=(5, 0))
    found = offered(node((100, 0)), [pod("p", (200, 0))], report, strategy(mid_unallocated_percent=100))
    assert found.mid == CPUMemory(5000, 0)


@pytest.mark.parametrize(
    ("age_s", "reason"),
    [
        pytest.param(16 * 60, "the NodeMetric is 960 s old and counts for 900 s", id="16 minutes old"),
        pytest.param(14 * 60, "", id="14 minutes old"),
        pytest.param(15 * 60, "", id="at the limit"),
        pytest.param(15 * 60 + 1, "the NodeMetric is 901 s old and counts for 900 s", id="just beyond"),
    ],
)
def test_an_old_report_removes_what_is_offered(age_s: int, reason: str) -> None:
    found = offered(HUNDRED, PODS, metric((7, 12), update_s=NOW_S - age_s))
    assert (found.degraded, found.batch is None, found.mid is None) == (reason, bool(reason), bool(reason))
    assert (found.published_batch is None) == bool(reason)
    assert (found.original_batch == ZERO) == bool(reason)


@pytest.mark.parametrize(
    ("priority", "cpu_milli"),
    [
        pytest.param("koord-batch", 60000, id="of batch"),
        pytest.param("", 58000, id="of no class"),
        pytest.param("koord-prod", 58000, id="prod"),
        pytest.param("koord-mid", 58000, id="mid"),
        pytest.param("koord-free", 58000, id="free, which upstream leaves out"),
    ],
)
@pytest.mark.parametrize("listed", [[], [pod("x", (9, 0), phase="Succeeded")]], ids=["unknown", "succeeded"])
def test_reports_of_pods_that_are_not_on_the_node(priority: str, cpu_milli: int, listed: list[Any]) -> None:
    report = metric((0, 0), {"x": (2, 0)}, priorities={"x": priority})
    for policy in (CalculatePolicy.USAGE, MAXIMUM):
        assert batch(node((100, 0)), listed, report, cpu_calculate_policy=policy) == CPUMemory(cpu_milli, 0)
