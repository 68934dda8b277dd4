"""grpcio at both ends: a server that says what a script tells it to, and a client that notes all it hears.

Messages are plain bytes here (no serialisers), so that a relay which re-encodes anything is found out.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeAlias

import grpc
import grpc.aio

Metadata = tuple[tuple[str, str | bytes], ...]
OneAnswer: TypeAlias = "grpc.aio.UnaryUnaryCall[bytes, bytes] | grpc.aio.StreamUnaryCall[bytes, bytes]"
ManyAnswers: TypeAlias = "grpc.aio.UnaryStreamCall[bytes, bytes] | grpc.aio.StreamStreamCall[bytes, bytes]"
_TRIES = 5
NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Shape(Enum):
    """The four kinds of call, as (client streams, server streams)."""

    UNARY = (False, False)
    SERVER_STREAM = (False, True)
    CLIENT_STREAM = (True, False)
    BIDI = (True, True)


@dataclass(frozen=True, slots=True)
class Script:
    """One call, both sides of it: what is asked, and what the server answers whatever it is asked."""

    path: str
    shape: Shape
    requests: tuple[bytes, ...]
    answers: tuple[bytes, ...]
    metadata: Metadata = ()
    initial: Metadata = ()
    trailing: Metadata = ()
    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""


@dataclass(slots=True)
class Heard:
    """What came over the wire, at one side, of one call."""

    messages: list[bytes] = field(default_factory=list)
    metadata: list[tuple[str, str | bytes]] = field(default_factory=list)
    trailing: list[tuple[str, str | bytes]] = field(default_factory=list)
    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""


class ScriptedServer(grpc.GenericRpcHandler):
    """Serves every path; ``script`` is the call expected next, ``heard`` what came of it."""

    def __init__(self) -> None:
        self.script: Script | None = None
        self.heard = Heard()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        script = self.script
        if script is None or handler_call_details.method != script.path:
            return None
        # A unary call is one message each way on a stream: grpcio takes the difference only at its own API.
        return grpc.stream_stream_rpc_method_handler(self._answer)

    async def _answer(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        script = self.script
        assert script is not None
        self.heard = Heard(metadata=list(context.invocation_metadata() or ()))
        async for message in requests:
            self.heard.messages.append(message)
        await context.send_initial_metadata(script.initial)
        for message in script.answers:
            yield message
        context.set_trailing_metadata(script.trailing)
        context.set_code(script.code)
        context.set_details(script.details)


@contextlib.asynccontextmanager
async def grpc_serving(path: Path) -> AsyncIterator[ScriptedServer]:
    """A grpcio server on ``path`` for the time of the block."""
    handler = ScriptedServer()
    server = grpc.aio.server(handlers=[handler], options=[*NO_LIMIT, ("grpc.so_reuseport", 0)])
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield handler
    finally:
        await server.stop(None)


def channel(path: Path) -> grpc.aio.Channel:
    """A channel that shares its connection with no other."""
    return grpc.aio.insecure_channel(f"unix:{path}", options=[*NO_LIMIT, ("grpc.use_local_subchannel_pool", 1)])


async def perform(chan: grpc.aio.Channel, script: Script) -> Heard:
    """Make the scripted call and note everything that the caller can see of the answer.

    grpc.aio takes a call whose end it sees before its beginning for one without initial metadata, which happens on a
    busy machine: then the call is made again.
    """
    for _ in range(_TRIES):
        heard = await _performed(chan, script)
        if heard.metadata or not script.initial:
            break
    return heard


async def _performed(chan: grpc.aio.Channel, script: Script) -> Heard:
    client_streams, server_streams = script.shape.value
    heard = Heard()
    call = _many_answers(chan, script, client_streams) if server_streams else _one_answer(chan, script, client_streams)
    with contextlib.suppress(grpc.aio.AioRpcError):  # its code is read below, as that of a call that went well
        if isinstance(call, (grpc.aio.UnaryStreamCall, grpc.aio.StreamStreamCall)):
            async for message in call:
                heard.messages.append(message)
        else:
            heard.messages.append(await call)
    heard.metadata = list(await call.initial_metadata())
    heard.trailing = list(await call.trailing_metadata())
    heard.code, heard.details = await call.code(), await call.details() or ""
    return heard


def _one_answer(chan: grpc.aio.Channel, script: Script, client_streams: bool) -> OneAnswer:
    if client_streams:
        many: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = chan.stream_unary(script.path)
        return many(iter(script.requests), metadata=script.metadata)
    one: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = chan.unary_unary(script.path)
    return one(script.requests[0], metadata=script.metadata)


def _many_answers(chan: grpc.aio.Channel, script: Script, client_streams: bool) -> ManyAnswers:
    if client_streams:
        many: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = chan.stream_stream(script.path)
        return many(iter(script.requests), metadata=script.metadata)
    one: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = chan.unary_stream(script.path)
    return one(script.requests[0], metadata=script.metadata)
