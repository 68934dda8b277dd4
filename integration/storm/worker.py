"""Pods that live through a storm.

A worker takes pods through kubelet's calls, one after the other. A call that was interrupted is resolved by listing on
a connection of its own to the runtime: what it was to make is absent (then it is made again) or present, and then
edited. Any other outcome is a finding. A call that the runtime itself refused while it was away is resolved likewise.

A runtime whose caller vanishes in the middle of a start sometimes leaves a wreck: containerd 1.6 shows a container as
exited and keeps its task. A call that such a pod is refused afterwards is made again on the direct connection; only if
the runtime refuses that too, with the same code, the pod counts as wrecked by the runtime and not as a failure. One
that is killed in the middle of a start leaves a task that it does not know: it says ALREADY_EXISTS to the next start,
and that counts as such a wreck too, if the first start was under way when the runtime was struck.

Names carry an attempt number, as kubelet's do, because the runtime keeps a name
reserved for as long as it undoes a cancelled creation.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from google.protobuf.message import Message

from integration.harness.cri import RUNTIME
from integration.harness.pods import Pod, container_config, container_resources, sandbox_config
from integration.storm.client import ALREADY_EXISTS, IGNORED, UNKNOWN, Caller, Failed, Interrupted
from integration.storm.groups import Groups
from integration.storm.ledger import POD_UID, QUOTAS_US, Living, Tally, best_effort, latency_sensitive, settled_wrong
from integration.storm.runtime import Runtime
from koord.pb.cri import api_pb2 as pb

STARTING_POLLS = 20
LONGEST_UNDO_S = 15.0
ATTEMPTS = 100
EXECS = 0.25  # of the pods get a probe
Result = TypeVar("Result")
Answer = TypeVar("Answer", bound=Message)


class Finding(Exception):
    """Something is as it must never be."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a node grants. ``undo_s``: what the runtime takes at most to finish or undo a call whose client is gone;
    if it is ``slow``, as long as the slowest call took so far, where that is more.

    ``edited_within_s``: 0 = at its creation; more where the hook server is killed as well, and puts right what was
    created without it.
    """

    undo_s: float = 0.5
    edited_within_s: float = 0.0
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """What all workers of a storm share; pods are below ``root``."""

    proxied: Caller
    direct: Caller
    runtime: Runtime
    groups: Groups
    terms: Terms
    root: str

    @property
    def undo_s(self) -> float:
        if not self.terms.slow:
            return self.terms.undo_s
        return min(max(self.terms.undo_s, self.proxied.slowest_s), LONGEST_UNDO_S)


class Worker:
    """Takes pods from RunPodSandbox to RemovePodSandbox, ``keep`` of them at any time alive."""

    def __init__(self, setting: Setting, tally: Tally, chance: random.Random, keep: int = 3) -> None:
        self._setting, self._tally, self._chance, self._keep = setting, tally, chance, keep
        self.living: list[Living] = []
        self.wrecked: set[str] = set()  # pod uids
        self._number = 0
        self._current = ""  # uid of the pod that is worked on
        self._touched: set[str] = set()  # uids of pods of which a call was interrupted
        self._half_started: set[str] = set()  # and of those that the runtime was starting when it was struck

    async def work(self, until: asyncio.Event) -> None:
        """Until told to stop; leaves ``keep`` pods or fewer."""
        while not until.is_set():
            self._number += 1
            make = latency_sensitive if self._chance.random() < 0.5 else best_effort
            pod, expected = make(self._setting.root, self._number)
            await asyncio.to_thread(self._setting.groups.make, pod)
            try:
                await self._one_pod(pod, expected)
            except Failed as error:
                await self._judge(error)
            except Finding as error:
                self._tally.findings.append(str(error))

    async def _judge(self, error: Failed) -> None:
        """A failure, unless an interrupted call left the pod so that the runtime refuses a direct client alike.

        A killed runtime is not itself when it says that it is ready: containerd's snapshots collide until it has
        collected its garbage. What it answers then are its own words: the proxy never says UNKNOWN.
        """
        if self._setting.runtime.moment and error.code == UNKNOWN:
            self._wrecked()
            return
        if self._current in self._half_started and error.code == ALREADY_EXISTS:
            self._wrecked()
            return
        if self._current in self._touched or self._setting.runtime.moment:
            try:
                await self._direct(error.method, error.request, IGNORED)
            except Failed as direct:
                if direct.code == error.code:
                    self._wrecked()
                    return
        self._tally.failures.append(str(error))

    def _wrecked(self) -> None:
        self._tally.wrecks += 1
        self.wrecked.add(self._current)

    async def _one_pod(self, pod: Pod, expected: dict[str, object]) -> None:
        self._current = pod.uid
        sandbox_id = await self._run_sandbox(pod)
        container_id = await self._create_and_start(sandbox_id, pod, expected)
        living = Living(pod, sandbox_id, container_id, dict(expected))
        self.living.append(living)
        self._tally.pods += 1
        await self._check(living, "after start")
        if self._chance.random() < EXECS:
            await self._probe(container_id)
        if pod.containers[0].cpu_limit_milli:
            await self._update(living, QUOTAS_US[1])
        if len(self.living) > self._keep:
            await self._remove(self.living.pop(0))

    async def _probe(self, container_id: str) -> None:
        """As kubelet probes: what is interrupted is not made again, for a proxy may live shorter than it takes."""
        request = pb.ExecSyncRequest(container_id=container_id, cmd=["sleep", self._chance.choice("001")], timeout=60)
        try:
            await self._call("ExecSync", request, IGNORED)
        except Interrupted:
            self._interrupted("ExecSync")

    async def _check(self, living: Living, when: str) -> None:
        groups, patience_s = self._setting.groups, self._setting.terms.edited_within_s
        if not living.wrong(groups):
            return
        if wrong := await settled_wrong(living, groups, patience_s):
            raise Finding(f"{when}: {'; '.join(wrong)}")
        self._tally.late += 1

    # --- creating ---------------------------------------------------------------------------------------------------

    async def _run_sandbox(self, pod: Pod) -> str:
        for attempt in range(ATTEMPTS):
            config = sandbox_config(pod)
            config.metadata.attempt = attempt
            request = pb.RunPodSandboxRequest(config=config)
            try:
                return (await self._call("RunPodSandbox", request, pb.RunPodSandboxResponse)).pod_sandbox_id
            except Interrupted:
                found = await self._resolved("RunPodSandbox", partial(self._sandbox, pod, attempt))
            if found is not None and found.state == pb.SANDBOX_READY:
                return found.id
            if found is not None:  # made, and stopped again when its caller was gone
                await self._remove_sandbox(found.id)
        raise Finding(f"no sandbox of {pod.name} in {ATTEMPTS} attempts")

    async def _create_and_start(self, sandbox_id: str, pod: Pod, expected: dict[str, object]) -> str:
        for attempt in range(ATTEMPTS):
            container_id = await self._create(sandbox_id, pod, attempt, expected)
            if container_id is None:
                continue
            if await self._start(pod, container_id):
                return container_id
            await self._again("RemoveContainer", pb.RemoveContainerRequest(container_id=container_id))
        raise Finding(f"no container of {pod.name} in {ATTEMPTS} attempts")

    async def _create(self, sandbox_id: str, pod: Pod, attempt: int, expected: dict[str, object]) -> str | None:
        config = container_config(pod, pod.containers[0])
        config.metadata.attempt = attempt
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox_config(pod)
        )
        try:
            return (await self._call("CreateContainer", request, pb.CreateContainerResponse)).container_id
        except Interrupted:
            found = await self._resolved("CreateContainer", partial(self._container, sandbox_id, attempt))
        if found is None:
            return None
        specified = await self._specified(found.id, expected)
        if specified != expected and not self._setting.terms.edited_within_s:
            raise Finding(f"present and not edited: {found.id[:12]}: {specified} instead of {expected}")
        return found.id

    async def _start(self, pod: Pod, container_id: str) -> bool:
        """Whether it runs; a start that was cancelled halfway leaves an exited container."""
        runtime = self._setting.runtime
        while True:
            moment = runtime.moment
            try:
                request = pb.StartContainerRequest(container_id=container_id)
                await self._call("StartContainer", request, pb.StartContainerResponse)
                return True
            except Interrupted:
                self._interrupted("StartContainer")
                state = await self._settled_state(pod, container_id)
                if runtime.moment != moment:
                    self._half_started.add(pod.uid)
            if state != pb.CONTAINER_CREATED:
                return state == pb.CONTAINER_RUNNING

    # --- changing and removing --------------------------------------------------------------------------------------

    async def _update(self, living: Living, quota_us: int) -> None:
        """As kubelet resizes: the whole resources, whose CPU set is empty and must not undo the hook server's."""
        resources = container_resources(living.pod, living.pod.containers[0])
        resources.cpu_quota = quota_us
        request = pb.UpdateContainerResourcesRequest(container_id=living.container_id, linux=resources)
        await self._again("UpdateContainerResources", request)
        living.expected["cfs_quota_us"] = quota_us
        await self._check(living, "after update")

    async def _remove(self, living: Living) -> None:
        self._current = living.pod.uid
        await self._again("StopContainer", pb.StopContainerRequest(container_id=living.container_id, timeout=0))
        await self._again("RemoveContainer", pb.RemoveContainerRequest(container_id=living.container_id))
        await self._remove_sandbox(living.sandbox_id)
        await asyncio.to_thread(self._setting.groups.remove, living.pod)

    async def _remove_sandbox(self, sandbox_id: str) -> None:
        await self._again("StopPodSandbox", pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id))
        await self._again("RemovePodSandbox", pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id))

    async def _again(self, method: str, request: Message) -> None:
        """A call that may be made twice; its answer carries nothing."""
        while True:
            try:
                await self._call(method, request, IGNORED)
                return
            except Interrupted:
                self._interrupted(method)
                await asyncio.sleep(self._setting.undo_s)

    async def _call(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        """Raises Interrupted also for calls that the runtime refused while it was disturbed, once it is ready again."""
        runtime = self._setting.runtime
        moment = runtime.moment
        try:
            return await self._setting.proxied.call(RUNTIME + method, request, answer)
        except Failed as error:
            if runtime.undisturbed_since(moment):
                raise
            self._tally.refused[method] += 1
            await runtime.ready()
            raise Interrupted(str(error)) from error

    def _interrupted(self, method: str) -> None:
        self._tally.interrupted[method] += 1
        self._touched.add(self._current)

    # --- looking, directly ------------------------------------------------------------------------------------------

    async def _direct(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        """A call that may be made twice, on the direct connection, as soon as the runtime answers itself."""
        runtime = self._setting.runtime
        while True:
            await runtime.ready()
            moment = runtime.moment
            try:
                return await self._setting.direct.call(method, request, answer)
            except (Failed, Interrupted):
                if runtime.undisturbed_since(moment):
                    raise

    async def _resolved(self, method: str, find: Callable[[], Awaitable[Result | None]]) -> Result | None:
        """The outcome of an interrupted call, once the runtime has had the time to finish or undo it."""
        self._interrupted(method)
        await asyncio.sleep(self._setting.undo_s)
        found = await find()
        self._tally.present += found is not None
        self._tally.absent += found is None
        return found

    async def _sandbox(self, pod: Pod, attempt: int) -> pb.PodSandbox | None:
        selector = pb.PodSandboxFilter(label_selector={POD_UID: pod.uid})
        request = pb.ListPodSandboxRequest(filter=selector)
        answer = await self._direct(RUNTIME + "ListPodSandbox", request, pb.ListPodSandboxResponse)
        return next((item for item in answer.items if item.metadata.attempt == attempt), None)

    async def _container(self, sandbox_id: str, attempt: int) -> pb.Container | None:
        request = pb.ListContainersRequest(filter=pb.ContainerFilter(pod_sandbox_id=sandbox_id))
        answer = await self._direct(RUNTIME + "ListContainers", request, pb.ListContainersResponse)
        return next((item for item in answer.containers if item.metadata.attempt == attempt), None)

    async def _specified(self, container_id: str, expected: dict[str, object]) -> dict[str, object]:
        """The values of a container that may not have started, from the runtime's own specification of it."""
        request = pb.ContainerStatusRequest(container_id=container_id, verbose=True)
        answer = await self._direct(RUNTIME + "ContainerStatus", request, pb.ContainerStatusResponse)
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
            await asyncio.sleep(self._setting.undo_s)
            answer = await self._direct(RUNTIME + "ContainerStatus", request, pb.ContainerStatusResponse)
            state = answer.status.state
            undoing = state == pb.CONTAINER_EXITED and self._setting.groups.exists(pod, container_id)
            if state != pb.CONTAINER_CREATED and not undoing:
                break
        return state
