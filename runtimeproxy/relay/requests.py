"""Relays client → runtime: here streams are held, and the proxy is a flow-control end point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic

from koord.http2.frames import (
    ACK,
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
    settings_of,
    split,
)
from koord.http2.grpc import CANCELLED
from koord.http2.hpack import HpackError
from runtimeproxy.intercept import Treatment
from runtimeproxy.relay.accounts import Accounts
from runtimeproxy.relay.framerelay import FrameRelay
from runtimeproxy.relay.goaway import GoingAway
from runtimeproxy.relay.held import HeldStreams
from runtimeproxy.relay.pair import ConnectionPair
from runtimeproxy.relay.peerwriter import PeerWriter
from runtimeproxy.relay.policy import MAX_UNACKNOWLEDGED
from runtimeproxy.relay.rewrites import Rewrites
from runtimeproxy.relay.stream import Stream, StreamState
from runtimeproxy.relay.streams import Streams
from runtimeproxy.relay.taps import Taps
from runtimeproxy.relay.uplink import Uplink

MAX_STREAMS = 16_384  # open at a time: what is remembered of each is small, but not nothing


class RequestRelay(FrameRelay):
    """Reads the client; ``on_raw`` is called when it does not speak HTTP/2."""

    def __init__(
        self,
        pair: ConnectionPair,
        accounts: Accounts,
        uplink: Uplink,
        going_away: GoingAway,
        streams: Streams,
        taps: Taps,
        held: HeldStreams,
        rewrites: Rewrites,
        *,
        on_raw: Callable[[], None],
        on_lost: Callable[[PeerWriter], None],
    ) -> None:
        super().__init__(pair, pair.client, pair.to_runtime, on_lost)
        self._accounts = accounts
        self._uplink = uplink
        self._outbox = uplink.outbox
        self._going_away = going_away
        self._streams = streams
        self._taps = taps
        self._held = held
        self._rewrites = rewrites
        self._on_raw = on_raw
        self._decoder = pair.to_runtime.decoder
        self._reset = pair.reset
        self.unusual = True
        self._dropped = False  # whether a header block was dropped: the runtime's table is no longer in step
        going_away.on_ping = self._expect_drain_ping
        self._handlers = {
            DATA: self._data,
            HEADERS: self._headers,
            PRIORITY: self._of_a_stream,
            RST_STREAM: self._rst_stream,
            SETTINGS: self._settings,
            WINDOW_UPDATE: self._of_a_stream,
        }

    def congested(self, full: bool) -> None:
        self.pair.client.pause("client", full)
        self.pair.runtime.pause("client", full)

    def consume(self, data: bytes) -> tuple[int, int]:
        """Takes the preface, or passes all that comes from a client that does not begin with it."""
        if self.pair.raw or not PREFACE.startswith(data[: len(PREFACE)]):
            self._on_raw()
            self.direction.forward(data)
            return len(data), 0
        if len(data) < len(PREFACE):
            return 0, len(data) + 1  # the next byte may tell
        self.pair.started, self.unusual = True, False
        frames, used_bytes, need_bytes = split(data, len(PREFACE), self.direction.max_frame_bytes)
        self.relay(data, frames, used_bytes)
        self._going_away.proceed()
        return used_bytes, need_bytes

    # frames

    def _headers(self, data: bytes, frame: Frame) -> bytes | None:
        pair = self.pair
        stream_id = frame[2]
        fields: Mapping[bytes, bytes] = {}
        if not pair.blind:
            try:
                fields = self._decoder.decode(header_block(data, frame))
            except HpackError as error:
                return self._undecoded(data, frame, error)
        if stream_id > self._going_away.last_allowed:
            self._dropped = True
            return b""  # opened after our GOAWAY: the client repeats it elsewhere
        if stream_id <= pair.last_stream:
            return self._trailers(data, frame)
        pair.last_stream = stream_id
        if len(pair.streams) >= MAX_STREAMS:
            raise FrameError(ENHANCE_YOUR_CALM, f"more than {MAX_STREAMS} open streams")
        kept = self._keep_order(stream_id, data[frame[3] : frame[4]]) if self._outbox.passing else None
        if stream_id > pair.runtime_last:
            return kept  # the runtime will not look at it, and its client knows, or will soon
        route = pair.policy.route(fields.get(b":path", b""))
        if route.passes or frame[1] & END_STREAM:
            pair.streams[stream_id] = route
            pair.began_s[stream_id] = monotonic()
            if route.plan.treatment is Treatment.REWRITE:
                self._rewrites.open(stream_id, route.path)
        else:
            self._held.open(stream_id, route, fields)
        return kept

    def _undecoded(self, data: bytes, frame: Frame, error: HpackError) -> bytes | None:
        """Passes on a block that we cannot read, for the runtime to judge; our GOAWAY names its stream as taken."""
        pair = self.pair
        stream_id = frame[2]
        late = stream_id > self._going_away.last_allowed
        if stream_id > pair.last_stream and not late:
            pair.last_stream = stream_id
            if stream_id <= pair.runtime_last:
                pair.streams[stream_id] = pair.policy.other
        self._going_away.go_blind("request headers", error)
        return b"" if late else self._trailers(data, frame)

    def _trailers(self, data: bytes, frame: Frame) -> bytes | None:
        """Passes trailers on; where a block was dropped the runtime lacks its table entries, so none are passed."""
        stream_id = frame[2]
        if self._dropped and stream_id in self._reset:
            return b""
        block = frame_header(0, DATA, END_STREAM, stream_id) if self._dropped else data[frame[3] : frame[4]]
        known = self.pair.streams.get(stream_id)
        if isinstance(known, Stream) and self._held.interrupted(known):
            known.end_sent = True  # as far as anything that follows can tell
            self._outbox.queue_rest(known, block)
            self._uplink.pump()
            return b""
        kept = self._keep_order(stream_id, block)
        return block if kept is None and self._dropped else kept

    def _keep_order(self, stream_id: int, block: bytes) -> bytes | None:
        """Keeps header blocks in order among themselves, and behind their own stream's DATA."""
        outbox = self._outbox
        if outbox.keeps_header_blocks or outbox.waits(stream_id):
            outbox.queue_block(stream_id, block)
            return b"".join(outbox.pump())
        return None

    def _data(self, data: bytes, frame: Frame) -> bytes | None:
        pair = self.pair
        _, flags, stream_id, begin, end = frame
        size = end - begin - HEADER_BYTES
        pair.client_window_bytes -= size
        if pair.client_window_bytes < 0:
            raise FrameError(FLOW_CONTROL_ERROR, "DATA beyond the connection's window")
        stream = pair.streams.get(stream_id)
        if isinstance(stream, Stream):
            if stream.state is not StreamState.TAPPED:
                self._held.take(stream, data_payload(data, frame), size, bool(flags & END_STREAM))
                return b""
            self._taps.take(stream, data_payload(data, frame), bool(flags & END_STREAM))
        elif stream is None and (stream_id > self._going_away.last_allowed or stream_id in self._reset):
            self._accounts.credit_connection(size)
            if self._reset.get(stream_id) and not flags & END_STREAM:
                self._accounts.credit_passing(stream_id, size)
            return b""
        outbox = self._outbox
        if size <= outbox.window_bytes and not outbox.passing:
            outbox.window_bytes -= size
            self._accounts.credit_connection(size)
            return None
        payload = data_payload(data, frame)
        outbox.queue_data(stream_id, flags, payload, size - len(payload))
        return b"".join(outbox.pump())

    def _rst_stream(self, data: bytes, frame: Frame) -> bytes | None:
        self._outbox.forget(frame[2])
        self._streams.finish(frame[2], CANCELLED)
        replacement = self._of_a_stream(data, frame)
        self._reset.pop(frame[2], None)
        return replacement

    def _of_a_stream(self, data: bytes, frame: Frame) -> bytes | None:
        """Keeps a frame behind its stream's HEADERS, and drops it after our GOAWAY or RST_STREAM."""
        if frame[2] > self._going_away.last_allowed or frame[2] in self._reset:
            return b""
        if self._outbox.passing and self._outbox.waits(frame[2]):
            self._outbox.queue_frame(frame[2], data[frame[3] : frame[4]])
            return b""
        return None

    def _settings(self, data: bytes, frame: Frame) -> bytes | None:
        if frame[1] & ACK:
            return self._settings_ack(data, frame)
        pair = self.pair
        table_bytes: int | None = None
        for identifier, value in settings_of(data, frame):
            if identifier == HEADER_TABLE_SIZE:
                pair.to_client.decoder.allow_table_bytes(value)
                table_bytes = value if table_bytes is None else min(value, table_bytes)
            elif identifier == MAX_FRAME_SIZE:
                pair.to_client.max_frame_bytes = max(pair.to_client.max_frame_bytes, value)
            elif identifier == INITIAL_WINDOW_SIZE:
                self._rewrites.client_allows(value)
        pair.acks.append(table_bytes)
        pair.unacknowledged += 1
        if pair.unacknowledged > MAX_UNACKNOWLEDGED:
            raise FrameError(ENHANCE_YOUR_CALM, f"more than {MAX_UNACKNOWLEDGED} SETTINGS without acknowledgement")
        return None

    def _settings_ack(self, data: bytes, frame: Frame) -> bytes | None:
        """Keeps it behind DATA and header blocks that were sent before it: the new SETTINGS apply to what follows."""
        if self._outbox.passing:
            self._outbox.queue_block(0, data[frame[3] : frame[4]], self._settings_in_force)
            return b""
        self._settings_in_force()
        return None

    def _settings_in_force(self) -> None:
        """Applies the runtime's SETTINGS: it expects them from here on, and the old ones until here."""
        pending = self.pair.runtime_settings
        for identifier, value in pending.popleft() if pending else ():
            if identifier == INITIAL_WINDOW_SIZE:
                self._held.initial_window(value)
                self._uplink.pump_soon()
            elif identifier == MAX_FRAME_SIZE:
                self._outbox.max_frame_bytes = value

    def _ping(self, data: bytes, frame: Frame) -> bytes | None:
        if frame[1] & ACK and self._going_away.is_ping_answer(frame_payload(data, frame)):
            return b""
        return None

    def _expect_drain_ping(self) -> None:
        self._handlers[PING] = self._ping
