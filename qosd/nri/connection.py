"""One connection to a runtime's NRI socket: both directions of calls at once, over one unix stream.

The runtime calls our methods on one multiplexed stream and answers our calls on the other; neither waits for the
other. A method is a plain function from message to message, so every call is answered before the next one is read.

Invariant: whatever the peer sends, the worst that follows is the end of this connection, with a reason that ``ended``
is told once. Methods that we do not have are answered UNIMPLEMENTED, by which newer runtimes recognise older plugins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

from qosd.nri import mux, ttrpc

Method = Callable[[bytes], bytes]
MAX_UNSENT_BYTES = 8 << 20


class NRIConnection(asyncio.Protocol):
    """``methods`` by (service, method); ``ended`` is called once, with the reason, when the connection is over."""

    def __init__(self, methods: Mapping[tuple[str, str], Method], ended: Callable[[str], None]) -> None:
        self._methods, self._ended = methods, ended
        self._transport: asyncio.Transport | None = None
        self._trunk = mux.Demultiplexer()
        self._streams = {mux.PLUGIN_SERVICE: ttrpc.MessageReader(), mux.RUNTIME_SERVICE: ttrpc.MessageReader()}
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._next_stream = 1
        self._reason = ""

    async def call(self, service: str, method: str, message: bytes, timeout_s: float) -> bytes:
        """Calls the runtime. Raises CallError."""
        if self._reason or self._transport is None:
            raise ttrpc.CallError(ttrpc.UNAVAILABLE, self._reason or "not connected")
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        pending: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls[stream] = pending
        self._send(mux.RUNTIME_SERVICE, stream, ttrpc.REQUEST, ttrpc.request(service, method, message, timeout_s))
        try:
            async with asyncio.timeout(timeout_s):
                return await pending
        except TimeoutError:
            raise ttrpc.CallError(ttrpc.DEADLINE_EXCEEDED, f"no answer to {method} in {timeout_s:g} s") from None
        finally:
            self._calls.pop(stream, None)

    def close(self, reason: str) -> None:
        """Ends the connection now; what was not yet sent is dropped."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for connection, piece in self._trunk.feed(data):
                self._received(connection, piece)
        except (mux.MuxError, ttrpc.TtrpcError) as error:
            self.close(f"the runtime broke the protocol: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"the connection was lost: {exc}" if exc else "the runtime closed the connection")

    # inside

    def _received(self, connection: int, piece: bytes) -> None:
        reader = self._streams.get(connection)
        if reader is None:
            return  # a connection that was never opened is dropped, as upstream does
        for message in reader.feed(piece):
            if self._reason:
                return
            if connection == mux.PLUGIN_SERVICE and message.type == ttrpc.REQUEST:
                self._answer(message)
            elif connection == mux.RUNTIME_SERVICE and message.type == ttrpc.RESPONSE:
                self._answered(message)

    def _answer(self, message: ttrpc.Message) -> None:
        request = ttrpc.read_request(message.payload)
        method = self._methods.get((request.service, request.method))
        if method is None:
            payload = ttrpc.refusal(ttrpc.UNIMPLEMENTED, f"koord-qosd has no {request.service}/{request.method}")
        else:
            payload = ttrpc.answer(method(request.payload))
        if len(payload) > mux.MAX_SENT_BYTES:
            payload = ttrpc.refusal(ttrpc.RESOURCE_EXHAUSTED, f"an answer of {len(payload)} bytes")
        self._send(mux.PLUGIN_SERVICE, message.stream, ttrpc.RESPONSE, payload)

    def _answered(self, message: ttrpc.Message) -> None:
        pending = self._calls.get(message.stream)
        if pending is None or pending.done():
            return  # too late: the caller has given up
        try:
            pending.set_result(ttrpc.read_answer(message.payload))
        except ttrpc.CallError as error:
            pending.set_exception(error)

    def _send(self, connection: int, stream: int, kind: int, payload: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(mux.frames(connection, ttrpc.header(stream, kind, len(payload)), payload))
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.close(f"the runtime left {MAX_UNSENT_BYTES} bytes unread")

    def _end(self, reason: str) -> None:
        if self._reason:
            return
        self._reason = reason
        calls, self._calls = self._calls, {}
        for pending in calls.values():
            if not pending.done():
                pending.set_exception(ttrpc.CallError(ttrpc.UNAVAILABLE, reason))
        self._ended(reason)
