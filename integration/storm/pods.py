"""Pods that live through a storm, and the ledger of what must exist.

A worker takes pods through kubelet's calls, one after the other. A call that was interrupted is resolved by listing on
a connection of its own to the runtime: what it was to make is absent (then it is made again) or present, and then
edited. Anything else is a finding.

A runtime whose caller vanishes in the middle of a start sometimes leaves a wreck: containerd 1.6 shows a container as
exited and keeps its task. A call that such a pod is refused afterwards is made again on the direct connection; only if
the runtime refuses that too, with the same code, the pod counts as wrecked by the runtime and not as a failure.

Names carry an attempt number, as kubelet's do, because the runtime keeps a name
reserved for as long as it undoes a cancelled creation.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from google.protobuf.message import Message

from integration.demo import pods as demo
from integration.harness import cgroups
from integration.harness.cri import RUNTIME
from integration.harness.pods import Container, Pod, container_config, container_resources, sandbox_config
from integration.storm.client import IGNORED, Caller, Failed, Interrupted
from koord.pb.cri import api_pb2 as pb

LAST_CPU = 1
RULES = demo.rules(LAST_CPU)
QUOTAS_US = (40_000, 20_000)  # at creation and after the update; the pod's own limit is the first
UNDO_S = 0.5  # what the runtime takes at most to finish or undo a call whose client is gone
POD_UID = "io.kubernetes.pod.uid"
STARTING_POLLS = 20
Result = TypeVar("Result")


class Finding(Exception):
    """Something is as it must never be."""


@dataclass(slots=True)
class Tally:
    """What came of the calls; ``present`` and ``absent`` are interrupted creations, ``failures`` were not in flight
    and failed all the same.
    """

    interrupted: Counter[str] = field(default_factory=Counter)
    present: int = 0
    absent: int = 0
    pods: int = 0
    wrecks: int = 0
    failures: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Living:
    """A running container and the values that its cgroup must show."""

    pod: Pod
    container_id: str
    expected: dict[str, object]

    @property
    def cgroup(self) -> str:
        return f"{self.pod.cgroup_parent}/{self.container_id}"

    def wrong(self) -> list[str]:
        """What the kernel shows otherwise."""
        try:
            values = cgroups.read(self.cgroup)
        except FileNotFoundError as error:
            return [f"{self.container_id[:12]}: {error}"]
        shown = {key: getattr(values, key) for key in self.expected}
        return [] if shown == self.expected else [f"{self.container_id[:12]}: {shown} instead of {self.expected}"]


def latency_sensitive(root: str, number: int) -> tuple[Pod, dict[str, object]]:
    """An LS pod: kubelet asks for no CPU set, the hook server gives it the shared pool."""
    container = Container("main", cpu_request_milli=250, cpu_limit_milli=400, memory_limit_bytes=64 << 20)
    pod = Pod(f"ls-{number}", (container,), labels={demo.QOS: "LS"}, cgroup_root=root)
    return pod, {"cpuset_cpus": str(LAST_CPU), "cfs_quota_us": QUOTAS_US[0], "cpu_shares": 256}


def best_effort(root: str, number: int) -> tuple[Pod, dict[str, object]]:
    """A BE pod with batch resources, which kubelet knows nothing of."""
    pod = demo.best_effort(root, f"be-{number}")
    return pod, {"cfs_quota_us": 50_000, "cpu_shares": 512, "memory_limit_bytes": 64 << 20}


class Worker:
    """Takes pods from RunPodSandbox to RemovePodSandbox, ``keep`` of them at any time alive."""

    def __init__(
        self, proxied: Caller, direct: Caller, tally: Tally, root: str, chance: random.Random, keep: int = 3
    ) -> None:
        self._proxied, self._direct, self._tally = proxied, direct, tally
        self._root, self._chance, self._keep = root, chance, keep
        self.living: list[tuple[str, Living]] = []  # (sandbox id, container)
        self.wrecked: set[str] = set()  # pod uids
        self._number = 0
        self._current = ""  # uid of the pod that is worked on
        self._touched: set[str] = set()  # uids of pods of which a call was interrupted

    async def work(self, until: asyncio.Event) -> None:
        """Until told to stop; leaves ``keep`` pods or fewer."""
        while not until.is_set():
            self._number += 1
            make = latency_sensitive if self._chance.random() < 0.5 else best_effort
            pod, expected = make(self._root, self._number)
            await asyncio.to_thread(cgroups.make_pod, pod)
            try:
                await self._one_pod(pod, expected)
            except Failed as error:
                await self._judge(error)
            except Finding as error:
                self._tally.findings.append(str(error))

    async def _judge(self, error: Failed) -> None:
        """A failure, unless an interrupted call left the pod so that the runtime refuses a direct client alike."""
        if self._current in self._touched:
            try:
                await self._direct.call(error.method, error.request, IGNORED)
            except Failed as direct:
                if direct.code == error.code:
                    self._tally.wrecks += 1
                    self.wrecked.add(self._current)
                    return
        self._tally.failures.append(str(error))

    async def _one_pod(self, pod: Pod, expected: dict[str, object]) -> None:
        self._current = pod.uid
        sandbox_id = await self._run_sandbox(pod)
        container_id = await self._create_and_start(sandbox_id, pod, expected)
        living = Living(pod, container_id, dict(expected))
        self.living.append((sandbox_id, living))
        self._tally.pods += 1
        if wrong := living.wrong():
            raise Finding(f"after start: {'; '.join(wrong)}")
        if pod.containers[0].cpu_limit_milli:
            await self._update(living, QUOTAS_US[1])
        if len(self.living) > self._keep:
            await self._remove(*self.living.pop(0))

    # --- creating ---------------------------------------------------------------------------------------------------

    async def _run_sandbox(self, pod: Pod) -> str:
        for attempt in range(100):
            config = sandbox_config(pod)
            config.metadata.attempt = attempt
            request = pb.RunPodSandboxRequest(config=config)
            try:
                answer = await self._proxied.call(RUNTIME + "RunPodSandbox", request, pb.RunPodSandboxResponse)
                return answer.pod_sandbox_id
            except Interrupted:
                found = await self._resolved("RunPodSandbox", partial(self._sandbox, pod, attempt))
            if found is not None and found.state == pb.SANDBOX_READY:
                return found.id
            if found is not None:  # made, and stopped again when its caller was gone
                await self._remove_sandbox(found.id)
        raise Finding(f"no sandbox of {pod.name} in 100 attempts")

    async def _create_and_start(self, sandbox_id: str, pod: Pod, expected: dict[str, object]) -> str:
        for attempt in range(100):
            container_id = await self._create(sandbox_id, pod, attempt, expected)
            if container_id is None:
                continue
            if await self._start(pod, container_id):
                return container_id
            await self._again("RemoveContainer", pb.RemoveContainerRequest(container_id=container_id))
        raise Finding(f"no container of {pod.name} in 100 attempts")

    async def _create(self, sandbox_id: str, pod: Pod, attempt: int, expected: dict[str, object]) -> str | None:
        config = container_config(pod, pod.containers[0])
        config.metadata.attempt = attempt
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox_config(pod)
        )
        try:
            answer = await self._proxied.call(RUNTIME + "CreateContainer", request, pb.CreateContainerResponse)
            return answer.container_id
        except Interrupted:
            found = await self._resolved("CreateContainer", partial(self._container, sandbox_id, attempt))
        if found is None:
            return None
        if (specified := await self._specified(found.id, expected)) != expected:
            raise Finding(f"present and not edited: {found.id[:12]}: {specified} instead of {expected}")
        return found.id

    async def _start(self, pod: Pod, container_id: str) -> bool:
        """Whether it runs; a start that was cancelled halfway leaves an exited container."""
        while True:
            try:
                request = pb.StartContainerRequest(container_id=container_id)
                await self._proxied.call(RUNTIME + "StartContainer", request, pb.StartContainerResponse)
                return True
            except Interrupted:
                self._interrupted("StartContainer")
                state = await self._settled_state(pod, container_id)
            if state != pb.CONTAINER_CREATED:
                return state == pb.CONTAINER_RUNNING

    # --- changing and removing ----------------------------------------------------------------------------------------

    async def _update(self, living: Living, quota_us: int) -> None:
        """As kubelet resizes: the whole resources, whose CPU set is empty and must not undo the hook server's."""
        resources = container_resources(living.pod, living.pod.containers[0])
        resources.cpu_quota = quota_us
        request = pb.UpdateContainerResourcesRequest(container_id=living.container_id, linux=resources)
        await self._again("UpdateContainerResources", request)
        living.expected["cfs_quota_us"] = quota_us
        if wrong := living.wrong():
            raise Finding(f"after update: {'; '.join(wrong)}")

    async def _remove(self, sandbox_id: str, living: Living) -> None:
        self._current = living.pod.uid
        await self._again("StopContainer", pb.StopContainerRequest(container_id=living.container_id, timeout=0))
        await self._again("RemoveContainer", pb.RemoveContainerRequest(container_id=living.container_id))
        await self._remove_sandbox(sandbox_id)
        await asyncio.to_thread(cgroups.remove, living.pod.cgroup_parent)

    async def _remove_sandbox(self, sandbox_id: str) -> None:
        await self._again("StopPodSandbox", pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id))
        await self._again("RemovePodSandbox", pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id))

    async def _again(self, method: str, request: Message) -> None:
        """A call that may be made twice; its answer carries nothing."""
        while True:
            try:
                await self._proxied.call(RUNTIME + method, request, IGNORED)
                return
            except Interrupted:
                self._interrupted(method)
                await asyncio.sleep(UNDO_S)

    def _interrupted(self, method: str) -> None:
        self._tally.interrupted[method] += 1
        self._touched.add(self._current)

    # --- listing, directly --------------------------------------------------------------------------------------------

    async def _resolved(self, method: str, find: Callable[[], Awaitable[Result | None]]) -> Result | None:
        """What has become of an interrupted call, once the runtime has had the time to finish or undo it."""
        self._interrupted(method)
        await asyncio.sleep(UNDO_S)
        found = await find()
        self._tally.present += found is not None
        self._tally.absent += found is None
        return found

    async def _sandbox(self, pod: Pod, attempt: int) -> pb.PodSandbox | None:
        selector = pb.PodSandboxFilter(label_selector={POD_UID: pod.uid})
        request = pb.ListPodSandboxRequest(filter=selector)
        answer = await self._direct.call(RUNTIME + "ListPodSandbox", request, pb.ListPodSandboxResponse)
        return next((item for item in answer.items if item.metadata.attempt == attempt), None)

    async def _container(self, sandbox_id: str, attempt: int) -> pb.Container | None:
        request = pb.ListContainersRequest(filter=pb.ContainerFilter(pod_sandbox_id=sandbox_id))
        answer = await self._direct.call(RUNTIME + "ListContainers", request, pb.ListContainersResponse)
        return next((item for item in answer.containers if item.metadata.attempt == attempt), None)

    async def _specified(self, container_id: str, expected: dict[str, object]) -> dict[str, object]:
        """The values of a container that may not have started, from the runtime's own specification of it."""
        request = pb.ContainerStatusRequest(container_id=container_id, verbose=True)
        answer = await self._direct.call(RUNTIME + "ContainerStatus", request, pb.ContainerStatusResponse)
        resources = json.loads(answer.info["info"])["runtimeSpec"]["linux"]["resources"]
        cpu = resources.get("cpu", {})
        values = {
            "cpuset_cpus": cpu.get("cpus", ""),
            "cfs_quota_us": cpu.get("quota", -1),
            "cpu_shares": cpu.get("shares"),
            "memory_limit_bytes": resources.get("memory", {}).get("limit"),
        }
        return {key: values[key] for key in expected}

    async def _settled_state(self, pod: Pod, container_id: str) -> int:
        """The state after an interrupted start, once the runtime has finished or undone it.

        A start that still goes on shows as CREATED and refuses another; one that is being undone shows as EXITED
        while its task still runs, and refuses a removal.
        """
        request = pb.ContainerStatusRequest(container_id=container_id)
        state = pb.CONTAINER_CREATED
        for _ in range(STARTING_POLLS):
            await asyncio.sleep(UNDO_S)
            answer = await self._direct.call(RUNTIME + "ContainerStatus", request, pb.ContainerStatusResponse)
            state = answer.status.state
            undoing = state == pb.CONTAINER_EXITED and cgroups.existing(f"{pod.cgroup_parent}/{container_id}")
            if state != pb.CONTAINER_CREATED and not undoing:
                break
        return state


async def disagreements(workers: list[Worker], direct: Caller) -> list[str]:
    """How the runtime's containers and their cgroups differ from the workers' ledgers; empty if they do not."""
    answer = await direct.call(RUNTIME + "ListContainers", pb.ListContainersRequest(), pb.ListContainersResponse)
    wrecked = {uid for worker in workers for uid in worker.wrecked}
    exist = {item.id: item.state for item in answer.containers if item.labels[POD_UID] not in wrecked}
    ledger = {living.container_id: living for worker in workers for _, living in worker.living}
    wrong = [f"{cid[:12]} exists and should not" for cid in exist.keys() - ledger.keys()]
    wrong += [f"{cid[:12]} should exist" for cid in ledger.keys() - exist.keys()]
    stopped = {cid: state for cid, state in exist.items() if cid in ledger and state != pb.CONTAINER_RUNNING}
    wrong += [f"{cid[:12]} is in state {state}" for cid, state in stopped.items()]
    return wrong + [text for living in ledger.values() for text in living.wrong()]
