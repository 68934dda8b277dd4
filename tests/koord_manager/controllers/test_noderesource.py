"""Batch and mid resources on Nodes: when they come, change, stay and go."""

from __future__ import annotations

from typing import Any

import pytest

from koord.model.nodelink import STALE_S
from koord.overcommit.publish import ORIGINAL
from tests.koord_manager.support import Cluster
from tests.support import kubernetes
from tests.support.cluster import METRICS, NODES, PODS
from tests.support.kubernetes import container

BATCH = {"kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"}
DEGRADE_S = 15 * 60


def pod(cpu: str, memory: str, **spec: Any) -> dict[str, Any]:
    """What a running one of n1 says."""
    made = kubernetes.pod(
        container(requests={"cpu": cpu, "memory": memory}), status={"phase": "Running"}, nodeName="n1", **spec
    )
    return {"spec": made["spec"], "status": made["status"]}


async def test_the_quick_start_sized_node(cluster: Cluster) -> None:
    """With usage as policy: 8 CPUs, 7.5 of them allocatable."""
    cluster.put_config()
    capacity, allocatable = {"cpu": "8", "memory": "16Gi"}, {"cpu": "7500m", "memory": "15Gi"}
    cluster.server.put(NODES, "", "n1", status={"capacity": capacity, "allocatable": allocatable})
    cluster.server.put(PODS, "default", "web", **pod("2", "4Gi", priority=9000))
    cluster.server.put(PODS, "default", "new", **pod("1", "1Gi", priority=9000))
    usage = {"resources": {"cpu": "500m", "memory": "1Gi"}}
    web = {"name": "web", "namespace": "default", "priority": "koord-prod", "podUsage": usage}
    cluster.report(podsMetric=[web])
    await cluster.lead()
    await cluster.settled(cluster.offered)
    assert cluster.offered()["kubernetes.io/batch-cpu"] == "2800"
    assert cluster.offered()["kubernetes.io/batch-memory"] == "7945689498"
    node = cluster.object(NODES, "n1")
    assert node is not None
    assert node["status"]["capacity"]["kubernetes.io/batch-cpu"] == "2800"
    assert ORIGINAL in node["metadata"]["annotations"]


@pytest.mark.parametrize("data", [{}, {"colocation-config": '{"enable": false}'}], ids=["no word", "disabled"])
async def test_nothing_is_offered_unless_enabled(cluster: Cluster, data: dict[str, str]) -> None:
    cluster.put_config(data)
    cluster.put_node()
    cluster.report()
    await cluster.lead()
    await cluster.settled(lambda: cluster.object("/apis/slo.koordinator.sh/v1alpha1/nodeslos", "n1"))
    await cluster.quiet()
    assert cluster.offered() == {}


async def test_no_report_no_offer(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: cluster.events("OvercommitDegraded"))
    assert cluster.offered() == {}
    assert "no batch and mid resources: " in cluster.events("OvercommitDegraded")[0]


async def test_an_old_report_removes_the_offer_and_a_new_one_brings_it_back(cluster: Cluster) -> None:
    await cluster.begin_to_offer()
    again_s = await cluster.controllers.resources.reconcile("n1")
    assert again_s is not None
    assert 0 < again_s <= 300, "small differences count after that, at the latest"
    cluster.now_s += DEGRADE_S + 1
    assert await cluster.controllers.resources.reconcile("n1") is None
    await cluster.settled(lambda: not cluster.offered())
    node = cluster.object(NODES, "n1")
    assert node is not None
    assert BATCH.isdisjoint(node["status"]["capacity"])
    await cluster.settled(lambda: cluster.events("OvercommitDegraded"))
    cluster.report()
    await cluster.settled(cluster.offered)
    await cluster.settled(lambda: cluster.events("OvercommitRecovered"))


