"""New pods seen by events on containerd, and what churn leaves behind.

Times are printed, never asserted; that a pod is seen at all within ``EVENT_S`` is by an event, since without one the
next list is further away.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod, container_resources
from koord.model.qos import DerivationRules, QoSClass
from qosd.model.snapshot import PodView
from qosd.pods.cri import CRIClient
from qosd.pods.source import POLL_S, PodSource
from tests.support.waiting import until

EVENT_S = POLL_S / 2
GONE_S = 2 * POLL_S
"""No cgroup goes with a sandbox that is removed after it was stopped: a list in between is put right by the next."""
CHURN = 30


class Seen:
    """When which pod was first in ``current``."""

    def __init__(self) -> None:
        self.at_s: dict[str, float] = {}

    def note(self, pods: tuple[PodView, ...]) -> None:
        for pod in pods:
            self.at_s.setdefault(pod.uid, time.monotonic())


@asynccontextmanager
async def following(containerd: Containerd, root: str) -> AsyncIterator[tuple[PodSource, Seen]]:
    loop, seen = asyncio.get_running_loop(), Seen()
    source: PodSource
    runtime = CRIClient(f"unix://{containerd.socket}", 5.0, loop)
    source = PodSource(runtime, None, DerivationRules, lambda: seen.note(source.current))
    source.follow(cgroups.hierarchies()["cpu"], (root, f"{root}/burstable", f"{root}/besteffort"))
    source.start()
    try:
        await until(lambda: source.age_s is not None)
        yield source, seen
    finally:
        await source.close()


def _pod(root: str, name: str) -> Pod:
    return Pod(
        name,
        (Container("main", cpu_request_milli=100, cpu_limit_milli=500, memory_request_bytes=1 << 25),),
        labels={"koordinator.sh/qosClass": "LS"},
        cgroup_root=root,
    )


@pytest.fixture
def pods_root(cgroup_root: str, any_containerd: Containerd) -> str:
    """Kubelet's cgroup and the tiers in it; fixtures of ``cgroup_root`` remove them."""
    for tier in ("", "/burstable", "/besteffort"):
        cgroups.make(cgroup_root + tier)
    return cgroup_root


async def test_a_new_pod_is_seen_by_an_event(any_containerd: Containerd, cri: Cri, pods_root: str) -> None:
    loop = asyncio.get_running_loop()
    async with following(any_containerd, pods_root) as (source, seen):
        print(f"\n{source.version}: hints {source.hints}")
        delays_ms = []
        for number in range(5):
            pod = _pod(pods_root, f"new-{number}")
            cgroups.make_pod(pod)
            sandbox_id, _ = await loop.run_in_executor(None, cri.run, pod)
            ran_s = time.monotonic()
            await until(lambda pod=pod: pod.uid in seen.at_s)  # type: ignore[misc]
            await until(lambda pod=pod: _running(source, pod.uid))  # type: ignore[misc]
            delays_ms.append((time.monotonic() - ran_s) * 1000)
            view = next(view for view in source.current if view.uid == pod.uid)
            assert (view.cgroup, view.qos, view.problems) == (pod.cgroup_parent, QoSClass.LS, ())
            assert [one.is_sandbox for one in view.containers] == [True, False]
            assert all(cgroups.existing(one.cgroup) for one in view.containers)
            assert view.containers[1].requested.cpu_quota_us == view.context.requested.cpu_quota_us == 50_000
            await loop.run_in_executor(None, cri.remove, sandbox_id)
            # The last that a runtime without events does, forgetting the sandbox, leaves no trace in the cgroups.
            await until(lambda pod=pod: all(view.uid != pod.uid for view in source.current), within_s=GONE_S)  # type: ignore[misc]
            cgroups.remove(pod.cgroup_parent)
        print(f"seen running after StartContainer returned: {', '.join(f'{ms:.0f}' for ms in delays_ms)} ms")


def _running(source: PodSource, uid: str) -> bool:
    return any(
        one.name == "main" and one.state == "CONTAINER_RUNNING"
        for view in source.current
        if view.uid == uid
        for one in view.containers
    )


async def test_an_update_of_resources_shows_as_changed_asked(
    any_containerd: Containerd, cri: Cri, pods_root: str
) -> None:
    loop = asyncio.get_running_loop()
    pod = _pod(pods_root, "updated")
    cgroups.make_pod(pod)
    async with following(any_containerd, pods_root) as (source, _):
        sandbox_id, ids = await loop.run_in_executor(None, cri.run, pod)
        await until(lambda: _running(source, pod.uid))
        more = replace(pod.containers[0], cpu_limit_milli=400)
        resources = container_resources(pod, more)
        await loop.run_in_executor(None, cri.update_container, ids["main"], resources)
        await until(
            lambda: any(one.requested.cpu_quota_us == 40_000 for view in source.current for one in view.containers),
            within_s=2 * POLL_S,
        )
        await loop.run_in_executor(None, cri.remove, sandbox_id)
        await until(lambda: not source.current, within_s=GONE_S)
    cgroups.remove(pod.cgroup_parent)


async def test_churn_leaks_nothing(any_containerd: Containerd, cri: Cri, pods_root: str) -> None:
    loop = asyncio.get_running_loop()
    async with following(any_containerd, pods_root) as (source, seen):
        descriptors, watches = _descriptors(), source.watches
        for number in range(CHURN):
            pod = _pod(pods_root, f"churn-{number}")
            cgroups.make_pod(pod)
            sandbox_id, _ = await loop.run_in_executor(None, cri.run, pod)
            if number % 3:
                await asyncio.sleep(0.05)
            await loop.run_in_executor(None, cri.remove, sandbox_id)
            cgroups.remove(pod.cgroup_parent)
        await until(lambda: not source.current, within_s=GONE_S)
        await until(lambda: source.watches == watches)
        assert _descriptors() == descriptors
        assert source.problems == ()
        print(f"\n{CHURN} pods, {len(seen.at_s)} of them seen while they lived")


def _descriptors() -> set[str]:
    """What this process has open, but for sockets of gRPC's own threads."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(Path("/proc/self/fd") / name)
        except FileNotFoundError:
            continue
        if not target.startswith("socket:"):
            found.add(f"{name} {target}")
    return found
