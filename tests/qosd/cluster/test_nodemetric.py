"""The status of a NodeMetric: field by field, at the edges of its rules, and as its consumers read it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.model import core
from koord.model.nodemetric import (
    AGGREGATIONS,
    AggregatePolicy,
    CollectPolicy,
    NodeMetric,
    NodeMetricStatus,
    NodeUsage,
    ResourceMap,
)
from koord.model.overcommit import amounts, demand, report
from koord.model.overcommit.amounts import CPUMemory
from koord.model.overcommit.offer import offer
from koord.model.overcommit.strategy import DEFAULTS
from koord.model.priority import PriorityClass
from koord.model.qos import QoSClass
from koord.model.slo import CgroupBase, CgroupPath, HostApplication
from qosd.cluster import nodemetric
from qosd.cluster.collectpolicy import effective
from qosd.cluster.nodemetric import MAX_AGE_S, NodeReport, NotMeasured
from qosd.model.metric import Scope
from qosd.sense.node import NodeRow, NumaRow
from qosd.sense.row import NO_SAMPLE
from qosd.sense.usage import USAGE
from tests.qosd.cluster.history import GIB, START_S, WALL_S, History, Use, pod, row

POD = USAGE[Scope.POD]
APP = HostApplication(name="nginx", priority="koord-prod", qos="LS")
INSIDE = HostApplication(
    name="agent", qos="LS", cgroup_path=CgroupPath(base=CgroupBase.KUBEPODS, relative_path="agent")
)


def reported(history: History, **policy: Any) -> NodeReport:
    durations = policy.pop("durations", ("5m", "10m", "30m"))
    stated = CollectPolicy(node_aggregate_policy=AggregatePolicy(tuple(durations)), **policy)
    return nodemetric.report(history.snapshot(), history.store, effective(stated))


def node_of(history: History, **policy: Any) -> NodeUsage:
    usage = reported(history, **policy).status.node_metric
    assert usage is not None
    return usage


def amount(usage: ResourceMap) -> CPUMemory:
    reading = amounts.read(usage.resources)
    assert reading.cpu_milli is not None and reading.memory_bytes is not None and not reading.problems
    return reading.filled()


def gib(cpu_milli: int, memory_gib: float) -> CPUMemory:
    return CPUMemory(cpu_milli, int(memory_gib * GIB))


# field by field


def test_every_field_of_upstreams_listing() -> None:
    """The names and spellings are those of a NodeMetric that upstream's koordlet wrote."""
    web, job = pod("web", cores=1, gib=2), pod("job", "batch", QoSClass.BE, PriorityClass.BATCH)
    history = History(web, job, apps=[APP])
    for _ in range(200):
        history.tick(Use(0.25, 1), web=Use(0.5, 2), job=Use(0.75, 1.5), apps={"nginx": Use(0.125, 0.5)})
    history.predict(Use(2.5, 0), Use(3, 4))
    status = reported(history, durations=["5m", "30m"]).status
    of_node = {"cpu": "1625m", "memory": "5Gi"}
    of_system = {"cpu": "250m", "memory": "1Gi"}

    def all_of(resources: dict[str, str]) -> dict[str, Any]:
        return {name: {"resources": resources} for name in AGGREGATIONS}

    assert msgspec.json.decode(msgspec.json.encode(status)) == {
        "updateTime": "2026-09-21T14:33:20Z",
        "nodeMetric": {
            "nodeUsage": {"resources": of_node},
            "systemUsage": {"resources": of_system},
            "aggregatedNodeUsages": [{"duration": "5m0s", "usage": all_of(of_node)}, {"duration": "30m0s"}],
            "aggregatedSystemUsages": [{"duration": "5m0s", "usage": all_of(of_system)}, {"duration": "30m0s"}],
            "numaUsages": [
                {
                    "numaNodeID": 0, "nodeUsage": {"resources": of_node},
                    "systemUsage": {"resources": {"cpu": "250m", "memory": "1536Mi"}},  # with host applications
                }
            ],
        },
        "podsMetric": [
            {
                "name": "job", "namespace": "batch", "priority": "koord-batch", "qos": "BE",
                "podUsage": {"resources": {"cpu": "750m", "memory": "1536Mi"}},
            },
            {
                "name": "web", "namespace": "shop", "priority": "koord-prod", "qos": "LS",
                "podUsage": {"resources": {"cpu": "500m", "memory": "2Gi"}},
            },
        ],
        "hostApplicationMetric": [
            {
                "name": "nginx", "priority": "koord-prod", "qos": "LS",
                "usage": {"resources": {"cpu": "125m", "memory": "512Mi"}},
            }
        ],
        "prodReclaimableMetric": {"resource": {"resources": {"cpu": "2500m", "memory": "0"}}},
        "prodPeakMetric": {"resource": {"resources": {"cpu": "3", "memory": "4Gi"}}},
    }  # fmt: skip
    assert core.unix_s(status.update_time) == WALL_S + START_S + 200


