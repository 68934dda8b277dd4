"""Client → runtime: the direction in which streams are held and the proxy is a flow-control end point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING

from koord.http2.frames import (
    ACK,
    CANCEL,
    DATA,
    END_STREAM,
    ENHANCE_YOUR_CALM,
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
    frame_header,
    frame_payload,
    header_block,
    rst_stream,
    settings_of,
    split,
)
from koord.http2.grpc import CANCELLED
from koord.http2.hpack import HeaderDecoder, HpackError
from runtimeproxy.relay.half import Half
from runtimeproxy.relay.held import HeldStreams
from runtimeproxy.relay.outbox import Outbox
from runtimeproxy.relay.policy import MAX_UNACKNOWLEDGED
from runtimeproxy.relay.stream import State, Stream

if TYPE_CHECKING:
    from runtimeproxy.relay.connection import Connection

_WANTED = (b":path", b"grpc-timeout", b"content-length", b"grpc-encoding")
_MAX_RESET = 1024
MAX_STREAMS = 16_384  # open at a time: what is remembered of each is small, but not nothing


class RequestHalf(Half):
    """Reads the client; `write` sends to the client, `inject` and `forward` to the runtime."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.decoder = HeaderDecoder(_WANTED)
        self.outbox = Outbox(connection)
        self.held = HeldStreams(connection)
        self.started = False  # the preface has been seen
        self.unusual = True
        self.unacknowledged = 0  # the client's SETTINGS
        self.is_congested = False  # the runtime does not read what goes to it
        self._pumping = False
        self._dropped = False  # a header block of the client: the runtime's table is no longer in step
        self._reset: dict[int, bool] = {}  # streams that we or the runtime have reset → is the client given credit?
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
            return 0, len(data) + 1  # the next byte may tell
        self.started, self.unusual = True, False
        frames, used, need = split(data, len(PREFACE), self.max_frame_bytes)
        self.relay(data, frames, used)
        self.connection.going_away.proceed()
        return used, need

    # frames

    def _headers(self, data: bytes, frame: Frame) -> bytes | None:
        connection = self.connection
        stream_id = frame[2]
        fields: Mapping[bytes, bytes] = {}
        if not connection.blind:
            try:
                fields = self.decoder.decode(header_block(data, frame))
            except HpackError as error:
                return self._undecoded(data, frame, error)
        if stream_id > connection.going_away.last_allowed:
            self._dropped = True
            return b""  # opened after our GOAWAY: the client repeats it elsewhere
        if stream_id <= connection.last_stream:
            return self._trailers(data, frame)
        connection.last_stream = stream_id
        if len(connection.streams) >= MAX_STREAMS:
            raise FrameError(ENHANCE_YOUR_CALM, f"more than {MAX_STREAMS} open streams")
        kept = self._keep_order(stream_id, data[frame[3] : frame[4]]) if self.outbox.passing else None
        if stream_id > connection.runtime_last:
            return kept  # the runtime will not look at it, and its client knows, or will soon
        route = connection.policy.route(fields.get(b":path", b""))
        if route.passes or frame[1] & END_STREAM:
            connection.streams[stream_id] = route
            connection.began_s[stream_id] = monotonic()
        else:
            self.held.open(stream_id, route, fields)
        return kept

    def _undecoded(self, data: bytes, frame: Frame, error: HpackError) -> bytes | None:
        """A block that we cannot read goes on, for the runtime to judge; so our GOAWAY says that its stream did."""
        connection = self.connection
        stream_id = frame[2]
        late = stream_id > connection.going_away.last_allowed
        if stream_id > connection.last_stream and not late:
            connection.last_stream = stream_id
            if stream_id <= connection.runtime_last:
                connection.streams[stream_id] = connection.policy.other
        connection.go_blind("request headers", error)
        return b"" if late else self._trailers(data, frame)

    def _trailers(self, data: bytes, frame: Frame) -> bytes | None:
        """Where a block was dropped the runtime lacks its table entries: there the stream ends without trailers."""
        stream_id = frame[2]
        if self._dropped and self.has_reset(stream_id):
            return b""
        block = frame_header(0, DATA, END_STREAM, stream_id) if self._dropped else data[frame[3] : frame[4]]
        known = self.connection.streams.get(stream_id)
        if isinstance(known, Stream) and self.held.interrupted(known):
            known.end_sent = True  # as far as anything that follows can tell
            self.outbox.queue_rest(known, block)
            self.pump()
            return b""
        kept = self._keep_order(stream_id, block)
        return block if kept is None and self._dropped else kept

    def _keep_order(self, stream_id: int, block: bytes) -> bytes | None:
        """Header blocks stay in order among themselves, and behind their own stream's DATA."""
        outbox = self.outbox
        if outbox.keeps_header_blocks or outbox.waits(stream_id):
            outbox.queue_block(stream_id, block)
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
            self.held.taps.take(stream, data_payload(data, frame), bool(flags & END_STREAM))
        elif stream is None and (stream_id > connection.going_away.last_allowed or stream_id in self._reset):
            connection.credit_connection(size)
            if self._reset.get(stream_id) and not flags & END_STREAM:
                connection.credit_passing(stream_id, size)
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
        self.outbox.forget(frame[2])
        self.connection.finish(frame[2], CANCELLED)
        replacement = self._of_a_stream(data, frame)
        self._reset.pop(frame[2], None)
        return replacement

    def _of_a_stream(self, data: bytes, frame: Frame) -> bytes | None:
        """A frame that must not overtake its stream's HEADERS, nor reach the runtime after our GOAWAY or RST_STREAM."""
        if frame[2] > self.connection.going_away.last_allowed or frame[2] in self._reset:
            return b""
        if self.outbox.passing and self.outbox.waits(frame[2]):
            self.outbox.queue_frame(frame[2], data[frame[3] : frame[4]])
            return b""
        return None

    def _settings(self, data: bytes, frame: Frame) -> bytes | None:
        if frame[1] & ACK:
            return self._settings_ack(data, frame)
        answers = self.connection.answers
        table_bytes: int | None = None
        for identifier, value in settings_of(data, frame):
            if identifier == HEADER_TABLE_SIZE:
                answers.decoder.allow_table_bytes(value)
                table_bytes = value if table_bytes is None else min(value, table_bytes)
            elif identifier == MAX_FRAME_SIZE:
                answers.max_frame_bytes = max(answers.max_frame_bytes, value)
        self.connection.acks.append(table_bytes)
        self.unacknowledged += 1
        if self.unacknowledged > MAX_UNACKNOWLEDGED:
            raise FrameError(ENHANCE_YOUR_CALM, f"more than {MAX_UNACKNOWLEDGED} SETTINGS without acknowledgement")
        return None

    def _settings_ack(self, data: bytes, frame: Frame) -> bytes | None:
        """It stays behind DATA and header blocks that were sent before it: what follows it is judged by the new."""
        if self.outbox.passing:
            self.outbox.queue_block(0, data[frame[3] : frame[4]], self._settings_in_force)
            return b""
        self._settings_in_force()
        return None

    def _settings_in_force(self) -> None:
        """From here on the runtime expects what its SETTINGS said; before, a strict one still holds us to the old."""
        pending = self.connection.runtime_settings
        for identifier, value in pending.popleft() if pending else ():
            if identifier == INITIAL_WINDOW_SIZE:
                self.held.initial_window(value)
                self.pump_soon()
            elif identifier == MAX_FRAME_SIZE:
                self.outbox.max_frame_bytes = value

    def _ping(self, data: bytes, frame: Frame) -> bytes | None:
        if frame[1] & ACK and self.connection.going_away.is_ping_answer(frame_payload(data, frame)):
            return b""
        return None

    # what the other parts ask of this direction

    def pump(self) -> None:
        """Send what the runtime's windows allow by now; nothing while it does not read what was written to it."""
        self._pumping = False
        if self.is_congested:
            return
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

    # streams that are over for the runtime, and not yet for the client

    def has_reset(self, stream: int) -> bool:
        """Was the stream reset, by us or by the runtime? Nothing but header blocks, for its table, may follow that."""
        return stream in self._reset

    def cut_short(self, stream: Stream) -> None:
        """The runtime has answered before it had all of a held request: it gets no more of it, only a reset."""
        self.drop_rest(stream.id, not stream.client_ended)
        if stream.owed_bytes:
            self.connection.loop.call_soon(self._credit_rest, stream.id, stream.owed_bytes)
        self.send_behind_headers(stream.id, rst_stream(stream.id, CANCEL), _nothing)

    def _credit_rest(self, stream: int, size_bytes: int) -> None:
        """The client may go on sending, unless the runtime's own reset came right behind its answer."""
        if self._reset.get(stream):
            self.connection.credit_passing(stream, size_bytes)

    def drop_rest(self, stream: int, credits_client: bool) -> None:
        """What the client still sends on the stream is dropped, and its window given back to it or not."""
        self._reset[stream] = credits_client
        if len(self._reset) > _MAX_RESET:
            del self._reset[next(iter(self._reset))]


def _nothing() -> None:
    pass
