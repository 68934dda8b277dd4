"""A manager that starts with a bad key in its ConfigMap, or without one, or that loses it: what is in force stays, and
that is said."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from koord.overcommit import ratios
from tests.koord_manager.support import CHART, CONFIG, ENABLED, POLICY, Cluster, running
from tests.kube.server import Server
from tests.support.cluster import CONFIG_MAPS, METRICS, NODES, SLOS


@pytest.fixture
async def restarted() -> AsyncIterator[Cluster]:
    """A manager that starts while colocation-config cannot be read; its predecessor offered 3 CPUs and amplified."""
    server = Server()
    server.put(CONFIG_MAPS, CONFIG.namespace, CONFIG.name, data={"colocation-config": "{bad"})
    resources = {"cpu": "8", "memory": "16Gi", "kubernetes.io/batch-cpu": "3000", "kubernetes.io/batch-memory": "1Gi"}
    metadata = {"annotations": {ratios.AMPLIFICATION: '{"cpu":1.50}'}}
    server.put(NODES, "", "n1", metadata=metadata, status={"capacity": resources, "allocatable": resources})
    async with running(server) as made:
        yield made


async def test_a_policy_that_was_bad_from_the_start_changes_no_node(restarted: Cluster) -> None:
    restarted.report()
    before = restarted.object(NODES, "n1")
    await restarted.lead()
    await restarted.settled(lambda: restarted.events("ColocationCfgUnmarshalFailed"))
    restarted.speak(7000, 1)
    restarted.put_node("new")
    restarted.report("new")
    await restarted.quiet()
    assert restarted.object(NODES, "n1") == before
    assert restarted.offered("new") == {}
    restarted.put_config()
    await restarted.settled(lambda: restarted.offered()["kubernetes.io/batch-cpu"] != "3000")
    await restarted.settled(lambda: restarted.offered("new"))


@pytest.mark.parametrize("data", [{}, {"colocation-config": '{"enable": false}'}], ids=["none", "off"])
async def test_a_policy_that_can_be_read_takes_over(restarted: Cluster, data: dict[str, str]) -> None:
    await restarted.lead()
    await restarted.settled(lambda: restarted.events("ColocationCfgUnmarshalFailed"))
    restarted.put_config(data)
    await restarted.settled(lambda: not restarted.offered())
    restarted.put_config({"colocation-config": "{bad again"})
    await restarted.view.synced()
    assert not restarted.view.is_unread("colocation"), "now something is in force for it"


async def test_bad_ratios_from_the_start_leave_those_of_the_node_alone() -> None:
    server = Server()
    bad = {"cpu-normalization-config": "{bad", "resource-amplification-config": "{bad"}
    server.put(CONFIG_MAPS, CONFIG.namespace, CONFIG.name, data=bad | ENABLED)
    shown = {ratios.NORMALIZATION: "1.20", ratios.AMPLIFICATION: '{"cpu":1.50}'}
    async with running(server) as made:
        made.put_node(annotations=shown)
        made.report()
        await made.lead()
        await made.settled(lambda: made.offered().get("kubernetes.io/batch-cpu") == "5280")
        await made.quiet()
        stored = made.object(NODES, "n1")
        assert stored is not None
        annotations = stored["metadata"]["annotations"]
        assert {key: annotations.get(key) for key in shown} == shown


OF_PREDECESSOR = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 40},
    "cpuBurstStrategy": {"policy": "auto"},
}


async def test_a_key_that_was_bad_from_the_start_keeps_its_section() -> None:
    """Others follow the ConfigMap, and a new node gets all."""
    server = Server()
    bad = {"colocation-config": "{bad", "resource-threshold-config": "{bad"}
    server.put(CONFIG_MAPS, CONFIG.namespace, CONFIG.name, data=bad)
    server.put(NODES, "", "n1")
    server.put(SLOS, "", "n1", spec=OF_PREDECESSOR)
    measured = {"metricCollectPolicy": POLICY | {"reportIntervalSeconds": 5}}
    server.put(METRICS, "", "n1", spec=measured)
    async with running(server) as made:
        made.put_node("n2")
        await made.lead()
        await made.settled(lambda: made.object(SLOS, "n2") and made.object(METRICS, "n2"))
        await made.quiet()
        assert made.spec(METRICS) == measured
        assert made.spec(SLOS)["resourceUsedThresholdWithBE"] == OF_PREDECESSOR["resourceUsedThresholdWithBE"]
        assert made.spec(SLOS)["cpuBurstStrategy"]["policy"] == "none"
        made.put_config(CHART)
        await made.settled(lambda: made.spec(METRICS) == {"metricCollectPolicy": POLICY})
        await made.settled(lambda: made.spec(SLOS)["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 65)


def delete_config(cluster: Cluster) -> None:
    cluster.server.delete(CONFIG_MAPS, CONFIG.namespace, CONFIG.name)


def batch_cpu(cluster: Cluster) -> str | None:
    return cluster.offered().get("kubernetes.io/batch-cpu")


async def test_a_config_map_that_is_deleted_stays_in_force_and_is_missed(cluster: Cluster) -> None:
    """Offers follow use by the policy that was read last; the next one that is read takes over."""
    cluster.put_config({**CHART, "colocation-config": '{"enable": true, "cpuReclaimThresholdPercent": 70}'})
    cluster.put_node()
    cluster.report()
    await cluster.settled(lambda: not cluster.view.absence_of_policy)
    await cluster.lead()
    await cluster.settled(lambda: batch_cpu(cluster) == "5200" and cluster.spec(SLOS))
    delete_config(cluster)
    await cluster.settled(lambda: cluster.events("ConfigMapAbsent"))
    (message,) = cluster.events("ConfigMapAbsent")
    assert "koordinator-system/slo-controller-config: what it said last stays in force" in message
    assert '"enable": false' in message
    cluster.speak(2400, 1)
    await cluster.settled(lambda: batch_cpu(cluster) == "3200")
    await cluster.quiet()
    assert cluster.spec(SLOS)["resourceUsedThresholdWithBE"]["enable"] is True
    cluster.put_config({"colocation-config": '{"enable": false}'})
    await cluster.settled(lambda: not cluster.offered())
    assert cluster.view.absence_of_policy == ""


async def test_a_replica_that_takes_over_without_a_config_map_keeps_what_it_read(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    await cluster.settled(lambda: not cluster.view.absence_of_policy)
    await cluster.lead()
    await cluster.settled(lambda: batch_cpu(cluster) == "4400")
    await cluster.resign()
    delete_config(cluster)
    await cluster.settled(lambda: cluster.view.absence_of_policy)
    await cluster.lead()
    await cluster.settled(lambda: cluster.events("ConfigMapAbsent"))
    cluster.speak(2400, 1)
    await cluster.settled(lambda: batch_cpu(cluster) == "2400")


async def test_a_manager_that_starts_without_a_config_map_deletes_nothing() -> None:
    """What its predecessor wrote stays as it is, and a new node offers nothing."""
    server = Server()
    resources = {"cpu": "8", "memory": "16Gi", "kubernetes.io/batch-cpu": "3000", "kubernetes.io/batch-memory": "1Gi"}
    server.put(NODES, "", "n1", status={"capacity": resources, "allocatable": resources})
    server.put(SLOS, "", "n1", spec=OF_PREDECESSOR)
    measured = {"metricCollectPolicy": POLICY | {"reportIntervalSeconds": 5}}
    server.put(METRICS, "", "n1", spec=measured)
    async with running(server) as made:
        made.put_node("new")
        made.report("new")
        await made.lead()
        await made.settled(lambda: made.events("ConfigMapAbsent") and made.object(SLOS, "new"))
        (message,) = made.events("ConfigMapAbsent")
        assert "what Nodes and NodeSLOs say stays as it is" in message
        await made.quiet()
        assert (batch_cpu(made), made.offered("new")) == ("3000", {})
        assert (made.spec(SLOS), made.spec(METRICS)) == (OF_PREDECESSOR, measured)
        made.put_config({"colocation-config": '{"enable": false}'})
        await made.settled(lambda: not made.offered())
