"""A manager that starts while keys of its ConfigMap cannot be read: what its predecessor wrote stays in force."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from koord.model.overcommit import amplification, normalization
from tests.koord_manager.support import (
    CHART,
    CONFIG,
    CONFIG_MAPS,
    ENABLED,
    METRICS,
    NODES,
    POLICY,
    SLOS,
    Cluster,
    running,
)
from tests.kube.server import Server


@pytest.fixture
async def restarted() -> AsyncIterator[Cluster]:
    """A manager that starts while colocation-config cannot be read; its predecessor offered 3 CPUs and amplified."""
    server = Server()
    server.put(CONFIG_MAPS, CONFIG.namespace, CONFIG.name, data={"colocation-config": "{bad"})
    resources = {"cpu": "8", "memory": "16Gi", "kubernetes.io/batch-cpu": "3000", "kubernetes.io/batch-memory": "1Gi"}
    metadata = {"annotations": {amplification.ANNOTATION: '{"cpu":1.50}'}}
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


@pytest.mark.parametrize("data", [None, {}, {"colocation-config": '{"enable": false}'}], ids=["gone", "none", "off"])
async def test_a_policy_that_can_be_read_takes_over(restarted: Cluster, data: dict[str, str] | None) -> None:
    await restarted.lead()
    await restarted.settled(lambda: restarted.events("ColocationCfgUnmarshalFailed"))
    if data is None:
        restarted.server.delete(CONFIG_MAPS, CONFIG.namespace, CONFIG.name)
    else:
        restarted.put_config(data)
    await restarted.settled(lambda: not restarted.offered())
    restarted.put_config({"colocation-config": "{bad again"})
    await restarted.view.synced()
    assert not restarted.view.is_unread("colocation"), "now something is in force for it"


async def test_bad_ratios_from_the_start_leave_those_of_the_node_alone() -> None:
    server = Server()
    bad = {"cpu-normalization-config": "{bad", "resource-amplification-config": "{bad"}
    server.put(CONFIG_MAPS, CONFIG.namespace, CONFIG.name, data=bad | ENABLED)
    shown = {normalization.ANNOTATION: "1.20", amplification.ANNOTATION: '{"cpu":1.50}'}
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
