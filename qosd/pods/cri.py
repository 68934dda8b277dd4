"""The container runtime, asked through CRI on a unix socket, as plain values.

Lists give names and states; the verbose statuses add a pod's cgroup parent, a container's cgroup path and the resources
it was made with. Invariants: an object that goes away between two calls is None, not an error; any other failure of a
call is RuntimeUnreachable with endpoint, method and reason. At most ``AT_ONCE`` statuses are asked for at the same
time.

Events are read only where the runtime gives every reader all of them: containerd 1.7 would split them between kubelet
and us, and kubelet would miss pods.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import DecodeError, Message

from koord.http2.grpc import NOT_FOUND, UNIMPLEMENTED, UnaryError
from koord.http2.stream import StreamingClient
from koord.model import runtimestatus as status
from koord.model.crifields import NUMBERS, Field
from koord.model.slices import SLICE, expand_slice
from koord.pb.cri import api_pb2 as cri
from koord.service.unixsocket import without_scheme
from qosd.hooks import normalization
from qosd.model.pod import Resources

AT_ONCE = 16
SANDBOX_READY = "SANDBOX_READY"
CONTAINER_CREATED, CONTAINER_RUNNING = "CONTAINER_CREATED", "CONTAINER_RUNNING"
_MARKS = (normalization.ANNOTATION,)
_UID_LABEL = "io.kubernetes.pod.uid"
_SERVICE = "/runtime.v1.RuntimeService/"
_BROADCASTING = {"containerd": (2, 0), "cri-o": (1, 30)}
_SPLITTING = {"containerd": (1, 7), "cri-o": (1, 26)}  # from here to there, readers share one channel
_SCOPES = {"containerd": "cri-containerd", "cri-o": "crio", "docker": "docker"}

Answer = TypeVar("Answer", bound=Message)


class RuntimeUnreachable(ConnectionError):
    """The container runtime did not answer; the message names its endpoint and says why. ``code``: gRPC status."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """The runtime: ``name`` as in "containerd", ``version`` as it spells it."""

    name: str
    version: str

    def number(self) -> tuple[int, int]:
        """Returns (major, minor); (0, 0) if the text does not begin like a version."""
        found = re.match(r"v?(\d+)\.(\d+)", self.version)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def may_read_events(self) -> bool:
        """Returns whether reading events takes none from kubelet: they are broadcast, or there is no such call."""
        if self.name not in _BROADCASTING:
            return False
        return self.number() >= _BROADCASTING[self.name] or self.number() < _SPLITTING[self.name]

    @property
    def scope_prefix(self) -> str:
        """Returns the beginning of the name of each scope that the runtime makes with the systemd driver."""
        return _SCOPES.get(self.name, _SCOPES["containerd"])


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One pod sandbox, as listed. ``runtime_handler``: the handler that runs it; "" is the runtime's default."""

    id: str
    namespace: str
    name: str
    uid: str
    attempt: int
    state: str
    created_unix_ns: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    runtime_handler: str = ""


@dataclass(frozen=True, slots=True)
class Container:
    """One container, as listed."""

    id: str
    sandbox_id: str
    name: str
    attempt: int
    state: str
    created_unix_ns: int
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Detail:
    """The additions of a verbose status; "" and empty where the runtime is silent.

    Sandboxes alone have ``cgroup_parent`` and ``pod_requested`` (for the pod as a whole), containers alone ``marks``
    (Koord's own annotations) and ``cpus`` (the CPU set).
    """

    cgroup: str = ""
    cgroup_parent: str = ""
    requested: Resources = field(default_factory=Resources)
    pod_requested: Resources = field(default_factory=Resources)
    marks: Mapping[str, str] = field(default_factory=dict)
    cpus: str = ""


