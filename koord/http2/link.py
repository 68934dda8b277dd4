"""One end of an HTTP/2 connection that carries unary calls: what client and server have in common.

Invariants: DATA is sent only as the peer's windows and frame size allow; what is received is credited as it comes, a
quarter of a window at a time, so that no call waits for another and a small one costs no frame; whatever breaks the
protocol ends the connection and every call on it. The peer's header blocks are decoded with a table, ours never use
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Generic, TypeVar, cast

from koord.http2.frames import (
    ACK,
    DATA,
    DEFAULT_MAX_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
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
    frame_header,
    frame_payload,
    settings,
    settings_of,
    split,
    uint32,
    window_update,
)
from koord.http2.hpack import HeaderDecoder, HpackError

WINDOW_BYTES = 1 << 20  # what the peer may send before it is credited
_CREDIT_BYTES = WINDOW_BYTES // 4


class Sending:
    """One stream as its sender sees it: ``body`` goes out in DATA, then ``trailers`` (or END_STREAM on the last).

    ``window_bytes``: what the peer allows; ``uncredited_bytes``: received and not given back yet.
    """

    window_bytes: int
    body = trailers = b""
    sent = uncredited_bytes = 0


Stream = TypeVar("Stream", bound=Sending)


class Link(asyncio.Protocol, Generic[Stream]):
    """Subclasses handle HEADERS, DATA and RST_STREAM, and what the end of the connection means to their streams."""

    def __init__(self) -> None:
        self.usable = False
        self.expects_preface = False
        self.transport: asyncio.Transport | None = None
        self.streams: dict[int, Stream] = {}
        self.decoder = HeaderDecoder()
        self.initial_window_bytes = DEFAULT_WINDOW_BYTES
        self._rest = b""
        self._window_bytes = DEFAULT_WINDOW_BYTES
        self._max_frame_bytes = DEFAULT_MAX_FRAME_BYTES
        self._uncredited_bytes = 0
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
        self.usable = True
        self.write(self.opening())

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        try:
            position = self.skip_preface(data) if self.expects_preface else 0
            if position is None:
                self._rest = data
                return
            frames, used, _ = split(data, position, DEFAULT_MAX_FRAME_BYTES)
            self._rest = data[used:]
            for each in frames:
                handler = self._handlers.get(each[0])
                if handler is not None:
                    handler(data, each)
        except (FrameError, HpackError) as error:
            self.ended(f"the peer broke HTTP/2: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self.ended("the connection was lost")

    def close(self) -> None:
        self.usable = False
        if self.transport is not None:
            self.transport.close()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

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
        if not 0 < size <= min(stream.window_bytes, self._window_bytes, self._max_frame_bytes):
            self.pump(first)
            return
        stream.window_bytes -= size
        self._window_bytes -= size
        flags = 0 if stream.trailers else END_STREAM
        self.write(b"".join((first, frame_header(size, DATA, flags, stream_id), stream.body, stream.trailers)))
        stream.body = b""
        self.sent(stream_id)

    def pump(self, first: bytes = b"") -> None:
        """Send ``first`` and then what the peer's windows allow, in one write."""
        out = [first] if first else []
        for stream_id, stream in list(self.streams.items()):
            if stream.body:
                self._pump_one(stream_id, stream, out)
        if out:
            self.write(b"".join(out))

    def _pump_one(self, stream_id: int, stream: Stream, out: list[bytes]) -> None:
        size = len(stream.body)
        while (room := min(size - stream.sent, stream.window_bytes, self._window_bytes, self._max_frame_bytes)) > 0:
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
                return

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