def test_it_is_read_back_as_it_was_written() -> None:
    history = History(pod("web"))
    for _ in range(10):
        history.tick(Use(1, 1), web=Use(1, 1))
    status = reported(history).status
    assert core.read(NodeMetricStatus, msgspec.json.encode(status)) == status


@pytest.mark.parametrize(
    ("gib_used", "text"),
    [(0.0, "0"), (1.0, "1Gi"), (1.5, "1536Mi"), (5 / 2**18, "20Ki"), (5 / 2**30, "5")],
)
def test_memory_is_spelled_as_kubernetes_does(gib_used: float, text: str) -> None:
    history = History()
    history.tick(Use(0.5, gib_used))
    assert node_of(history).node_usage.resources["memory"] == text


@pytest.mark.parametrize(("cores", "text"), [(0.0, "0"), (0.0009, "0"), (0.5, "500m"), (2.0, "2"), (1.9999, "1999m")])
def test_cpu_is_in_whole_thousandths(cores: float, text: str) -> None:
    history = History()
    history.tick(Use(cores, 1))
    assert node_of(history).node_usage.resources["cpu"] == text


# windows


def test_plain_figures_are_means_of_the_policys_window_alone() -> None:
    history = History(pod("web"))
    for _ in range(100):
        history.tick(Use(3, 3), web=Use(4, 1))
    for _ in range(60):
        history.tick(Use(1, 1), web=Use(2, 1))
    usage = node_of(history, aggregate_duration_seconds=60)
    assert amount(usage.node_usage) == gib(3000, 2)
    assert amount(usage.system_usage) == gib(1000, 1)
    (web,) = reported(history, aggregate_duration_seconds=60).status.pods_metric
    assert amount(web.pod_usage) == gib(2000, 1)


@pytest.mark.parametrize(("ticks", "is_filled"), [(150, False), (151, True)])
def test_an_aggregate_is_empty_below_half_of_its_window(ticks: int, is_filled: bool) -> None:
    """151 samples are 150 s from the first to the last: half of five minutes."""
    history = History()
    for _ in range(ticks):
        history.tick(Use(1, 1))
    usage = node_of(history, durations=["5m", "10m"])
    for aggregated in (usage.aggregated_node_usages, usage.aggregated_system_usages):
        assert [each.duration for each in aggregated] == ["5m0s", "10m0s"]
        assert [bool(each.usage) for each in aggregated] == [is_filled, False]


def test_each_aggregate_is_of_its_own_window() -> None:
    history = History()
    for second in range(600):
        history.tick(Use(1 if second < 300 else 2, 1))
    shorter, longer = node_of(history, durations=["5m", "10m"]).aggregated_node_usages
    found = [{name: amount(usage).cpu_milli for name, usage in each.usage.items()} for each in (shorter, longer)]
    assert found == [
        dict.fromkeys(AGGREGATIONS, 2000),
        {"avg": 1500, "p50": 1000, "p90": 2000, "p95": 2000, "p99": 2000},
    ]


def test_a_window_longer_than_what_is_kept_is_empty_and_said() -> None:
    history = History()
    for _ in range(400):
        history.tick(Use(1, 1))
    policy = effective(CollectPolicy(node_aggregate_policy=AggregatePolicy(("10m", "2h"))))
    usage = nodemetric.report(history.snapshot(), history.store, policy).status.node_metric
    assert usage is not None
    assert [(each.duration, bool(each.usage)) for each in usage.aggregated_node_usages] == [
        ("10m0s", True), ("2h0m0s", False),
    ]  # fmt: skip
    assert policy.problems == (
        "NodeMetric spec.metricCollectPolicy.nodeAggregatePolicy.durations[1]: '2h' is longer than the 1800 s that are"
        " kept of the node, so its usage stays empty",
    )


