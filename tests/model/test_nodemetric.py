"""NodeMetric: what is refused, what upstream's node agent writes, and that nothing gets lost on the way."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given

from koord.model import core, mergepatch, nodemetric
from koord.model.nodemetric import NodeMetric, ResourceMap
from tests.support.structs import documents, substance

ONE_NODE = """
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeMetric
metadata:
  creationTimestamp: "2025-05-24T11:31:54Z"
  generation: 1
  name: master-01
  resourceVersion: "15281512"
  uid: 21d81aaf-0338-4e94-bccc-07540fec3575
spec:
  metricCollectPolicy:
    aggregateDurationSeconds: 300
    nodeAggregatePolicy: {durations: [5m0s, 10m0s, 30m0s]}
    nodeMemoryCollectPolicy: usageWithoutPageCache
    reportIntervalSeconds: 60
status:
  nodeMetric:
    aggregatedNodeUsages:
    - duration: 5m0s
      usage:
        p50: {resources: {cpu: 429m, memory: 5712464Ki}}
        p99: {resources: {cpu: 1366m, memory: 5938812Ki}}
    - duration: 30m0s
      usage:
        p50: {resources: {cpu: 429m, memory: 5723620Ki}}
    aggregatedSystemUsages:
    - duration: 5m0s
      usage:
        p50: {resources: {cpu: 153m, memory: 3078852Ki}}
    nodeUsage: {resources: {cpu: 515m, memory: "5862330450"}}
    systemUsage: {resources: {cpu: 196m, memory: "3150994008"}}
  podsMetric:
  - name: my-clickhouse-zookeeper-0
    namespace: clickhouse
    podUsage: {resources: {cpu: 26m, memory: "396051912"}}
    priority: koord-prod
    qos: LS
  - name: mysql-7474b86d4f-52p5n
    namespace: mysql
    podUsage: {resources: {cpu: 21m, memory: "393941019"}}
    priority: koord-prod
    qos: LSR
  prodReclaimableMetric:
    resource: {resources: {cpu: 2380m, memory: "0"}}
  updateTime: "2025-05-25T03:36:38Z"
