"""NodeMetric and NodeSLO: they come, follow and go with their Nodes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from koord.kube.kind import Key
from koord.model import nodestate
from koord.sloconfig.nodeslo import ANNOTATION_BANDWIDTH as BANDWIDTH
from tests.koord_manager.support import CHART, POLICY, Cluster
from tests.kube.server import JSONObject
from tests.support.cluster import METRICS, NODES, SLOS

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


async def test_a_node_gets_both_with_the_charts_policy(cluster: Cluster) -> None:
    cluster.put_config(CHART)
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: cluster.spec(METRICS) and cluster.spec(SLOS))
    assert cluster.spec(METRICS) == {"metricCollectPolicy": POLICY}
    assert {key: value for key, value in cluster.spec(SLOS).items() if value} == NODE_SLO
    await cluster.quiet()


@pytest.mark.parametrize("path", [METRICS, SLOS])
async def test_what_somebody_else_changed_is_put_back_once(cluster: Cluster, path: str) -> None:
    cluster.put_config(CHART)
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: cluster.spec(METRICS) and cluster.spec(SLOS))
    before = cluster.spec(path)
    changed = {
        METRICS: {"metricCollectPolicy": POLICY | {"reportIntervalSeconds": 5}},
        SLOS: {**before, "cpuBurstStrategy": {"policy": "auto"}},
    }[path]
    cluster.server.put(path, "", "n1", spec=changed)
    await cluster.settled(lambda: cluster.spec(path) == before)
    await cluster.quiet()


PRESSURE = {"koord-config": '{"clusterStrategy": {"cpuSuppress": {"policy": "pressure", "ceilingPercent": 90}}}'}
KOORD = {"cpuSuppress": {"policy": "pressure", "ceilingPercent": 90}}
OTHERS = {"acme": {"x": 1}}


@pytest.mark.parametrize("nest", [lambda map_: map_, lambda map_: {"Object": map_}], ids=["flat", "nested"])
@pytest.mark.parametrize(
    ("before", "config", "after"),
    [
        pytest.param(OTHERS, {}, OTHERS, id="none of ours"),
        pytest.param(OTHERS, PRESSURE, {**OTHERS, "koord": KOORD}, id="ours comes"),
        pytest.param({**OTHERS, "koord": KOORD}, {}, OTHERS, id="ours goes"),
        pytest.param({"koord": {"cpuSuppress": {"policy": "slo"}}}, PRESSURE, {"koord": KOORD}, id="ours changes"),
    ],
)
async def test_extensions_of_others_stay_beside_ours(
    cluster: Cluster,
    nest: Callable[[JSONObject], JSONObject],
    before: JSONObject,
    config: dict[str, str],
    after: JSONObject,
) -> None:
    cluster.put_config({**CHART, **config})
    cluster.put_node()
    cluster.server.put(SLOS, "", "n1", spec={"extensions": nest(before)})
    await cluster.lead()
    await cluster.settled(lambda: cluster.spec(SLOS).get("resourceUsedThresholdWithBE"))
    assert cluster.spec(SLOS)["extensions"] == nest(after)
    cluster.server.put(SLOS, "", "n1", spec={**cluster.spec(SLOS), "extensions": nest({**after, "later": [2]})})
    await cluster.quiet()


async def test_a_new_object_has_the_clusters_extension(cluster: Cluster) -> None:
    cluster.put_config(PRESSURE)
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: cluster.spec(SLOS))
    assert cluster.spec(SLOS)["extensions"] == {"koord": KOORD}


async def test_an_entry_of_nodes_is_theirs_alone_and_follows_their_labels(cluster: Cluster) -> None:
    entry = {"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "cpuSuppress": {"ceilingPercent": 80}}
    cluster.put_config({"koord-config": json.dumps({"clusterStrategy": KOORD, "nodeStrategies": [entry]})})
    for name, pool in (("n1", "a"), ("n2", "b")):
        cluster.put_node(name, labels={"pool": pool})

    def of(name: str) -> object:
        return ((cluster.object(SLOS, name) or {}).get("spec") or {}).get("extensions")

    own = {"koord": {"cpuSuppress": {"policy": "pressure", "ceilingPercent": 80}}}
    await cluster.lead()
    await cluster.settled(lambda: of("n1") and of("n2"))
    assert (of("n1"), of("n2")) == (own, {"koord": KOORD})
    cluster.put_node("n1", labels={"pool": "b"})
    await cluster.settled(lambda: of("n1") == {"koord": KOORD})
    await cluster.quiet()


async def test_a_manager_takes_back_the_word_that_agents_go_for_good(cluster: Cluster) -> None:
    cluster.put_config(CHART)
    cluster.put_node()
    annotations = {nodestate.UNINSTALLED: "true", "of": "others"}
    cluster.server.put(SLOS, "", "n1", metadata={"annotations": annotations}, spec={})
    await cluster.lead()
    await cluster.settled(lambda: (cluster.object(SLOS, "n1") or {})["metadata"]["annotations"] == {"of": "others"})
    assert cluster.spec(SLOS)["resourceUsedThresholdWithBE"]["enable"]
    await cluster.quiet()


async def test_what_an_api_server_fills_in_is_no_difference(cluster: Cluster) -> None:
    config = '{"clusterStrategy": {"lsClass": {"networkQOS": {"enable": true, "ingressRequest": 10}}}}'
    cluster.put_config({"resource-qos-config": config})
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: cluster.spec(SLOS))
    stored = cluster.spec(SLOS)
    limits = {"ingressLimit": 100, "egressRequest": 0, "egressLimit": 100}
    stored["resourceQOSStrategy"]["lsClass"]["networkQOS"] |= limits
    cluster.server.put(SLOS, "", "n1", spec=stored)
    await cluster.quiet()


@pytest.mark.parametrize("extensions", [{}, {"Object": None}, {"Object": {}}], ids=str)
async def test_the_empty_extensions_of_another_manager_are_no_difference(
    cluster: Cluster, extensions: JSONObject
) -> None:
    """So taking over writes no NodeSLO."""
    cluster.put_config(CHART)
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: cluster.spec(SLOS))
    cluster.server.put(SLOS, "", "n1", spec={**cluster.spec(SLOS), "extensions": extensions})
    await cluster.quiet()
    assert cluster.spec(SLOS)["extensions"] == extensions


async def test_a_bad_bandwidth_of_a_node_is_said_once(cluster: Cluster) -> None:
    cluster.put_config(CHART)
    cluster.put_node(annotations={BANDWIDTH: "fast"})
    await cluster.lead()
    await cluster.settled(lambda: cluster.events("NodeSLOProblem"))
    for _ in range(2):
        cluster.server.put(SLOS, "", "n1", spec={})
        await cluster.settled(lambda: cluster.spec(SLOS).get("systemStrategy"))
    await cluster.quiet()
    (message,) = cluster.events("NodeSLOProblem")
    assert BANDWIDTH in message and "'fast'" in message


@pytest.mark.parametrize("path", [METRICS, SLOS])
async def test_one_that_is_deleted_comes_again(cluster: Cluster, path: str) -> None:
    cluster.put_config()
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: cluster.spec(path))
    cluster.server.delete(path, "", "n1")
    await cluster.settled(lambda: cluster.spec(path))


async def test_both_go_with_their_node(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: cluster.spec(METRICS) and cluster.spec(SLOS))
    cluster.server.delete(NODES, "", "n1")
    await cluster.settled(lambda: not cluster.object(METRICS, "n1") and not cluster.object(SLOS, "n1"))


async def test_those_whose_node_went_while_nobody_led_go_too(cluster: Cluster) -> None:
    cluster.server.put(METRICS, "", "gone", spec={})
    cluster.server.put(SLOS, "", "gone", spec={})
    await cluster.settled(lambda: cluster.view.slos.objects and cluster.view.metrics.objects)
    await cluster.lead()
    await cluster.settled(lambda: not cluster.object(METRICS, "gone") and not cluster.object(SLOS, "gone"))


async def test_a_node_that_came_between_two_terms_gets_both(cluster: Cluster) -> None:
    """The same process leads, loses its Lease and leads again; the policy is as before."""
    cluster.put_config(CHART)
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: cluster.spec(METRICS) and cluster.spec(SLOS))
    await cluster.resign()
    cluster.put_node("n2")
    await cluster.settled(lambda: cluster.view.nodes.get(Key("", "n2")))
    await cluster.lead()
    await cluster.settled(lambda: cluster.object(METRICS, "n2") and cluster.object(SLOS, "n2"))


async def test_a_bad_policy_leaves_the_metric_as_it_was_configured(cluster: Cluster) -> None:
    cluster.put_config({"colocation-config": '{"enable": true, "metricReportIntervalSeconds": 20}'})
    cluster.put_node()
    await cluster.lead()
    await cluster.settled(lambda: cluster.spec(METRICS))
    before = cluster.spec(METRICS)
    assert before["metricCollectPolicy"]["reportIntervalSeconds"] == 20
    cluster.put_config({"colocation-config": "{bad"})
    await cluster.settled(lambda: cluster.events("ColocationCfgUnmarshalFailed"))
    assert cluster.spec(METRICS) == before
    assert cluster.view.config.colocation.cluster.metric_report_interval_seconds == 20


async def test_the_status_is_the_agents(cluster: Cluster) -> None:
    cluster.put_config()
    cluster.put_node()
    cluster.report()
    await cluster.settled(lambda: cluster.view.metrics.get(Key("", "n1")))
    await cluster.lead()
    await cluster.settled(lambda: cluster.spec(METRICS))
    stored = cluster.object(METRICS, "n1")
    assert stored is not None
    assert stored["status"]["nodeMetric"]["systemUsage"]["resources"]["cpu"] == "400m"
