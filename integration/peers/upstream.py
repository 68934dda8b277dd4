"""Koordinator's hook protocol as its own peers speak it: plain proto3, where zero is absent on the wire.

Written from the public field numbers and not from Koord's proto file, so that the two are checked against each other.
A value of ``container_envs`` is text here: a message in which one is not UTF-8 cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

PACKAGE = "runtime.v1alpha1"
MESSAGES = {
    "PodSandboxMetadata": "1 name string; 2 uid string; 3 namespace string; 4 attempt uint32",
    "PodSandboxHookRequest":
        "1 pod_meta PodSandboxMetadata; 2 runtime_handler string; 3 labels map; 4 annotations map; "
        "5 cgroup_parent string; 6 overhead LinuxContainerResources; 7 resources LinuxContainerResources",
    "PodSandboxHookResponse":
        "1 labels map; 2 annotations map; 3 cgroup_parent string; 4 resources LinuxContainerResources",
    "ContainerMetadata": "1 name string; 2 attempt uint32; 3 id string",
    "ContainerResourceHookRequest":
        "1 pod_meta PodSandboxMetadata; 2 container_meta ContainerMetadata; 3 container_annotations map; "
        "4 container_resources LinuxContainerResources; 5 pod_resources LinuxContainerResources; "
        "6 pod_annotations map; 7 pod_labels map; 8 pod_cgroup_parent string; 9 container_envs map",
    "ContainerResourceHookResponse":
        "1 container_annotations map; 2 container_resources LinuxContainerResources; 3 pod_cgroup_parent string; "
        "4 container_envs map",
    "LinuxContainerResources":
        "1 cpu_period int64; 2 cpu_quota int64; 3 cpu_shares int64; 4 memory_limit_in_bytes int64; "
        "5 oom_score_adj int64; 6 cpuset_cpus string; 7 cpuset_mems string; 8 hugepage_limits HugepageLimit*; "
        "9 unified map; 10 memory_swap_limit_in_bytes int64",
    "HugepageLimit": "1 page_size string; 2 limit uint64",
}  # fmt: skip
_FIELD = re.compile(r"(?P<number>\d+) (?P<name>\w+) (?P<type>\w+)(?P<many>\*?)")


class Protocol:
    """The protocol's messages as classes, made anew in a descriptor pool of their own."""

    def __init__(self) -> None:
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(_file().SerializeToString())
        self._classes = {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES
        }

    def __getitem__(self, name: str) -> Any:
        """The class of message ``name``."""
        return self._classes[name]


def is_pod_stage(stage: str) -> bool:
    return "Sandbox" in stage


def _file() -> FileDescriptorProto:
    return FileDescriptorProto(
        name="upstream/hooks.proto", package=PACKAGE, syntax="proto3",
        message_type=[_message(name, text) for name, text in MESSAGES.items()],
    )  # fmt: skip


def _message(name: str, text: str) -> DescriptorProto:
    made = DescriptorProto(name=name)
    for match in _FIELD.finditer(text):
        made.field.append(_field(name, match))
        made.nested_type.extend(_map_entry(match))
    return made


def _field(message: str, match: re.Match[str]) -> FieldDescriptorProto:
    kind, is_map = match["type"], match["type"] == "map"
    field = FieldDescriptorProto(name=match["name"], number=int(match["number"]), label=_label(is_map or match["many"]))
    if is_map:
        field.type_name = f".{PACKAGE}.{message}.{_entry_name(match)}"
    elif kind in MESSAGES:
        field.type_name = f".{PACKAGE}.{kind}"
    else:
        field.type = _scalar(kind)
    return field


def _map_entry(match: re.Match[str]) -> Iterator[DescriptorProto]:
    if match["type"] == "map":
        entry = DescriptorProto(name=_entry_name(match))
        entry.options.map_entry = True
        for number, name in enumerate(("key", "value"), 1):
            entry.field.add(name=name, number=number, type=_scalar("string"), label=_label(False))
        yield entry


def _entry_name(match: re.Match[str]) -> str:
    return "".join(part.capitalize() for part in match["name"].split("_")) + "Entry"


def _label(repeated: object) -> FieldDescriptorProto.Label.ValueType:
    return FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL


def _scalar(kind: str) -> FieldDescriptorProto.Type.ValueType:
    return FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
