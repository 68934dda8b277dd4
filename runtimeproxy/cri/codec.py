"""Generated CRI and hook messages, and the way from one to the other.

Protobuf is imported here and in the modules that ``engine`` brings along, all of them loaded after the first
connection was accepted. CRI's and the hook protocol's LinuxContainerResources and metadata
have the same field numbers, so they are converted through their bytes. Invariant: an environment value that is not
UTF-8 never gets into a hook request, since servers with upstream's protocol (a string) could not read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

from google.protobuf.message import DecodeError, Message

from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.store import ContainerEntry, PodEntry
from runtimeproxy.hooks.server import UndecodableMessage

M = TypeVar("M", bound=Message)

_FIELDS_OF_POD: Sequence[Literal["pod_meta", "pod_resources", "pod_annotations", "pod_labels", "pod_cgroup_parent"]] = (
    "pod_meta", "pod_resources", "pod_annotations", "pod_labels", "pod_cgroup_parent",
)


def decode(kind: type[M], data: bytes) -> M:
    """``data`` as a ``kind``; raises UndecodableMessage."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise UndecodableMessage(f"{kind.DESCRIPTOR.full_name}: {error}") from error


def convert(source: Message, target: Message) -> None:
    """Merge ``source`` into the message of the same shape in the other protocol; fields it lacks are left out."""
    target.MergeFromString(source.SerializeToString())
    target.DiscardUnknownFields()  # type: ignore[no-untyped-call,unused-ignore]


def pod_request(config: cri.PodSandboxConfig, runtime_handler: str) -> hooks.PodSandboxHookRequest:
    """What a hook server is told of a pod."""
    request = hooks.PodSandboxHookRequest(
        runtime_handler=runtime_handler, labels=config.labels, annotations=config.annotations,
        cgroup_parent=config.linux.cgroup_parent,
    )
    convert(config.metadata, request.pod_meta)
    if config.linux.HasField("overhead"):
        convert(config.linux.overhead, request.overhead)
    if config.linux.HasField("resources"):
        convert(config.linux.resources, request.resources)
    return request


def container_request(config: cri.ContainerConfig) -> tuple[hooks.ContainerResourceHookRequest, frozenset[str]]:
    """What a hook server is told of a container, without its pod; and the variables that are kept from it."""
    shown, hidden = _variables([(variable.key, variable.value) for variable in config.envs])
    request = hooks.ContainerResourceHookRequest(
        container_meta=hooks.ContainerMetadata(name=config.metadata.name, attempt=config.metadata.attempt),
        container_annotations=config.annotations,
        container_envs=shown,
    )
    if config.linux.HasField("resources"):
        convert(config.linux.resources, request.container_resources)
    return request, hidden


def _variables(pairs: Sequence[tuple[str, bytes]]) -> tuple[dict[str, bytes], frozenset[str]]:
    """The variables that a hook server may see, and the names of the others. A NUL ends any UTF-8 sequence, so values
    joined by it are UTF-8 exactly if each is."""
    if _is_utf8(b"\0".join([value for _, value in pairs])):
        return dict(pairs), frozenset()
    hidden = frozenset(key for key, value in pairs if not _is_utf8(value))
    return {key: value for key, value in pairs if key not in hidden}, hidden


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def add_pod(request: hooks.ContainerResourceHookRequest, pod: hooks.PodSandboxHookRequest) -> None:
    """Complete a container's request with its pod's fields."""
    request.pod_meta.CopyFrom(pod.pod_meta)
    if pod.HasField("resources"):
        request.pod_resources.CopyFrom(pod.resources)
    request.pod_annotations.update(pod.annotations)
    request.pod_labels.update(pod.labels)
    request.pod_cgroup_parent = pod.cgroup_parent


def pod_entry(request: hooks.PodSandboxHookRequest, *, rebuilt: bool = False, complete: bool = True) -> PodEntry:
    """The cache entry of a pod that the runtime has as ``request`` says."""
    return PodEntry(request.pod_meta.uid, request.pod_meta.namespace, request.SerializeToString(),
                    rebuilt=rebuilt, complete=complete)


def container_entry(pod_id: str, container_id: str, request: hooks.ContainerResourceHookRequest) -> ContainerEntry:
    """The cache entry of a container; its pod's fields are left out, they are the pod's entry's."""
    own = hooks.ContainerResourceHookRequest()
    own.CopyFrom(request)
    for field in _FIELDS_OF_POD:
        own.ClearField(field)
    own.container_meta.id = container_id
    return ContainerEntry(pod_id, own.SerializeToString())
