"""A small unary gRPC client on the relay's own framing: hook servers, and the proxy's own questions to the runtime.

grpcio would cost this process twice its memory and its start-up time. One connection per socket path, made when it
is first needed and again after it was lost; calls are multiplexed. Request headers are literals that touch no
table. Every failure, the peer's or ours, is a `UnaryError` with a gRPC status.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from runtimeproxy.relay.stream import grpc_body, grpc_message
from runtimeproxy.wire.frames import (
    ACK,
    CANCEL,
    DATA,
    DEFAULT_MAX_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADER_BYTES,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    MAX_STREAM_ID,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    FrameError,
    data_payload,
    frame,
    frame_header,
    frame_payload,
    header_block,
    rst_stream,
    settings,
    settings_of,
    split,
    uint32,
    window_update,
)
from runtimeproxy.wire.hpack import HeaderDecoder, HpackError, literal

MAX_ANSWER_BYTES = 16 << 20
_WINDOW_BYTES = 1 << 20  # what a peer may send us before we credit it
DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE = 4, 8, 13, 14
_PSEUDO = b"\x83\x86" + literal(b":authority", b"localhost")  # with :method POST and :scheme http, static entries
_FIXED = literal(b"content-type", b"application/grpc") + literal(b"te", b"trailers")


class UnaryError(Exception):
    """A call that gave no answer. ``code``: gRPC status, UNAVAILABLE when the peer could not be reached."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"gRPC status {code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Answer:
    """``metadata``: initial metadata and trailers together, lower-case names."""

    message: bytes
    metadata: Mapping[str, str]


@dataclass(slots=True)
class _Pending:
    result: asyncio.Future[Answer]
    body: bytes
    window_bytes: int
    sent: int = 0
    fields: dict[bytes, bytes] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    ended: bool = False  # by the server


class UnaryClient:
    """Calls the gRPC server at ``socket_path``."""

    def __init__(self, socket_path: str, loop: asyncio.AbstractEventLoop) -> None:
        self._path = socket_path
        self._loop = loop
        self._link: _Link | None = None
        self._connecting = asyncio.Lock()

    @property
    def peer_pid(self) -> int | None:
        """Process id of the server, while connected."""
        return self._link.peer_pid if self._link is not None and self._link.usable else None

    async def call(
        self, path: str, message: bytes, timeout_s: float, metadata: Sequence[tuple[str, str]] = ()
    ) -> Answer:
        """One unary call. Raises UnaryError."""
        try:
            async with asyncio.timeout(timeout_s):
                link = await self._connected()
                return await link.call(path, message, timeout_s, metadata)
        except TimeoutError:
            raise UnaryError(DEADLINE_EXCEEDED, f"no answer from {self._path} in {timeout_s:.3g} s") from None

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    async def _connected(self) -> _Link:
        async with self._connecting:
            if self._link is None or not self._link.usable:
                try:
                    _, self._link = await self._loop.create_unix_connection(lambda: _Link(self._loop), self._path)
                except OSError as error:
                    raise UnaryError(UNAVAILABLE, f"cannot connect to {self._path}: {error}") from None
            return self._link


class _Link(asyncio.Protocol):
    """One connection; when it is lost every pending call fails with UNAVAILABLE."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.usable = False
        self.peer_pid: int | None = None
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._decoder = HeaderDecoder()
        self._pending: dict[int, _Pending] = {}
        self._next_stream = 1
        self._window_bytes = DEFAULT_WINDOW_BYTES
        self._initial_window_bytes = DEFAULT_WINDOW_BYTES
        self._max_frame_bytes = DEFAULT_MAX_FRAME_BYTES
        self._received_bytes = 0
        self._handlers = {
            DATA: self._on_data,
            HEADERS: self._on_headers,
            RST_STREAM: self._on_rst_stream,
            SETTINGS: self._on_settings,
            PING: self._on_ping,
            GOAWAY: self._on_goaway,
            WINDOW_UPDATE: self._on_window_update,
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        credentials = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.peer_pid = struct.unpack("iII", credentials)[0]
        self.usable = True
        self._transport.write(
            PREFACE
            + settings(((INITIAL_WINDOW_SIZE, _WINDOW_BYTES),))
            + window_update(0, _WINDOW_BYTES - DEFAULT_WINDOW_BYTES)
        )

    async def call(self, path: str, message: bytes, timeout_s: float, metadata: Sequence[tuple[str, str]]) -> Answer:
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        if self._next_stream > MAX_STREAM_ID:
            self.usable = False
        block = _PSEUDO + literal(b":path", path.encode())  # pseudo-header fields come first: grpc-go insists
        block += _FIXED + literal(b"grpc-timeout", b"%dm" % max(1, timeout_s * 1000))
        block += b"".join(literal(name.encode(), value.encode()) for name, value in metadata)
        pending = _Pending(self._loop.create_future(), grpc_body(message), self._initial_window_bytes)
        self._pending[stream] = pending
        self._write(frame(HEADERS, END_HEADERS, stream, block))
        self._pump()
        try:
            return await pending.result
        finally:
            del self._pending[stream]
            if not pending.ended:
                self._write(rst_stream(stream, CANCEL))

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _pump(self) -> None:
        for stream, pending in self._pending.items():
            while left := len(pending.body) - pending.sent:
                take = min(left, self._window_bytes, pending.window_bytes, self._max_frame_bytes)
                if take <= 0:
                    break
                flags = END_STREAM if take == left else 0
                chunk = pending.body[pending.sent : pending.sent + take]
                self._write(frame_header(take, DATA, flags, stream) + chunk)
                pending.sent += take
                pending.window_bytes -= take
                self._window_bytes -= take

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        try:
            frames, used, _ = split(data, 0, DEFAULT_MAX_FRAME_BYTES)
            self._rest = data[used:]
            for each in frames:
                handler = self._handlers.get(each[0])
                if handler is not None:
                    handler(data, each)
        except (FrameError, HpackError) as error:
            self._fail_all(f"the server broke HTTP/2: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._fail_all("the connection was lost")

    def _fail_all(self, why: str) -> None:
        for pending in self._pending.values():
            if not pending.result.done():
                pending.result.set_exception(UnaryError(UNAVAILABLE, why))

    # frames

    def _on_headers(self, data: bytes, frame: Frame) -> None:
        fields = self._decoder.decode(header_block(data, frame))
        pending = self._pending.get(frame[2])
        if pending is None:
            return
        pending.fields.update(fields)
        if frame[1] & END_STREAM:
            self._end(pending)

    def _on_data(self, data: bytes, frame: Frame) -> None:
        payload = data_payload(data, frame)
        ends = bool(frame[1] & END_STREAM)
        self._credit(0 if ends else frame[2], frame[4] - frame[3] - HEADER_BYTES)
        pending = self._pending.get(frame[2])
        if pending is None:
            return
        pending.chunks.append(payload)
        pending.size_bytes += len(payload)
        if pending.size_bytes > MAX_ANSWER_BYTES and not pending.result.done():
            pending.result.set_exception(UnaryError(RESOURCE_EXHAUSTED, f"answer over {MAX_ANSWER_BYTES} bytes"))
        elif ends:
            self._end(pending)

    def _credit(self, stream: int, size_bytes: int) -> None:
        """Give the server its credit back; ``stream`` 0 = only on the connection."""
        self._received_bytes += size_bytes
        if stream in self._pending and size_bytes:
            self._write(window_update(stream, size_bytes))
        if self._received_bytes >= _WINDOW_BYTES // 4:
            self._write(window_update(0, self._received_bytes))
            self._received_bytes = 0

    def _end(self, pending: _Pending) -> None:
        pending.ended = True
        if pending.result.done():
            return
        text = {name.decode("latin-1"): value.decode("latin-1") for name, value in pending.fields.items()}
        status = text.get("grpc-status", "")
        if status != "0":
            code = int(status) if status.isdigit() and len(status) < 4 else INTERNAL
            pending.result.set_exception(UnaryError(code, text.get("grpc-message", f"HTTP {text.get(':status')}")))
            return
        message = grpc_message(b"".join(pending.chunks))
        if message is None:
            pending.result.set_exception(UnaryError(INTERNAL, "the answer is not one uncompressed message"))
        else:
            pending.result.set_result(Answer(message, text))

    def _on_rst_stream(self, data: bytes, frame: Frame) -> None:
        pending = self._pending.get(frame[2])
        if pending is not None and not pending.result.done():
            pending.ended = True
            code = uint32(data, frame)
            pending.result.set_exception(UnaryError(UNAVAILABLE, f"the server reset the stream (error code {code})"))

    def _on_settings(self, data: bytes, frame: Frame) -> None:
        if frame[1] & ACK:
            return
        for identifier, value in settings_of(data, frame):
            if identifier == INITIAL_WINDOW_SIZE:
                for pending in self._pending.values():
                    pending.window_bytes += value - self._initial_window_bytes
                self._initial_window_bytes = value
            elif identifier == MAX_FRAME_SIZE:
                self._max_frame_bytes = value
        self._write(frame_header(0, SETTINGS, ACK, 0))
        self._pump()

    def _on_ping(self, data: bytes, frame: Frame) -> None:
        if not frame[1] & ACK:
            self._write(frame_header(8, PING, ACK, 0) + frame_payload(data, frame))

    def _on_goaway(self, data: bytes, frame: Frame) -> None:
        """No new call on this connection; those the server has taken may still end well."""
        self.usable = False
        last = int.from_bytes(frame_payload(data, frame)[:4]) & MAX_STREAM_ID
        for stream, pending in self._pending.items():
            if stream > last and not pending.result.done():
                pending.result.set_exception(UnaryError(UNAVAILABLE, "the server is going away"))

    def _on_window_update(self, data: bytes, frame: Frame) -> None:
        increment = uint32(data, frame)
        stream = frame[2]
        if stream == 0:
            self._window_bytes += increment
        elif stream in self._pending:
            self._pending[stream].window_bytes += increment
        self._pump()
