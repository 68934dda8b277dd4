"""gRPC servers and clients on unix sockets, built from message classes instead of generated stubs.

A service is a table ``method name -> Unary(handler, request class, response class)``. Messages up to 16 MiB pass
both ways, as kubelet and the runtimes allow. Invariant: a handler's own failure reaches the caller as a gRPC
status and the log, never as a dead server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from koord.service import unixsocket

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_LIMITS: Sequence[tuple[str, int]] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)
_SERVER_OPTIONS = (*_LIMITS, ("grpc.so_reuseport", 0))

Context = grpc.aio.ServicerContext[Any, Any]


class ServeError(OSError):
    """gRPC could not listen on the socket; the message names it."""


@dataclass(frozen=True, slots=True)
class Unary:
    """One unary method: what runs, and the two message classes on its wire."""

    handler: Callable[[Any, Context], Awaitable[Message]]
    request: type[Message]
    response: type[Message]


def _method(unary: Unary) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(
        unary.handler,
        request_deserializer=unary.request.FromString,
        response_serializer=unary.response.SerializeToString,
    )


def service(name: str, methods: Mapping[str, Unary]) -> grpc.GenericRpcHandler:
    """The generic handler of service ``name`` (``package.Service``)."""
    return grpc.method_handlers_generic_handler(name, {key: _method(unary) for key, unary in methods.items()})


async def listen(path: Path, mode: int, services: Sequence[grpc.GenericRpcHandler]) -> grpc.aio.Server:
    """Start a server of ``services`` on a unix socket at ``path`` with permission bits ``mode``.

    Raises SocketTaken when another process listens there, ServeError when gRPC cannot bind.
    """
    unixsocket.prepare(path)
    server = grpc.aio.server(options=_SERVER_OPTIONS)
    server.add_generic_rpc_handlers(tuple(services))
    with unixsocket.permissions(mode):
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise ServeError(f"cannot listen on {path}: {error}") from error
        await server.start()
    return server


def connect(endpoint: str) -> grpc.aio.Channel:
    """A channel to ``unix:///path`` or ``/path``; it connects at the first call and reconnects by itself."""
    return grpc.aio.insecure_channel(f"unix:{unixsocket.without_scheme(endpoint)}", options=[*_LIMITS])


def caller(channel: grpc.aio.Channel, path: str, request: type[Message], response: type[Message]) -> Any:
    """The unary call ``/package.Service/Method`` as a function ``(message, timeout=…, metadata=…)``."""
    return channel.unary_unary(
        path, request_serializer=request.SerializeToString, response_deserializer=response.FromString
    )
