"""Reads what the cache lacks from the runtime itself: after a restart, or when the cache forgot an object.

A list of sandboxes in the background, once; then a verbose status for each object that a call names and the cache
lacks. Concurrent questions about one object share one call, and few calls run at a time. The verbose status holds one
JSON text; containerd's and CRI-O's differ in where they keep things, and nothing in it is taken for granted. Invariant:
an object that the runtime does not know is None; a look-up that fails raises ``RebuildFailed``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from koord.http2.client import UnaryError
from koord.model.crifields import SCALARS
from koord.model.documents import at, mapping
from koord.model.runtimestatus import is_unicode, number, parse, requested_resources, spec_resources, text
from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.codec import container_entry, convert, decode, rebuilt_pod
from runtimeproxy.cri.objectcache import ContainerEntry, PodEntry
from runtimeproxy.hooks.client import UnaryCaller
from runtimeproxy.hooks.edits import HUGEPAGE_LIMITS, RESOURCE_INTS, RESOURCE_SCALARS, UNIFIED, Slot
from runtimeproxy.hooks.largemessages import LargeMessageWorker
from runtimeproxy.hooks.messages import apply_resource
from runtimeproxy.wire.protowire import MalformedMessage

NOT_FOUND = 5
CALLS_AT_A_TIME = 4
TIMEOUT_S = 1.0
LIST_TIMEOUT_S = 10.0
REPLACED = "\ufffd"  # what Go's JSON writes for bytes that are not UTF-8; such values are kept from hook servers
_CRIO_CGROUP_PARENT = "io.kubernetes.cri-o.CgroupParent"
_OCI = (*[(*field.path, field.value) for field in SCALARS], ("memory", "swap", "memory_swap_limit_in_bytes"))
_UINT64 = range(1 << 64)
T = TypeVar("T")


class RebuildFailed(Exception):
    """The runtime could not be asked, or its answer not be read; ``code`` is its gRPC status if there was one."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


_Object = tuple[str, str]
"""The kind and the id of an object: a client may give one id to both kinds."""


class Rebuilder:
    """Asks the runtime behind ``caller``; ``worker`` reads long answers."""

    def __init__(self, caller: UnaryCaller, worker: LargeMessageWorker | None = None) -> None:
        self._caller, self._worker = caller, worker or LargeMessageWorker()
        self._calls = 0  # that run now; a plain number, since a semaphore whose release fails has a slot less for ever
        self._turns: deque[asyncio.Future[None]] = deque()
        self._under_way: dict[_Object, asyncio.Task[Any]] = {}

    async def sandboxes(self, service: str) -> list[tuple[str, PodEntry]]:
        """Returns id and entry (without cgroup parent) of every sandbox. Raises RebuildFailed."""
        answer = await self._call(service + "ListPodSandbox", b"", LIST_TIMEOUT_S)
        return await self._worker(len(answer), lambda: self._listed(answer))

    def _listed(self, answer: bytes) -> list[tuple[str, PodEntry]]:
        return [
            (item.id, rebuilt_pod(_pod(item), complete=False))
            for item in self._read(cri.ListPodSandboxResponse, answer).items
        ]

    async def container_ids(self, service: str) -> frozenset[str]:
        """Returns the id of every container. Raises RebuildFailed."""
        answer = await self._call(service + "ListContainers", b"", LIST_TIMEOUT_S)
        listed = await self._worker(len(answer), lambda: self._read(cri.ListContainersResponse, answer))
        return frozenset(item.id for item in listed.containers)

    async def pod(self, service: str, pod_id: str, timeout_s: float) -> PodEntry | None:
        """Returns the sandbox as the runtime has it; raises RebuildFailed."""
        return await self._shared(("sandbox", pod_id), timeout_s, partial(self._pod, service, pod_id))

    async def container(self, service: str, container_id: str, timeout_s: float) -> ContainerEntry | None:
        """Returns the container as the runtime has it; raises RebuildFailed."""
        read = partial(self._container, service, container_id)
        return await self._shared(("container", container_id), timeout_s, read)

    def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()
        self._caller.close()

    async def _shared(self, key: _Object, timeout_s: float, read: Callable[[], Awaitable[T | None]]) -> T | None:
        task: asyncio.Task[tuple[T | None, Exception | None]] | None = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.ensure_future(self._bounded(key, read))
        await asyncio.wait((task,), timeout=max(0.0, timeout_s))
        if not task.done():
            raise RebuildFailed(f"the runtime did not tell about {' '.join(key)} within {timeout_s:.3g} s")
        entry, error = task.result()
        if error is not None:
            raise error
        return entry

    async def _bounded(
        self, key: _Object, read: Callable[[], Awaitable[T | None]]
    ) -> tuple[T | None, Exception | None]:
        """Returns a result or an error: no exception, since no caller may be waiting for the task any more."""
        try:
            while self._calls >= CALLS_AT_A_TIME:
                await self._turn()
            self._calls += 1
            try:
                return await read(), None
            finally:
                self._calls -= 1
                self._next_turn()
        except Exception as error:  # noqa: BLE001 - the root of a task
            known = isinstance(error, RebuildFailed) and error.code == NOT_FOUND
            return None, None if known else error
        finally:
            del self._under_way[key]

    async def _turn(self) -> None:
        """Waits until a call may have ended. A wake-up that was lost costs a moment."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        await asyncio.wait((turn,), timeout=TIMEOUT_S)

    def _next_turn(self) -> None:
        if self._turns and not (turn := self._turns.popleft()).done():
            turn.set_result(None)

    async def _call(self, path: str, message: bytes, timeout_s: float) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                return (await self._caller.call(path, message, timeout_s)).message
        except TimeoutError as error:
            raise RebuildFailed(f"{path}: no answer within {timeout_s:g} s") from error
        except UnaryError as error:
            raise RebuildFailed(f"{path}: {error}", error.code) from error

    @staticmethod
    def _read(kind: type[T], answer: bytes) -> T:
        try:
            return decode(kind, answer)  # type: ignore[type-var]
        except MalformedMessage as error:
            raise RebuildFailed(str(error)) from error

    async def _pod(self, service: str, pod_id: str) -> PodEntry | None:
        question = cri.PodSandboxStatusRequest(pod_sandbox_id=pod_id, verbose=True).SerializeToString()
        answer = await self._call(service + "PodSandboxStatus", question, TIMEOUT_S)
        return await self._worker(len(answer), lambda: self._pod_of(answer))

    def _pod_of(self, answer: bytes) -> PodEntry:
        response = self._read(cri.PodSandboxStatusResponse, answer)
        request = _pod(response.status)
        info = _info(response.info)
        parent = text(info, "config", "linux", "cgroup_parent")
        request.cgroup_parent = parent or text(info, "runtimeSpec", "annotations", _CRIO_CGROUP_PARENT)
        resources_from_cri(requested_resources(info), request, "resources")
        resources_from_cri(mapping(info, "config", "linux", "overhead"), request, "overhead")
        return rebuilt_pod(request)

    async def _container(self, service: str, container_id: str) -> ContainerEntry | None:
        question = cri.ContainerStatusRequest(container_id=container_id, verbose=True).SerializeToString()
        answer = await self._call(service + "ContainerStatus", question, TIMEOUT_S)
        pod_id, request = await self._worker(len(answer), lambda: self._container_of(answer))
        return container_entry(pod_id or await self._sandbox_of(service, container_id), container_id, request)

    def _container_of(self, answer: bytes) -> tuple[str, hooks.ContainerResourceHookRequest]:
        response = self._read(cri.ContainerStatusResponse, answer)
        info = _info(response.info)
        return text(info, "sandboxID"), _container(response.status, info)

    async def _sandbox_of(self, service: str, container_id: str) -> str:
        question = cri.ListContainersRequest(filter=cri.ContainerFilter(id=container_id)).SerializeToString()
        answer = await self._call(service + "ListContainers", question, TIMEOUT_S)
        found = self._read(cri.ListContainersResponse, answer).containers
        return found[0].pod_sandbox_id if found else ""


def _pod(item: cri.PodSandbox | cri.PodSandboxStatus) -> hooks.PodSandboxHookRequest:
    request = hooks.PodSandboxHookRequest(
        runtime_handler=item.runtime_handler, labels=item.labels, annotations=item.annotations
    )
    convert(item.metadata, request.pod_meta)
    return request


def _container(status: cri.ContainerStatus, info: Mapping[str, Any]) -> hooks.ContainerResourceHookRequest:
    """Returns a hook request. Updates change the runtime's spec, which comes first; then status, then configuration."""
    request = hooks.ContainerResourceHookRequest(
        container_meta=hooks.ContainerMetadata(name=status.metadata.name, attempt=status.metadata.attempt),
        container_annotations=status.annotations,
        container_envs=dict(_envs(info)),
    )
    if spec_resources(info):
        oci_resources(mapping(info, "runtimeSpec"), request.container_resources)
    elif status.resources.HasField("linux"):
        convert(status.resources.linux, request.container_resources)
    else:
        resources_from_cri(requested_resources(info), request, "container_resources")
    return request


