"""One end of an HTTP/2 connection that carries unary calls: what client and server have in common.

Invariants: DATA is sent only as the peer's windows and frame size allow; what is received is credited as it comes, a
quarter of a window at a time, so that no call waits for another and a small one costs no frame; whatever breaks the
protocol ends the connection and every call on it; what is written for a peer that does not read is bounded; peers take
turns (`FairProtocol`). The peer's header blocks are decoded with a table, ours never use one, and our first block says
so (a peer that announces a smaller table would else be owed an answer to that).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Generic, TypeVar, cast

from koord.http2.frames import (
    ACK,
    COMPRESSION_ERROR,
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
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    FrameError,
    frame,
    frame_header,
    frame_payload,
    goaway,
    settings,
    settings_of,
    split,
    uint32,
    window_update,
)
from koord.http2.hpack import NO_TABLE, HeaderDecoder, HpackError
from koord.http2.reading import FairProtocol

WINDOW_BYTES = 1 << 20  # what the peer may send before it is credited
_CREDIT_BYTES = WINDOW_BYTES // 4
HIGH_WATER_BYTES = 256 * 1024  # of the write buffer: bodies wait above it, and after as much again nothing is heard
_BATCH_BYTES = 8 << 10  # of the answers to what one read held, which go out in one write
LINGER_S = 1.0  # how long a closed connection may take to read what was written to it


class Sending:
    """One stream as its sender sees it: ``body`` goes out in DATA, then ``trailers`` (or END_STREAM on the last).

    ``window_bytes``: what the peer allows; ``uncredited_bytes``: received and not given back yet.
    """

    window_bytes: int
    body = trailers = b""
    sent = uncredited_bytes = 0


Stream = TypeVar("Stream", bound=Sending)


class Link(FairProtocol, Generic[Stream]):
    """Subclasses handle HEADERS, DATA and RST_STREAM, and what the end of the connection means to their streams."""

    def __init__(self) -> None:
        super().__init__()
        self.usable = False
        self.expects_preface = False
        self.transport: asyncio.Transport | None = None
        self.streams: dict[int, Stream] = {}
        self.decoder = HeaderDecoder()
        self.last_stream = 0  # the highest one that the peer opened
        self.initial_window_bytes = DEFAULT_WINDOW_BYTES
        self.is_congested = False  # the peer does not read what was written
        self._is_deaf = False  # the peer is not read either
        self._answers_bytes = 0  # what was written while it did not read: no bodies, but what its frames call for
        self._is_handling = False  # frames that have come: what is written meanwhile is gathered
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._rest = bytearray()
        self._need_bytes = 0
        self._abort: asyncio.TimerHandle | None = None
        self._window_bytes = DEFAULT_WINDOW_BYTES
        self._max_frame_bytes = DEFAULT_MAX_FRAME_BYTES
        self._uncredited_bytes = 0
        self._begun = False  # a header block of ours has gone out
        self._handlers = {
            DATA: self.on_data,
            HEADERS: self.on_headers,
            RST_STREAM: self.on_rst_stream,
            SETTINGS: self._on_settings,
            PING: self._on_ping,
            GOAWAY: self.on_goaway,
            WINDOW_UPDATE: self._on_window_update,
        }

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self.usable = True
        self.write(self.opening())

    def data_received(self, data: bytes) -> None:
        if self._rest:
            self._rest += data
            if self._is_deaf or len(self._rest) < self._need_bytes:
                return
            data = bytes(self._rest)
            self._rest.clear()
        try:
            position = self.skip_preface(data) if self.expects_preface else 0
            if position is None:
                self._rest += data
                return
            self._take(data, position)
        except (FrameError, HpackError) as error:
            self.ended(f"the peer broke HTTP/2: {error}")
            code = error.code if isinstance(error, FrameError) else COMPRESSION_ERROR
            self.leave(code, str(error))

    def _take(self, data: bytes, position: int) -> None:
        """Handle the frames from ``position`` on, and keep what is left. Raises FrameError and HpackError."""
        frames, used, self._need_bytes = split(data, position, DEFAULT_MAX_FRAME_BYTES)
        self._is_handling = True
        try:
            position = self._handle(data, frames, used)
        finally:
            self._is_handling = False
            self._flush()
        self._rest += data[position:]

    def pause_for_turn(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if self.transport is not None and not self.transport.is_closing() and not self._is_deaf:
            self.transport.resume_reading()

    def _handle(self, data: bytes, frames: list[Frame], used: int) -> int:
        """Where what is not handled begins: behind the frame whose answer was one too many, if there was one."""
        for each in frames:
            handler = self._handlers.get(each[0])
            if handler is not None:
                handler(data, each)
                if self._is_deaf:
                    self._need_bytes = 0
                    return each[4]
        return used

    def pause_writing(self) -> None:
        """The peer does not read: bodies wait. It is still heard, or two such ends could wait for each other."""
        self.is_congested = True

    def resume_writing(self) -> None:
        self.is_congested = False
        self._answers_bytes = 0
        if self._is_deaf and self.transport is not None and not self.transport.is_closing():
            self._is_deaf = False
            self.transport.resume_reading()
        self.pump()
        if not self._is_deaf:
            self.data_received(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._abort is not None:
            self._abort.cancel()
        self.ended("the connection was lost")

    def leave(self, code: int, why: str = "") -> None:
        """Say goodbye with GOAWAY, an error code and a reason, and close behind it."""
        self.write(goaway(self.last_stream, code, why.encode()))
        self.close()

    def close(self) -> None:
        """Close behind what was written; a peer that does not read that in time loses it."""
        self.usable = False
        self._flush()
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()
            self._abort = asyncio.get_running_loop().call_later(LINGER_S, self.transport.abort)

    def write(self, data: bytes) -> None:
        """Send whole frames. A peer that makes us answer and answer, and reads nothing, is heard no more."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if self.is_congested:
            self._answers_bytes += len(data)
            if self._answers_bytes > HIGH_WATER_BYTES and not self._is_deaf:
                self._is_deaf = True
                transport.pause_reading()
        if not self._is_handling:
            transport.write(data)
            return
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes > _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Write what was gathered; the peer's frames may call for a thousand small ones of ours."""
        if self._gathered and self.transport is not None:
            self.transport.write(b"".join(self._gathered))
        self._gathered.clear()
        self._gathered_bytes = 0

    # for subclasses

    def opening(self) -> bytes:
        """What is sent first: our settings, and the connection window that goes with them."""
        return settings(self.settings()) + window_update(0, WINDOW_BYTES - DEFAULT_WINDOW_BYTES)

    def settings(self) -> tuple[tuple[int, int], ...]:
        return ((INITIAL_WINDOW_SIZE, WINDOW_BYTES),)

    def skip_preface(self, data: bytes) -> int | None:
        """Where frames begin in ``data``, None if that cannot be told yet; FrameError if it is no HTTP/2.

        Asked while `expects_preface`.
        """
        raise NotImplementedError

    def on_settings(self, settings: Mapping[int, int]) -> None:
        """The peer's settings, as far as it told them."""

    def on_headers(self, data: bytes, frame: Frame) -> None:
        raise NotImplementedError

    def on_data(self, data: bytes, frame: Frame) -> None:
        raise NotImplementedError

    def on_rst_stream(self, data: bytes, frame: Frame) -> None:
        raise NotImplementedError

    def on_goaway(self, data: bytes, frame: Frame) -> None:
        raise NotImplementedError

    def ended(self, why: str) -> None:
        """No stream of this connection will get anything more."""
        raise NotImplementedError

    def block(self, flags: int, stream_id: int, encoded: bytes) -> bytes:
        """HEADERS with an encoded block, which must go out before any other that is made."""
        if not self._begun:
            self._begun = True
            encoded = NO_TABLE + encoded
        return frame(HEADERS, END_HEADERS | flags, stream_id, encoded)

    def credit(self, frame: Frame) -> None:
        """Give the peer back what a DATA frame took: of the connection, and of the stream unless the frame ends it."""
        _, flags, stream_id, begin, end = frame
        size = end - begin - HEADER_BYTES
        self._uncredited_bytes += size
        stream = self.streams.get(stream_id)
        if stream is not None and not flags & END_STREAM:
            stream.uncredited_bytes += size
            if stream.uncredited_bytes >= _CREDIT_BYTES:
                self.write(window_update(stream_id, stream.uncredited_bytes))
                stream.uncredited_bytes = 0
        if self._uncredited_bytes >= _CREDIT_BYTES:
            self.write(window_update(0, self._uncredited_bytes))
            self._uncredited_bytes = 0

    def begin(self, stream_id: int, stream: Stream, first: bytes) -> None:
        """Send ``first`` and then the stream's body, in one write; what the peer's windows do not allow now, later."""
        size = len(stream.body)
        room = min(stream.window_bytes, self._window_bytes, self._max_frame_bytes)
        if self.is_congested or not 0 < size <= room:
            self.pump(first)
            return
        stream.window_bytes -= size
        self._window_bytes -= size
        flags = 0 if stream.trailers else END_STREAM
        self.write(b"".join((first, frame_header(size, DATA, flags, stream_id), stream.body, stream.trailers)))
        stream.body = b""
        self.sent(stream_id)

    def pump(self, first: bytes = b"") -> None:
        """Send ``first`` and then what the peer's windows allow, in one write unless it is much."""
        out = [first] if first else []
        left_bytes = HIGH_WATER_BYTES
        for stream_id, stream in [] if self.is_congested else list(self.streams.items()):
            if stream.body and left_bytes > 0:
                left_bytes -= self._pump_one(stream_id, stream, out, left_bytes)
        if out:
            self.write(b"".join(out))
        if left_bytes <= 0 and not self.is_congested:
            self.pump()

    def _pump_one(self, stream_id: int, stream: Stream, out: list[bytes], most_bytes: int) -> int:
        size, before = len(stream.body), stream.sent
        while (room := min(size - stream.sent, stream.window_bytes, self._window_bytes, self._max_frame_bytes)) > 0:
            if stream.sent - before >= most_bytes:
                break
            chunk = stream.body[stream.sent : stream.sent + room]
            stream.sent += room
            stream.window_bytes -= room
            self._window_bytes -= room
            last = stream.sent == size
            out.append(frame_header(room, DATA, END_STREAM if last and not stream.trailers else 0, stream_id))
            out.append(chunk)
            if last:
                out.append(stream.trailers)
                stream.body = b""
                self.sent(stream_id)
                break
        return stream.sent - before

    def sent(self, stream_id: int) -> None:
        """All of a stream's body, and its trailers, are out."""

    # frames

    def _on_settings(self, data: bytes, frame: Frame) -> None:
        if frame[1] & ACK:
            return
        told = dict(settings_of(data, frame))
        if (window_bytes := told.get(INITIAL_WINDOW_SIZE)) is not None:
            for stream in self.streams.values():
                stream.window_bytes += window_bytes - self.initial_window_bytes
            self.initial_window_bytes = window_bytes
        self._max_frame_bytes = told.get(MAX_FRAME_SIZE, self._max_frame_bytes)
        self.on_settings(told)
        self.pump(frame_header(0, SETTINGS, ACK, 0))

    def _on_ping(self, data: bytes, frame: Frame) -> None:
        if not frame[1] & ACK:
            payload = frame_payload(data, frame)
            self.write(frame_header(len(payload), PING, ACK, 0) + payload)

    def _on_window_update(self, data: bytes, frame: Frame) -> None:
        increment = uint32(data, frame)
        stream = self.streams.get(frame[2])
        if frame[2] == 0:
            self._window_bytes += increment
        elif stream is not None:
            stream.window_bytes += increment
        self.pump()
