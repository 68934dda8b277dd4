"""The runtime's pods and containers, asked through CRI, as plain values.

Lists give names and states; the verbose statuses give what lists lack: a pod's cgroup parent, a container's
cgroup path and the resources it was made with. Their ``info`` is the runtime's own JSON (containerd's and
cri-o's are understood), so each piece of it may be missing. Invariant: an object that goes away between two
calls is left out; only the lists themselves can fail, with RuntimeUnreachable.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from koord.host import paths
from koord.pb.cri import api_pb2 as cri
from koord.service import rpc
from qosd.hooks.edits import Resources

_SERVICE = "/runtime.v1.RuntimeService/"
_AT_ONCE = 16  # verbose statuses asked for at the same time


class RuntimeUnreachable(ConnectionError):
    """The container runtime did not answer; the message names its endpoint and says why."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One pod sandbox. ``cgroup_parent`` is "" if the runtime does not tell."""

    id: str
    namespace: str
    name: str
    uid: str
    attempt: int
    state: str
    created_unix_ns: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    cgroup_parent: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeContainer:
    """One container. ``asked`` are the resources it was made with, ``cgroup_path`` is "" if unknown."""

    id: str
    sandbox_id: str
    name: str
    state: str
    created_unix_ns: int
    annotations: Mapping[str, str]
    cgroup_path: str = ""
    asked: Resources = field(default_factory=Resources)


class Runtime:
    """A client of one CRI endpoint (``unix:///path``); every call is bounded by ``timeout_s``."""

    def __init__(self, endpoint: str, timeout_s: float) -> None:
        self._endpoint, self._timeout_s = endpoint, timeout_s
        self._channel = rpc.connect(endpoint)
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def close(self) -> None:
        await self._channel.close()

    async def _call(self, method: str, request: Any, response: Any) -> Any:
        call = rpc.caller(self._channel, _SERVICE + method, type(request), response)
        return await call(request, timeout=self._timeout_s)

    async def _listed(self, method: str, request: Any, response: Any) -> Any:
        try:
            return await self._call(method, request, response)
        except grpc.aio.AioRpcError as error:
            raise RuntimeUnreachable(f"{self._endpoint}: {method}: {error.code().name}: {error.details()}") from error

    async def _status(self, method: str, request: Any, response: Any) -> Any | None:
        """A verbose status; None when the runtime no longer has the object or will not say."""
        async with self._gate:
            try:
                return await self._call(method, request, response)
            except grpc.aio.AioRpcError:
                return None

    async def sandboxes(self, namespace: str, name: str) -> list[Sandbox]:
        """The newest sandbox of every pod of ``namespace`` and ``name`` ("" = all), by namespace and name."""
        listed = await self._listed("ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse)
        newest: dict[tuple[str, str, str], Sandbox] = {}
        for sandbox in sorted(map(_sandbox, listed.items), key=lambda one: one.created_unix_ns):
            if namespace in ("", sandbox.namespace) and name in ("", sandbox.name):
                newest[sandbox.namespace, sandbox.name, sandbox.uid] = sandbox
        return [newest[key] for key in sorted(newest)]

    async def containers(self) -> dict[str, list[RuntimeContainer]]:
        """The newest container of every name, by sandbox id, oldest first."""
        listed = await self._listed("ListContainers", cri.ListContainersRequest(), cri.ListContainersResponse)
        newest: dict[tuple[str, str], RuntimeContainer] = {}
        for container in sorted(map(_container, listed.containers), key=lambda one: one.created_unix_ns):
            newest[container.sandbox_id, container.name] = container
        by_sandbox: dict[str, list[RuntimeContainer]] = {}
        for container in newest.values():
            by_sandbox.setdefault(container.sandbox_id, []).append(container)
        return by_sandbox

    async def cgroup_parent(self, sandbox_id: str) -> str:
        """The cgroup parent kubelet gave the sandbox; "" if the runtime does not tell."""
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=True)
        answer = await self._status("PodSandboxStatus", request, cri.PodSandboxStatusResponse)
        return "" if answer is None else _parent_of(_info(answer.info))

    async def detail(self, container_id: str) -> tuple[str, Resources]:
        """(cgroup path, resources it was made with) of a container."""
        request = cri.ContainerStatusRequest(container_id=container_id, verbose=True)
        answer = await self._status("ContainerStatus", request, cri.ContainerStatusResponse)
        if answer is None:
            return "", Resources()
        info = _info(answer.info)
        return _path_of(info), _resources_of(info)


def _sandbox(one: cri.PodSandbox) -> Sandbox:
    return Sandbox(
        id=one.id,
        namespace=one.metadata.namespace,
        name=one.metadata.name,
        uid=one.metadata.uid,
        attempt=one.metadata.attempt,
        state=cri.PodSandboxState.Name(one.state),
        created_unix_ns=one.created_at,
        labels=dict(one.labels),
        annotations=dict(one.annotations),
    )


def _container(one: cri.Container) -> RuntimeContainer:
    return RuntimeContainer(
        id=one.id,
        sandbox_id=one.pod_sandbox_id,
        name=one.metadata.name,
        state=cri.ContainerState.Name(one.state),
        created_unix_ns=one.created_at,
        annotations=dict(one.annotations),
    )


def _info(info: Mapping[str, str]) -> Mapping[str, Any]:
    """The runtime's JSON (under the key ``info``); {} for anything else."""
    try:
        document = json.loads(info.get("info", ""))
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _at(document: Any, path: Sequence[str]) -> Any:
    """What stands at ``path``; None if anything on the way is missing or no object."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _text(document: Any, path: Sequence[str]) -> str:
    found = _at(document, path)
    return found if isinstance(found, str) else ""


def _number(document: Any, path: Sequence[str]) -> int | None:
    found = _at(document, path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _path_of(info: Mapping[str, Any]) -> str:
    return paths.from_cgroups_path(_text(info, ("runtimeSpec", "linux", "cgroupsPath")))


def _resources_of(info: Mapping[str, Any]) -> Resources:
    """From the OCI spec, which every runtime shows (CRI's own field came with containerd 1.7)."""
    resources = ("runtimeSpec", "linux", "resources")
    return Resources(
        cpu_period_us=_number(info, (*resources, "cpu", "period")),
        cpu_quota_us=_number(info, (*resources, "cpu", "quota")),
        memory_limit_bytes=_number(info, (*resources, "memory", "limit")),
    )


def _parent_of(info: Mapping[str, Any]) -> str:
    """containerd shows the sandbox's own configuration; cri-o only the spec, whose path's parent it is."""
    configured = _text(info, ("config", "linux", "cgroup_parent"))
    return configured or _path_of(info).rpartition("/")[0]