class CRIClient:
    """A client of one CRI endpoint (``unix:///path``); every call is bounded by ``timeout_s``."""

    def __init__(self, endpoint: str, timeout_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self.endpoint = endpoint
        self._timeout_s = timeout_s
        self._client = StreamingClient(without_scheme(endpoint), loop)
        self._gate = asyncio.Semaphore(AT_ONCE)

    def close(self) -> None:
        self._client.close()

    async def version(self) -> RuntimeVersion:
        answer = await self._call("Version", cri.VersionRequest(version="0.1.0"), cri.VersionResponse)
        return RuntimeVersion(answer.runtime_name, answer.runtime_version)

    async def cgroup_driver(self) -> str | None:
        """Returns "systemd" or "cgroupfs"; None where the runtime cannot be asked (containerd < 2.0)."""
        try:
            answer = await self._call("RuntimeConfig", cri.RuntimeConfigRequest(), cri.RuntimeConfigResponse)
        except RuntimeUnreachable as error:
            if error.code == UNIMPLEMENTED:
                return None
            raise
        return _name(cri.CgroupDriver, answer.linux.cgroup_driver).lower() if answer.HasField("linux") else None

    async def sandboxes(self, uid: str = "") -> list[Sandbox]:
        """Returns all sandboxes; or those of the pod with this UID, by the label that kubelet gives each."""
        request = cri.ListPodSandboxRequest(filter={"label_selector": {_UID_LABEL: uid}} if uid else None)
        listed = await self._call("ListPodSandbox", request, cri.ListPodSandboxResponse)
        return [_sandbox(one) for one in listed.items]

    async def containers(self, sandbox_id: str = "") -> list[Container]:
        """Returns all containers; or those of one sandbox."""
        request = cri.ListContainersRequest(filter={"pod_sandbox_id": sandbox_id} if sandbox_id else None)
        listed = await self._call("ListContainers", request, cri.ListContainersResponse)
        return [_container(one) for one in listed.containers]

    async def sandbox_detail(self, sandbox_id: str) -> Detail | None:
        """Returns the sandbox's detail; None: the runtime no longer has the sandbox."""
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=True)
        answer = await self._status("PodSandboxStatus", request, cri.PodSandboxStatusResponse)
        if answer is None:
            return None
        return detail_of_sandbox(status.parse_or_empty(answer.info))

    async def container_detail(self, container_id: str) -> Detail | None:
        """Returns the container's detail; None: the runtime no longer has the container."""
        request = cri.ContainerStatusRequest(container_id=container_id, verbose=True)
        answer = await self._status("ContainerStatus", request, cri.ContainerStatusResponse)
        if answer is None:
            return None
        return detail_of_container(status.parse_or_empty(answer.info))

    async def stop_container(self, container_id: str, grace_s: int, exit_s: float) -> None:
        """Ends the container's processes: by TERM and, ``grace_s`` later, by KILL. Returns when they have ended, or it
        is gone.

        ``exit_s``: the kernel's time, beyond the grace period, to end them; a killed process may take long to exit.
        """
        request = cri.StopContainerRequest(container_id=container_id, timeout=grace_s)
        path = _SERVICE + "StopContainer"
        try:
            await self._client.call(path, request.SerializeToString(), grace_s + exit_s)
        except UnaryError as error:
            if error.code != NOT_FOUND:
                raise self._unreachable("StopContainer", error) from error

    async def events(self) -> AsyncGenerator[str, None]:
        """Yields the ids of containers and sandboxes to which something happened, until the runtime ends the stream.

        Only for versions that ``may_read_events``. A runtime without events: RuntimeUnreachable with UNIMPLEMENTED
        (containerd < 1.7), or a stream that ends at once (cri-o without ``enable_pod_events``).
        """
        path = _SERVICE + "GetContainerEvents"
        try:
            async for message in self._client.stream(path, cri.GetEventsRequest().SerializeToString(), self._timeout_s):
                yield cri.ContainerEventResponse.FromString(message).container_id
        except (UnaryError, DecodeError) as error:
            raise self._unreachable("GetContainerEvents", error) from error

    async def _call(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        try:
            got = await self._client.call(_SERVICE + method, request.SerializeToString(), self._timeout_s)
            return answer.FromString(got.message)
        except (UnaryError, DecodeError) as error:
            raise self._unreachable(method, error) from error

    async def _status(self, method: str, request: Message, answer: type[Answer]) -> Answer | None:
        async with self._gate:
            try:
                return await self._call(method, request, answer)
            except RuntimeUnreachable as error:
                if error.code == NOT_FOUND:
                    return None
                raise

    def _unreachable(self, method: str, error: UnaryError | DecodeError) -> RuntimeUnreachable:
        code = error.code if isinstance(error, UnaryError) else 0
        return RuntimeUnreachable(f"{self.endpoint}: {method}: {error}", code)


def detail_of_sandbox(info: Mapping[str, Any]) -> Detail:
    """Returns what ``info``, a verbose status, tells; cri-o tells the cgroup parent only by the sandbox's own path."""
    cgroup, requested = status.cgroup(info), status.requested_resources(info)
    parent = status.text(info, "config", "linux", "cgroup_parent") or cgroup.rpartition("/")[0]
    for_pod = Resources.of({field: status.number(requested, field.value) for field in NUMBERS})
    return Detail(cgroup, _pod_cgroup(parent), _of_spec(info), for_pod)


def detail_of_container(info: Mapping[str, Any]) -> Detail:
    """Returns what ``info``, a verbose status, tells.

    An NRI plugin's own annotations and its CPU set stand in the OCI spec and in no list of the runtime's.
    """
    marks = {key: status.text(info, "runtimeSpec", "annotations", key) for key in _MARKS}
    cpus = status.text(status.spec_resources(info), *Field.CPUSET_CPUS.path)
    return Detail(
        status.cgroup(info), "", _of_spec(info), marks={key: each for key, each in marks.items() if each}, cpus=cpus
    )


def _of_spec(info: Mapping[str, Any]) -> Resources:
    spec = status.spec_resources(info)
    return Resources.of({field: status.number(spec, *field.path) for field in NUMBERS})


def _sandbox(listed: cri.PodSandbox) -> Sandbox:
    return Sandbox(
        id=listed.id,
        namespace=listed.metadata.namespace,
        name=listed.metadata.name,
        uid=listed.metadata.uid,
        attempt=listed.metadata.attempt,
        state=_name(cri.PodSandboxState, listed.state),
        created_unix_ns=listed.created_at,
        labels=dict(listed.labels),
        annotations=dict(listed.annotations),
        runtime_handler=listed.runtime_handler,
    )


def _container(listed: cri.Container) -> Container:
    return Container(
        id=listed.id,
        sandbox_id=listed.pod_sandbox_id,
        name=listed.metadata.name,
        attempt=listed.metadata.attempt,
        state=_name(cri.ContainerState, listed.state),
        created_unix_ns=listed.created_at,
        annotations=dict(listed.annotations),
    )


def _name(states: EnumTypeWrapper, number: int) -> str:
    """Returns the enumerator's name; the number itself if our copy of CRI lacks it."""
    known = states.values()
    return states.Name(number) if number in known else str(number)


def _pod_cgroup(cgroup_parent: str) -> str:
    """Returns a sandbox's cgroup parent as a path: with the systemd driver it may be the slice's bare name."""
    parent = cgroup_parent.rstrip("/")
    if "/" not in parent and parent.endswith(SLICE):
        return expand_slice(parent)
    return parent
