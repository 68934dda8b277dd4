"""Runtime → client: everything passes, except the runtime's credit for windows that are ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

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
from koord.http2.hpack import HeaderDecoder, HpackError
from runtimeproxy.relay.half import Half, Handler
from runtimeproxy.relay.policy import MAX_UNACKNOWLEDGED
from runtimeproxy.relay.stream import State, Stream

if TYPE_CHECKING:
    from runtimeproxy.relay.connection import Connection

_WANTED = (b"grpc-status",)


class AnswerHalf(Half):
    """Reads the runtime; `write` sends to the runtime, `inject` and `forward` to the client."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.decoder = HeaderDecoder(_WANTED)
        self.settled = False  # the runtime's first frames have gone to the client
        self._handlers = {SETTINGS: self._settings, WINDOW_UPDATE: self._window_update}
        self._notes: dict[int, Handler] = {
            DATA: self._data,
            HEADERS: self._headers,
            RST_STREAM: self._rst_stream,
            PUSH_PROMISE: self._push_promise,
            GOAWAY: self._goaway,
        }
        self._in_order = {**self._handlers, **self._notes}

    def forward(self, data: bytes) -> None:
        connection = self.connection
        connection.counters.bytes_to_client += len(data)
        connection.requests.write(data)
        if not self.settled:
            self.settled = True
            connection.going_away.proceed()

    def inject(self, frames: bytes) -> None:
        """Nothing may come before the runtime's SETTINGS, so until then frames of ours wait to follow them."""
        if self.settled:
            super().inject(frames)
        else:
            self._injected.append(frames)

    def consume(self, data: bytes) -> tuple[int, int]:
        self.forward(data)
        return len(data), 0

    def relay(self, data: bytes, frames: list[Frame], used: int) -> None:
        """Answers go out before they are looked at: only the frames of `_handlers` can be replaced.

        While an acknowledgement is on its way, it has to find what came before it accounted for.
        """
        if self.connection.acks:
            self.relay_with(self._in_order, data, frames, used)
            return
        self.relay_with(self._handlers, data, frames, used)
        notes = self._notes
        for frame in frames:
            note = notes.get(frame[0])
            if note is not None:
                note(data, frame)

    def size_update(self) -> bytes:
        """What a header block of ours has to begin with. On a blind connection nobody can tell."""
        return b"" if self.connection.blind else self.decoder.size_update()

    # frames

    def _headers(self, data: bytes, frame: Frame) -> bytes | None:
        connection = self.connection
        _, flags, stream_id, _, _ = frame
        fields: Mapping[bytes, bytes] = {}
        if not connection.blind:
            try:
                fields = self.decoder.decode(header_block(data, frame))
            except HpackError as error:
                connection.go_blind("answer headers", error)
        if flags & END_STREAM:
            connection.answered(stream_id, status_in(fields, UNKNOWN))
            return None
        stream = connection.streams.get(stream_id)
        if isinstance(stream, Stream):
            stream.answered = True
        return None

    def _data(self, data: bytes, frame: Frame) -> bytes | None:
        _, flags, stream_id, _, _ = frame
        stream = self.connection.streams.get(stream_id)
        if isinstance(stream, Stream):
            stream.note_answer(data_payload(data, frame))
        if flags & END_STREAM:
            self.connection.answered(stream_id, UNKNOWN)
        return None

    def _rst_stream(self, data: bytes, frame: Frame) -> bytes | None:
        self.connection.finish(frame[2], UNAVAILABLE)
        self.connection.requests.drop_rest(frame[2], False)
        return None

    def _push_promise(self, data: bytes, frame: Frame) -> bytes | None:
        try:
            self.decoder.decode(header_block(data, frame))
        except HpackError as error:
            self.connection.go_blind("push promises", error)
        return None

    def _settings(self, data: bytes, frame: Frame) -> bytes | None:
        requests = self.connection.requests
        if frame[1] & ACK:
            return self._settings_ack()
        values = settings_of(data, frame)
        for identifier, value in values:
            if identifier == HEADER_TABLE_SIZE:
                requests.decoder.allow_table_bytes(value)
            elif identifier == MAX_FRAME_SIZE:
                requests.max_frame_bytes = max(requests.max_frame_bytes, value)
        self.connection.runtime_settings.append(values)
        if len(self.connection.runtime_settings) > MAX_UNACKNOWLEDGED:
            raise FrameError(ENHANCE_YOUR_CALM, "the runtime's SETTINGS are not acknowledged by its client")
        return None

    def _settings_ack(self) -> bytes | None:
        acks = self.connection.acks
        meaning = acks.popleft() if acks else None
        if isinstance(meaning, Stream):
            self.connection.requests.held.refusals.barrier(meaning)
            return b""
        self.connection.requests.unacknowledged -= 1
        if meaning is not None:
            self.decoder.acknowledged_table_bytes(meaning)
        return None

    def _window_update(self, data: bytes, frame: Frame) -> bytes | None:
        increment = uint32(data, frame) & MAX_WINDOW_BYTES
        requests = self.connection.requests
        stream_id = frame[2]
        if stream_id == 0:
            requests.outbox.window_bytes += increment
            requests.pump_soon()
            return b""
        stream = self.connection.streams.get(stream_id)
        if not isinstance(stream, Stream) or stream.state is State.TAPPED:
            return b"" if requests.has_reset(stream_id) else None
        stream.window_bytes += increment
        requests.pump_soon()
        return b""

    def _goaway(self, data: bytes, frame: Frame) -> bytes | None:
        """The runtime will not answer streams above ``last``: the client repeats those elsewhere."""
        last = self.connection.runtime_last = min(last_stream_of(data, frame), self.connection.runtime_last)
        for stream_id in [each for each in self.connection.streams if each > last]:
            self.connection.finish(stream_id, UNAVAILABLE)
        return None
