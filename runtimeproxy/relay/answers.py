"""Relays runtime → client: everything passes, except the runtime's credit for windows that are ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from koord.http2.frames import (
    ACK,
    DATA,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADER_TABLE_SIZE,
    HEADERS,
    MAX_FRAME_SIZE,
    MAX_WINDOW_BYTES,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    FrameError,
    data_payload,
    header_block,
    last_stream_of,
    settings_of,
    uint32,
)
from koord.http2.grpc import UNAVAILABLE, UNKNOWN, status_in
from koord.http2.hpack import HpackError
from runtimeproxy.relay.framerelay import FrameRelay, Handler
from runtimeproxy.relay.goaway import GoingAway
from runtimeproxy.relay.pair import ConnectionPair
from runtimeproxy.relay.peerwriter import PeerWriter
from runtimeproxy.relay.policy import MAX_UNACKNOWLEDGED
from runtimeproxy.relay.refusals import Refusals
from runtimeproxy.relay.rewrites import Rewrites
from runtimeproxy.relay.stream import Stream, StreamState
from runtimeproxy.relay.streams import Streams
from runtimeproxy.relay.uplink import Uplink

_KEPT_BACK = (StreamState.HOLDING, StreamState.ASKING, StreamState.RELEASED)


class AnswerRelay(FrameRelay):
    """Reads the runtime."""

    def __init__(
        self,
        pair: ConnectionPair,
        uplink: Uplink,
        going_away: GoingAway,
        streams: Streams,
        refusals: Refusals,
        rewrites: Rewrites,
        on_lost: Callable[[PeerWriter], None],
    ) -> None:
        super().__init__(pair, pair.runtime, pair.to_client, on_lost)
        self._uplink = uplink
        self._going_away = going_away
        self._streams = streams
        self._refusals = refusals
        self._rewrites = rewrites
        self._decoder = pair.to_client.decoder
        self._handlers = {SETTINGS: self._settings, WINDOW_UPDATE: self._window_update}
        self._notes: dict[int, Handler] = {
            DATA: self._data,
            HEADERS: self._headers,
            RST_STREAM: self._rst_stream,
            PUSH_PROMISE: self._push_promise,
            GOAWAY: self._goaway,
        }
        self._in_order = {**self._handlers, **self._notes}

    def congested(self, full: bool) -> None:
        self.pair.client.pause("runtime", full)
        self._uplink.congested(full)

    def go_raw(self) -> None:
        """Passes bytes as they are, both ways: the client does not speak HTTP/2."""
        if not self.pair.raw:
            self.pair.raw = self.unusual = True
            self.flush()

    def consume(self, data: bytes) -> tuple[int, int]:
        self.direction.forward(data)
        return len(data), 0

    def relay(self, data: bytes, frames: list[Frame], used_bytes: int) -> None:
        """Sends answers before it looks at them: only the frames of `_handlers` can be replaced.

        While an acknowledgement is on its way, it has to find what came before it accounted for; and while an answer is
        rewritten, its frames are replaced.
        """
        if self.pair.acks or self._rewrites.answers:
            self.relay_with(self._in_order, data, frames, used_bytes)
            return
        self.relay_with(self._handlers, data, frames, used_bytes)
        notes = self._notes
        for frame in frames:
            note = notes.get(frame[0])
            if note is not None:
                note(data, frame)

    # frames

    def _headers(self, data: bytes, frame: Frame) -> bytes | None:
        pair = self.pair
        _, flags, stream_id, _, _ = frame
        fields: Mapping[bytes, bytes] = {}
        if not pair.blind:
            try:
                fields = self._decoder.decode(header_block(data, frame))
            except HpackError as error:
                self._going_away.go_blind("answer headers", error)
        if flags & END_STREAM:
            kept = self._rewrites.end(stream_id)
            self._end(stream_id, status_in(fields, UNKNOWN))
            return kept + data[frame[3] : frame[4]] if kept else None
        stream = pair.streams.get(stream_id)
        if isinstance(stream, Stream):
            stream.answered = True
        return None

    def _data(self, data: bytes, frame: Frame) -> bytes | None:
        _, flags, stream_id, _, _ = frame
        stream = self.pair.streams.get(stream_id)
        if isinstance(stream, Stream):
            stream.note_answer(data_payload(data, frame))
        replacement = self._rewrites.take(data, frame)
        if flags & END_STREAM:
            replacement = self._rewrites.end(stream_id) or replacement
            self._end(stream_id, UNKNOWN)
        return replacement

    def _end(self, stream_id: int, status: int) -> None:
        """Finishes a stream that the runtime has answered, maybe before it had all of the request."""
        stream = self.pair.streams.get(stream_id)
        if isinstance(stream, Stream) and stream.state in _KEPT_BACK and not stream.end_sent:
            self._uplink.cut_short(stream)
        self._streams.finish(stream_id, status)

    def _rst_stream(self, data: bytes, frame: Frame) -> bytes | None:
        kept = self._rewrites.end(frame[2])
        self._streams.finish(frame[2], UNAVAILABLE)
        self._uplink.drop_rest(frame[2], False)
        return kept + data[frame[3] : frame[4]] if kept else None

    def _push_promise(self, data: bytes, frame: Frame) -> bytes | None:
        try:
            self._decoder.decode(header_block(data, frame))
        except HpackError as error:
            self._going_away.go_blind("push promises", error)
        return None

    def _settings(self, data: bytes, frame: Frame) -> bytes | None:
        pair = self.pair
        if frame[1] & ACK:
            return self._settings_ack(data, frame)
        values = settings_of(data, frame)
        for identifier, value in values:
            if identifier == HEADER_TABLE_SIZE:
                pair.to_runtime.decoder.allow_table_bytes(value)
            elif identifier == MAX_FRAME_SIZE:
                pair.to_runtime.max_frame_bytes = max(pair.to_runtime.max_frame_bytes, value)
        pair.runtime_settings.append(values)
        if len(pair.runtime_settings) > MAX_UNACKNOWLEDGED:
            raise FrameError(ENHANCE_YOUR_CALM, "the runtime's SETTINGS are not acknowledged by its client")
        return None

    def _settings_ack(self, data: bytes, frame: Frame) -> bytes | None:
        acks = self.pair.acks
        meaning = acks.popleft() if acks else None
        if isinstance(meaning, Stream):
            self._refusals.barrier(meaning)
            return b""
        self.pair.unacknowledged -= 1
        if meaning is not None:
            self._decoder.acknowledged_table_bytes(meaning)
        return self._rewrites.before_acknowledgement(data, frame, is_last=not self.pair.unacknowledged)

    def _window_update(self, data: bytes, frame: Frame) -> bytes | None:
        increment = uint32(data, frame) & MAX_WINDOW_BYTES
        uplink = self._uplink
        stream_id = frame[2]
        if stream_id == 0:
            uplink.outbox.window_bytes += increment
            uplink.pump_soon()
            return b""
        stream = self.pair.streams.get(stream_id)
        if not isinstance(stream, Stream) or stream.state is StreamState.TAPPED:
            return b"" if stream_id in self.pair.reset else None
        stream.window_bytes += increment
        uplink.pump_soon()
        return b""

    def _goaway(self, data: bytes, frame: Frame) -> bytes | None:
        """Finishes the streams above ``last``: the runtime will not answer them, the client repeats them elsewhere."""
        pair = self.pair
        last = pair.runtime_last = min(last_stream_of(data, frame), pair.runtime_last)
        for stream_id in [each for each in pair.streams if each > last]:
            self._streams.finish(stream_id, UNAVAILABLE)
        return None
