"""Evictions through StopContainer of a real containerd: what ends, what stays, and what a freezer does to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

import pytest

from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod
from koord.pb.cri import api_pb2 as pb
from qosd.act.cristop import CRIStop
from qosd.act.evictor import EvictionFailed
from qosd.decide.decision import Eviction
from qosd.pods.cri import CRIClient

DEAF = ("/bin/sh", "-c", "trap '' TERM; echo started; while :; do sleep 1; done")
GRACE_S = 1
FROZEN_S = 2.0
_STILL_RUNNING = r"^container \w+ .* is running: .*StopContainer: .*; container \w+ .* is running: .*StopContainer: "


@asynccontextmanager
async def stopping(containerd: Containerd, exit_s: float = 20.0) -> AsyncIterator[CRIStop]:
    runtime = CRIClient(f"unix://{containerd.socket}", 5.0, asyncio.get_running_loop())
    try:
        yield CRIStop(runtime, cgroups.existing, exit_s=exit_s)
    finally:
        runtime.close()


@contextmanager
def running(cri: Cri, pod: Pod) -> Iterator[dict[str, str]]:
    """Container ids by name; the pod's cgroup and all below it are gone at the end."""
    cgroups.make_pod(pod)
    try:
        with cri.running(pod) as ids:
            yield ids
    finally:
        cgroups.remove(pod.cgroup_parent)


@pytest.fixture
def pods_root(cgroup_root: str, any_containerd: Containerd) -> str:
    cgroups.make(f"{cgroup_root}/besteffort")
    return cgroup_root


def state(cri: Cri, container_id: str) -> pb.ContainerState:
    return cri.container_status(container_id).status.state


def order(pod: Pod, grace_s: int) -> Eviction:
    return Eviction(pod.uid, f"{pod.namespace}/{pod.name}", "memory is short", pod.cgroup_parent, grace_s)


async def test_all_containers_of_the_pod_end_and_no_other(
    any_containerd: Containerd, cri: Cri, pods_root: str, figure: Callable[[str], None]
) -> None:
    """One of two does not listen to TERM; a third is created and never started: it has neither process nor cgroup."""
    pod = Pod("evicted", (Container("main"), Container("deaf", command=DEAF)), cgroup_root=pods_root)
    other = Pod("other", (Container("main"),), cgroup_root=pods_root)
    with running(cri, pod) as ids, running(cri, other) as other_ids:
        (sandbox,) = (each.id for each in cri.pods() if each.metadata.uid == pod.uid)
        created = cri.create_container(sandbox, pod, Container("created"))
        groups = {name: f"{pod.cgroup_parent}/{id_}" for name, id_ in ids.items()}
        assert all(map(cgroups.existing, groups.values()))
        async with stopping(any_containerd) as executor:
            begin_s = time.monotonic()
            await executor.evict(order(pod, GRACE_S))
            took_s = time.monotonic() - begin_s
            assert [state(cri, id_) for id_ in ids.values()] == [pb.CONTAINER_EXITED] * 2
            assert not any(map(cgroups.existing, groups.values()))
            assert GRACE_S <= took_s < GRACE_S + 10, "both at the same time, one of them by KILL"
            codes = {name: cri.container_status(id_).status.exit_code for name, id_ in ids.items()}
            assert codes == {"main": 0, "deaf": 137}
            assert state(cri, created) == pb.CONTAINER_CREATED
            assert cgroups.existing(f"{pod.cgroup_parent}/{sandbox}"), "the sandbox is kubelet's to end"
            assert state(cri, other_ids["main"]) == pb.CONTAINER_RUNNING
            assert cgroups.existing(f"{other.cgroup_parent}/{other_ids['main']}")
            begin_s = time.monotonic()
            await executor.evict(order(pod, GRACE_S))
            again_s = time.monotonic() - begin_s
    name = any_containerd.release.name
    figure(f"{name}: evicted in {took_s:.2f} s with {GRACE_S} s of grace, again in {again_s * 1000:.0f} ms")


def freeze(cgroup: str, word: str) -> None:
    cgroups.write(cgroups.hierarchies()["freezer"] / cgroup.strip("/") / "freezer.state", word)


@contextmanager
def frozen(cgroup: str) -> Iterator[None]:
    freeze(cgroup, "FROZEN")
    try:
        yield
    finally:
        if cgroups.existing(cgroup):
            freeze(cgroup, "THAWED")


def frozen_pod(root: str) -> Pod:
    return Pod("frozen", (Container("main"), Container("deaf", command=DEAF)), cgroup_root=root)


async def test_a_frozen_container_is_thawed_by_the_runtime(
    any_containerd: Containerd, cri: Cri, pods_root: str, figure: Callable[[str], None]
) -> None:
    pod = frozen_pod(pods_root)
    with running(cri, pod) as ids, ExitStack() as freezers:
        for id_ in ids.values():
            freezers.enter_context(frozen(f"{pod.cgroup_parent}/{id_}"))
        async with stopping(any_containerd) as executor:
            begin_s = time.monotonic()
            await executor.evict(order(pod, 0))
            took_s = time.monotonic() - begin_s
        assert [state(cri, id_) for id_ in ids.values()] == [pb.CONTAINER_EXITED] * 2
    figure(f"{any_containerd.release.name}: evicted in {took_s:.2f} s with each container frozen")


async def test_a_frozen_pod_ends_when_it_is_thawed(
    any_containerd: Containerd, cri: Cri, pods_root: str, figure: Callable[[str], None]
) -> None:
    """The runtime thaws the containers' cgroups alone: killed processes exit once the one above is thawed."""
    pod = frozen_pod(pods_root)
    with running(cri, pod) as ids:
        async with stopping(any_containerd) as executor:
            with frozen(pod.cgroup_parent):
                task = asyncio.create_task(executor.evict(order(pod, 0)))
                await asyncio.wait((task,), timeout=FROZEN_S)
                assert not task.done()
                assert [state(cri, id_) for id_ in ids.values()] == [pb.CONTAINER_RUNNING] * 2
            thawed_s = time.monotonic()
            await task
            took_s = time.monotonic() - thawed_s
        assert [state(cri, id_) for id_ in ids.values()] == [pb.CONTAINER_EXITED] * 2
    figure(f"{any_containerd.release.name}: evicted {took_s:.2f} s after the pod's cgroup was thawed")


async def test_a_pod_that_stays_frozen_fails_and_is_evicted_later(
    any_containerd: Containerd, cri: Cri, pods_root: str
) -> None:
    pod = frozen_pod(pods_root)
    with running(cri, pod) as ids:
        async with stopping(any_containerd, exit_s=1.0) as executor:
            with frozen(pod.cgroup_parent), pytest.raises(EvictionFailed, match=_STILL_RUNNING):
                await executor.evict(order(pod, 0))
            await executor.evict(order(pod, 0))
        assert [state(cri, id_) for id_ in ids.values()] == [pb.CONTAINER_EXITED] * 2
