"""koordctl asks a koord-scheduler that runs, about pods of a real API server: why they wait, or are where they are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from integration.cluster import controlplane, objects
from integration.cluster.api import Api
from integration.cluster.controlplane import ControlPlane
from integration.cluster.ports import free_ports
from integration.harness.processes import Process, wait_for

NAME, NAMESPACE = "koord-scheduler", "koordinator-system"
SOON_S = 60.0
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110"}
LARGE = {"cpu": "8", "memory": "16Gi", "pods": "110"}
TAINTS = [{"key": "gpu", "value": "only", "effect": "NoSchedule"}]
PODS = objects.pods_of("default")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_AGE = re.compile(r"\b\d+(\.\d+)? (s|min)\b")


class Cluster(NamedTuple):
    """``leader``, ``follower``: the ports of two replicas."""

    plane: ControlPlane
    api: Api
    leader: int
    follower: int


@contextmanager
def replica(plane: ControlPlane, host: str, log: Path) -> Iterator[int]:
    """A koord-scheduler, by its port."""
    (port,) = free_ports(1)
    argv = [sys.executable, "-m", "koord_scheduler", f"--kubeconfig={plane.admin}", f"--metrics-addr=127.0.0.1:{port}"]
    process = Process(argv, log, {"HOSTNAME": host})
    try:
        yield port
    finally:
        process.stop(10.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of three nodes, one of them tainted and one cordoned; a pod is placed, two wait and one is gated."""
    path = tmp_path_factory.mktemp("explain")
    with controlplane.private(path / "plane") as plane, plane.api() as api:
        objects.create_nodes(
            plane.api, [objects.node("n1", ROOM), *[objects.node(f"n{each}", LARGE) for each in (2, 3)]]
        )
        api.merge("/api/v1/nodes/n2", {"spec": {"taints": TAINTS}})
        api.merge("/api/v1/nodes/n3", {"spec": {"unschedulable": True}})
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        with replica(plane, "a", path / "a.log") as leader:
            lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
            wait_for(lambda: api.exists(lease) and api.get(lease)["spec"].get("holderIdentity"), SOON_S, "a leader")
            with replica(plane, "b", path / "b.log") as follower:
                for name, cpu in (("web", "1"), ("large", "6"), ("larger", "7")):
                    create(api, name, cpu)
                create(api, "gated", "1", schedulingGates=[{"name": "example.com/quota"}])
                wait_for(lambda: api.get(f"{PODS}/web")["spec"].get("nodeName"), SOON_S, "a pod to be placed")
                for name in ("large", "larger"):
                    wait_for(lambda name=name: said(api, name), SOON_S, f"{name} to be said to wait")  # type: ignore[misc]
                wait_for(lambda: status(follower, "/readyz") == 200, SOON_S, "the follower to be ready")
                yield Cluster(plane, api, leader, follower)


def create(api: Api, name: str, cpu: str, **spec: object) -> None:
    document = objects.pod(name, {"cpu": cpu, "memory": "64Mi"}, schedulerName=NAME)
    document["spec"] |= spec
    api.create(PODS, document)


def said(api: Api, name: str) -> str:
    conditions = api.get(f"{PODS}/{name}")["status"].get("conditions", [])
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")


def status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def koordctl(cluster: Cluster, *arguments: str) -> list[str]:
    """What it prints, without what differs from run to run."""
    argv = [sys.executable, "-m", "koordctl", *arguments, f"--kubeconfig={cluster.plane.admin}"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)
    text = _AGE.sub("SOME TIME", _TIME.sub("SOME DAY", done.stdout + done.stderr))
    print(done.stdout, done.stderr)
    return text.splitlines()


def test_why_a_pod_waits(cluster: Cluster) -> None:
    lines = koordctl(cluster, "explain", "pod", "default/large", f"--scheduler=127.0.0.1:{cluster.leader}")
    assert lines == [
        "pod default/large is pending: 0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated "
        "taint(s), 1 node(s) were unschedulable. preemption: 0/3 nodes are available: 3 Preemption is not helpful for "
        "scheduling.",
        "koord-scheduler has it in its queue (unschedulable), tried once, again at SOME DAY at the latest; it has "
        "waited SOME TIME",
        "  1 node of 3: node(s) were unschedulable (NodeUnschedulable)",
        "    n3: the node is cordoned",
        "  1 node of 3: node(s) had untolerated taint(s) (TaintToleration)",
        "    n2: gpu=only:NoSchedule",
        "  1 node of 3: Insufficient cpu (NodeResourcesFit)",
        "    n1: 3 of 4 cpu free, lacks 3",
        "  what helps: 1 node would do but for being cordoned: kubectl uncordon n3 (n3)",
        "  what helps: 1 node would do but for a taint, which the pod may tolerate: gpu=only:NoSchedule (n2)",
        "  what helps: a node with 6 cpu and 64 MiB memory free: of 1 node that would do else, n1 lacks least: 3 cpu",
        "  no preemption: no pods of a priority below 0 would leave enough behind on any node",
    ]


