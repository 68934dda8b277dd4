"""NodeMetric and NodeSLO: they come, follow and go with their Nodes."""

from __future__ import annotations

from typing import Any

import pytest

from koord.kube.kind import Key
from koord.model import nodestate
from tests.koord_manager.support import METRICS, NODES, SLOS, Cluster

POLICY = {
    "aggregateDurationSeconds": 300,
    "reportIntervalSeconds": 60,
    "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
    "nodeMemoryCollectPolicy": "usageWithoutPageCache",
}
CHART = {
    "colocation-config": '{"enable": true}',
    "resource-threshold-config": '{"clusterStrategy": {"enable": true}}',
}
NODE_SLO = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
        "cpuEvictPolicy": "evictByRealLimit",
    },
    "cpuBurstStrategy": {
        "policy": "none",
        "cpuBurstPercent": 1000,
        "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    },
    "systemStrategy": {"totalNetworkBandwidth": "0"},
}


def spec(cluster: Cluster, path: str) -> dict[str, Any]:
    stored = cluster.object(path, "n1")
    return {} if stored is None else dict(stored["spec"])


async def test_a_node_gets_both_with_the_charts_policy(cluster: Cluster) -> None:
    cluster.put_config(CHART)
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: spec(cluster, METRICS) and spec(cluster, SLOS))
    assert spec(cluster, METRICS) == {"metricCollectPolicy": POLICY}
    assert {key: value for key, value in spec(cluster, SLOS).items() if value} == NODE_SLO
    await cluster.quiet()


@pytest.mark.parametrize("path", [METRICS, SLOS])
async def test_what_somebody_else_changed_is_put_back_once(cluster: Cluster, path: str) -> None:
    cluster.put_config(CHART)
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: spec(cluster, METRICS) and spec(cluster, SLOS))
    before = spec(cluster, path)
    changed = {
        METRICS: {"metricCollectPolicy": POLICY | {"reportIntervalSeconds": 5}},
        SLOS: {**before, "cpuBurstStrategy": {"policy": "auto"}},
    }[path]
    cluster.server.put(path, "", "n1", spec=changed)
    await cluster.settled(lambda: spec(cluster, path) == before)
    await cluster.quiet()


async def test_a_manager_takes_back_the_word_that_agents_go_for_good(cluster: Cluster) -> None:
    cluster.put_config(CHART)
    cluster.put_node()
    annotations = {nodestate.UNINSTALLED: "true", "of": "others"}
    cluster.server.put(SLOS, "", "n1", metadata={"annotations": annotations}, spec={})
    await cluster.lead()
    await cluster.settled(lambda: (cluster.object(SLOS, "n1") or {})["metadata"]["annotations"] == {"of": "others"})
    assert spec(cluster, SLOS)["resourceUsedThresholdWithBE"]["enable"]
    await cluster.quiet()


async def test_what_an_api_server_fills_in_is_no_difference(cluster: Cluster) -> None:
    config = '{"clusterStrategy": {"lsClass": {"networkQOS": {"enable": true, "ingressRequest": 10}}}}'
    cluster.put_config({"resource-qos-config": config})
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: spec(cluster, SLOS))
    stored = spec(cluster, SLOS)
    limits = {"ingressLimit": 100, "egressRequest": 0, "egressLimit": 100}
    stored["resourceQOSStrategy"]["lsClass"]["networkQOS"] |= limits
    cluster.server.put(SLOS, "", "n1", spec=stored)
    await cluster.quiet()


@pytest.mark.parametrize("path", [METRICS, SLOS])
async def test_one_that_is_deleted_comes_again(cluster: Cluster, path: str) -> None:
    cluster.put_config()
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: spec(cluster, path))
    cluster.server.delete(path, "", "n1")
    await cluster.settled(lambda: spec(cluster, path))


async def test_both_go_with_their_node(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: spec(cluster, METRICS) and spec(cluster, SLOS))
    cluster.server.delete(NODES, "", "n1")
    await cluster.settled(lambda: not cluster.object(METRICS, "n1") and not cluster.object(SLOS, "n1"))


async def test_those_whose_node_went_while_nobody_led_go_too(cluster: Cluster) -> None:
    cluster.server.put(METRICS, "", "gone", spec={})
    cluster.server.put(SLOS, "", "gone", spec={})
    await cluster.settled(lambda: cluster.view.slos.objects and cluster.view.metrics.objects)
    await cluster.lead()
    await cluster.settled(lambda: not cluster.object(METRICS, "gone") and not cluster.object(SLOS, "gone"))


async def test_a_bad_policy_leaves_the_metric_as_it_was_configured(cluster: Cluster) -> None:
    cluster.put_config({"colocation-config": '{"enable": true, "metricReportIntervalSeconds": 20}'})
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: spec(cluster, METRICS))
    before = spec(cluster, METRICS)
    assert before["metricCollectPolicy"]["reportIntervalSeconds"] == 20
    cluster.put_config({"colocation-config": "{bad"})
    await cluster.settled(lambda: cluster.events("ColocationCfgUnmarshalFailed"))
    assert spec(cluster, METRICS) == before
    assert cluster.view.config.colocation.cluster.metric_report_interval_seconds == 20


async def test_the_status_is_the_agents(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    await cluster.settled(lambda: cluster.view.metrics.get(Key("", "n1")))
    await cluster.lead()
    await cluster.settled(lambda: spec(cluster, METRICS))
    stored = cluster.object(METRICS, "n1")
    assert stored is not None
    assert stored["status"]["nodeMetric"]["systemUsage"]["resources"]["cpu"] == "400m"
