"""NodeInspect on koord.http2's server; the socket is the owner's alone (0600).

inspect.proto says which questions there are: each is answered by the module of its name in this package, ``ListPods``
by ``list_pods.answer(inspector, request)``. Invariants: nothing is kept between calls; an answer's own failure costs
that call; an error that the caller can put right is a status with a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message

from koord.http2.grpc import INVALID_ARGUMENT
from koord.http2.server import Method, Refusal, ServerReply, UnaryServer
from koord.pb.koord import inspect_pb2 as inspect
from qosd import serving
from qosd.inspect.inspector import Inspector

SERVICE = inspect.DESCRIPTOR.services_by_name["NodeInspect"]
SOCKET_MODE = 0o600
Answer = Callable[[Inspector, Message], Awaitable[Message]]


def answer_of(question: str) -> Answer:
    """Returns the function that answers the rpc ``question``."""
    module = re.sub(r"(?<!^)(?=[A-Z])", "_", question).lower()
    answer: Answer = import_module(f"qosd.inspect.{module}").answer
    return answer


def methods(inspector: Inspector) -> dict[str, Method]:
    """Returns the service's methods by path."""
    return {f"/{SERVICE.full_name}/{rpc.name}": _method(rpc, inspector) for rpc in SERVICE.methods}


def _method(rpc: MethodDescriptor, inspector: Inspector) -> Method:
    answer = answer_of(rpc.name)
    request_type: type[Message] = getattr(inspect, rpc.input_type.name)

    async def reply(message: bytes, fields: Mapping[bytes, bytes]) -> ServerReply:
        try:
            request = request_type.FromString(message)
        except DecodeError as error:
            raise Refusal(INVALID_ARGUMENT, f"the request is no {request_type.DESCRIPTOR.name}: {error}") from error
        return ServerReply((await answer(inspector, request)).SerializeToString())

    return reply


def listening(path: Path, inspector: Inspector) -> AbstractAsyncContextManager[None]:
    """Serves on a unix socket of mode 0600. Raises SocketTaken or OSError."""
    return serving.listening(path, SOCKET_MODE, UnaryServer(methods(inspector)))
