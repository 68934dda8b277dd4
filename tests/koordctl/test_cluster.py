"""``koordctl cluster``, ``get`` and ``explain`` in a cluster: through the command line, of an API server in memory."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord.model import eventreasons
from koordctl.exits import OK, REFUSED, UNREACHABLE, USAGE
from tests.koordctl.runs import koordctl
from tests.kube.server import Fault, Server

NODES, PODS, EVENTS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/events"
METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
BATCH = {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "4Gi"}
LABELS = {"koordinator.sh/qosClass": "BE"}


class Cluster:
    """One that colocates: node-1 reports and offers, unless a test says otherwise."""

    def __init__(self) -> None:
        self.server = Server()
        self.node("node-1")
        self.report("node-1")
        self.config(enable=True)

    def node(self, name: str, batch: Mapping[str, str] = BATCH, ready: str = "True", **spec: Any) -> None:
        capacity = {"cpu": "8", "memory": "16Gi"}
        conditions = [{"type": "Ready", "status": ready}]
        status = {"capacity": capacity, "allocatable": {**capacity, **batch}, "conditions": conditions}
        self.server.put(NODES, "", name, metadata={"labels": {"zone": "a"}}, spec=spec, status=status)

    def report(self, name: str, ago_s: float = 10.0) -> None:
        usage = {"resources": {"cpu": "1500m", "memory": "3Gi"}}
        status = {"updateTime": _time(ago_s), "nodeMetric": {"nodeUsage": usage, "systemUsage": usage}}
        self.server.put(METRICS, "", name, spec={"metricCollectPolicy": {"reportIntervalSeconds": 60}}, status=status)

    def config(self, **colocation: Any) -> None:
        data = {"colocation-config": json.dumps(colocation)}
        self.server.put("/api/v1/configmaps", "koordinator-system", "slo-controller-config", data=data)

    def pod(
        self, name: str, cpu: int = 1000, node: str = "", phase: str = "Pending", status: Any = None, **spec: Any
    ) -> None:
        requests = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": "1Gi"} if cpu else {}
        container = {"name": "main", "resources": {"requests": requests, "limits": requests}}
        members = {"containers": [container], "priority": 5000, **spec} | ({"nodeName": node} if node else {})
        metadata = {"labels": LABELS, "uid": f"uid-{name}", **spec.pop("metadata", {})}
        members.pop("metadata", None)
        self.server.put(PODS, "jobs", name, metadata=metadata, spec=members, status={"phase": phase, **(status or {})})

    def event(self, pod: str, reason: str, message: str, ago_s: float = 120.0, count: int = 1) -> None:
        involved = {"kind": "Pod", "namespace": "jobs", "name": pod, "uid": f"uid-{pod}"}
        members = {"reason": reason, "message": message, "lastTimestamp": _time(ago_s), "count": count}
        self.server.put(EVENTS, "jobs", f"{pod}.{reason}", involvedObject=involved, **members)

    @asynccontextmanager
    async def flags(self, directory: Path) -> AsyncIterator[str]:
        """``--kubeconfig`` for as long as the server serves."""
        async with self.server.serving() as url:
            config = {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {}}],
            }
            file = directory / "kubeconfig"
            await asyncio.to_thread(file.write_text, yaml.safe_dump(config))
            yield f"--kubeconfig={file}"

    async def run(self, directory: Path, *arguments: str) -> tuple[int, str, str]:
        async with self.flags(directory) as flag:
            return await koordctl(*arguments, flag)


def _time(ago_s: float) -> str:
    return datetime.fromtimestamp(time.time() - ago_s, UTC).isoformat()


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


# --- the API server --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [("cluster",), ("get", "nodeslos"), ("explain", "pod", "a"), ("explain", "node", "n", "--overcommit")]
)
async def test_no_cluster_is_known(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, _, err = await koordctl(*arguments, f"--kubeconfig={tmp_path / 'none'}")
    assert (code, "no cluster is known" in err, "--kubeconfig" in err) == (UNREACHABLE, True, True)


async def test_an_api_server_that_refuses(cluster: Cluster, tmp_path: Path) -> None:
    cluster.server.faults.append(Fault("list", 403, "Forbidden"))
    code, _, err = await cluster.run(tmp_path, "cluster")
    assert (code, "403 Forbidden" in err) == (REFUSED, True)


async def test_a_cluster_without_any_crd(tmp_path: Path) -> None:
    bare = Cluster()
    for collection in list(bare.server.objects):
        if collection[1] != "nodes":
            del bare.server.objects[collection]
    code, out, _ = await bare.run(tmp_path, "cluster", "--fields", "name,protection")
    assert (code, out.split()[2:]) == (OK, ["node-1", "none"])


# --- cluster ---------------------------------------------------------------------------------------------------------

SUPPRESSES = {"resourceUsedThresholdWithBE": {"enable": True}}


@pytest.mark.parametrize(
    ("ago_s", "slo", "protection", "remark"),
    [
        (None, SUPPRESSES, "none", "no agent reports"),
        (10, SUPPRESSES, "on", ""),
        (179, SUPPRESSES, "on", ""),
        (200, SUPPRESSES, "stale", "its agent reports no more"),
        (-30, SUPPRESSES, "on", ""),
        (10, {"resourceUsedThresholdWithBE": {"enable": False}}, "off", ""),
        (10, {"resourceUsedThresholdWithBE": None}, "off", ""),
        (10, None, "off", ""),
    ],
)
async def test_protection(tmp_path: Path, ago_s: float | None, slo: Any, protection: str, remark: str) -> None:
    cluster = Cluster()
    if ago_s is None:
        cluster.server.delete(METRICS, "", "node-1")
    else:
        cluster.report("node-1", ago_s)
    if slo is not None:
        cluster.server.put(SLOS, "", "node-1", spec=slo)
    _, out, _ = await cluster.run(tmp_path, "cluster", "-o", "json")
    (row,) = json.loads(out)["nodes"]
    assert (row["protection"], row["remark"]) == (protection, remark)


async def test_what_nodes_have_use_and_offer(cluster: Cluster, tmp_path: Path) -> None:
    cluster.node("node-2", {}, "False")
    cluster.pod("running", 700, "node-1", "Running")
    cluster.pod("done", 900, "node-1", "Succeeded")
    _, out, _ = await cluster.run(tmp_path, "cluster", "-o", "json")
    first, second = json.loads(out)["nodes"]
    assert (first["cpu_milli"], first["cpu_used_milli"], first["batch_cpu_milli"]) == (8000, 1500, 2000)
    assert (first["batch_cpu_held_milli"], first["batch_memory_held_bytes"], first["ready"]) == (700, 1 << 30, True)
    assert ("batch_cpu_milli" in second, second["ready"]) == (False, False)
    assert "no batch resources" in second["remark"]


# --- explain node ----------------------------------------------------------------------------------------------------


async def test_every_term_of_what_a_node_offers(cluster: Cluster, tmp_path: Path) -> None:
    _, out, _ = await cluster.run(tmp_path, "explain", "node", "node-1", "--overcommit")
    lines = out.splitlines()
    assert lines[0].startswith("Node node-1 shows 2000m kubernetes.io/batch-cpu and 4Gi kubernetes.io/batch-memory")
    assert lines[1] == "by the formula, now, with the cluster's strategy:"
    # 8000 - 40 % - 1500 that the system uses
    assert any("total 8000m - margin 3200m - used by the system 1500m" in line and "= 3300m" in line for line in lines)


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ("excess", "batch over-allocated: 500m of the 2500m batch-cpu"),
        ("disabled", "colocation is not enabled for it, by the cluster's strategy in slo-controller-config"),
        ("stale", "no batch and no mid resources"),
        ("broken", "problem of slo-controller-config: "),
    ],
)
async def test_why_a_node_offers_what_it_does(cluster: Cluster, tmp_path: Path, setup: str, says: str) -> None:
    match setup:
        case "excess":
            cluster.pod("large", 2500, "node-1", "Running")
        case "disabled":
            cluster.config(enable=False)
        case "stale":
            cluster.report("node-1", 3600)
        case "broken":
            cluster.config(enable=True, cpuReclaimThresholdPercent="much")
    _, out, _ = await cluster.run(tmp_path, "explain", "node", "node-1", "--overcommit")
    assert says in out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("nowhere", "--overcommit"), REFUSED, "there is no node 'nowhere'; there are node-1"),
        (("node-1",), USAGE, "--overcommit needs"),
        (("--overcommit",), USAGE, "--overcommit needs"),
    ],
)
async def test_which_node(cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    result, _, err = await cluster.run(tmp_path, "explain", "node", *arguments)
    assert (result, says in err) == (code, True)


# --- explain pod -----------------------------------------------------------------------------------------------------


def _unscheduled(message: str) -> dict[str, Any]:
    return {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]}


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        ({}, "is pending because no scheduler has looked at it: does one named default-scheduler run?"),
        ({"schedulerName": "koord-scheduler"}, "does one named koord-scheduler run?"),
        ({"status": _unscheduled("0/1 nodes: taint")}, "is pending: 0/1 nodes: taint"),
        ({"cpu": 2001}, "no node offers as much, the most is 2000m kubernetes.io/batch-cpu and 4Gi"),
        ({"cpu": 1500}, "the most that a node has free of its batch resources is 1200m kubernetes.io/batch-cpu"),
        ({"nodeSelector": {"zone": "b"}}, "no node has the labels of its nodeSelector: zone=b"),
        ({"nodeSelector": {"zone": "a"}}, "no scheduler has looked at it"),
        ({"node": "node-1"}, "is on node-1, which prepares its containers"),
        ({"node": "node-1", "status": _waiting("ContainerCreating")}, "which prepares its containers"),
        (
            {"node": "node-1", "status": _waiting("ImagePullBackOff", "no such image")},
            "container main of pod jobs/p does not run on node-1: ImagePullBackOff: no such image",
        ),
        (
            {"node": "node-1", "phase": "Running"},
            "runs on node-1 as BE, koord-batch, with 1000m kubernetes.io/batch-cpu and 1Gi",
        ),
        ({"node": "node-1", "phase": "Succeeded"}, "has done its work and ended"),
        (
            {"node": "node-1", "phase": "Failed", "status": {"reason": "Evicted", "message": "low on memory"}},
            "has failed: Evicted: low on memory",
        ),
        ({"node": "node-1", "phase": "Failed"}, "has failed: a container of it failed"),
    ],
)
async def test_why_a_pod_is_as_it_is(cluster: Cluster, tmp_path: Path, pod: dict[str, Any], sentence: str) -> None:
    cluster.pod("other", 800, "node-1", "Running")
    cluster.pod("p", **pod)
    code, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert (code, sentence in out.splitlines()[0]) == (OK, True), out


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ("silent", "no node offers batch resources: node-1: no batch resources: "),
        ("disabled", "node-1: slo-controller-config does not enable colocation for it"),
        ("unready", "node-1: it is not Ready"),
        ("cordoned", "node-1: it is cordoned"),
        ("idle", "node-1: no batch resources, though its report"),
        ("many", "; and 2 more nodes"),
    ],
)
async def test_why_there_are_no_batch_resources(cluster: Cluster, tmp_path: Path, setup: str, says: str) -> None:
    cluster.node("node-1", {})
    match setup:
        case "unready":
            cluster.node("node-1", ready="False")
        case "silent":
            cluster.server.delete(METRICS, "", "node-1")
        case "disabled":
            cluster.config(enable=False)
        case "cordoned":
            cluster.node("node-1", unschedulable=True)
        case "many":
            for number in range(2, 6):
                cluster.node(f"node-{number}", {})
    cluster.pod("p")
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "p", "-n", "jobs")
    assert says in out.splitlines()[0]


async def test_a_pod_that_no_webhook_saw(cluster: Cluster, tmp_path: Path) -> None:
    spec = {"selector": {"matchLabels": {"koordinator.sh/qosClass": "BE"}}, "labels": {"team": "ml"}, "qosClass": "BE"}
    cluster.server.put(PROFILES, "", "batch", spec={**spec, "selector": {"matchLabels": {"app": "x"}}})
    cluster.pod("p", metadata={"labels": {"app": "x"}})
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert "which ClusterColocationProfile batch sets: no webhook answered when it was created" in out


@pytest.mark.parametrize("is_there", [True, False])
async def test_an_evicted_pod(cluster: Cluster, tmp_path: Path, is_there: bool) -> None:
    if is_there:
        cluster.pod("p", node="node-1", phase="Failed")
    cluster.event("p", "Scheduled", "assigned", 300)
    cluster.event("p", eventreasons.EVICTED, "memory of node-1 at 93 %, threshold 90 %")
    code, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert (code, "was evicted 2 min ago: memory of node-1 at 93 %, threshold 90 %" in out) == (OK, True)
    assert "what helps: " in out


async def test_a_pod_that_nobody_knows(cluster: Cluster, tmp_path: Path) -> None:
    cluster.event("p", "Scheduled", "assigned", 300)
    code, _, err = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert (code, "there is no pod jobs/p" in err) == (REFUSED, True)


async def test_how_often_its_controllers_pods_are_evicted(cluster: Cluster, tmp_path: Path) -> None:
    owner = {"kind": "Job", "name": "train", "uid": "u", "controller": True}
    cluster.pod("train-new", node="node-1", phase="Running", metadata={"labels": LABELS, "ownerReferences": [owner]})
    cluster.event("train-old", eventreasons.EVICTED, "first", 3600)
    cluster.event("train-older", eventreasons.EVICTED_BY_KUBELET, "last", 60, count=2)
    cluster.event("trainer-x", eventreasons.EVICTED, "another's")
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/train-new", "-o", "json")
    assert json.loads(out)["siblings"] == "of train's pods, 3 were evicted as far as Events tell, last because: last"


# --- get -------------------------------------------------------------------------------------------------------------


async def test_objects_of_our_kinds(cluster: Cluster, tmp_path: Path) -> None:
    cluster.server.put(SLOS, "", "node-1", spec=SUPPRESSES)
    cluster.server.put(PROFILES, "", "batch", spec={"qosClass": "BE", "selector": {"matchLabels": {"a": "b"}}})
    async with cluster.flags(tmp_path) as flag:
        assert (await koordctl("get", "nodemetric", flag))[1].splitlines()[1].split()[2:] == [
            "1500m", "3Gi", "1500m", "3Gi", "0",
        ]  # fmt: skip
        assert (await koordctl("get", "NodeSLOs", flag))[1].splitlines()[1].split() == ["node-1", "yes", *"----"]
        assert "a=b" in (await koordctl("get", "clustercolocationprofiles", flag))[1]
        whole = json.loads((await koordctl("get", "nodeslos", "node-1", "-o", "json", flag))[1])
        assert (whole["spec"], whole["metadata"]["name"]) == (SUPPRESSES, "node-1")
        assert len(yaml.safe_load((await koordctl("get", "nodeslos", "-o", "yaml", flag))[1])["items"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("pods",), USAGE, "there is no kind 'pods' of Koord's; there are nodemetrics, nodeslos"),
        (("nodeslos", "nowhere"), REFUSED, "404 NotFound"),
    ],
)
async def test_what_is_not_there(
    cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    result, _, err = await cluster.run(tmp_path, "get", *arguments)
    assert (result, says in err) == (code, True)


async def test_no_objects(cluster: Cluster, tmp_path: Path) -> None:
    _, out, _ = await cluster.run(tmp_path, "get", "clustercolocationprofiles")
    assert out == "There are no clustercolocationprofiles.\n"
