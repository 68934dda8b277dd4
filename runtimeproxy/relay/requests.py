"""Client → runtime: the direction in which streams are held and the proxy is a flow-control end point."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from koord.http2.frames import (
    ACK,
    DATA,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    HEADER_BYTES,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    FrameError,
    data_payload,
    frame_payload,
    header_block,
    settings_of,
    split,
)
from koord.http2.grpc import CANCELLED
from koord.http2.hpack import HeaderDecoder, HpackError
from runtimeproxy.relay.half import Half
from runtimeproxy.relay.held import HeldStreams
from runtimeproxy.relay.outbox import Outbox
from runtimeproxy.relay.stream import State, Stream

if TYPE_CHECKING:
    from runtimeproxy.relay.connection import Connection

_WANTED = (b":path", b"grpc-timeout", b"content-length", b"grpc-encoding")
_MAX_ABANDONED = 1024


class RequestHalf(Half):
    """Reads the client; `write` sends to the client, `inject` and `forward` to the runtime."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.decoder = HeaderDecoder(_WANTED)
        self.outbox = Outbox(connection)
        self.held = HeldStreams(connection)
        self.started = False  # the preface has been seen
        self.unusual = True
        self._pumping = False
        self._abandoned: dict[int, None] = {}  # refused before the client had ended them: their DATA is dropped
        self._handlers = {
            DATA: self._data,
            HEADERS: self._headers,
            PRIORITY: self._of_a_stream,
            RST_STREAM: self._rst_stream,
            SETTINGS: self._settings,
            WINDOW_UPDATE: self._of_a_stream,
        }

    def forward(self, data: bytes) -> None:
        self.connection.counters.bytes_to_runtime += len(data)
        self.connection.answers.write(data)

    def consume(self, data: bytes) -> tuple[int, int]:
        """The preface, or all that comes from whoever does not begin with it."""
        if self.connection.raw or not PREFACE.startswith(data[: len(PREFACE)]):
            self.connection.go_raw()
            self.forward(data)
            return len(data), 0
        if len(data) < len(PREFACE):
            return 0, len(PREFACE)
        self.started, self.unusual = True, False
        frames, used, need = split(data, len(PREFACE), self.max_frame_bytes)
        self.relay(data, frames, used)
        return used, need

    # frames

    def _headers(self, data: bytes, frame: Frame) -> bytes | None:
        connection = self.connection
        stream_id = frame[2]
        if connection.blind:
            return b"" if stream_id > connection.last_allowed else None
        try:
            fields = self.decoder.decode(header_block(data, frame))
        except HpackError as error:
            connection.go_blind("request headers", error)
            return None
        if stream_id <= connection.last_stream:
            return self._trailers(data, frame)
        if stream_id > connection.last_allowed:
            return b""  # opened after our GOAWAY: the client repeats it elsewhere
        connection.last_stream = stream_id
        route = connection.policy.route(fields.get(b":path", b""))
        kept = self._keep_order(data, frame) if self.outbox.passing else None
        if route.passes or frame[1] & END_STREAM:
            connection.streams[stream_id] = route
        else:
            self.held.open(stream_id, route, fields)
        return kept

    def _trailers(self, data: bytes, frame: Frame) -> bytes | None:
        known = self.connection.streams.get(frame[2])
        if isinstance(known, Stream) and self.held.interrupted(known):
            self.outbox.queue_rest(known, data[frame[3] : frame[4]])
            self.pump()
            return b""
        return self._keep_order(data, frame)

    def _keep_order(self, data: bytes, frame: Frame) -> bytes | None:
        """Header blocks stay in order among themselves, and behind their own stream's DATA."""
        outbox = self.outbox
        if outbox.keeps_header_blocks or outbox.waits(frame[2]):
            outbox.queue_block(frame[2], data[frame[3] : frame[4]])
            return b"".join(outbox.pump())
        return None

    def _data(self, data: bytes, frame: Frame) -> bytes | None:
        connection = self.connection
        _, flags, stream_id, begin, end = frame
        size = end - begin - HEADER_BYTES
        connection.client_window_bytes -= size
        if connection.client_window_bytes < 0:
            raise FrameError(FLOW_CONTROL_ERROR, "DATA beyond the connection's window")
        stream = connection.streams.get(stream_id)
        if isinstance(stream, Stream):
            if stream.state is not State.TAPPED:
                self.held.take(stream, data_payload(data, frame), size, bool(flags & END_STREAM))
                return b""
            self.held.tap(stream, data_payload(data, frame), bool(flags & END_STREAM))
        elif self._abandoned and stream_id in self._abandoned:
            connection.credit_connection(size)
            return b""
        outbox = self.outbox
        if size <= outbox.window_bytes and not outbox.passing:
            outbox.window_bytes -= size
            connection.credit_connection(size)
            return None
        payload = data_payload(data, frame)
        outbox.queue_data(stream_id, flags, payload, size - len(payload))
        return b"".join(outbox.pump())

    def _rst_stream(self, data: bytes, frame: Frame) -> bytes | None:
        connection = self.connection
        stream = connection.streams.get(frame[2])
        self._abandoned.pop(frame[2], None)
        refusing = isinstance(stream, Stream) and stream.state is State.REFUSING
        self.outbox.forget(frame[2])
        connection.finish(frame[2], CANCELLED)
        if refusing:
            return b""  # the runtime has had our reset
        return self._of_a_stream(data, frame)

    def _of_a_stream(self, data: bytes, frame: Frame) -> bytes | None:
        """A frame that must not overtake its stream's HEADERS, nor reach the runtime after our GOAWAY."""
        if frame[2] > self.connection.last_allowed:
            return b""
        if self.outbox.passing and self.outbox.waits(frame[2]):
            self.outbox.queue_frame(frame[2], data[frame[3] : frame[4]])
            return b""
        return None

    def _settings(self, data: bytes, frame: Frame) -> bytes | None:
        if frame[1] & ACK:
            self._settings_ack()
            return None
        for identifier, value in settings_of(data, frame):
            if identifier == HEADER_TABLE_SIZE:
                self.connection.answers.decoder.allow_table_bytes(value)
            elif identifier == MAX_FRAME_SIZE:
                self.connection.answers.max_frame_bytes = max(self.connection.answers.max_frame_bytes, value)
        self.connection.acks.append(None)
        return None

    def _settings_ack(self) -> None:
        """From here on the runtime expects what its SETTINGS said; before, a strict one still holds us to the old."""
        pending = self.connection.runtime_settings
        for identifier, value in pending.popleft() if pending else ():
            if identifier == INITIAL_WINDOW_SIZE:
                self.held.initial_window(value)
                self.pump()
            elif identifier == MAX_FRAME_SIZE:
                self.outbox.max_frame_bytes = value

    def _ping(self, data: bytes, frame: Frame) -> bytes | None:
        if frame[1] & ACK and self.connection.is_drain_ping(frame_payload(data, frame)):
            return b""
        return None

    # what the other parts ask of this direction

    def pump(self) -> None:
        """Send what the runtime's windows allow by now."""
        self._pumping = False
        out = self.outbox.pump()
        if out:
            self.inject(b"".join(out))

    def pump_soon(self) -> None:
        """Pump once for all the credit that one read brought: credit in crumbs must not make frames in crumbs."""
        if not self._pumping and self.outbox.waiting:
            self._pumping = True
            self.connection.loop.call_soon(self.pump)

    def send_behind_headers(self, stream: int, frames: bytes, gone: Callable[[], None]) -> None:
        """Send frames that concern a stream, once the runtime has its HEADERS; ``gone`` is called as they go out."""
        if self.outbox.waits(stream):
            self.outbox.queue_frame(stream, frames, gone)
        else:
            gone()
            self.inject(frames)

    def expect_drain_ping(self) -> None:
        """We have sent the client a PING of our own: its acknowledgement is not for the runtime."""
        self._handlers[PING] = self._ping

    def abandoned(self, stream: int) -> None:
        self._abandoned[stream] = None
        if len(self._abandoned) > _MAX_ABANDONED:
            del self._abandoned[next(iter(self._abandoned))]