# whose use it is


def test_what_no_pod_accounts_for_is_the_systems() -> None:
    history = History(pod("web"))
    for _ in range(60):
        history.tick(Use(0.5, 1), orphans=Use(1.5, 2), web=Use(1, 1))
    usage = node_of(history)
    assert amount(usage.system_usage) == gib(2000, 3)
    assert amount(usage.numa_usages[0].system_usage) == gib(2000, 3)


def test_a_pod_that_cannot_be_read_yet_counts_by_its_request() -> None:
    """The report lacks it, so its request counts at the manager, and its use must not count once more."""
    history = History(pod("web", cores=2, gib=4))
    for _ in range(60):
        history.tick(Use(0.5, 1), unreadable={"web": Use(1.5, 3)})
    usage = reported(history).status
    assert usage.pods_metric == ()
    assert usage.node_metric is not None and amount(usage.node_metric.system_usage) == gib(500, 1)


def test_what_is_used_above_the_requests_of_pods_that_cannot_be_read_is_the_systems() -> None:
    history = History(pod("web", cores=1, gib=1))
    for _ in range(60):
        history.tick(Use(0.5, 1), unreadable={"web": Use(1.5, 3)})
    assert amount(node_of(history).system_usage) == gib(1000, 3)


def test_a_pod_whose_request_nobody_tells_is_counted_with_the_system() -> None:
    history = History(pod("web"))
    for _ in range(60):
        history.tick(Use(0.5, 1), unreadable={"web": Use(1.5, 3)})
    assert amount(node_of(history).system_usage) == gib(2000, 4)


def test_a_newcomer_hides_no_orphan_of_the_time_before_it() -> None:
    history = History()
    for _ in range(59):
        history.tick(Use(0.5, 1), orphans=Use(2, 2))
    history.pods = (pod("new", cores=8, gib=16),)
    history.tick(Use(0.5, 1), orphans=Use(2, 2), unreadable={"new": Use(1, 1)})
    system = amount(node_of(history, aggregate_duration_seconds=60).system_usage)
    assert system.cpu_milli == int((0.5 + 2 * 59 / 60) * 1000)


def test_an_application_in_kubepods_is_not_the_systems_as_well() -> None:
    history = History(apps=[INSIDE])
    for _ in range(60):
        history.tick(Use(0.5, 1), orphans=Use(1, 1), apps_inside={"agent": Use(2, 2)})
    status = reported(history).status
    assert status.node_metric is not None
    assert amount(status.node_metric.system_usage) == gib(1500, 2)
    assert [amount(each.usage) for each in status.host_application_metric] == [gib(2000, 2)]


def test_without_kubelets_root_cgroup_the_rest_of_the_node_is_the_systems() -> None:
    history = History(pod("web"), has_root=False)
    for _ in range(10):
        history.tick(Use(0.5, 1), orphans=Use(1, 1), web=Use(1, 1))
    assert amount(node_of(history).system_usage) == gib(1500, 2)


uses = st.builds(Use, st.integers(1, 64).map(lambda n: n / 16), st.integers(0, 64).map(lambda n: n / 8))


@st.composite
def histories(draw: st.DrawFn, unreadable: bool) -> tuple[History, int]:
    """A minute of a node, and how many parts of it are reported; all pods live throughout."""
    names = [f"p{number}" for number in range(draw(st.integers(0, 4)))]
    hidden = [f"u{number}" for number in range(draw(st.integers(1, 3)))] if unreadable else []
    pods = [pod(name) for name in names] + [pod(name, cores=draw(st.integers(0, 4)), gib=2) for name in hidden]
    history = History(*pods, apps=[APP, INSIDE])
    moments = draw(st.lists(st.tuples(*[uses] * (4 + len(pods))), min_size=1, max_size=4))
    for second in range(60):
        system, orphans, outside, inside, *of_pods = moments[second % len(moments)]
        history.tick(
            system,
            orphans,
            apps={"nginx": outside},
            apps_inside={"agent": inside},
            unreadable=dict(zip(hidden, of_pods[len(names) :], strict=True)),
            **dict(zip(names, of_pods[: len(names)], strict=True)),
        )
    return history, len(names) + 3


