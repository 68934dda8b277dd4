"""Puts the runtime's own copy of a container's resources back to what kubelet requested.

A runtime keeps the resources with which a container was made, and applies all of them again at any later update. So as
long as our values are among them, a file that was put back would not stay so. What kubelet has updated since is not
ours any more and is left alone; CRI cannot empty a CPU set, so one that kubelet left open gets all that the pod has.
Fails with a UnaryError when the runtime does not answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from koord.host import files
from koord.host.cgroup import ReadError, read_text
from koord.host.files import Target, Value
from koord.host.originals import ContainerKey, Original, Originals
from koord.host.writer import Writer
from koord.http2.grpc import NOT_FOUND, UnaryError
from koord.model import runtimestatus as status
from koord.model.crifields import BY_NAME, Field
from koord.model.documents import at
from koord.pb.cri import api_pb2 as cri
from koordctl.cri import Answer, call

TIMEOUT_S = 10.0
_LIVE = (cri.CONTAINER_CREATED, cri.CONTAINER_RUNNING)
_SWAP_V1 = "memory_swap_limit_in_bytes"


@dataclass(frozen=True, slots=True)
class RuntimeContainer:
    """A container that exists. ``cgroup``: "" if the runtime does not tell; ``spec``: the OCI spec's resources."""

    id: str
    name: str
    cgroup: str
    spec: Mapping[str, Any] | None


class RuntimeSpecs:
    """Asks CRI at a unix socket."""

    def __init__(self, socket: str, timeout_s: float = TIMEOUT_S) -> None:
        self.socket, self._timeout_s = socket, timeout_s

    def find(self, keys: Sequence[ContainerKey]) -> Mapping[ContainerKey, RuntimeContainer]:
        """Returns those of ``keys`` that exist and have not ended."""
        pods = self._call("ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse).items
        uids = {pod.id: pod.metadata for pod in pods}
        containers = {}
        for container in self._call(
            "ListContainers", cri.ListContainersRequest(), cri.ListContainersResponse
        ).containers:
            pod = uids.get(container.pod_sandbox_id, cri.PodSandboxMetadata())
            key = ContainerKey(pod.uid, container.metadata.name, container.metadata.attempt)
            if key in keys and container.state in _LIVE:
                listed = self._detail(container.id, f"{pod.namespace}/{pod.name} {container.metadata.name}")
                containers.update({} if listed is None else {key: listed})
        return containers

    def update(self, container_id: str, resources: cri.LinuxContainerResources) -> bool:
        """Asks for these resources; False if the container is gone."""
        request = cri.UpdateContainerResourcesRequest(container_id=container_id, linux=resources)
        try:
            self._call("UpdateContainerResources", request, cri.UpdateContainerResourcesResponse)
        except UnaryError as error:
            if error.code == NOT_FOUND:
                return False
            raise
        return True

    def _detail(self, container_id: str, name: str) -> RuntimeContainer | None:
        request = cri.ContainerStatusRequest(container_id=container_id, verbose=True)
        try:
            answer = self._call("ContainerStatus", request, cri.ContainerStatusResponse)
        except UnaryError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        info = status.parse_or_empty(answer.info)
        return RuntimeContainer(container_id, name, status.cgroup(info), status.spec_resources(info))

    def _call(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        return call(self.socket, method, request, answer, self._timeout_s)


def as_requested(originals: Originals, listed: RuntimeContainer, writer: Writer) -> cri.LinuxContainerResources | None:
    """Returns the update by which the runtime forgets our values; None if it has none of them any more."""
    resources = cri.LinuxContainerResources()
    for name, original in originals.values.items():
        field = BY_NAME.get(name)
        if field is not None:
            if _holds(listed, field, original.edited):
                open_set = field.is_cpuset and not original.requested
                field.put(resources, _pods(writer, listed.cgroup, field) if open_set else original.requested)
        elif name in files.ROWS and _has_unified(listed, name, original):
            resources.unified[name] = files.row(name).format(original.requested, 2)
    if resources.memory_limit_in_bytes and _SWAP_V1 in originals.values:
        resources.memory_swap_limit_in_bytes = int(originals.values[_SWAP_V1].requested)
    return resources if resources.ByteSize() else None


def _holds(listed: RuntimeContainer, field: Field, edited: Value) -> bool:
    """Returns whether the specification holds our value; a runtime that does not tell counts as if it did."""
    if listed.spec is None:
        return True
    held = at(listed.spec, *field.path)
    return field.same(str(held or "") if field.is_cpuset else held, edited)


def _has_unified(listed: RuntimeContainer, name: str, original: Original) -> bool:
    if name in (_SWAP_V1, "memory.swap.max"):  # the runtime makes it of the memory limit
        return False
    if listed.spec is None:
        return True
    held = at(listed.spec, "unified", name)
    try:
        return held is not None and _parsed(name, str(held)) == original.edited
    except ValueError:
        return False


def _parsed(name: str, text: str) -> Value:
    return files.row(name).parse(text, 2)


def _pods(writer: Writer, cgroup: str, field: Field) -> str:
    """Returns the CPUs, or memory nodes, of the pod; "" if they are not known."""
    path = writer.tree.path(Target(cgroup.rpartition("/")[0] or "/", field.value)) if cgroup else None
    try:
        return "" if path is None else str(_parsed(field.value, read_text(path) or ""))
    except (ReadError, ValueError):
        return ""