def test_why_a_pod_is_where_it_is(cluster: Cluster) -> None:
    """Of one node that will do no scores are needed; with two there are."""
    lines = koordctl(cluster, "explain", "pod", "default/web", f"--scheduler=127.0.0.1:{cluster.leader}")
    chose = "koord-scheduler chose n1 SOME TIME ago: at the first try, after SOME TIME; "
    assert lines[1:] == [f"{chose}1 of 3 nodes would have done"]
    create(cluster.api, "either", "1", tolerations=[{"operator": "Exists", "effect": "NoSchedule"}])
    wait_for(lambda: cluster.api.get(f"{PODS}/either")["spec"].get("nodeName"), SOON_S, "a pod to be placed")
    lines = koordctl(cluster, "explain", "pod", "default/either", f"--scheduler=127.0.0.1:{cluster.leader}")
    assert lines[1].endswith("at the first try, after SOME TIME; 3 of 3 nodes would have done")
    assert lines[2].split() == [
        "NODE", "TOTAL", "TaintToleration*3", "NodeResourcesFit*1", "NodeResourcesBalancedAllocation*1"
    ]  # fmt: skip
    rows = [line.split() for line in lines[3:]]
    assert [row[0] for row in rows][2] == "n1"
    for row in rows:
        assert int(row[1]) >= 3 * int(row[2]) + int(row[3]) + int(row[4])
    cluster.api.delete(f"{PODS}/either", gracePeriodSeconds="0")


def test_the_queue(cluster: Cluster) -> None:
    lines = koordctl(cluster, "queue", f"--scheduler=127.0.0.1:{cluster.leader}", "--sort-by", "pod")
    cells = [re.split(r" {2,}", line) for line in lines]
    assert cells[0] == ["NAMESPACE", "POD", "PODS", "PRIORITY", "WAITED", "QUEUE", "TRIES", "WAITS FOR"]
    assert [row[1:7] for row in cells[1:4]] == [
        ["gated", "1", "0", "SOME TIME", "gated", "0"],
        ["large", "1", "0", "SOME TIME", "unschedulable", "1"],
        ["larger", "1", "0", "SOME TIME", "unschedulable", "1"],
    ]
    assert cells[1][7] == "its gates: example.com/quota"
    assert cells[2][7] == said(cluster.api, "large")
    assert lines[4] == "active: 0, backoff: 0, unschedulable: 2, gated: 1"


def test_a_scheduler_that_cannot_be_asked(cluster: Cluster) -> None:
    """A follower; and the leader, which is a process of this machine and no pod."""
    lines = koordctl(cluster, "explain", "pod", "default/large", f"--scheduler=127.0.0.1:{cluster.follower}")
    assert lines[-1] == (
        "koord-scheduler: it answered 503: the instance is not leader; the above is what the API server has"
    )
    lines = koordctl(cluster, "queue", "--sort-by", "pod", "--fields", "pod")
    assert lines[:4] == ["POD", "gated", "large", "larger"]
    assert lines[4] == (
        "warning: koord-scheduler: it cannot be asked: 404 NotFound: no WebSocket at "
        f"/api/v1/namespaces/{NAMESPACE}/pods/a/portforward; this is what the API server has"
    )


def test_upstreams_pages_and_metrics(cluster: Cluster) -> None:
    pages = {}
    for path in ("/metrics", "/configz", "/apis/v1/nodes/n1", "/apis/v1/__services__", "/apis/v1/queue?limit=1"):
        with urllib.request.urlopen(f"http://127.0.0.1:{cluster.leader}{path}", timeout=10) as answer:
            pages[path] = answer.read().decode()
    lines = pages["/metrics"].splitlines()
    assert 'scheduler_pending_pods{queue="unschedulable"} 2.0' in lines
    assert any(
        line.startswith('scheduler_schedule_attempts_total{profile="koord-scheduler",result="scheduled"} ')
        for line in lines
    )
    assert json.loads(pages["/apis/v1/nodes/n1"])["requested"]["MilliCPU"] == 1000
    assert json.loads(pages["/configz"])["kubescheduler.config.k8s.io"]["leaderElection"]["resourceName"] == NAME
    assert len(json.loads(pages["/apis/v1/queue?limit=1"])["rows"]) == 1
    assert status(cluster.follower, "/apis/v1/queue") == 503
    assert status(cluster.leader, "/apis/v1/pods/default/none") == 404