async def test_the_next_look_is_when_the_report_expires(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    await cluster.settled(lambda: cluster.view.metrics.objects and cluster.view.nodes.objects)
    await cluster.view.synced()
    cluster.now_s += DEGRADE_S - 10
    assert await cluster.controllers.resources.reconcile("n1") == 11


async def test_a_node_that_is_in_step_is_not_looked_at_again_and_again(cluster: Cluster) -> None:
    """Small differences count after 300 s; where there are none, after another 300."""
    await cluster.begin_to_offer()
    await cluster.quiet()
    reconcile = cluster.controllers.resources.reconcile
    for passed_s, again_s in ((100, 200), (200, 300), (299, 1), (1, 300), (0, 300)):
        cluster.now_s += passed_s
        cluster.report()
        await cluster.view.synced()
        await cluster.quiet()
        assert await reconcile("n1") == again_s
    await cluster.quiet()


async def test_small_differences_are_written_once_they_are_due(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    await cluster.lead()
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "4400")
    await cluster.quiet()
    cluster.now_s += 100
    cluster.report(cpu="500m")
    assert await cluster.writes() == 0
    cluster.now_s += 200
    await cluster.controllers.resources.reconcile("n1")
    await cluster.settled(lambda: cluster.offered()["kubernetes.io/batch-cpu"] == "4300")


async def test_what_the_cache_knows_counts_before_its_event_is_taken(cluster: Cluster) -> None:
    """The newest report and a new pod are there; nobody has been told of them yet."""
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    await cluster.settled(lambda: cluster.view.metrics.objects)
    await cluster.view.synced()
    cluster.now_s += DEGRADE_S + 60
    cluster.report()
    cluster.server.put(PODS, "default", "web", **pod("1", "1Gi", priority=9000))
    await cluster.settled(lambda: cluster.view.pods.objects)
    assert cluster.view.seen_s("n1") == cluster.now_s
    (found,) = cluster.view.demands_of("n1")
    assert found.request.cpu_milli == 1000


async def test_a_manager_that_starts_does_not_take_an_old_report_for_a_new_one(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    cluster.now_s += DEGRADE_S + 1
    await cluster.lead()
    await cluster.settled(lambda: cluster.events("OvercommitDegraded"))
    assert cluster.offered() == {}


async def test_a_clock_that_is_ahead_does_not_keep_a_report_fresh(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    cluster.now_s += 3600
    cluster.report()
    cluster.now_s -= 3600
    await cluster.lead()
    await cluster.settled(cluster.offered)
    cluster.now_s += DEGRADE_S + 1
    await cluster.controllers.resources.reconcile("n1")
    await cluster.settled(lambda: not cluster.offered())


@pytest.mark.parametrize("data", [{"colocation-config": '{"enable": false}'}, {}], ids=["off", "no key"])
async def test_a_policy_that_disables_takes_the_offer_along(cluster: Cluster, data: dict[str, str]) -> None:
    await cluster.begin_to_offer()
    cluster.put_config(data)
    await cluster.settled(lambda: not cluster.offered())


async def test_a_bad_policy_changes_nothing_and_says_why(cluster: Cluster) -> None:
    await cluster.begin_to_offer()
    before = cluster.offered()
    cluster.put_config({"colocation-config": "{bad"})
    await cluster.settled(lambda: cluster.events("ColocationCfgUnmarshalFailed"))
    await cluster.quiet()
    assert cluster.offered() == before


async def test_heartbeats_and_small_changes_write_nothing(cluster: Cluster) -> None:
    await cluster.begin_to_offer()
    await cluster.quiet()
    looks = sum(queue.handled for queue in cluster.controllers.queues)
    node = cluster.object(NODES, "n1")
    assert node is not None
    for second in range(5):
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:0{second}Z"}
        status = {**node["status"], "conditions": [condition]}
        cluster.server.put(NODES, "", "n1", metadata=node["metadata"], status=status)
    assert await cluster.writes() == 0
    assert sum(queue.handled for queue in cluster.controllers.queues) == looks, "a heartbeat is no reason to look"
    cluster.report(cpu="500m")
    assert await cluster.writes() == 0, "less than a tenth of what is offered"


async def test_use_shrinks_the_offer_at_once_and_grows_it_with_the_next_report(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    cluster.report(cpu="1")
    await cluster.lead()
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "3800")
    cluster.now_s += 60
    cluster.report(cpu="3")
    await cluster.settled(lambda: cluster.offered()["kubernetes.io/batch-cpu"] == "1800")
    await cluster.quiet()
    cluster.now_s += 60
    cluster.report(cpu="1")
    await cluster.settled(lambda: cluster.offered()["kubernetes.io/batch-cpu"] == "3800")


async def test_one_node_stops_no_other(cluster: Cluster) -> None:
    """A report that cannot be read leaves the last one that could be, until that is too old."""
    cluster.put_config()
    names = [f"n{number}" for number in range(1, 6)]
    for name in names:
        cluster.put_node(name)
        cluster.report(name)
    cluster.server.put(METRICS, "", "n3", status={"updateTime": 7})
    await cluster.lead()
    await cluster.settled(lambda: all(map(cluster.offered, names)))
    cluster.now_s += DEGRADE_S + 1
    for name in set(names) - {"n3"}:
        cluster.report(name)
    for name in names:
        await cluster.controllers.resources.reconcile(name)
    await cluster.settled(lambda: [name for name in names if not cluster.offered(name)] == ["n3"])


async def test_a_step_of_use_shrinks_the_offer_at_once_and_the_averaged_report_lets_it_grow(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    await cluster.lead()
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "4400")
    cluster.speak(2400, 1)
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "2400")
    cluster.speak(400, 2)
    await cluster.quiet()
    assert cluster.offered()["kubernetes.io/batch-cpu"] == "2400", "no averaged report has it in yet"
    cluster.now_s += 10
    cluster.report()
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "4400")


async def test_fresh_use_within_the_threshold_wakes_nobody(cluster: Cluster) -> None:
    await cluster.begin_to_offer()
    cluster.speak(400, 1)
    await cluster.quiet()
    queue = cluster.controllers.queues[0]
    handled = queue.handled
    for sequence, cpu_milli in enumerate((500, 700, 840, 300), start=2):
        cluster.speak(cpu_milli, sequence)
    assert await cluster.writes() == 0
    assert queue.handled == handled
    cluster.speak(841, 9)
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "3959")


