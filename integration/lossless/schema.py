"""runtime.v1 as the pinned Go module describes it: its methods, and classes for all of their messages.

The classes live in a descriptor pool of their own, because the default one holds Koord's subset under the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message


def descriptor(kind: type[Message]) -> Descriptor:
    """The class's descriptor; protobuf's two implementations of it are alike."""
    return cast(Descriptor, kind.DESCRIPTOR)


@dataclass(frozen=True, slots=True)
class Method:
    """``streams``: the server answers with any number of messages."""

    path: str
    request: type[Message]
    answer: type[Message]
    streams: bool

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def methods(described: FileDescriptorSet) -> Mapping[str, Method]:
    """Every method of every service, by path; ValueError for a client-streaming one, of which CRI has none."""
    pool = descriptor_pool.DescriptorPool()
    for file in described.file:
        pool.AddSerializedFile(file.SerializeToString())
    found: dict[str, Method] = {}
    for file in described.file:
        for service in file.service:
            for rpc in service.method:
                path = f"/{file.package}.{service.name}/{rpc.name}"
                if rpc.client_streaming:
                    raise ValueError(f"{path}: client streaming is not played here")
                request, answer = (_class(pool, name) for name in (rpc.input_type, rpc.output_type))
                found[path] = Method(path, request, answer, rpc.server_streaming)
    return found


def _class(pool: descriptor_pool.DescriptorPool, name: str) -> type[Message]:
    found: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name.removeprefix(".")))
    return found
