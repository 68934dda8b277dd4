"""koord-qosd on a real node of a real cluster, with kubelet's own credential and koord-manager beside it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from integration.cluster import controlplane, manager, objects, topologycrd
from integration.cluster.api import Api, ApiError, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.manager import Replica
from integration.cluster.node import Node, real_node
from integration.harness.processes import wait_for
from integration.node.daemon import Daemon

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
NAME, OTHER = "node-1", "node-2"
BATCH = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
SOON_S, REPORT_S = 30.0, 60.0
COLOCATION = {"enable": True, "metricReportIntervalSeconds": 30, "cpuReclaimThresholdPercent": 500}
SUPPRESSION = {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}}


@dataclass
class Cluster:
    plane: ControlPlane
    api: Api
    node: Node
    agent: Daemon

    def metric(self, name: str = NAME) -> Object:
        return self.api.get(f"{METRICS}/{name}")

    def reported(self, after: str = "") -> Object | None:
        """The status of the NodeMetric, once it is of another time than ``after``."""
        status: Object = self.metric().get("status") or {}
        return status if status.get("updateTime", "") not in ("", after) else None

    def configure(self, **config: Any) -> None:
        documents = {"colocation-config": COLOCATION, **config}
        manager.configure(self.api, {key.replace("_", "-"): json.dumps(each) for key, each in documents.items()})

    def says(self, strategy: str) -> str:
        """What the agent says of a strategy: its state."""
        strategies = self.agent.koordctl("node")["strategies"]
        return next(str(each["state"]) for each in strategies if each["name"] == strategy)

    def figure(self, name: str) -> float:
        """A metric of the agent without labels."""
        _, page = self.agent.page("/metrics")
        return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(f"koord_qosd_{name} "))

    def parts(self, member: str = "state") -> dict[str, str]:
        """The state of each part of the connection, or what it ``says``."""
        return {part["name"]: part[member] for part in self.agent.koordctl("node")["cluster"]["parts"]}

    def is_reachable(self) -> bool:
        return self.figure("cluster_reachable") == 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One manager, and one node; two pods run on it, a service and a batch pod."""
    directory = tmp_path_factory.mktemp("agent")
    with controlplane.private(directory / "plane") as plane, plane.api() as api:
        topologycrd.install(api)
        manager.install(plane)
        manager.install_agents(plane)
        manager.configure(api, {"colocation-config": json.dumps(COLOCATION)})
        replica = Replica(plane, "manager-a")
        try:
            with real_node(plane, NAME, directory, agent=True) as node:
                assert node.agent is not None
                cluster = Cluster(plane, api, node, node.agent)
                run_pods(api)
                yield cluster
        finally:
            replica.process.stop()


def run_pods(api: Api) -> None:
    pods = {
        "web": ({"cpu": "100m", "memory": "32Mi"}, {"koordinator.sh/qosClass": "LS"}),
        "job": ({"kubernetes.io/batch-cpu": "100"}, {"koordinator.sh/qosClass": "BE"}),
    }
    for name, (amounts, labels) in pods.items():
        run_pod(api, name, amounts if "cpu" in amounts else {}, labels)


def run_pod(api: Api, name: str, amounts: dict[str, str], labels: dict[str, str]) -> None:
    """``amounts``: as requests and limits. The pod burns a little CPU for as long as it lives."""
    manifest = objects.pod(name, amounts, amounts, labels, nodeName=NAME, restartPolicy="Never")
    (container,) = manifest["spec"]["containers"]
    container["command"] = ["sh", "-c", "while :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 0.1; done"]
    path = objects.pods_of("default")
    api.create(path, manifest)
    wait_for(lambda: objects.ready(api.get(f"{path}/{name}")), SOON_S, f"pod {name} to be Ready")


def test_the_node_reports_and_gets_what_it_offers(cluster: Cluster, figure: Callable[[str], None]) -> None:
    began = time.monotonic()
    status = wait_for(lambda: whole(cluster.reported()), 2 * REPORT_S, "a report with both pods")
    figure(f"NodeMetric with both pods {time.monotonic() - began:.0f} s after they ran")
    metric = status["nodeMetric"]
    for usage in (metric["nodeUsage"], metric["systemUsage"]):
        assert usage["resources"].keys() >= {"cpu", "memory"}
    durations = [each["duration"] for each in metric["aggregatedNodeUsages"]]
    assert durations == ["5m0s", "10m0s", "30m0s"]
    assert [each["duration"] for each in metric["aggregatedSystemUsages"]] == durations
    assert {(pod["name"], pod["qos"]) for pod in status["podsMetric"]} == {("web", "LS"), ("job", "BE")}
    assert all(pod["podUsage"]["resources"].keys() >= {"cpu", "memory"} for pod in status["podsMetric"])
    assert status["prodReclaimableMetric"]["resource"]["resources"].keys() == {"cpu", "memory"}
    offered = wait_for(lambda: batch_of(cluster), SOON_S, "batch resources")
    figure(f"the node offers {offered}")


def whole(status: Object | None) -> Object | None:
    """The report, once both pods are in it."""
    return status if status is not None and len(status.get("podsMetric") or []) == 2 else None


def batch_of(cluster: Cluster) -> dict[str, str]:
    allocatable = cluster.api.get(f"{objects.NODES}/{NAME}")["status"]["allocatable"]
    found = {name: allocatable[name] for name in BATCH if name in allocatable}
    return found if len(found) == len(BATCH) else {}


