"""One strict end of an HTTP/2 connection: frames, header tables, windows, settings (RFC 9113, RFC 7541).

Written for the simulation alone and independent of the product: frames are cut here, header blocks are coded by the
``hpack`` library. A peer's breach of a rule raises Violation at once. An end holds its peer to what the peer has
acknowledged, and changes what it announced at any time.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Literal

from hpack import Decoder, Encoder

from tests.runtimeproxy.simulation.call import Call, Fields, check
from tests.runtimeproxy.simulation.dice import Dice
from tests.runtimeproxy.simulation.transport import SimTransport

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, _, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
EXTENSION = 0xF0  # a kind that nobody knows: it passes
END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITY_FLAG = 4, 8, 32
HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 4, 5
LARGEST_WINDOW_BYTES = (1 << 31) - 1
_NAMES = ("DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "PUSH", "PING", "GOAWAY", "WINDOW_UPDATE", "MORE")
_HEADER = Struct(">HBBBI")
_SETTING = Struct(">HI")


class Side:
    """One stream at one end. Windows are kept as differences from the initial window, which SETTINGS move."""

    __slots__ = (
        "body", "call", "ended", "id", "peer_ended", "received_bytes", "sent", "spent_bytes", "uncredited_bytes",
    )  # fmt: skip

    def __init__(self, stream_id: int, call: Call) -> None:
        self.id, self.call = stream_id, call
        self.body = b""  # what this end sends
        self.sent = 0
        self.spent_bytes = 0  # of the window to send in, less what the peer gave back
        self.received_bytes = 0  # in the window to receive in, less what was given back
        self.uncredited_bytes = 0
        self.ended = self.peer_ended = False


class End:
    name = "end"

    def __init__(self, transport: SimTransport) -> None:
        self.transport = transport
        self.sides: dict[int, Side] = {}
        self.closed_by_peer: set[int] = set()  # reset by the peer: nothing more may come
        self.ended_by_peer: set[int] = set()  # closed in order: neither DATA nor HEADERS may come
        self.gone = False  # the relay has hung up, or this end has
        self.left = False  # this end has hung up
        self.stalled = False
        self.goaway: int | None = None  # the last stream that the peer will look at
        self.send_window = self.receive_window = 65_535
        self.send_initial = self.receive_initial = 65_535
        self.send_frame_bytes = self.receive_frame_bytes = 16_384
        self.uncredited_bytes = 0
        self.announced_window = 65_535
        self.announced: deque[dict[int, int]] = deque()
        self.settings_sent: list[bytes] = []
        self.settings_seen: list[bytes] = []
        self.sequence_sent: list[bytes] = []  # PINGs and extension frames, which must come through in order
        self.sequence_seen: list[bytes] = []
        self.pings: deque[bytes] = deque()
        self._encoder, self._decoder = Encoder(), Decoder(max_header_list_size=1 << 24)
        self._rest = bytearray()
        self._block: tuple[int, int, bytearray] | None = None
        self._counter = 0

    @property
    def is_here(self) -> bool:
        return not (self.left or self.gone)

    # sending

    def write(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        size = len(payload)
        if not self.left:
            self.transport.incoming += _HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload

    def send_settings(self, values: dict[int, int]) -> None:
        self.announced.append(values)
        self.announced_window = values.get(INITIAL_WINDOW_SIZE, self.announced_window)
        payload = b"".join(_SETTING.pack(*pair) for pair in values.items())
        self.settings_sent.append(payload)
        self.write(SETTINGS, 0, 0, payload)

    def send_ping(self) -> Literal[True]:
        self._counter += 1
        payload = self._counter.to_bytes(8)
        self.pings.append(payload)
        self.sequence_sent.append(payload)
        self.write(PING, 0, 0, payload)
        return True

    def send_extension(self, stream: int) -> Literal[True]:
        self._counter += 1
        payload = self._counter.to_bytes(8) + self.name.encode()
        self.sequence_sent.append(payload)
        self.write(EXTENSION, self._counter & 0xFF, stream, payload)
        return True

    def send_headers(self, side: Side, fields: Fields, ends: bool, dice: Dice) -> None:
        """One header block, sometimes padded, with a priority, or in several frames."""
        block = self._encoder.encode(fields, huffman=dice.one_in(8))
        flags = END_STREAM if ends else 0
        style = dice.below(16)
        if style < 12:
            self.write(HEADERS, flags | END_HEADERS, side.id, block)
        elif style == 12:
            self.write(HEADERS, flags | END_HEADERS | PADDED, side.id, b"\3" + block + bytes(3))
        elif style == 13:
            self.write(HEADERS, flags | END_HEADERS | PRIORITY_FLAG, side.id, b"\0\0\0\0\x10" + block)
        else:
            cuts = sorted(dice.below(len(block) + 1) for _ in range(style - 13))
            parts = [block[a:b] for a, b in zip([0, *cuts], [*cuts, len(block)], strict=True)]
            for number, part in enumerate(parts):
                kind, own = (CONTINUATION, 0) if number else (HEADERS, flags)
                self.write(kind, own | (END_HEADERS if number == len(parts) - 1 else 0), side.id, part)
        side.ended = side.ended or ends

    def send_data(self, side: Side, most_bytes: int, padding: int | None, ends: bool) -> bool:
        """The next piece of a stream's body, as its windows allow; ``ends``: END_STREAM goes with the last one."""
        overhead = 0 if padding is None else padding + 1
        left = len(side.body) - side.sent
        room = min(self.send_window, self.send_initial - side.spent_bytes, self.send_frame_bytes) - overhead
        size = min(left, most_bytes, room)
        if room < 0 and (overhead or left):
            if room + overhead < 0 or overhead == 0:
                return False
            padding, overhead, size = None, 0, min(left, most_bytes, room + overhead)
        if size <= 0 < left:
            return False
        size = max(size, 0)
        last = size == left
        piece = side.body[side.sent : side.sent + size]
        flags = END_STREAM if last and ends else 0
        if padding is not None:
            piece, flags = bytes((padding,)) + piece + bytes(padding), flags | PADDED
        side.sent += size
        side.spent_bytes += len(piece)
        self.send_window -= len(piece)
        self.write(DATA, flags, side.id, piece)
        if last and ends:
            side.ended = True
        return True

    def send_reset(self, side: Side, code: int) -> None:
        """What still comes on the stream is taken off the connection's window, and is not looked at."""
        self.sides.pop(side.id, None)
        self.write(RST_STREAM, 0, side.id, code.to_bytes(4))

    def credit_connection(self, size_bytes: int) -> None:
        self.receive_window += size_bytes
        self.write(WINDOW_UPDATE, 0, 0, size_bytes.to_bytes(4))

    def credit_stream(self, side: Side, size_bytes: int) -> None:
        side.received_bytes -= size_bytes
        self.write(WINDOW_UPDATE, 0, side.id, size_bytes.to_bytes(4))

    def credit_all(self) -> bool:
        """Give back all that is owed."""
        did = False
        if self.uncredited_bytes:
            self.credit_connection(self.uncredited_bytes)
            self.uncredited_bytes, did = 0, True
        for side in self.sides.values():
            if side.uncredited_bytes and not side.peer_ended:
                self.credit_stream(side, side.uncredited_bytes)
                did = True
            side.uncredited_bytes = 0
        return did

    def close_if_ended(self, side: Side) -> None:
        if side.ended and side.peer_ended and self.sides.pop(side.id, None) is not None:
            self.ended_by_peer.add(side.id)

    # receiving

    def read(self, size_bytes: int) -> bool:
        """Take what has come; False if nothing has."""
        if not self.is_here:
            return False
        data = self.transport.take(size_bytes)
        if data:
            self._rest += data
            self._cut()
            return True
        if self.transport.ended:
            self.gone = True
            self.on_hang_up()
            return True
        return False

    def _cut(self) -> None:
        rest, position, size = self._rest, 0, len(self._rest)
        while size - position >= 9:
            high, low, kind, flags, stream = _HEADER.unpack_from(rest, position)
            length = high << 8 | low
            check(length <= self.receive_frame_bytes, f"frame of {length} bytes, {self.receive_frame_bytes} allowed")
            end = position + 9 + length
            if end > size:
                break
            self._frame(kind, flags, stream, bytes(rest[position + 9 : end]))
            position = end
        del rest[:position]

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._block is not None:
            check(kind == CONTINUATION and stream == self._block[0], f"frame {kind} inside a header block")
            self._block[2].extend(payload)
            if flags & END_HEADERS:
                _, first, block = self._block
                self._block = None
                self._headers(stream, first, bytes(block))
        elif kind == DATA:
            self._data(stream, flags, payload)
        elif kind == HEADERS:
            payload = _unpadded(flags, payload)[5 if flags & PRIORITY_FLAG else 0 :]
            if flags & END_HEADERS:
                self._headers(stream, flags, payload)
            else:
                self._block = stream, flags, bytearray(payload)
        elif kind == WINDOW_UPDATE:
            self._window_update(stream, int.from_bytes(payload))
        elif kind == RST_STREAM:
            self._reset(stream, int.from_bytes(payload))
        elif kind == SETTINGS:
            self._settings(flags, payload)
        elif kind == PING:
            self._ping(flags, payload)
        elif kind == GOAWAY:
            self.on_goaway(int.from_bytes(payload[:4]), int.from_bytes(payload[4:8]))
        elif kind == EXTENSION:
            self.sequence_seen.append(payload)
        else:
            check(kind == PRIORITY, f"frame of kind {kind}")

    def _headers(self, stream: int, flags: int, block: bytes) -> None:
        fields = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        check(stream not in self.ended_by_peer, f"HEADERS on stream {stream}, which has ended")
        if stream in self.closed_by_peer:
            check(self.may_follow_reset(stream), f"HEADERS on stream {stream}, which the {self.name}'s peer has reset")
            return
        self.on_headers(stream, fields, bool(flags & END_STREAM))

    def _data(self, stream: int, flags: int, payload: bytes) -> None:
        size = len(payload)
        self.receive_window -= size
        check(self.receive_window >= 0, f"DATA of {size} bytes beyond the connection's window")
        self.uncredited_bytes += size
        check(stream not in self.closed_by_peer, f"DATA on stream {stream}, which the {self.name}'s peer has reset")
        check(stream not in self.ended_by_peer, f"DATA on stream {stream}, which has ended")
        side = self.sides.get(stream)
        if side is None:
            check(self.was_opened(stream), f"DATA on idle stream {stream}")
            return
        check(not side.peer_ended, f"DATA on stream {stream} after END_STREAM")
        side.received_bytes += size
        side.uncredited_bytes += size
        room = self.receive_initial - side.received_bytes
        check(size == 0 or room >= 0, f"DATA of {size} bytes, {-room} beyond stream {stream}'s window")
        self.on_data(side, _unpadded(flags, payload), bool(flags & END_STREAM))

    def _window_update(self, stream: int, increment: int) -> None:
        check(increment, f"WINDOW_UPDATE of 0 bytes on stream {stream}")
        if stream == 0:
            self.send_window += increment
            check(self.send_window <= LARGEST_WINDOW_BYTES, "connection's window over 2^31-1")
            self.on_connection_credit()
            return
        check(self.was_opened(stream), f"WINDOW_UPDATE on idle stream {stream}")
        check(stream not in self.closed_by_peer, f"WINDOW_UPDATE on stream {stream}, which was reset")
        side = self.sides.get(stream)
        if side is not None:
            side.spent_bytes -= increment
            check(self.send_initial - side.spent_bytes <= LARGEST_WINDOW_BYTES, f"stream {stream}'s window over 2^31-1")
            self.on_stream_credit(side)

    def _reset(self, stream: int, code: int) -> None:
        check(self.was_opened(stream), f"RST_STREAM on idle stream {stream}")
        check(stream not in self.closed_by_peer, f"RST_STREAM on stream {stream}, which was reset before")
        self.closed_by_peer.add(stream)
        side = self.sides.pop(stream, None)
        if side is not None:
            self.on_reset(side, code)

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & ACK:
            check(self.announced, "SETTINGS acknowledged that were not sent")
            self._acknowledged(self.announced.popleft())
            return
        self.settings_seen.append(payload)
        for identifier, value in _SETTING.iter_unpack(payload):
            if identifier == INITIAL_WINDOW_SIZE:
                self.send_initial = value
            elif identifier == MAX_FRAME_SIZE:
                self.send_frame_bytes = value
            elif identifier == HEADER_TABLE_SIZE:
                self._change_table(value)
        self.write(SETTINGS, ACK, 0)

    def _change_table(self, size_bytes: int) -> None:
        """The next block begins with the smallest size since the last one, and the one in force (RFC 7541 §4.2)."""
        encoder = self._encoder
        if size_bytes != encoder.header_table_size:  # the library forgets a change that is followed by an equal one
            encoder.header_table_size = size_bytes
            changes = encoder.table_size_changes
            changes[:] = [min(changes), changes[-1]] if min(changes) < changes[-1] else changes[-1:]

    def _acknowledged(self, values: dict[int, int]) -> None:
        self.receive_initial = values.get(INITIAL_WINDOW_SIZE, self.receive_initial)
        self.receive_frame_bytes = values.get(MAX_FRAME_SIZE, self.receive_frame_bytes)
        if HEADER_TABLE_SIZE in values:
            self._decoder.max_allowed_table_size = values[HEADER_TABLE_SIZE]

    def _ping(self, flags: int, payload: bytes) -> None:
        check(len(payload) == 8, "PING that is not 8 bytes")
        if flags & ACK:
            check(self.pings and self.pings.popleft() == payload, f"PING {payload!r} acknowledged out of order")
            return
        if self.counts_ping(payload):
            self.sequence_seen.append(payload)
        self.write(PING, ACK, 0, payload)

    # for the two kinds of end

    def counts_ping(self, payload: bytes) -> bool:
        """Is this PING the far end's (and not the relay's own)?"""
        return True

    def may_follow_reset(self, stream: int) -> bool:
        """May a header block follow the peer's RST_STREAM, for the sake of its entries in the table?"""
        return False

    def was_opened(self, stream: int) -> bool:
        raise NotImplementedError

    def on_headers(self, stream: int, fields: Fields, ends: bool) -> None:
        raise NotImplementedError

    def on_data(self, side: Side, payload: bytes, ends: bool) -> None:
        raise NotImplementedError

    def on_reset(self, side: Side, code: int) -> None:
        raise NotImplementedError

    def on_goaway(self, last_stream: int, code: int) -> None:
        raise NotImplementedError

    def on_hang_up(self) -> None:
        """The relay has closed this end's connection."""

    def on_connection_credit(self) -> None:
        """More may be sent on the connection."""

    def on_stream_credit(self, side: Side) -> None:
        """More may be sent on a stream."""


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    check(payload and payload[0] < len(payload), "padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]


def described(data: bytes) -> str:
    """Frames that an end has just sent, for a reader."""
    told, position = [], 0
    while position + 9 <= len(data) and not data.startswith(b"PRI", position):
        high, low, kind, flags, stream = _HEADER.unpack_from(data, position)
        size = high << 8 | low
        name = _NAMES[kind] if kind < len(_NAMES) else str(kind)
        payload = data[position + 9 : position + 9 + size]
        shown = f" {payload.hex()}" if kind in (SETTINGS, WINDOW_UPDATE, GOAWAY, RST_STREAM) and payload else ""
        told.append(f"[{name} stream {stream} flags {flags:#x}, {size} bytes{shown}]")
        position += 9 + size
    return " ".join(told)
