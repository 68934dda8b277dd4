"""What kubelet reads of containers that Koord made otherwise than requested, on a booted node with cgroup v2.

The guest's kubelet, which is of the release ``KUBERNETES``, joins a control plane on the host; by each front end batch
pods run that the cluster must not notice, and an LS and an LSR pod are resized in place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from integration import build
from integration.cluster import controlplane, editedpods, kubeconfig, objects
from integration.cluster.api import ApiError, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.editedpods import (
    BATCH,
    BATCH_MEMORY_BYTES,
    BATCH_QUOTA_US,
    BATCH_SHARES,
    LS,
    LSR,
    OFFERED,
    SERVICE,
    Pods,
)
from integration.guest import kubelet, programs
from integration.guest.guest import Guest, Saved, booted
from integration.guest.image import Image
from integration.harness.processes import wait_for
from integration.kubelet.staticpods import MIB, Limits
from qosd.frontends import FrontEnd

NODE = "node"
HOST = "10.0.2.2"
"""The host's loopback, as QEMU's user network has it."""
CREDENTIALS = "/etc/kubernetes"
ALL = "0-1"
PATIENCE_S = 400.0

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with controlplane.private(tmp_path_factory.mktemp("reads") / "plane", editedpods.options(HOST)) as running:
        yield running


@pytest.fixture(scope="module")
def node(
    plane: ControlPlane,
    guest_image: Image,
    guest_payload: Path,
    saved_guest: Saved,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Guest]:
    """With kubelet's credential for the cluster and Koord's programs; neither runs yet."""
    directory = tmp_path_factory.mktemp("guest")
    with booted(guest_image, directory, guest_payload, saved=saved_guest, reaches_host=True) as guest:
        identity = plane.identity(f"system:node:{NODE}", ("system:nodes",))
        files = {"ca.crt": plane.authority.certificate, "node.crt": identity.certificate, "node.key": identity.key}
        for name, file in files.items():
            guest.put(f"{CREDENTIALS}/{name}", file.read_text(), 0o600)
        own = directory / "kubelet.conf"
        pair = replace(identity, certificate=Path(CREDENTIALS, "node.crt"), key=Path(CREDENTIALS, "node.key"))
        server = f"https://{HOST}:{plane.port}"
        kubeconfig.write(own, server, Path(CREDENTIALS, "ca.crt"), f"system:node:{NODE}", pair)
        guest.put(f"{CREDENTIALS}/kubelet.conf", own.read_text(), 0o600)
        programs.put(guest)
        yield guest


@pytest.fixture(params=[FrontEnd.PROXY, FrontEnd.RECONCILER, FrontEnd.NRI])
def pods(request: pytest.FixtureRequest, plane: ControlPlane, node: Guest) -> Iterator[Pods]:
    """The node is Ready, and its agent has this front end."""
    if request.param is FrontEnd.NRI:
        programs.use_containerd_2(node)
    runtime = programs.SOCKET if request.param is FrontEnd.PROXY else kubelet.CONTAINERD
    node.do("systemctl", "start", *(programs.UNITS[::-1] if request.param is FrontEnd.PROXY else ("koord-qosd",)))
    if request.param is not FrontEnd.RECONCILER:
        node.wait(lambda: request.param in programs.acting(node), f"{request.param} to act")
    kubelet.configure(node, runtime, f"--kubeconfig={CREDENTIALS}/kubelet.conf")
    node.do("systemctl", "restart", "kubelet")
    with plane.api() as api:
        wait_for(lambda: _is_ready(api.get, node), PATIENCE_S, "the node to be Ready")
        found = Pods(plane, api, NODE, PATIENCE_S)
        found.offer()
        yield found
        node.do("systemctl", "stop", "kubelet", *programs.UNITS)
        api.delete(f"{objects.NODES}/{NODE}")


def _is_ready(get: Callable[[str], Object], node: Guest) -> bool:
    with contextlib.suppress(ApiError):
        return objects.ready(get(f"{objects.NODES}/{NODE}"))
    return False


def test_the_cluster_does_not_notice_what_pods_got(pods: Pods, node: Guest, figure: Callable[[str], None]) -> None:
    batch = ("batch-1", "batch-2")
    for name in batch:
        pods.run(replace(BATCH, name=name))
    _hold(node, batch, Limits(BATCH_SHARES, BATCH_QUOTA_US, BATCH_MEMORY_BYTES))
    for name in batch:
        reported = pods.status(name).get("resources") or {}
        assert {**reported.get("requests", {}), **reported.get("limits", {})}.keys() <= OFFERED.keys()
    requested = pods.requested_on_node()
    assert (requested["cpu"], requested["memory"], requested["kubernetes.io/batch-cpu"]) == ("0", "0", "4k")
    pods.run(SERVICE)  # beside it there is no room for the others
    assert [pods.status(name)["restartCount"] for name in (*batch, SERVICE.name)] == [0] * 3
    pods.remove(SERVICE.name)
    for pod in (LS, LSR):
        pods.run(pod)
        for cpu_milli, memory_mib in ((500, 96), (100, 64)):
            pods.resize(pod.name, cpu_milli, memory_mib)
            quota_us = -1 if pod is LSR else cpu_milli * 100
            _hold(node, [pod.name], Limits(cpu_milli * 1024 // 1000, quota_us, memory_mib * MIB))
        assert not pods.resizes_under_way(pod.name)
    assert [pods.status(name)["restartCount"] for name in (*batch, LS.name, LSR.name)] == [0] * 4
    figure(f"kubelet {build.kubernetes_version()}, cgroup v2: requested of the node {pods.requested_on_node()}")
    pods.remove(*batch, LS.name, LSR.name)


def _hold(node: Guest, names: tuple[str, ...] | list[str], limits: Limits) -> None:
    """The kernel, for the containers of these pods."""
    wanted = kubelet.expected(limits, ALL).container

    def held() -> list[tuple[str, str, str]]:
        found = kubelet.held(node, names)
        return [(each.container.weight, each.container.cpu_max, each.container.memory_max) for each in found.values()]

    expected = [(wanted.weight, wanted.cpu_max, wanted.memory_max)] * len(names)
    assert kubelet.settled(node, held, expected) == expected