def test_the_nodes_topology_is_reported(cluster: Cluster) -> None:
    found = wait_for(lambda: maybe(cluster.api, f"{TOPOLOGIES}/{NAME}"), SOON_S, "the NodeResourceTopology")
    annotations = found["metadata"]["annotations"]
    cpus = json.loads(annotations["node.koordinator.sh/cpu-topology"])["detail"]
    assert len(cpus) == int(cluster.api.get(f"{objects.NODES}/{NAME}")["status"]["capacity"]["cpu"])
    assert json.loads(annotations["kubelet.koordinator.sh/cpu-manager-policy"])["policy"] == "none"


def test_every_part_of_the_connection_works_and_says_so(cluster: Cluster) -> None:
    wait_for(lambda: set(cluster.parts().values()) == {"ok"}, SOON_S, f"all to be ok of {cluster.parts()}")
    assert cluster.parts().keys() == {
        *("Node", "NodeSLO", "NodeMetric"),
        *("NodeMetric report", "NodeResourceTopology report", "NodeLink"),
    }


def maybe(api: Api, path: str) -> Object | None:
    return api.get(path) if api.exists(path) else None


def test_a_changed_policy_arrives(cluster: Cluster, figure: Callable[[str], None]) -> None:
    wait_for(lambda: cluster.api.exists(f"{SLOS}/{NAME}"), SOON_S, "the NodeSLO")
    assert cluster.says("cpuSuppress") == "disabled"
    cluster.configure(resource_threshold_config=SUPPRESSION)
    path = f"{SLOS}/{NAME}"
    wait_for(lambda: cluster.api.get(path)["spec"]["resourceUsedThresholdWithBE"]["enable"], SOON_S, "the NodeSLO")
    began = time.monotonic()
    wait_for(lambda: cluster.says("cpuSuppress") == "active", SOON_S, "the strategy to be on")
    figure(f"a NodeSLO was in force {time.monotonic() - began:.1f} s after the API server had it")


def test_without_the_api_server_the_last_good_policy_stays(cluster: Cluster, figure: Callable[[str], None]) -> None:
    """Also for one that starts meanwhile; reports go on when the server is back."""
    before = cluster.metric()["status"]["updateTime"]
    cluster.plane.api_server.kill()
    wait_for(lambda: not cluster.is_reachable(), SOON_S, "the agent to notice")
    assert cluster.says("cpuSuppress") == "active"
    cluster.agent.stop()
    cluster.agent.start()
    wait_for(lambda: cluster.figure("failed_ticks_total") == 0 and ticked(cluster.agent), SOON_S, "the first tick")
    assert cluster.says("cpuSuppress") == "active"
    assert not cluster.is_reachable()
    assert cluster.figure("policy_is_last_good") == 1
    cluster.plane.api_server.start()
    began = time.monotonic()
    wait_for(cluster.is_reachable, 2 * SOON_S, "the agent to reach it again")
    figure(f"followed again {time.monotonic() - began:.1f} s after the API server was back")
    wait_for(lambda: cluster.reported(before), 2 * REPORT_S, "a report")
    assert cluster.figure("policy_is_last_good") == 0
    assert cluster.agent.complaints() == []


def test_an_expired_credential_is_said_and_a_rotated_one_is_used(
    cluster: Cluster, figure: Callable[[str], None]
) -> None:
    """kubelet writes its next certificate into the files of the last."""
    user, groups = f"system:node:{NAME}", ("system:nodes",)
    cluster.plane.authority.issue_client(user, groups, lifetime=timedelta(seconds=-1))
    cluster.plane.api_server.restart()
    wait_for(lambda: "401" in cluster.parts("says")["NodeSLO"], 2 * SOON_S, "the agent to be refused")
    assert (cluster.says("cpuSuppress"), cluster.is_reachable()) == ("active", False)
    cluster.plane.authority.issue_client(user, groups)
    began = time.monotonic()
    wait_for(cluster.is_reachable, 2 * SOON_S, "the agent to come with the new certificate")
    figure(f"followed again {time.monotonic() - began:.1f} s after the certificate was rotated")
    cluster.configure()
    manager_s = 2 * SOON_S  # it comes back to the API server as well
    wait_for(lambda: cluster.says("cpuSuppress") == "disabled", manager_s, "the strategy to be off")


def ticked(agent: Daemon) -> bool:
    return agent.page("/readyz")[0] == 200


def test_a_node_reports_only_itself(cluster: Cluster) -> None:
    usage = {"resources": {"cpu": "1", "memory": "1Gi"}}
    status = {"status": {"updateTime": "2026-01-01T00:00:00Z", "nodeMetric": {"nodeUsage": usage}}}
    objects.create_nodes(cluster.plane.api, [objects.node(OTHER)])
    wait_for(lambda: cluster.api.exists(f"{METRICS}/{OTHER}"), SOON_S, f"the NodeMetric of {OTHER}")
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": OTHER},
        "topologyPolicies": [],
        "zones": [],
    }
    with cluster.plane.node_api(NAME) as own:
        own.merge(f"{METRICS}/{NAME}/status", status)
        with pytest.raises(ApiError, match=f"node {NAME} may not report for {OTHER}"):
            own.merge(f"{METRICS}/{OTHER}/status", status)
        with pytest.raises(ApiError, match=f"node {NAME} may not report for {OTHER}"):
            own.create(TOPOLOGIES, topology)
        with pytest.raises(ApiError, match="how a node reports is koord-manager's to say"):
            own.merge(f"{METRICS}/{NAME}", {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 3600}}})
        with pytest.raises(ApiError, match="403"):
            own.merge(f"{SLOS}/{NAME}", {"spec": {"resourceUsedThresholdWithBE": {"enable": False}}})
        with pytest.raises(ApiError, match="403"):
            own.get(f"{objects.NODES}/{OTHER}/proxy/pods")