def _envs(info: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yields the variables of the container's configuration, with the values its process has.

    The configuration's own values may be text or base64, depending on the runtime's CRI version.
    """
    configured = at(info, "config", "envs")
    names = {text(item, "key") for item in configured if isinstance(item, dict)} if isinstance(configured, list) else ()
    process = at(info, "runtimeSpec", "process", "env")
    for variable in process if isinstance(process, list) else ():
        name, equals, value = str(variable).partition("=")
        if equals and name in names and REPLACED not in value:
            yield name, value.encode("utf-8", "replace")


def _info(info: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        return parse(info)
    except ValueError as error:
        raise RebuildFailed(f"verbose status is not JSON: {error}") from error


def resources_from_cri(source: Mapping[str, Any], request: Any, attribute: str) -> None:
    """Fills ``request.attribute`` from CRI's LinuxContainerResources as Go writes it to JSON."""
    if not source:
        return
    target = getattr(request, attribute)
    target.SetInParent()
    for field in RESOURCE_SCALARS:
        _set(target, field, source, field)
    _set_maps(target, source, HUGEPAGE_LIMITS, "page_size")


def oci_resources(spec: Mapping[str, Any], target: Any) -> None:
    """Fills ``target`` from an OCI runtime specification."""
    resources = mapping(spec, "linux", "resources")
    target.SetInParent()
    for *path, field in _OCI:
        _set(target, field, resources, *path)
    _set(target, "oom_score_adj", spec, "process", "oomScoreAdj")
    _set_maps(target, resources, "hugepageLimits", "pageSize")


def _set(target: Any, field: str, source: Mapping[str, Any], *path: str) -> None:
    value = number(source, *path) if field in RESOURCE_INTS else text(source, *path)
    if value:
        apply_resource(target, Slot(field), value)


def _set_maps(target: Any, source: Mapping[str, Any], limits_key: str, size_key: str) -> None:
    limits = source.get(limits_key)
    for each in limits if isinstance(limits, list) else ():
        size, limit = text(each, size_key), number({"limit": 0, **mapping(each)}, "limit", within=_UINT64)
        if size and limit is not None:
            apply_resource(target, Slot(HUGEPAGE_LIMITS, size), limit)
    for key in mapping(source, UNIFIED):
        if is_unicode(key) and (value := text(source, UNIFIED, key)):
            apply_resource(target, Slot(UNIFIED, key), value)