async def test_fresh_figures_keep_no_old_offer_alive(cluster: Cluster) -> None:
    await cluster.begin_to_offer()
    cluster.now_s += DEGRADE_S + 1
    cluster.speak(400, 1)
    await cluster.settled(lambda: not cluster.offered())


async def test_a_link_that_comes_back_with_more_use_wakes_the_node(cluster: Cluster) -> None:
    """While it was silent the node grew by its averaged report."""
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    cluster.speak(2400, 1)
    await cluster.lead()
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "2400")
    cluster.now_s += STALE_S + 1
    cluster.report()
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "4400")
    await cluster.quiet()
    cluster.speak(2400, 2)
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "2400")


@pytest.mark.parametrize("report_age_s", [None, DEGRADE_S + 1], ids=["no NodeMetric", "degraded"])
async def test_a_node_that_offers_nothing_is_not_looked_at_with_each_figure(
    cluster: Cluster, report_age_s: float | None
) -> None:
    cluster.put_config()
    cluster.put_node()
    if report_age_s is not None:
        cluster.report()
        cluster.now_s += report_age_s
    await cluster.lead()
    await cluster.settled(lambda: cluster.events("OvercommitDegraded"))
    cluster.speak(400, 1)
    await cluster.quiet()
    queue = cluster.controllers.queues[0]
    handled = queue.handled
    for sequence in range(2, 6):
        cluster.speak(1000 * sequence, sequence)
        await cluster.quiet()
    assert queue.handled == handled
    cluster.report(cpu="5")
    await cluster.settled(cluster.offered)


