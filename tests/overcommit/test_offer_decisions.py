"""Where the offer is not upstream's, and what it does with what cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from koord.model.core import Node, NodeStatus, Pod
from koord.model.nodemetric import NodeMetric, NodeMetricStatus, NodeUsage, ResourceMap
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.strategy import DEFAULTS, CalculatePolicy
from tests.overcommit.nodes import GIB, NOW_S, G, Size, batch, metric, mid, node, offered, pod, strategy, time

EMPTY = node((10, 10))
IDLE = metric((0, 0))
"""An idle EMPTY offers 6000m and 6.5G."""
USAGE, REQUEST, MAXIMUM = CalculatePolicy.USAGE, CalculatePolicy.REQUEST, CalculatePolicy.MAX_USAGE_REQUEST


def left(pods: list[Pod], report: NodeMetric = IDLE, of: Node = EMPTY, **settings: Any) -> tuple[int, int]:
    """CPU in thousandths and memory in bytes, of what an idle node would offer, taken by ``pods``."""
    found = batch(of, pods, report, **settings)
    assert found is not None
    return 6000 - found.cpu_milli, 65 * G // 10 - found.memory_bytes


@pytest.mark.parametrize(
    ("one", "taken"),
    [
        pytest.param(pod("p", (1, 2), priority="koord-free"), (1000, 2 * G), id="free pods run on native resources"),
        pytest.param(pod("p", (1, 2), priority="koord-batch"), (0, 0), id="batch"),
        pytest.param(pod("p", (1, 2), qos="BE"), (0, 0), id="BE without a class is batch"),
        pytest.param(pod("p", (1, 2), qos="BE", priority="koord-prod"), (1000, 2 * G), id="the class decides"),
        pytest.param(pod("p", (1, 2), qos="BE", priority="what"), (0, 0), id="an unknown class is none"),
        pytest.param(pod("p", (1, 2), priority="what"), (1000, 2 * G), id="unknown class of a Burstable pod"),
        pytest.param(pod("p", kube_qos="BestEffort"), (0, 0), id="best effort"),
        pytest.param(pod("p", (1, 2), kube_qos=""), (1000, 2 * G), id="Kubernetes QoS from the spec"),
        pytest.param(pod("p", (1, 2), kube_qos="what"), (1000, 2 * G), id="Kubernetes QoS that is none"),
        pytest.param(pod("p", {}, kube_qos="", overhead={"cpu": "1"}), (1000, 0), id="best effort from the spec"),
        pytest.param(
            pod("p", (3, 3), priority="koord-batch", overhead={"cpu": "1", "memory": "2G"}),
            (1000, 2 * G),
            id="the overhead of a batch pod is native",
        ),
        pytest.param(
            pod("p", mid(1000, "1G"), priority="koord-mid", overhead={"memory": "1G"}),
            (1000, 2 * G),
            id="so is that of a mid pod",
        ),
        pytest.param(pod("p", mid(1000, "2G"), priority="koord-mid"), (1000, 2 * G), id="mid resources are demand"),
        pytest.param(
            pod("p", (1, 1), mid("1k", "1G"), priority="koord-mid"), (2000, 2 * G), id="native and mid add up"
        ),
        pytest.param(pod("p", (1, 2), phase="Pending"), (1000, 2 * G), id="pending"),
        pytest.param(pod("p", (1, 2), phase="Unknown"), (0, 0), id="unknown"),
    ],
)
@pytest.mark.parametrize("policy", [USAGE, MAXIMUM])
def test_pods_without_a_measurement(one: Pod, taken: tuple[int, int], policy: CalculatePolicy) -> None:
    assert left([one], cpu_calculate_policy=policy, memory_calculate_policy=policy) == taken


@pytest.mark.parametrize(
    ("qos", "used", "by_use", "by_larger"),
    [
        pytest.param("", (1, 1), (1000, 1 * G), (2000, 2 * G), id="less than requested"),
        pytest.param("", (3, 3), (3000, 3 * G), (3000, 3 * G), id="more than requested"),
        pytest.param("LSE", (1, 1), (2000, 1 * G), (2000, 2 * G), id="the CPUs of LSE are its own"),
        pytest.param("LSR", (1, 1), (1000, 1 * G), (2000, 2 * G), id="LSR shares them with batch"),
        pytest.param("", (None, 1), (2000, 1 * G), (2000, 2 * G), id="CPU not measured"),
        pytest.param("", (1, None), (1000, 2 * G), (2000, 2 * G), id="memory not measured"),
        pytest.param("", ("lots", 1), (2000, 1 * G), (2000, 2 * G), id="a measurement that cannot be read"),
        pytest.param("", ("1234567n", "1500m"), (2, 2), (2000, 2 * G), id="use is rounded up"),
    ],
)
def test_a_measured_pod(qos: str, used: Size, by_use: tuple[int, int], by_larger: tuple[int, int]) -> None:
    pods, report = [pod("p", (2, 2), qos=qos, priority="koord-prod")], metric((0, 0), {"p": used})
    assert left(pods, report) == by_use
    assert left(pods, report, cpu_calculate_policy=MAXIMUM, memory_calculate_policy=MAXIMUM) == by_larger
    assert left(pods, report, memory_calculate_policy=REQUEST)[1] == 2 * G


def test_of_two_reports_for_one_pod_the_last_one_counts() -> None:
    first, second = metric((0, 0), {"p": (3, 3)}), metric((0, 0), {"p": (1, 1)})
    both = replace(first.status, pods_metric=first.status.pods_metric + second.status.pods_metric)
    assert left([pod("p", (2, 2))], NodeMetric(status=both)) == (1000, G)


RATIO_1 = {"resource_amplification_ratio": '{"cpu":1.00}'}
AMPLIFIED = node(
    (10, 10),
    (15, 12),
    resource_amplification_ratio='{"cpu":1.50,"memory":1.20}',
    raw_allocatable='{"cpu":"9","memory":"9G"}',
)


@pytest.mark.parametrize(
    ("qos", "taken"),
    [
        pytest.param("LS", (2000, 1 * G), id="units are divided"),
        pytest.param("LSR", (3000, 1 * G), id="CPUs of LSR are real"),
        pytest.param("LSE", (3000, 1 * G), id="CPUs of LSE are real"),
    ],
)
def test_an_amplified_node(qos: str, taken: tuple[int, int]) -> None:
    kept = (1000, G)  # by kubelet, which only raw-allocatable shows
    of = [pod("p", (3, "1200M"), qos=qos, priority="koord-prod")]
    assert left(of, of=AMPLIFIED) == tuple(a + b for a, b in zip(kept, taken, strict=True))


@pytest.mark.parametrize(
    ("annotations", "taken"),
    [
        pytest.param({"resource_amplification_ratio": '{"cpu":3}'}, (334, 1), id="rounded up"),
        pytest.param({"resource_amplification_ratio": '{"cpu":0.5,"memory":1}'}, (1000, 1), id="not above 1"),
        pytest.param({"resource_amplification_ratio": "{}"}, (1000, 1), id="empty"),
        pytest.param({"raw_allocatable": '{"cpu":"8"}', **RATIO_1}, (3000, 1), id="raw CPU: memory by the status"),
        pytest.param({"raw_allocatable": '{"cpu":"8"}'}, (1000, 1), id="raw CPU, no longer amplified"),
    ],
)
def test_annotations_of_amplified_nodes(annotations: dict[str, str], taken: tuple[int, int]) -> None:
    assert left([pod("p", (1, "1"))], of=node((10, 10), None, **annotations)) == taken


def test_cpu_has_no_policy_by_request() -> None:
    pods, report = [pod("p", (3, 3))], metric((0, 0), {"p": (1, 1)})
    by_use = offered(EMPTY, pods, report)
    by_request = offered(EMPTY, pods, report, strategy(cpu_calculate_policy=REQUEST))
    assert (by_use.batch, by_use.problems) == (by_request.batch, ())
    (problem,) = by_request.problems
    assert str(problem) == "cpuCalculatePolicy: there is no 'request' for CPU, 'usage' applies"


@pytest.mark.parametrize(
    ("one", "requested", "problem"),
    [
        pytest.param(pod("p", ("lots", 2)), (0, 2), "request of cpu counts as 0: 'lots' is not a", id="CPU"),
        pytest.param(pod("p", (2, "much")), (2, 0), "request of memory counts as 0: 'much' is not a", id="memory"),
        pytest.param(pod("p", (2, "-1")), (2, 0), "request of memory counts as 0: '-1' is negative", id="negative"),
        pytest.param(
            pod("p", (1, 1), mid("x", "1G"), priority="koord-mid"),
            (1, 2),
            "request of kubernetes.io/mid-cpu counts as 0: 'x' is not a",
            id="mid, with native ones that can be read",
        ),
        pytest.param(
            pod("p", ("lots", 2), kube_qos=""), (0, 2), "request of cpu counts as 0: 'lots' is", id="no Kubernetes QoS"
        ),
    ],
)
def test_a_request_that_cannot_be_read_costs_itself_only(one: Pod, requested: tuple[int, int], problem: str) -> None:
    other = pod("other", (1, 1))
    unmeasured = offered(EMPTY, [other, one], IDLE)
    assert unmeasured.batch == CPUMemory(5000 - 1000 * requested[0], 55 * G // 10 - G * requested[1])
    measured = offered(EMPTY, [one, other], metric((0, 0), {"p": (2, 3)}))
    assert measured.batch == CPUMemory(3000, 25 * G // 10), "what it uses counts"
    for found in (unmeasured, measured):
        (said,) = found.problems
        assert str(said).startswith(f"pod d/p: its {problem}")


def test_an_lse_pod_that_cannot_be_read_counts_by_its_use() -> None:
    pods = [pod("p", ("lots", 2), qos="LSE", priority="koord-prod")]
    assert left(pods, metric((0, 0), {"p": (2, 3)})) == (2000, 3 * G)


@pytest.mark.parametrize(
    ("annotations", "taken", "problem"),
    [
        pytest.param({"reservation": "{"}, (0, 0), "annotation node.koordinator.sh/reservation: ", id="no JSON"),
        pytest.param(
            {"reservation": '{"resources":{"cpu":"x","memory":"1G"}}'}, (0, G), "resources: cpu 'x' is", id="amount"
        ),
        pytest.param(
            {"reservation": '{"resources":{"cpu":"1"},"reservedCPUs":"x"}'}, (1000, 0), "reservedCPUs", id="CPUs"
        ),
        pytest.param({"reservation": '{"resources":{"cpu":"-1"}}'}, (0, 0), "'-1' is negative", id="negative"),
        pytest.param({"raw_allocatable": "[]", **RATIO_1}, (0, 0), "raw-allocatable", id="raw-allocatable"),
        pytest.param({"raw_allocatable": '{"cpu":"x","memory":"9G"}', **RATIO_1}, (0, G), "cpu 'x'", id="member of it"),
        pytest.param({"resource_amplification_ratio": '{"cpu":"2"}'}, (0, 0), "'2' is no ratio", id="ratio"),
        pytest.param({"resource_amplification_ratio": '{"cpu":true}'}, (0, 0), "True is no ratio", id="no number"),
        pytest.param({"thirdPartyAllocations": "7"}, (0, 0), "thirdPartyAllocations", id="third party"),
    ],
)
def test_annotations_that_cannot_be_read(annotations: dict[str, str], taken: tuple[int, int], problem: str) -> None:
    of = node((10, 10), None, **annotations)
    assert left([], of=of) == taken
    (said,) = offered(of, [], IDLE).problems
    assert problem in str(said)


def test_no_reserved_cpus_replace_no_amount() -> None:
    assert left([], of=node((10, 10), reservation='{"resources":{"cpu":"1"},"reservedCPUs":""}')) == (1000, 0)


def test_more_allocatable_than_capacity_is_no_reservation() -> None:
    terms = offered(node((10, 10), (12, 12)), [], IDLE).terms
    assert terms is not None and terms.kubelet_reserved == CPUMemory(0, 0)


def test_the_problems_of_pods_do_not_depend_on_their_order() -> None:
    pods = [pod(name, ("lots", 1)) for name in ("b", "a", "c")]
    found, reverse = offered(EMPTY, pods, IDLE), offered(EMPTY, pods[::-1], IDLE)
    assert found == reverse and [str(problem)[:7] for problem in found.problems] == ["pod d/a", "pod d/b", "pod d/c"]


@pytest.mark.parametrize("name", ["kubernetes.io/batch-cpu", "koordinator.sh/batch-cpu"])
def test_third_parties_add_up_and_a_bad_amount_costs_itself(name: str) -> None:
    each = f'{{"name":"y","priority":"koord-batch","resources":{{"{name}":1000,"kubernetes.io/batch-memory":"x"}}}}'
    found = offered(node((10, 10), thirdPartyAllocations=f'{{"allocations":[{each},{each}]}}'), [], IDLE)
    assert found.published_batch == CPUMemory(4000, 65 * G // 10)
    assert len(found.problems) == 2 and "batch-memory 'x'" in str(found.problems[0])


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        pytest.param(None, "the node has no NodeMetric", id="no object"),
        pytest.param(NodeMetric(), "the NodeMetric has no status.updateTime: ", id="never reported"),
        pytest.param(
            NodeMetric(status=NodeMetricStatus(update_time="now")), "status.updateTime 'now' is no time", id="no time"
        ),
        pytest.param(
            NodeMetric(status=NodeMetricStatus(update_time=time(NOW_S))), "lacks the node's figures", id="no nodeMetric"
        ),
        pytest.param(metric(("lots", 1)), "lacks the node's figures", id="what the system uses cannot be read"),
    ],
)
def test_reports_by_which_nothing_is_offered(report: NodeMetric | None, reason: str) -> None:
    found = offered(EMPTY, [pod("p", (1, 1))], report)
    assert reason in found.degraded
    assert (found.batch, found.mid, found.published_batch, found.terms) == (None, None, None, None)


@pytest.mark.parametrize("capacity", [{}, {"cpu": "1"}, {"cpu": "x", "memory": "1"}], ids=["none", "half", "bad"])
def test_a_node_whose_capacity_is_not_known_offers_nothing(capacity: dict[str, str]) -> None:
    found = offered(Node(status=NodeStatus(capacity=capacity)), [], IDLE)
    assert (found.degraded, found.batch) == ("the node's capacity is not known", None)


def test_a_node_without_allocatable_keeps_nothing_back() -> None:
    assert left([], of=Node(status=NodeStatus(capacity={"cpu": "10", "memory": "10G"}))) == (0, 0)


def test_a_report_without_the_systems_use_offers_all_but_what_is_reserved() -> None:
    report = NodeMetric(
        status=NodeMetricStatus(update_time=time(NOW_S), node_metric=NodeUsage(system_usage=ResourceMap()))
    )
    found = offered(node((10, 10), (9, 10)), [], report)
    assert found.batch == CPUMemory(5000, 65 * G // 10)
    (problem,) = found.problems
    assert str(problem) == "the NodeMetric's systemUsage lacks cpu or memory, which counts as 0"


@pytest.mark.parametrize(
    ("update_s", "seen_s", "age_s", "problem"),
    [
        pytest.param(-30, None, 30, "", id="seen never"),
        pytest.param(-30, -20, 30, "", id="the node's time is the earlier one"),
        pytest.param(-30, -500, 500, "the node's clock is 470 s ahead", id="minutes ahead"),
        pytest.param(3600, None, 0, "the node's clock is 3600 s ahead", id="an hour ahead"),
        pytest.param(3600, -900, 900, "the node's clock is 4500 s ahead", id="it ages from its first sight"),
        pytest.param(60, None, 0, "", id="tolerated"),
        pytest.param(61, None, 0, "the node's clock is 61 s ahead", id="just not"),
        pytest.param(-30, 500, 30, "", id="the manager's clock was put back"),
    ],
)
def test_the_age_of_a_report(update_s: int, seen_s: int | None, age_s: int, problem: str) -> None:
    found = offered(
        EMPTY,
        [],
        metric((0, 0), update_s=NOW_S + update_s),
        metric_seen_s=None if seen_s is None else NOW_S + seen_s,
    )
    assert (found.age_s, *map(str, found.problems), found.degraded) == (age_s, *([problem] if problem else []), "")


@pytest.mark.parametrize(
    ("update_s", "seen_s", "reason"),
    [
        pytest.param(3600, -901, "the NodeMetric is 901 s old and counts for 900 s", id="ahead, and dead"),
        pytest.param(
            -1000,
            -10,
            "the NodeMetric is 1000 s old and counts for 900 s; it came 10 s ago, so the node's clock may be behind",
            id="behind, or late",
        ),
    ],
)
def test_a_clock_that_is_wrong_keeps_nothing_fresh(update_s: int, seen_s: int, reason: str) -> None:
    found = offered(EMPTY, [], metric((0, 0), update_s=NOW_S + update_s), metric_seen_s=NOW_S + seen_s)
    assert (found.degraded, found.batch) == (reason, None)


@pytest.mark.parametrize("percent", [0, 1, 33, 59, 65, 99, 100, 101, 133, 250])
@pytest.mark.parametrize("total", [1, 7, 99, 16 * GIB + 1])
def test_percentages_drop_fractions_towards_0(total: int, percent: int) -> None:
    of = node(("1", str(total)))
    settings = {"memory_reclaim_threshold_percent": percent}
    expected = total - int(total * (100 - percent) / 100) if total < 1000 else None
    found = batch(of, [], IDLE, **settings)
    assert found is not None
    if expected is not None:
        assert found.memory_bytes == expected
    assert abs(found.memory_bytes * 100 - total * percent) < 100
    limited = batch(of, [], IDLE, batch_memory_threshold_percent=percent, memory_reclaim_threshold_percent=1000)
    assert limited is not None and limited.memory_bytes == total * percent // 100


def test_an_incomplete_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="is not complete"):
        offered(EMPTY, [], IDLE, replace(DEFAULTS, memory_reclaim_threshold_percent=None))


def test_the_terms_are_those_of_the_formula() -> None:
    of = node((10, 10), (9, 9), reservation='{"resources":{"cpu":"2"}}')
    pods = [pod("p", (2, 2), priority="koord-prod"), pod("f", (1, 1), priority="koord-free")]
    report = metric((1, 3), {"p": (1, 4), "x": (1, 1)}, applications=[("koord-prod", (2, 1)), ("koord-mid", (1, 1))])
    terms = offered(of, pods, report).terms
    assert terms is not None
    assert {name: getattr(terms, name) for name in terms.__struct_fields__} == {
        "total": CPUMemory(10000, 10 * G),
        "margin": CPUMemory(4000, 35 * G // 10),
        "kubelet_reserved": CPUMemory(1000, G),
        "annotation_reserved": CPUMemory(2000, 0),
        "node_reserved": CPUMemory(2000, G),
        "system_usage": CPUMemory(1000, 3 * G),
        "host_applications": CPUMemory(3000, 2 * G),
        "system_used": CPUMemory(4000, 5 * G),
        "high_priority_request": CPUMemory(3000, 3 * G),
        "high_priority_used": CPUMemory(2000, 5 * G),
        "high_priority_max": CPUMemory(3000, 5 * G),
        "dangling": CPUMemory(1000, G),
        "cpu_policy": USAGE,
        "memory_policy": USAGE,
        "cpu_limit_milli": None,
        "memory_limit_bytes": None,
    }
