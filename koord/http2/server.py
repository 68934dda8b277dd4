"""A unary gRPC server on unix sockets: qosd's hooks, which answer at once, and NodeInspect, which may take its time.

A method is a plain function from bytes to bytes. Between the arrival of a hook call and its answer there is no task,
no thread and no second read, because a pod waits for it. A method that has to wait returns an awaitable instead, which
runs as a task of its own and ends with its call. Invariants: a method that raises costs its own call (INTERNAL, or
what its Refusal says) and nothing else; what a client may make us keep is bounded (streams, bytes of a message, and
bytes of all messages that have begun and not ended).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial

from koord.http2.frames import (
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    NO_ERROR,
    PREFACE,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    Frame,
    FrameError,
    data_payload,
    frame,
    header_block,
    rst_stream,
)
from koord.http2.grpc import (
    ANSWER_HEAD,
    INTERNAL,
    MAX_MESSAGE_BYTES,
    PREFIX_BYTES,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    grpc_body,
    grpc_message,
    status_fields,
)
from koord.http2.hpack import literal
from koord.http2.link import WINDOW_BYTES, Link, Sending

log = logging.getLogger("koord.http2")

MAX_STREAMS = 128
MAX_HEADER_BYTES = 16 << 10  # of one call; grpc-go's clients send no more either
_OK = literal(b"grpc-status", b"0")


@dataclass(frozen=True, slots=True)
class ServerReply:
    """``metadata``: initial metadata of the answer, lower-case names; ``after``: what is done once it is on its way."""

    message: bytes
    metadata: tuple[tuple[str, str], ...] = ()
    after: Callable[[], None] | None = field(default=None, compare=False)


class Refusal(Exception):
    """A method's answer that is an error: ``code`` is a gRPC status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


Method = Callable[[bytes, Mapping[bytes, bytes]], ServerReply | Awaitable[ServerReply]]
"""Request message and header fields (pseudo-header fields too) → reply, at once or later. It must not block."""


