"""What kubelet reads of containers that Koord made otherwise than requested, and what the scheduler makes of it.

Batch pods run whose limits are two CPUs; the cluster must not notice. An LS and an LSR pod are resized in place. All
three front ends are tried; ``KUBERNETES=1.32`` runs it with that release, where kubelet reads what the runtime says
only behind a feature gate, which is on here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from integration import build
from integration.cluster import controlplane, editedpods, objects
from integration.cluster.api import Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.editedpods import (
    BATCH,
    BATCH_MEMORY_BYTES,
    BATCH_QUOTA_US,
    BATCH_SHARES,
    LS,
    LSR,
    NATIVE,
    OFFERED,
    PODS,
    SERVICE,
    Pods,
)
from integration.cluster.node import Node, real_node
from integration.harness import cgroups, containerd
from integration.harness.processes import wait_for
from integration.harness.proxy import socket_of
from integration.kubelet.staticpods import MIB, StaticPod
from integration.node.daemon import Daemon
from integration.peers.goproxy import GoProxy
from integration.peers.upstream import Protocol
from qosd.frontends import FrontEnd

NAME = "node-1"
OWN = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.shares /sys/fs/cgroup/memory/memory.limit_in_bytes"
TELLS = ("sh", "-c", f"cat {OWN}; sleep 100000")
"""The first instructions of a container tell its own limits."""
BATCH_LIMITS = (str(BATCH_QUOTA_US), str(BATCH_SHARES), str(BATCH_MEMORY_BYTES))
QUIET_S = 15.0


@dataclass(kw_only=True)
class Cluster(Pods):
    node: Node
    front_end: FrontEnd

    def kernel(self, name: str) -> tuple[str, str, str]:
        """Quota, shares and memory limit of the pod's container."""
        values = cgroups.read(cgroups.of_container(self.status(name)["containerID"].removeprefix("containerd://")))
        return str(values.cfs_quota_us), str(values.cpu_shares), str(values.memory_limit_bytes)

    def told(self, name: str) -> tuple[str, ...]:
        """What the container's first instructions found."""
        return tuple(wait_for(lambda: self.plane.kubectl("logs", name).split()[:3], 20, f"{name} to tell its limits"))


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with controlplane.private(tmp_path_factory.mktemp("reads") / "plane", editedpods.options()) as running:
        yield running


@contextlib.contextmanager
def joined(plane: ControlPlane, directory: Path, front_end: FrontEnd, **options: Any) -> Iterator[Cluster]:
    release = containerd.built(build.build("containerd2")) if front_end is FrontEnd.NRI else None
    own = real_node(plane, NAME, directory, release, agent=True, front_end=front_end, has_policy=False, **options)
    with own as node, plane.api() as api:
        cluster = Cluster(plane, api, NAME, node=node, front_end=front_end)
        cluster.offer()
        yield cluster
        api.delete(f"{objects.NODES}/{NAME}")