def parts_of(status: NodeMetricStatus) -> CPUMemory:
    assert status.node_metric is not None
    total = amount(status.node_metric.system_usage)
    for pod_usage in status.pods_metric:
        total += amount(pod_usage.pod_usage)
    for application in status.host_application_metric:
        total += amount(application.usage)
    return total


@settings(max_examples=50)
@given(histories(unreadable=False))
def test_all_use_is_somebodys_and_nobodys_twice(drawn: tuple[History, int]) -> None:
    history, count = drawn
    status = reported(history, aggregate_duration_seconds=60).status
    assert status.node_metric is not None
    rest = amount(status.node_metric.node_usage) - parts_of(status)
    rounding_bytes = 4096 * count  # the rings keep 24 bits
    assert -1 <= rest.cpu_milli <= count and -rounding_bytes <= rest.memory_bytes <= rounding_bytes


@settings(max_examples=50)
@given(histories(unreadable=True))
def test_with_the_requests_of_pods_that_are_not_measured_all_use_is_covered(drawn: tuple[History, int]) -> None:
    history, count = drawn
    status = reported(history, aggregate_duration_seconds=60).status
    assert status.node_metric is not None
    covered = parts_of(status)
    for each in history.pods:
        covered += CPUMemory(each.cpu_request_milli or 0, each.memory_request_bytes or 0)
    rest = amount(status.node_metric.node_usage) - covered
    assert rest.cpu_milli <= count and rest.memory_bytes <= 4096 * count


@given(st.lists(st.tuples(uses, uses), min_size=1, max_size=3))
def test_numa_nodes_have_together_what_the_system_has(moments: list[tuple[Use, Use]]) -> None:
    history = History()
    for second in range(60):
        system, orphans = moments[second % len(moments)]
        history.tick(system, orphans)
    usage = node_of(history, aggregate_duration_seconds=60)
    assert [amount(each.system_usage) for each in usage.numa_usages] == [amount(usage.system_usage)]


# pods


def test_a_pod_without_both_samples_is_left_out() -> None:
    history = History(pod("web"), pod("new"))
    for _ in range(10):
        history.tick(Use(1, 1), web=Use(1, 1))
    history.tick(Use(1, 1), web=Use(1, 1), new=Use(float("nan"), 1))
    assert [each.name for each in reported(history).status.pods_metric] == ["web"]


def test_a_pod_that_has_ended_is_gone_with_its_cgroup() -> None:
    history = History(pod("web"), pod("done"))
    for _ in range(10):
        history.tick(web=Use(1, 1), done=Use(1, 1))
    history.tick(web=Use(1, 1))
    assert [each.name for each in reported(history).status.pods_metric] == ["web"]


def test_two_pods_of_one_name_are_one_figure() -> None:
    old, new = pod("db-0", state="SANDBOX_NOTREADY"), msgspec.structs.replace(pod("db-0"), uid="2", qos=QoSClass.LSR)
    history = History(old, msgspec.structs.replace(new, cgroup="/kubepods/burstable/podnew"))
    history.tick(Use(1, 1))
    rows = {
        each.cgroup: row(POD, cpu_usage_cores=cores, memory_usage_bytes=cores * GIB)
        for each, cores in zip(history.pods, (1.0, 2.0), strict=True)
    }
    history.store.put(POD.panel, history.at_ns, rows)
    (found,) = reported(history).status.pods_metric
    assert (found.name, found.qos, amount(found.pod_usage)) == ("db-0", "LSR", gib(3000, 3))


def test_pods_are_in_the_order_of_their_names() -> None:
    names = [("b", "x"), ("a", "z"), ("a", "y")]
    history = History(*(pod(name, namespace) for namespace, name in names))
    history.tick(x=Use(1, 1), y=Use(1, 1), z=Use(1, 1))
    found = [(each.namespace, each.name) for each in reported(history).status.pods_metric]
    assert found == [("a", "y"), ("a", "z"), ("b", "x")]


# host applications


