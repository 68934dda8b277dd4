"""The oracle of overcommit against examples that were worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.oracles.objects import Document
from tests.oracles.overcommit import KEYS, expected

NOW_S = 1_700_000_000.0
FRESH = "2023-11-14T22:13:20Z"
G, GI = 10**9, 1 << 30
AT_65 = {"cpuReclaimThresholdPercent": 65, "memoryReclaimThresholdPercent": 65}
MAX_CPU = {"cpuCalculatePolicy": "maxUsageRequest"}
REQUEST_MEMORY = {"memoryCalculatePolicy": "request"}
BY_REQUEST = {**MAX_CPU, **REQUEST_MEMORY}
OVERSOLD = {"cpuReclaimThresholdPercent": 150, "memoryReclaimThresholdPercent": 120}
HOST = {"name": "h", "usage": {"resources": {"cpu": "3", "memory": "6G"}}}


def amounts(cpu: Any, memory: Any) -> Document:
    return {"cpu": cpu, "memory": memory}


def pod(name: str, *requests: tuple[Any, Any], phase: str = "Running", qos: str = "", **spec: Any) -> Document:
    containers = [{"resources": {"requests": amounts(*each), "limits": amounts(*each)}} for each in requests]
    labels = {"koordinator.sh/qosClass": qos} if qos else {}
    return {
        "metadata": {"namespace": "d", "name": name, "labels": labels},
        "spec": {"containers": containers, **spec},
        "status": {"phase": phase},
    }


def usage(name: str, cpu: Any, memory: Any, priority: str | None = None) -> Document:
    return {"namespace": "d", "name": name, "podUsage": {"resources": amounts(cpu, memory)}, "priority": priority}


def node(capacity: tuple[Any, Any], allocatable: tuple[Any, Any] | None = None, **annotations: Any) -> Document:
    """Annotations by the last part of their names, ``_`` for ``-``."""
    texts = {f"node.koordinator.sh/{key.replace('_', '-')}": json.dumps(value) for key, value in annotations.items()}
    status = {"capacity": amounts(*capacity), "allocatable": amounts(*(allocatable or capacity))}
    return {"metadata": {"name": "n", "annotations": texts}, "status": status}


def metric(system: tuple[Any, Any], *entries: Document, hosts: list[Document] | None = None, **status: Any) -> Document:
    node_usage = {"systemUsage": {"resources": amounts(*system)}}
    found = {
        "updateTime": FRESH,
        "nodeMetric": node_usage,
        "podsMetric": entries,
        "hostApplicationMetric": hosts,
        **status,
    }
    return {"status": found}


F_NODE = node(("100", "120G"))
F_PODS = [
    pod("a", ("20", "20G"), qos="LS", priority=9000),
    pod("b", ("10", "10G"), qos="BE", priority=5000),
    pod("c", ("10", "20G"), ("10", "20G")),
    pod("d", ("10", "10G"), qos="BE", phase="Succeeded", priority=5000),
]
F_USED = [usage("a", "11", "11G", "koord-prod"), usage("b", "10", "10G", "koord-batch"), usage("c", "22", "22G", "")]
F_METRIC = metric(("7", "12G"), *F_USED)


def f_node(**reservation: Any) -> Document:
    return node(("100", "120G"), reservation=reservation)


def f_host(priority: str) -> Document:
    return metric(("4", "6G"), *F_USED, hosts=[{**HOST, "priority": priority}])


def batch(cpu_milli: int, memory_bytes: int) -> dict[str, int]:
    return {"batch_cpu_milli": cpu_milli, "batch_memory_bytes": memory_bytes}


def assert_offers(offer: dict[str, int | None], amounts: dict[str, Any]) -> None:
    assert {key: offer[key] for key in amounts} == amounts


@pytest.mark.parametrize(
    ("node", "metric", "strategy", "offer"),
    [
        pytest.param(F_NODE, F_METRIC, {}, batch(25000, 33 * G), id="1"),
        pytest.param(f_node(reservedCPUs="0-19"), F_METRIC, {}, batch(12000, 33 * G), id="2 cpus"),
        pytest.param(f_node(resources={"cpu": 20}), F_METRIC, {}, batch(12000, 33 * G), id="2 amount"),
        pytest.param(
            f_node(resources={"cpu": "20"}, reservedCPUs="0-9"), F_METRIC, {}, batch(22000, 33 * G), id="3 both"
        ),
        pytest.param(f_node(resources={"memory": "20G"}), F_METRIC, {}, batch(25000, 25 * G), id="4"),
        pytest.param(
            node(("100", "120G"), ("90", "100G"), reservation={"resources": amounts("2", "5G")}),
            F_METRIC,
            {},
            batch(22000, 25 * G),
            id="5 kubelet's is more",
        ),
        pytest.param(
            F_NODE,
            F_METRIC,
            {"cpuReclaimThresholdPercent": 70, "memoryReclaimThresholdPercent": 80, **REQUEST_MEMORY},
            batch(30000, 36 * G),
            id="6 memory by request",
        ),
        pytest.param(
            F_NODE,
            F_METRIC,
            {"cpuReclaimThresholdPercent": 70, "memoryReclaimThresholdPercent": 80, **BY_REQUEST},
            batch(21000, 36 * G),
            id="7 cpu by the larger",
        ),
        pytest.param(F_NODE, F_METRIC, {**OVERSOLD, **BY_REQUEST}, batch(101000, 84 * G), id="8 oversold"),
        pytest.param(
            F_NODE,
            F_METRIC,
            {**OVERSOLD, **BY_REQUEST, "batchCPUThresholdPercent": 100},
            batch(100000, 84 * G),
            id="9 limited",
        ),
        pytest.param(
            F_NODE,
            F_METRIC,
            {**OVERSOLD, "memoryCalculatePolicy": "maxUsageRequest"},
            batch(110000, 72 * G),
            id="10 memory by the larger",
        ),
        pytest.param(F_NODE, f_host("koord-prod"), {}, batch(25000, 33 * G), id="11 host of prod"),
        pytest.param(F_NODE, f_host("koord-mid"), {}, batch(25000, 33 * G), id="11 host of mid"),
        pytest.param(F_NODE, f_host("koord-batch"), {}, batch(28000, 39 * G), id="12 host of batch"),
        pytest.param(F_NODE, f_host("koord-free"), {}, batch(28000, 39 * G), id="12 host of free"),
        pytest.param(F_NODE, f_host(""), {}, batch(28000, 39 * G), id="12 host of no class"),
    ],
)
def test_fixture_f(node: Document, metric: Document, strategy: Document, offer: dict[str, int]) -> None:
    assert_offers(expected(node, F_PODS, metric, {**AT_65, **strategy}, NOW_S), offer)


def test_13_lse_counts_with_its_cpu_request_and_measured_memory() -> None:
    pods = [
        pod("lse", ("10", "10G"), qos="LSE", priority=9000),
        pod("prod", ("10", "10G"), priority=9000),
        pod("batch", ("10", "10G"), qos="BE", priority=5000),
        pod("mid", ("10", "10G"), phase="Pending", priority=7000),
        pod("done", ("10", "10G"), phase="Succeeded", priority=9000),
    ]
    entries = [usage("lse", 5, "5G"), usage("prod", 6, "6G"), usage("batch", 10, "10G"), usage("mid", 22, "22G")]
    found = expected(F_NODE, pods, metric(("7", "12G"), *entries), AT_65, NOW_S)
    assert_offers(found, batch(20000, 33 * G))


SMALL = node((8, "16Gi"), ("7.5", "15Gi"))
SMALL_PODS = [pod("old", ("2", "4Gi"), priority=9000), pod("new", ("1", "1Gi"), priority=9000)]
SMALL_METRIC = metric(("400m", "800Mi"), usage("old", "500m", "1Gi"))


@pytest.mark.parametrize(
    ("pods", "metric", "strategy", "offer"),
    [
        pytest.param(SMALL_PODS, SMALL_METRIC, {}, batch(2800, 7945689498), id="14"),
        pytest.param([], metric((0, 0)), {}, batch(4300, 10093173146), id="14 idle, less what kubelet keeps"),
        pytest.param(SMALL_PODS, SMALL_METRIC, MAX_CPU, batch(1300, 7945689498), id="a new pod counts, not 2300"),
    ],
)
def test_a_small_node(pods: list[Document], metric: Document, strategy: Document, offer: dict[str, int]) -> None:
    assert_offers(expected(SMALL, pods, metric, strategy, NOW_S), offer)


def test_14_an_idle_node_of_which_nothing_is_kept() -> None:
    assert_offers(expected(node((8, "16Gi")), [], metric((0, 0)), {}, NOW_S), batch(4800, 11166914970))


def test_15_what_others_have_taken_is_not_published() -> None:
    taken = {"kubernetes.io/batch-cpu": "10000", "kubernetes.io/batch-memory": "10Gi"}
    allocations = [
        {"name": "yarn", "priority": "koord-batch", "resources": taken},
        {"name": "other", "priority": "koord-mid", "resources": taken},
    ]
    shared = node(("50", "120Gi"), thirdPartyAllocations={"allocations": allocations})
    full = {"cpuReclaimThresholdPercent": 100, "memoryReclaimThresholdPercent": 100}
    found = expected(shared, [], metric((0, 0)), full, NOW_S)
    original = {"original_batch_cpu_milli": 50000, "original_batch_memory_bytes": 120 * GI}
    assert_offers(found, {**batch(40000, 110 * GI), **original})


@pytest.mark.parametrize(("ratio", "cpu_milli"), [(100, 2800), (120, 3360), (133, 3724)])
def test_17_normalization(ratio: int, cpu_milli: int) -> None:
    found = expected(SMALL, SMALL_PODS, SMALL_METRIC, {}, NOW_S, ratio_hundredths=ratio)
    assert_offers(found, batch(cpu_milli, 7945689498))


# mid

MID_NODE = node(("100", "210G"), ("100", "200G"))
MID_PODS = [pod("p", ("20", "40G"), priority=9000)]
TIGHT = {"midCPUThresholdPercent": 10, "midMemoryThresholdPercent": 20}


def prediction(reclaim: tuple[Any, Any] | None, node_usage: Document) -> Document:
    status: Document = {"nodeMetric": {"nodeUsage": {"resources": node_usage}}}
    if reclaim is not None:
        status["prodReclaimableMetric"] = {"resource": {"resources": amounts(*reclaim)}}
    return metric((0, 0), **status)


@pytest.mark.parametrize(
    ("metric", "strategy", "cpu_milli", "memory_bytes"),
    [
        pytest.param(prediction(("10", "15G"), amounts("20", "45G")), {}, 10000, 15 * G, id="a"),
        pytest.param(
            prediction(("15", "30G"), amounts("30", "50G")),
            {**TIGHT, "midUnallocatedPercent": 10},
            10000,
            42 * G,
            id="b limited",
        ),
        pytest.param(
            prediction(("15", "30G"), amounts("30", "50G")), {"midUnallocatedPercent": 10}, 23000, 46 * G, id="b free"
        ),
        pytest.param(prediction(("20", "20G"), amounts("90", "200G")), {}, 10000, 10 * G, id="c"),
        pytest.param(
            prediction(None, {}),
            {
                **TIGHT,
                "midReclaimMode": "static",
                "midStaticCPUReservedPercent": 100,
                "midStaticMemoryReservedPercent": 100,
            },
            10000,
            42 * G,
            id="d static 100",
        ),
        pytest.param(
            prediction(None, {}),
            {
                **TIGHT,
                "midReclaimMode": "static",
                "midStaticCPUReservedPercent": 10,
                "midStaticMemoryReservedPercent": 10,
            },
            10000,
            21 * G,
            id="d static 10",
        ),
        pytest.param(prediction(("10", "15G"), {}), {}, 0, 0, id="e no usage"),
        pytest.param(prediction(("10", "15G"), {"cpu": "20"}), {}, 0, 0, id="e half of it"),
        pytest.param(prediction(None, amounts("20", "45G")), {}, 0, 0, id="no prediction is 0"),
        pytest.param(prediction(("10", "15G"), amounts("120", "250G")), {}, 0, 0, id="overused"),
    ],
)
def test_mid(metric: Document, strategy: Document, cpu_milli: int, memory_bytes: int) -> None:
    found = expected(MID_NODE, MID_PODS, metric, strategy, NOW_S)
    assert_offers(found, {"mid_cpu_milli": cpu_milli, "mid_memory_bytes": memory_bytes})


# demand, case by case: 100 CPUs and 120G, thresholds 100, nothing else on the node

FULL = {"cpuReclaimThresholdPercent": 100, "memoryReclaimThresholdPercent": 100}
MID_REQUEST = {"resources": {"requests": {"kubernetes.io/mid-cpu": "1500", "kubernetes.io/mid-memory": "2G"}}}


def pod_of_class(text: str, priority: int) -> Document:
    made = pod("p", ("1", "1G"), priority=priority)
    made["metadata"]["labels"]["koordinator.sh/priority-class"] = text
    return made


@pytest.mark.parametrize(
    ("pods", "entries", "cpu_milli"),
    [
        pytest.param([pod("p", ("1", "1G"), priority=3500)], [], 1000, id="free counts"),
        pytest.param([pod("p", ("1", "1G"), priority=5500)], [], 0, id="batch does not"),
        pytest.param([pod("p", priority=7000, initContainers=[MID_REQUEST])], [], 1500, id="mid's own resources"),
        pytest.param([pod_of_class("foo", 5500)], [], 1000, id="an unknown class is prod"),
        pytest.param([pod_of_class("koord-batch", 9000)], [], 0, id="the label wins"),
        pytest.param([pod("p", ("1", "1G"), priority=6000)], [], 1000, id="a number between bands is prod"),
        pytest.param([pod("p", ("1", "1G"), qos="BE")], [], 0, id="BE without a class"),
        pytest.param([pod("p", ("1", "1G"), qos="BE", priority=9000)], [], 1000, id="the class wins"),
        pytest.param([pod("p")], [usage("p", 1, 0, "")], 0, id="best effort"),
        pytest.param([], [usage("p", 2, 0, "koord-batch")], 0, id="unlisted, of batch"),
        pytest.param([], [usage("p", 2, 0, "")], 2000, id="unlisted, of no class"),
        pytest.param([], [usage("p", 2, 0, "koord-free")], 2000, id="dangling free"),
        pytest.param(
            [pod("p", ("9", "1G"), phase="Succeeded", priority=9000)],
            [usage("p", 1, 0, "koord-prod")],
            1000,
            id="ended",
        ),
        pytest.param([pod("p", ("1", "1G"), ("lots", "1G"))], [], 0, id="one amount is none"),
        pytest.param([pod("p", ("lots", "1G"))], [usage("p", 3, 0)], 3000, id="measured all the same"),
        pytest.param([pod("p", ("lots", "0"))], [usage("p", 3, 0)], 3000, id="it might not be BestEffort"),
        pytest.param([pod("p", ("lots", "1G"), qos="LSE")], [usage("p", 3, 0)], 3000, id="measured, even of LSE"),
        pytest.param([pod("p", ("1", "1G"))], [usage("p", None, 0)], 1000, id="cpu not measured"),
        pytest.param([pod("p", ("100u", "1G"), ("200u", "1G"))], [], 1, id="the sum is rounded"),
        pytest.param([pod("p", ("1", "1G"), overhead={"cpu": "250m"})], [], 1250, id="overhead"),
        pytest.param([pod("p", ("1", "1G"), resources={"requests": {"cpu": 3}})], [], 3000, id="pod level"),
    ],
)
def test_demand(pods: list[Document], entries: list[Document], cpu_milli: int) -> None:
    found = expected(F_NODE, pods, metric((0, 0), *entries), FULL, NOW_S)
    assert found["batch_cpu_milli"] == 100_000 - cpu_milli


AMPLIFIED = node(("100", "120G"), ("135", "120G"), **{"resource_amplification_ratio": {"cpu": 1.5, "memory": 1}})
RAW = node(
    ("100", "120G"),
    ("135", "120G"),
    **{"resource_amplification_ratio": {"cpu": 1.5}, "raw_allocatable": {"cpu": "90", "memory": "120G"}},
)
STALE = node(("100", "120G"), ("95", "120G"), raw_allocatable={"cpu": "90", "memory": "120G"})


@pytest.mark.parametrize(
    ("node", "qos", "cpu_milli"),
    [
        pytest.param(AMPLIFIED, "LS", 100_000 - 6667, id="divided, rounded up"),
        pytest.param(AMPLIFIED, "LSR", 100_000 - 10_000, id="its own CPUs are whole"),
        pytest.param(RAW, "LS", 100_000 - 10_000 - 6667, id="kubelet keeps 10"),
        pytest.param(STALE, "LS", 100_000 - 5000 - 10_000, id="kubelet keeps 5, no longer amplified"),
    ],
)
def test_amplified_nodes(node: Document, qos: str, cpu_milli: int) -> None:
    found = expected(node, [pod("p", ("10", "10G"), qos=qos)], metric((0, 0)), FULL, NOW_S)
    assert_offers(found, batch(cpu_milli, 110 * G))


# freshness


@pytest.mark.parametrize(
    ("metric", "is_degraded"),
    [
        pytest.param(None, True, id="no metric"),
        pytest.param({}, True, id="no status"),
        pytest.param(metric((0, 0), updateTime=None), True, id="no update time"),
        pytest.param(metric((0, 0), updateTime="yesterday"), True, id="no time"),
        pytest.param(metric((0, 0), nodeMetric=None), True, id="nothing measured"),
        pytest.param(metric(("lots", 0)), True, id="unreadable"),
        pytest.param(metric((None, 0)), False, id="no CPU measured"),
        pytest.param(metric((0, 0), updateTime="2023-11-14T21:57:20Z"), True, id="16 minutes"),
        pytest.param(metric((0, 0), updateTime="2023-11-14T21:58:19Z"), True, id="a second too old"),
        pytest.param(metric((0, 0), updateTime="2023-11-14T21:58:20Z"), False, id="just fresh"),
        pytest.param(metric((0, 0), updateTime="2023-11-14T21:59:20Z"), False, id="14 minutes"),
        pytest.param(metric((0, 0), updateTime="2024-11-14T21:59:20Z"), False, id="from the future"),
    ],
)
def test_what_is_stale_removes_all(metric: Document | None, is_degraded: bool) -> None:
    found = expected(F_NODE, [], metric, {}, NOW_S)
    assert set(found) == set(KEYS)
    assert {amount is None for amount in found.values()} == {is_degraded}


@pytest.mark.parametrize("capacity", [{}, {"cpu": 1}, {"memory": 1}, {"cpu": 1, "memory": "much"}])
def test_without_capacity_there_is_nothing_to_offer(capacity: Document) -> None:
    found = expected({"status": {"capacity": capacity}}, [], metric((0, 0)), {}, NOW_S)
    assert set(found.values()) == {None}


def test_a_metric_from_the_future_ages_from_when_it_was_seen() -> None:
    ahead = metric((0, 0), updateTime="2024-11-14T21:59:20Z")
    fresh, stale = (expected(F_NODE, [], ahead, {}, NOW_S, metric_seen_s=NOW_S - age_s) for age_s in (900, 901))
    assert None not in fresh.values()
    assert set(stale.values()) == {None}