class UnaryServer:
    """Serves ``methods`` (path → method), the same to everyone, on each connection that `protocol` is the factory of.

    ``max_message_bytes``: of one request; of all that one client has begun and not ended, twice as much.
    """

    def __init__(self, methods: Mapping[str, Method], max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._methods = {path.encode(): method for path, method in methods.items()}
        self._max_message_bytes = max_message_bytes
        self._links: set[_ServerLink] = set()

    def protocol(self) -> asyncio.BaseProtocol:
        return _ServerLink(self._methods, self._links, self._max_message_bytes)

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return len(self._links)

    def close(self) -> None:
        """Tell every client to go elsewhere; what has been answered is still delivered."""
        for link in list(self._links):
            link.leave(NO_ERROR)


class _Call(Sending):
    task: asyncio.Future[ServerReply] | None = None

    def __init__(self, window_bytes: int, fields: Mapping[bytes, bytes]) -> None:
        self.window_bytes, self.fields = window_bytes, fields
        self.request = bytearray()


class _ServerLink(Link[_Call]):
    def __init__(self, methods: Mapping[bytes, Method], links: set[_ServerLink], max_message_bytes: int) -> None:
        super().__init__()
        self._methods, self._links, self._max_message_bytes = methods, links, max_message_bytes
        self.expects_preface = True
        self._unfinished_bytes = 0  # of the requests that are coming

    # Link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._links.add(self)
        super().connection_made(transport)

    def settings(self) -> tuple[tuple[int, int], ...]:
        return (MAX_CONCURRENT_STREAMS, MAX_STREAMS), (INITIAL_WINDOW_SIZE, WINDOW_BYTES)

    def skip_preface(self, data: bytes) -> int | None:
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise FrameError(PROTOCOL_ERROR, "this is not an HTTP/2 client")
        if len(data) < len(PREFACE):
            return None
        self.expects_preface = False
        return len(PREFACE)

    def ended(self, why: str) -> None:
        for call in self.streams.values():
            _cancel(call)
        self.streams.clear()
        self._links.discard(self)

    def on_headers(self, data: bytes, frame: Frame) -> None:
        _, flags, stream, begin, end = frame
        fields = self.decoder.decode(header_block(data, frame))
        if stream <= self.last_stream:
            self._trailers(stream, bool(flags & END_STREAM))
            return
        self.last_stream = stream
        if len(self.streams) >= MAX_STREAMS:
            self.write(rst_stream(stream, REFUSED_STREAM))
            return
        self.streams[stream] = call = _Call(self.initial_window_bytes, fields)
        if end - begin > MAX_HEADER_BYTES:
            self._refuse(stream, RESOURCE_EXHAUSTED, f"a header block over {MAX_HEADER_BYTES} bytes")
        elif flags & END_STREAM:
            self._answer(stream, call)

    def _trailers(self, stream: int, ends: bool) -> None:
        """No gRPC client sends them; they end a request as END_STREAM on its DATA does."""
        call = self.streams.get(stream)
        if ends and call is not None and call.task is None:
            self._answer(stream, call)

    def on_data(self, data: bytes, frame: Frame) -> None:
        self.credit(frame)
        _, flags, stream, _, _ = frame
        call = self.streams.get(stream)
        if call is None or call.task is not None:
            return
        payload = data_payload(data, frame)
        call.request += payload
        self._unfinished_bytes += len(payload)
        if len(call.request) > PREFIX_BYTES + self._max_message_bytes:
            self._refuse(stream, RESOURCE_EXHAUSTED, f"request over {self._max_message_bytes} bytes")
        elif self._unfinished_bytes > 2 * self._max_message_bytes:
            self._refuse(stream, RESOURCE_EXHAUSTED, f"requests over {2 * self._max_message_bytes} bytes together")
        elif flags & END_STREAM:
            self._answer(stream, call)

    def on_rst_stream(self, data: bytes, frame: Frame) -> None:
        call = self.streams.pop(frame[2], None)
        if call is not None:
            self._drop_request(call)
            _cancel(call)

    def on_goaway(self, data: bytes, frame: Frame) -> None:
        """The client will open no more streams, which is all we would do about it."""

    def sent(self, stream_id: int) -> None:
        del self.streams[stream_id]

    # answering

    def _answer(self, stream: int, call: _Call) -> None:
        path = call.fields.get(b":path", b"")
        method = self._methods.get(path)
        message = grpc_message(call.request)
        if method is None:
            self._refuse(stream, UNIMPLEMENTED, f"unknown method {path.decode('latin-1')}")
        elif message is None:
            self._refuse(stream, INTERNAL, "the request is not one uncompressed message")
        else:
            self._run(stream, call, method, message)

    def _run(self, stream: int, call: _Call, method: Method, message: bytes) -> None:
        self._drop_request(call)
        try:
            reply = method(message, call.fields)
        except Exception as error:  # noqa: BLE001 - the root of a call
            self._failed(stream, call, error)
            return
        if isinstance(reply, ServerReply):
            self._reply(stream, call, reply)
        else:
            call.task = asyncio.ensure_future(reply)
            call.task.add_done_callback(partial(self._done, stream, call))

    def _done(self, stream: int, call: _Call, task: asyncio.Future[ServerReply]) -> None:
        """A task has ended; where its call has ended before, there is nobody to tell."""
        if task.cancelled():
            return
        error = task.exception()
        if self.streams.get(stream) is not call:
            return
        if error is None:
            self._reply(stream, call, task.result())
        else:
            self._failed(stream, call, error)

    def _reply(self, stream: int, call: _Call, reply: ServerReply) -> None:
        call.body = grpc_body(reply.message)
        call.trailers = frame(HEADERS, END_HEADERS | END_STREAM, stream, _OK)
        self.begin(stream, call, self.block(0, stream, _head(reply.metadata)))
        if reply.after is not None:
            try:
                reply.after()
            except Exception:
                log.exception("what follows an answer failed")

    def _failed(self, stream: int, call: _Call, error: BaseException) -> None:
        if isinstance(error, Refusal):
            self._refuse(stream, error.code, error.message)
            return
        path = call.fields.get(b":path", b"").decode("latin-1")
        log.error("%s failed", path, exc_info=error)
        self._refuse(stream, INTERNAL, type(error).__name__)

    def _refuse(self, stream: int, code: int, message: str) -> None:
        self._drop_request(self.streams.pop(stream))
        self.write(self.block(END_STREAM, stream, ANSWER_HEAD + status_fields(code, message)))

    def _drop_request(self, call: _Call) -> None:
        self._unfinished_bytes -= len(call.request)
        call.request = bytearray()


def _cancel(call: _Call) -> None:
    if call.task is not None:
        call.task.cancel()


@lru_cache(maxsize=16)
def _head(metadata: tuple[tuple[str, str], ...]) -> bytes:
    return ANSWER_HEAD + b"".join(literal(name.encode(), value.encode()) for name, value in metadata)