@pytest.mark.parametrize(
    ("priority", "qos", "reported_priority"),
    [
        ("koord-mid", "LS", "koord-mid"),
        ("koord-batch", "LSR", "koord-batch"),
        ("", "LS", "koord-prod"),
        ("", "", "koord-prod"),
        ("", "BE", "koord-batch"),
        ("highest", "BE", "koord-batch"),
    ],
)
def test_every_host_application_has_a_priority(priority: str, qos: str, reported_priority: str) -> None:
    history = History(apps=[HostApplication(name="nginx", priority=priority, qos=qos)])
    history.tick(apps={"nginx": Use(1, 1)})
    (found,) = reported(history).status.host_application_metric
    assert (found.priority, found.qos) == (reported_priority, qos)


def test_an_application_that_does_not_run_is_left_out() -> None:
    history = History(apps=[APP])
    history.tick(Use(1, 1))
    assert reported(history).status.host_application_metric == ()


# memory policies


def test_with_page_cache_everybody_has_it_but_the_system() -> None:
    history = History(pod("web"), apps=[APP])
    for _ in range(10):
        history.tick(Use(1, 1), cache_gib=2, web=Use(1, 1), apps={"nginx": Use(1, 1)})
    found = reported(history, node_memory_collect_policy="usageWithPageCache")
    assert found.status.node_metric is not None and found.problems == ()
    memory = [
        amount(found.status.node_metric.node_usage).memory_bytes,
        amount(found.status.node_metric.system_usage).memory_bytes,
        amount(found.status.pods_metric[0].pod_usage).memory_bytes,
        amount(found.status.host_application_metric[0].usage).memory_bytes,
    ]
    assert memory == [5 * GIB, GIB, 3 * GIB, 3 * GIB]


def test_page_cache_that_nobody_measures_costs_no_figure() -> None:
    history = History(pod("web"))
    history.tick(Use(1, 1), cache_gib=float("nan"), web=Use(1, 1))
    found = reported(history, node_memory_collect_policy="usageWithPageCache")
    assert found.status == reported(history).status
    assert found.problems == (
        "NodeMetric spec.metricCollectPolicy.nodeMemoryCollectPolicy: usageWithPageCache has no samples on this node,"
        " so it counts as usageWithoutPageCache",
    )


# predictions


def test_no_evidence_is_nothing_to_give_away() -> None:
    history = History()
    history.tick(Use(1, 1))
    status = reported(history).status
    assert status.prod_reclaimable_metric is not None and status.prod_peak_metric is None
    assert status.prod_reclaimable_metric.resource.resources == {"cpu": "0", "memory": "0"}


@pytest.mark.parametrize(("age_s", "cpu"), [(1, "2500m"), (179, "2500m"), (180, "0")])
def test_a_prediction_that_nobody_renews_is_no_evidence(age_s: int, cpu: str) -> None:
    history = History()
    history.predict(Use(2.5, 1), Use(1, 1))
    history.now_s += age_s - 1
    history.tick(Use(1, 1))
    status = reported(history).status
    assert status.prod_reclaimable_metric is not None
    assert status.prod_reclaimable_metric.resource.resources["cpu"] == cpu


# what is not known


@pytest.mark.parametrize("collector", ["node", "usage", "system"])
@pytest.mark.parametrize(
    ("age_s", "why"),
    [(None, "has not measured yet"), (MAX_AGE_S, ""), (MAX_AGE_S + 1, "are 11 s old")],
    ids=["never", "old", "too old"],
)
def test_old_samples_are_no_report(collector: str, age_s: float | None, why: str) -> None:
    history = History()
    history.tick(Use(1, 1))
    del history.ages_s[collector]
    if age_s is not None:
        history.ages_s[collector] = age_s
    if not why:
        assert reported(history)
        return
    with pytest.raises(NotMeasured, match=why):
        reported(history)
    assert nodemetric.node_usage(history.snapshot(), history.store, effective(None)) is None


@pytest.mark.parametrize(
    ("cores", "memory_bytes", "why"),
    [(NO_SAMPLE, GIB, "node's use"), (1, NO_SAMPLE, "node's use"), (1, GIB, "system's use")],
    ids=["no CPU", "no memory", "nothing of the system"],
)
def test_half_of_the_figures_is_no_report(cores: float, memory_bytes: float, why: str) -> None:
    history = History()
    figures = row(NodeRow, cpu_usage_cores=cores, memory_usage_bytes=memory_bytes)
    history.store.put(NodeRow.panel, history.at_ns, {"": figures})
    with pytest.raises(NotMeasured, match=f"no samples of the {why} in 300 s"):
        reported(history)


