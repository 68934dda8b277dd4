"""Pods that are cgroup directories only, told of by a runtime of the test's own: churn as fast as the kernel is.

The directories are real ones in the kernel's tree, so koord-qosd's reads and writes are real, too; no process is in
them. Every mkdir and rmdir is a step of its own, between which the other side may do anything. Invariant: at the end
no directory of a churned pod is left.
"""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import Iterator

from integration.harness import cgroups
from integration.harness.pods import Container, Pod, container_resources, cpu_quota_us
from integration.node import kinds
from integration.node.churn import Tally
from koord.pb.cri import api_pb2 as pb
from tests.fakes.runtime import FakeRuntime

CONTROLLERS = ("cpu", "cpuset", "memory", "cpuacct")
_CPUSET = ("cpuset.cpus", "cpuset.mems")


class Directories:
    """``runtime`` tells of the pods below ``root``; ``living``: sandbox ids by slot."""

    def __init__(self, root: str, seed: int) -> None:
        mounts = cgroups.hierarchies()
        self.root, self.chance, self.tally = root, random.Random(seed), Tally()
        self.runtime = FakeRuntime(mounts["cpu"])
        self.mounts = [mounts[name] for name in CONTROLLERS]
        self.living: dict[int, tuple[str, Pod]] = {}
        self._made = 0

    async def anchor(self) -> None:
        """A pod that stays, so that koord-qosd knows its place; it goes with ``root``."""
        await _slowly(self._created(self._id(), kinds.unlabelled(self.chance, "anchor", self.root)))

    async def churn(self, slots: int, until: asyncio.Event, pause_s: float) -> None:
        """Make or remove a pod at a random slot, again and again; then remove all."""
        while not until.is_set():
            await self._turn(self.chance.randrange(slots))
            await asyncio.sleep(self.chance.random() * pause_s)
        for slot in list(self.living):
            await self._turn(slot)

    async def _turn(self, slot: int) -> None:
        made = self.living.pop(slot, None)
        if made is not None:
            await _slowly(self._removed(*made))
            self.tally.add("removed")
            return
        pod = kinds.any_pod(self.chance, f"slot-{slot}", self.root)
        self.living[slot] = (self._id(), pod)
        await _slowly(self._created(*self.living[slot]))
        self.tally.add("created")

    def _created(self, id_: str, pod: Pod) -> Iterator[None]:
        runtime, parent = self.runtime, pod.cgroup_parent
        yield from self._make(parent)
        runtime.parents[id_] = parent
        yield from self._make(f"{parent}/{id_}")
        runtime.sandboxes[id_] = pb.PodSandbox(
            id=id_,
            metadata=pb.PodSandboxMetadata(name=pod.name, uid=pod.uid, namespace=pod.namespace),
            state=pb.SANDBOX_READY,
            created_at=self._made,
            labels=pod.labels,
            annotations=pod.annotations,
        )
        for container in pod.containers:
            yield from self._started(id_, pod, container)

    def _started(self, sandbox: str, pod: Pod, container: Container) -> Iterator[None]:
        runtime, id_ = self.runtime, self._id()
        runtime.parents[id_] = pod.cgroup_parent
        runtime.quotas_us[id_] = cpu_quota_us(container.cpu_limit_milli) or -1
        runtime.containers[id_] = pb.Container(
            id=id_,
            pod_sandbox_id=sandbox,
            metadata=pb.ContainerMetadata(name=container.name),
            state=pb.CONTAINER_CREATED,
            created_at=self._made,
        )
        yield
        yield from self._make(f"{pod.cgroup_parent}/{id_}")
        shares = container_resources(pod, container).cpu_shares
        cgroups.write(self.runtime.tree / pod.cgroup_parent.strip("/") / id_ / "cpu.shares", str(shares))
        runtime.containers[id_].state = pb.CONTAINER_RUNNING

    def _removed(self, id_: str, pod: Pod) -> Iterator[None]:
        """The runtime tells of the end before, amid or after the directories go."""
        runtime, moment = self.runtime, self.chance.randrange(3)
        ids = [one.id for one in runtime.containers.values() if one.pod_sandbox_id == id_]
        if moment == 0:
            self._forget(id_, ids)
        for one in (*ids, id_):
            yield from self._unmake(f"{pod.cgroup_parent}/{one}")
        if moment == 1:
            self._forget(id_, ids)
        yield from self._unmake(pod.cgroup_parent)
        self._forget(id_, ids)

    def _forget(self, id_: str, ids: list[str]) -> None:
        runtime = self.runtime
        runtime.sandboxes.pop(id_, None)
        for one in ids:
            runtime.containers.pop(one, None)

    def _make(self, cgroup: str) -> Iterator[None]:
        for mount in self.mounts:
            directory = mount / cgroup.strip("/")
            directory.mkdir()
            if mount.name == "cpuset":
                for name in _CPUSET:
                    cgroups.write(directory / name, (directory.parent / name).read_text())
            yield

    def _unmake(self, cgroup: str) -> Iterator[None]:
        for mount in self.chance.sample(self.mounts, len(self.mounts)):
            os.rmdir(mount / cgroup.strip("/"))
            yield

    def _id(self) -> str:
        self._made += 1
        return uuid.UUID(int=self.chance.getrandbits(128)).hex * 2


async def _slowly(steps: Iterator[None]) -> None:
    """The runtime answers between any two steps."""
    for _ in steps:
        await asyncio.sleep(0)