async def test_without_a_word_for_three_reports_the_averaged_one_counts_alone(cluster: Cluster) -> None:
    await cluster.begin_to_offer()
    cluster.speak(2400, 1)
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "2400")
    cluster.now_s += STALE_S
    cluster.report()
    await cluster.quiet()
    assert cluster.offered()["kubernetes.io/batch-cpu"] == "2400"
    cluster.now_s += 1
    cluster.report()
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "4400")


def batch_pod(cpu_milli: int, phase: str = "Running") -> dict[str, Any]:
    requests = {"kubernetes.io/batch-cpu": str(cpu_milli), "kubernetes.io/batch-memory": "1Gi"}
    container = {"name": "c", "resources": {"requests": requests}}
    return {"spec": {"nodeName": "n1", "containers": [container], "priority": 5000}, "status": {"phase": phase}}


HELD = {"kubernetes.io/batch-cpu": "2950", "kubernetes.io/batch-memory": "2Gi"}


async def test_use_never_shrinks_the_offer_below_what_runs(cluster: Cluster) -> None:
    """As it shrinks, a kubelet that restarts would end the pod; once the pod has finished, the rest follows."""
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    cluster.server.put(PODS, "default", "be", **batch_pod(2950))
    await cluster.lead()
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "4400")
    cluster.report(cpu="4")
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "2950")
    await cluster.quiet()
    cluster.speak(4500, 1)
    await cluster.quiet()
    assert cluster.offered()["kubernetes.io/batch-cpu"] == "2950"
    cluster.server.put(PODS, "default", "be", **batch_pod(2950, "Succeeded"))
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "300")


async def test_a_pod_that_was_only_bound_to_the_node_raises_no_offer(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    cluster.server.put(PODS, "default", "be", **batch_pod(900_000_000_000, "Pending"))
    await cluster.lead()
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "4400")
    admitted = batch_pod(5001, "Pending")
    admitted["status"]["startTime"] = "2026-11-23T09:00:00Z"
    cluster.server.put(PODS, "default", "be", **admitted)
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "5001")


@pytest.mark.parametrize("how", ["stale", "no key", "disabled"])
async def test_what_runs_stays_covered_where_nothing_is_offered(cluster: Cluster, how: str) -> None:
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    cluster.server.put(PODS, "default", "be", **batch_pod(1950))
    cluster.server.put(PODS, "default", "other", **batch_pod(1000))
    await cluster.lead()
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "4400")
    if how == "stale":
        cluster.now_s += DEGRADE_S + 1
        await cluster.controllers.resources.reconcile("n1")
    else:
        cluster.put_config({} if how == "no key" else {"colocation-config": '{"enable": false}'})
    await cluster.settled(lambda: cluster.offered() == HELD)
    if how == "stale":
        await cluster.settled(lambda: cluster.events("OvercommitDegraded"))
        assert (
            "no batch and mid resources beyond what running pods request: " in cluster.events("OvercommitDegraded")[0]
        )
    cluster.server.delete(PODS, "default", "other")
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "1950")
    cluster.server.delete(PODS, "default", "be")
    await cluster.settled(lambda: not cluster.offered())
    cluster.put_config()
    cluster.report()
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "4400")


@pytest.mark.parametrize("where", ["config", "annotation"])
async def test_an_operator_may_have_running_pods_uncovered(cluster: Cluster, where: str) -> None:
    uncovered = '"extensions": {"koord": {"coverRunningPods": false}}'
    annotation = {"node.koordinator.sh/colocation-strategy": f"{{{uncovered}}}"}
    cluster.put_config(
        {"colocation-config": f'{{"enable": true, {uncovered if where == "config" else ""}}}'.replace(", }", "}")}
    )
    cluster.put_node(annotations=annotation if where == "annotation" else {})
    cluster.report(cpu="4")
    cluster.server.put(PODS, "default", "be", **batch_pod(2950))
    await cluster.lead()
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") == "800")
    cluster.now_s += DEGRADE_S + 1
    await cluster.controllers.resources.reconcile("n1")
    await cluster.settled(lambda: not cluster.offered())