@contextlib.contextmanager
def as_koordinators(agent: Daemon, directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    with GoProxy(agent.runtime, agent.directory / "hookserver.d", Protocol()).serving(socket_of(directory)):
        yield


@pytest.mark.soak
def test_what_kubelet_makes_of_limits_that_it_is_told(
    plane: ControlPlane, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """By a proxy as Koordinator's: what all of this is for, release by release. docs/kubelet.md has the figures."""
    options = {"rules": "node: {limitsInCRI: true}\n", "proxy": as_koordinators}
    with joined(plane, tmp_path / "told", FrontEnd.PROXY, **options) as cluster:
        for name in ("batch-1", "batch-2"):
            cluster.run(replace(BATCH, name=name))
        updates = _updates(cluster)
        time.sleep(QUIET_S)
        updated = _updates(cluster) - updates
        cluster.api.create(PODS, SERVICE.manifest())
        scheduled = wait_for(lambda: _scheduled(cluster, SERVICE.name), 30, "the scheduler to decide on a service")
        status = (cluster.status("batch-1").get("resources") or {}).get("requests")
        figure(
            f"kubelet {build.kubernetes_version()}: {updated} updates in {QUIET_S:g} s; status {status}; "
            f"kubectl: the node's requests {cluster.requested_on_node()['cpu']} CPUs; a service of 1800m: {scheduled}; "
            f"the kernel holds {cluster.kernel('batch-1')}"
        )
        cluster.remove("batch-1", "batch-2", SERVICE.name)


def _scheduled(cluster: Cluster, name: str) -> str:
    """The scheduler's decision about a pod; "" before it has decided."""
    conditions = cluster.api.get(f"{PODS}/{name}")["status"].get("conditions") or []
    found: Object = next((each for each in conditions if each["type"] == "PodScheduled"), {})
    return "" if not found else str(found.get("message") or "scheduled")


@pytest.fixture(scope="module", params=[FrontEnd.PROXY, FrontEnd.NRI, FrontEnd.RECONCILER])
def cluster(
    request: pytest.FixtureRequest, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with joined(plane, tmp_path_factory.mktemp(request.param.value), request.param) as running:
        yield running


@pytest.fixture(scope="module")
def batch(cluster: Cluster) -> Iterator[tuple[Object, ...]]:
    """Two batch pods of two CPUs each, on a node of two."""
    yield tuple(cluster.run(replace(BATCH, name=name, command=TELLS)) for name in ("batch-1", "batch-2"))
    cluster.remove("batch-1", "batch-2")


def test_limits_are_in_force_from_a_containers_first_instruction(
    cluster: Cluster, batch: tuple[Object, ...], figure: Callable[[str], None]
) -> None:
    """Without a front end, soon after it."""
    assert cluster.node.agent is not None
    wait_for(lambda: cluster.kernel("batch-1") == BATCH_LIMITS, 20, "the limits to be in the kernel")
    told = cluster.told("batch-1")
    figure(f"{cluster.front_end}: the first instruction found quota, shares, memory limit {told}")
    if cluster.front_end is not FrontEnd.RECONCILER:
        assert told == BATCH_LIMITS


def test_the_cluster_does_not_notice_what_batch_pods_got(cluster: Cluster, batch: tuple[Object, ...]) -> None:
    for name in ("batch-1", "batch-2"):
        wait_for(lambda name=name: cluster.kernel(name) == BATCH_LIMITS, 20, "the limits to be in the kernel")  # type: ignore[misc]
        reported = cluster.status(name).get("resources") or {}
        assert {**reported.get("requests", {}), **reported.get("limits", {})}.keys() <= OFFERED.keys()
    requested = cluster.requested_on_node()
    assert (requested["cpu"], requested["memory"]) == ("0", "0")
    assert requested["kubernetes.io/batch-cpu"] == "4k"


def test_a_service_that_fits_by_requests_runs(cluster: Cluster, batch: tuple[Object, ...]) -> None:
    cluster.run(SERVICE)
    assert cluster.requested_on_node()["cpu"] == "1800m"
    cluster.remove(SERVICE.name)


def test_a_pod_of_higher_priority_that_fits_preempts_nobody(cluster: Cluster, batch: tuple[Object, ...]) -> None:
    """As the node agent's, which a helm upgrade makes anew."""
    agent = StaticPod("agent", "SYSTEM", {"requests": {"cpu": "1500m", "memory": "64Mi"}}, {})
    cluster.run(agent, priorityClassName="system-node-critical")
    for pod in batch:
        now = cluster.ready(pod["metadata"]["name"])
        assert now is not None and now["metadata"]["uid"] == pod["metadata"]["uid"]
    cluster.remove("agent")


def test_kubelet_leaves_edited_containers_alone(cluster: Cluster, batch: tuple[Object, ...]) -> None:
    """It neither updates nor restarts them, again and again."""
    before = {name: cluster.status(name) for name in ("batch-1", "batch-2")}
    updates = _updates(cluster)
    time.sleep(QUIET_S)
    assert {name: cluster.status(name) for name in before} == before
    assert _updates(cluster) == updates


@pytest.mark.parametrize("pod", [LS, LSR], ids=["LS", "LSR"])
def test_a_pod_that_is_resized_in_place_ends_with_what_it_asked_for(cluster: Cluster, pod: StaticPod) -> None:
    """Any number of times: an LS pod with kubelet's quota, an LSR pod, which has its own CPUs, without a quota."""
    cluster.run(pod)
    first = cluster.status(pod.name)
    assert first["resources"] == {"requests": NATIVE, "limits": NATIVE}
    for cpu_milli, memory_mib in ((600, 96), (500, 96), (800, 128), (400, 128)):
        cluster.resize(pod.name, cpu_milli, memory_mib)
        quota_us = "-1" if pod is LSR else str(cpu_milli * 100)
        wanted = quota_us, str(cpu_milli * 1024 // 1000), str(memory_mib * MIB)
        wait_for(lambda of=wanted: cluster.kernel(pod.name) == of, 20, f"the kernel to hold {wanted}")  # type: ignore[misc]
    time.sleep(QUIET_S / 3)
    last = cluster.status(pod.name)
    assert (last["containerID"], last["restartCount"]) == (first["containerID"], 0)
    assert cluster.kernel(pod.name) == wanted
    assert not cluster.resizes_under_way(pod.name)
    cluster.remove(pod.name)


def _updates(cluster: Cluster) -> int:
    """How often kubelet has updated containers, as the runtime's log tells."""
    return cluster.node.containerd.log.read_text(errors="replace").count("UpdateContainerResources for")
