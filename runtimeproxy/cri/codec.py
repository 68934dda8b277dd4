"""Decodes CRI and hook messages, and converts one into the other.

For what is rare: objects read from the runtime, updates, posts. Creations go by ``transcribe``. Protobuf is imported
here and in the modules that ``engine`` brings along, all of them loaded after the first connection was accepted.
CRI's and the hook protocol's LinuxContainerResources and metadata have the same field numbers, so they are converted
through their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

from google.protobuf.message import DecodeError, Message

from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.objectcache import ContainerEntry, PodEntry
from runtimeproxy.cri.record import take_record
from runtimeproxy.cri.requested import RECORD, parse_record
from runtimeproxy.wire.protowire import MalformedMessage

M = TypeVar("M", bound=Message)

_FIELDS_OF_POD: Sequence[Literal["pod_meta", "pod_resources", "pod_annotations", "pod_labels", "pod_cgroup_parent"]] = (
    "pod_meta",
    "pod_resources",
    "pod_annotations",
    "pod_labels",
    "pod_cgroup_parent",
)


def decode(kind: type[M], data: bytes) -> M:
    """Returns ``data`` as a ``kind``; raises MalformedMessage."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedMessage(0, f"{kind.DESCRIPTOR.full_name}: {error}") from error


def convert(source: Message, target: Message) -> None:
    """Merges ``source`` into the message of the same shape in the other protocol; fields it lacks are left out."""
    target.MergeFromString(source.SerializeToString())
    target.DiscardUnknownFields()  # type: ignore[no-untyped-call,unused-ignore]


def add_pod(request: hooks.ContainerResourceHookRequest, pod: hooks.PodSandboxHookRequest) -> None:
    """Completes a container's request with its pod's fields."""
    request.pod_meta.CopyFrom(pod.pod_meta)
    if pod.HasField("resources"):
        request.pod_resources.CopyFrom(pod.resources)
    request.pod_annotations.update(pod.annotations)
    request.pod_labels.update(pod.labels)
    request.pod_cgroup_parent = pod.cgroup_parent


def rebuilt_pod(request: hooks.PodSandboxHookRequest, *, complete: bool = True) -> PodEntry:
    """Returns the cache entry of a pod that the runtime has as ``request`` says."""
    edits = take_record(request.annotations)
    return PodEntry(
        request.pod_meta.uid,
        request.pod_meta.namespace,
        request.SerializeToString(),
        edits,
        rebuilt=True,
        complete=complete,
    )


def container_entry(pod_id: str, container_id: str, request: hooks.ContainerResourceHookRequest) -> ContainerEntry:
    """Returns the cache entry of a container that the runtime has as ``request`` says, without its pod's fields."""
    own = hooks.ContainerResourceHookRequest()
    own.CopyFrom(request)
    for field in _FIELDS_OF_POD:
        own.ClearField(field)
    own.container_meta.id = container_id
    record = parse_record(own.container_annotations.pop(RECORD, ""))
    return ContainerEntry(pod_id, own.SerializeToString(), record)