"""
GPU = {
    "type": "gpu",
    "id": "GPU-1",
    "labels": {"node.koordinator.sh/gpu-model": "T4"},
    "minor": 0,
    "moduleID": 1,
    "health": True,
    "resources": {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory": 8589934592},
    "topology": {"socketID": -1, "nodeID": 0, "pcieID": "", "busID": "0000:00:07.0"},
    "vfGroups": [{"labels": {"a": "b"}, "vfs": [{"minor": 0, "busID": "0000:1f:00.2"}]}],
    "conditions": [
        {
            "type": "Healthy",
            "status": "True",
            "observedGeneration": 1,
            "lastTransitionTime": "2025-05-25T03:36:38Z",
            "reason": "AsExpected",
            "message": "",
        }
    ],
}
USED = {"resources": {"cpu": "1500m", "memory": "1024"}, "devices": [GPU]}
EVERY_FIELD: dict[str, Any] = {
    "spec": yaml.safe_load(ONE_NODE)["spec"],
    "status": {
        "updateTime": "2025-05-25T03:36:38Z",
        "nodeMetric": {
            "nodeUsage": USED,
            "systemUsage": USED,
            "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"avg": USED}}],
            "aggregatedSystemUsages": [{"duration": "5m0s", "usage": {"p99": USED}}],
            "numaUsages": [{"numaNodeID": 0, "nodeUsage": USED, "systemUsage": USED}],
        },
        "podsMetric": [
            {
                "name": "a",
                "namespace": "b",
                "podUsage": USED,
                "priority": "koord-prod",
                "qos": "LS",
                "extensions": {"Object": {"x": None}},
            }
        ],
        "hostApplicationMetric": [{"name": "nginx", "usage": USED, "priority": "koord-prod", "qos": "LS"}],
        "prodReclaimableMetric": {"resource": USED},
        "prodPeakMetric": {"resource": USED},
    },
}


def read(document: Any) -> NodeMetric:
    return core.read(NodeMetric, json.dumps(document).encode())


def written(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


def with_status(**members: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n"}, "status": members}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "Expected `object`, got `array`"),
        (with_status(updateTime=1), "Expected `str | null`, got `int` - at `$.status.updateTime`"),
        (with_status(podsMetric={}), "Expected `array`, got `object` - at `$.status.podsMetric`"),
        (with_status(podsMetric=[{"podUsage": {"resources": {"cpu": True}}}]), "$.status.podsMetric[0].podUsage.resou"),
        (with_status(nodeMetric={"numaUsages": [{}]}), "missing required field `numaNodeID`"),
        (with_status(nodeMetric={"numaUsages": [{"numaNodeID": 2**31}]}), "Expected `int` <= 2147483647"),
        (with_status(nodeMetric={"nodeUsage": {"devices": [{"minor": 0}]}}), "missing required field `health`"),
        ({"spec": {"metricCollectPolicy": {"reportIntervalSeconds": "60"}}}, "$.spec.metricCollectPolicy.reportInterv"),
    ],
)
def test_an_error_names_the_place(document: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        read(document)
    assert message in str(caught.value)


def test_what_upstream_s_node_agent_wrote() -> None:
    metric = read(yaml.safe_load(ONE_NODE))
    policy, usage = metric.spec.metric_collect_policy, metric.status.node_metric
    assert policy is not None and usage is not None
    assert (policy.aggregate_duration_seconds, policy.report_interval_seconds) == (300, 60)
    assert policy.node_aggregate_policy is not None
    assert policy.node_aggregate_policy.durations == ("5m0s", "10m0s", "30m0s")
    assert policy.node_memory_collect_policy == nodemetric.MemoryCollectPolicy.NO_PAGE_CACHE
    assert (metric.metadata.name, metric.status.update_time) == ("master-01", "2025-05-25T03:36:38Z")
    assert nodemetric.amount(usage.node_usage, "cpu") == "515m"
    assert nodemetric.amount(usage.aggregated_node_usages[0].usage["p99"], "memory") == "5938812Ki"
    assert nodemetric.amount(usage.system_usage, "hugepages-2Mi") is None
    assert [(pod.name, pod.qos) for pod in metric.status.pods_metric] == [
        ("my-clickhouse-zookeeper-0", "LS"),
        ("mysql-7474b86d4f-52p5n", "LSR"),
    ]
    reclaimable = metric.status.prod_reclaimable_metric
    assert reclaimable is not None
    assert nodemetric.amount(reclaimable.resource, "cpu") == "2380m"
    assert metric.status.prod_peak_metric is None


@pytest.mark.parametrize("usage", [None, ResourceMap()])
def test_no_amount(usage: ResourceMap | None) -> None:
    assert nodemetric.amount(usage, "cpu") is None


@pytest.mark.parametrize("document", [yaml.safe_load(ONE_NODE), EVERY_FIELD], ids=["seen", "every field"])
def test_spec_and_status_are_written_as_they_were_read(document: dict[str, Any]) -> None:
    metric = read(document)
    assert written(metric.spec) == document["spec"]
    assert written(metric.status) == document["status"]


def test_every_field_has_a_value_in_the_example() -> None:
    def structs(cls: type[msgspec.Struct], value: Any) -> None:
        assert set(value) == set(cls.__struct_encode_fields__), cls

    status = EVERY_FIELD["status"]
    structs(nodemetric.NodeMetricStatus, status)
    structs(nodemetric.NodeUsage, status["nodeMetric"])
    structs(nodemetric.PodUsage, status["podsMetric"][0])
    structs(nodemetric.HostApplicationUsage, status["hostApplicationMetric"][0])
    structs(nodemetric.CollectPolicy, EVERY_FIELD["spec"]["metricCollectPolicy"])
    structs(nodemetric.DeviceInfo, GPU)
    structs(nodemetric.DeviceTopology, GPU["topology"])
    structs(nodemetric.VirtualFunctionGroup, GPU["vfGroups"][0])  # type: ignore[index]
    structs(nodemetric.DeviceCondition, GPU["conditions"][0])  # type: ignore[index]


@pytest.mark.parametrize(
    ("document", "same"),
    [
        ({"status": None, "spec": None}, {}),
        (with_status(podsMetric=None, nodeMetric=None), with_status()),
        (with_status(nodeMetric={"nodeUsage": {"resources": None}}), with_status(nodeMetric={})),
        (with_status(hostApplicationMetric=[{"usage": None}]), with_status(hostApplicationMetric=[{}])),
    ],
)
def test_null_is_absent(document: Any, same: Any) -> None:
    assert read(document) == read(same)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (nodemetric.NodeMetricStatus(), {}),
        (nodemetric.NodeUsage(), {}),
        (nodemetric.AggregatedUsage("5m0s"), {"duration": "5m0s"}),
        (nodemetric.NUMAUsage(0), {"numaNodeID": 0}),
        (nodemetric.DeviceInfo(False, minor=0), {"health": False, "minor": 0}),
        (nodemetric.DeviceTopology(0, 0, ""), {"socketID": 0, "nodeID": 0, "pcieID": ""}),
        (nodemetric.VirtualFunction(0), {"minor": 0}),
    ],
)
def test_what_the_api_requires_is_written_even_if_it_is_nothing(value: object, text: Any) -> None:
    assert written(value) == text


def test_a_word_of_another_release_costs_nothing() -> None:
    document = yaml.safe_load(ONE_NODE)
    document["spec"]["metricCollectPolicy"]["nodeMemoryCollectPolicy"] = "usageOfTomorrow"
    document["status"]["podsMetric"][0]["qos"] = "LST"
    document["status"]["nodeMetric"]["aggregatedNodeUsages"][0]["usage"]["p42"] = {}
    assert read(document).status.pods_metric[0].qos == "LST"


def patched(document: Any, patch: Any) -> Any:
    """``document`` as an API server has it after a merge patch."""
    whole = copy.deepcopy(document)
    for key, member in patch.items():
        if member is None:
            whole.pop(key, None)
        else:
            whole[key] = patched(whole.get(key, {}), member) if isinstance(member, dict) else member
    return whole


def test_members_that_nobody_knows_survive_a_patch_made_of_structs() -> None:
    document = yaml.safe_load(ONE_NODE)
    document["spec"]["metricCollectPolicy"]["future"] = {"a": 1}
    document["status"]["nodeMetric"]["nodeUsage"]["future"] = [1]
    document["future"] = True
    before = read(document)
    usage = before.status.node_metric
    assert usage is not None
    after = msgspec.structs.replace(
        before.status,
        node_metric=msgspec.structs.replace(usage, node_usage=ResourceMap({"cpu": "1"})),
        prod_reclaimable_metric=None,
    )
    patch = {"status": mergepatch.diff(written(before.status), written(after))}
    assert patch == {
        "status": {
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": "1", "memory": None}}},
            "prodReclaimableMetric": None,
        }
    }
    result = patched(document, patch)
    assert read(result).status == after
    assert result["future"] is True
    assert result["spec"] == document["spec"]
    assert result["status"]["nodeMetric"]["nodeUsage"] == {"resources": {"cpu": "1"}, "future": [1]}


@given(documents(nodemetric.NodeMetricStatus))
def test_only_what_is_empty_gets_lost(document: dict[str, Any]) -> None:
    status = core.read(nodemetric.NodeMetricStatus, json.dumps(document).encode())
    assert substance(written(status)) == substance(document)
    assert core.read(nodemetric.NodeMetricStatus, msgspec.json.encode(status)) == status