def test_a_numa_node_without_samples_is_left_out() -> None:
    history = History()
    history.tick(Use(1, 1))
    rows = {
        "0": row(NumaRow, cpu_usage_cores=1.0, memory_usage_bytes=GIB),
        "1": row(NumaRow, memory_usage_bytes=GIB),
    }
    history.store.put(NumaRow.panel, history.at_ns, rows)
    assert [each.numa_node_id for each in node_of(history).numa_usages] == [0]


def test_pods_that_are_not_known_are_the_systems() -> None:
    """Before the first pod list: what runs in kubepods is measured all the same."""
    history = History()
    history.ages_s.pop("pods")
    for _ in range(10):
        history.tick(Use(0.5, 1), orphans=Use(2, 2))
    status = reported(history).status
    assert status.pods_metric == ()
    assert status.node_metric is not None and amount(status.node_metric.system_usage) == gib(2500, 3)


# its consumers


def consumed() -> NodeMetric:
    web, job, cache = pod("web"), pod("job", "batch", QoSClass.BE, PriorityClass.BATCH), pod("cache", qos=QoSClass.LSR)
    history = History(web, job, cache, apps=[APP])
    for _ in range(60):
        history.tick(
            Use(0.25, 0.5), orphans=Use(0.25, 0.5), apps={"nginx": Use(0.5, 0.25)},
            web=Use(0.5, 1), job=Use(1, 1), cache=Use(0.25, 0.5),
        )  # fmt: skip
    history.predict(Use(1.5, 2), Use(2, 2))
    status = msgspec.json.encode({"status": reported(history).status})
    return core.read(NodeMetric, status)


def test_the_managers_figures_are_ours() -> None:
    metric, problems = consumed(), list[str]()
    figures = report.figures(metric, problems.append)
    assert figures is not None and problems == []
    assert figures.system_usage == gib(500, 1)
    assert figures.prod_host_applications == gib(500, 0.25)
    assert figures.node_usage == gib(2750, 3.75)
    assert figures.prod_reclaimable == gib(1500, 2)
    now_s = WALL_S + START_S + 60.0
    assert report.freshness(metric, 900, now_s, now_s) == report.Freshness(0.0)


def kube_pod(name: str, namespace: str, cpu: str, memory: str, **labels: str) -> core.Pod:
    document = {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]},
        "status": {"phase": "Running", "qosClass": "Burstable"},
    }
    return core.read(core.Pod, msgspec.json.encode(document))


def test_the_manager_makes_its_offer_of_it() -> None:
    """By hand: 8000 - 3200 - (500 + 500) - (500 + 250 + 1000), where ``new`` is not in the report yet."""
    pods = [
        kube_pod("web", "shop", "2", "4Gi"),
        kube_pod("cache", "shop", "1", "1Gi"),
        kube_pod("new", "shop", "1", "1Gi"),
    ]
    has = {"cpu": "8", "memory": "16Gi"}
    node = core.read(core.Node, msgspec.json.encode({"status": {"capacity": has, "allocatable": has}}))
    now_s = WALL_S + START_S + 60.0
    made = offer(node, pods, consumed(), DEFAULTS, now_s, now_s)
    assert made.degraded == "" and made.problems == () and made.batch is not None and made.mid is not None
    assert made.batch.cpu_milli == 8000 - 3200 - 1000 - (500 + 250 + 1000)
    assert made.batch.memory_bytes == 16 * GIB - 16 * GIB * 35 // 100 - int(1.25 * GIB) - int(2.5 * GIB)
    assert made.mid == gib(1500, 2)


def test_demand_knows_every_pod_of_it() -> None:
    problems: list[str] = []
    pods = [demand.of_pod(kube_pod("web", "shop", "2", "4Gi")), demand.of_pod(kube_pod("cache", "shop", "1", "1Gi"))]
    total = demand.total(pods, consumed().status.pods_metric, problems.append)
    assert (total.used, total.dangling, problems) == (gib(750, 1.5), CPUMemory(), [])


def test_a_report_that_changed_nothing_moves_nothing() -> None:
    """Of one tick, twice the same."""
    history = History(pod("web"))
    for _ in range(100):
        history.tick(Use(1, 1), web=Use(1, 1))
    assert reported(history) == reported(history)
    assert reported(history).node_usage == nodemetric.node_usage(history.snapshot(), history.store, effective(None))
