"""Queues DATA on its way to the runtime, under the runtime's windows.

In the direction client → runtime the proxy is a flow-control end point: the runtime's connection window is spent here,
and the stream windows of streams that were held. DATA of passing streams goes first and waits only while the connection
window is empty; frames that must follow it (trailers, later header blocks) wait behind it. The stream window of a
passing stream belongs to client and runtime.

Invariant: the sum of DATA bytes put out never exceeds 65,535 plus the runtime's credit; no stream that was held
ever exceeds its own window. A byte is given back to the client when it has gone out (`Accounts`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from koord.http2.frames import (
    DATA,
    DEFAULT_MAX_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
    END_STREAM,
    PADDED,
    frame,
    frame_header,
)
from runtimeproxy.relay.accounts import Accounts
from runtimeproxy.relay.stream import Stream

_FULL_ITEMS = 4096
_FULL_BYTES = 1 << 20  # header blocks are not under any window


class _Waiting:
    """One item of the passing queue: DATA, which may be split, or whole frames that must keep their place.

    ``owner``: the stream whose window is ours to keep; its bytes were given back to the client before.
    """

    __slots__ = ("flags", "is_block", "is_data", "on_sent", "owner", "payload", "size_bytes", "stream")

    def __init__(
        self,
        stream: int,
        payload: bytes,
        *,
        flags: int = 0,
        is_data: bool = False,
        is_block: bool = False,
        owner: Stream | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> None:
        self.on_sent = on_sent
        self.stream = stream
        self.owner = owner
        self.payload = payload
        self.size_bytes = len(payload)  # as it was queued
        self.flags = flags
        self.is_data = is_data or owner is not None
        self.is_block = is_block


class Outbox:
    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self.window_bytes = DEFAULT_WINDOW_BYTES
        self.max_frame_bytes = DEFAULT_MAX_FRAME_BYTES
        self.passing: deque[_Waiting] = deque()  # empty: frames that pass may go out at once
        self._blocks = 0  # header blocks in the queue: later ones may not overtake them
        self._items: Counter[int] = Counter()  # stream → how many items wait
        self._bytes = 0  # of all items
        self._full = False
        self._released: dict[int, Stream] = {}

    @property
    def waiting(self) -> bool:
        """Whether more credit could let anything go out."""
        return bool(self.passing or self._released)

    @property
    def keeps_header_blocks(self) -> bool:
        return self._blocks > 0

    def waits(self, stream: int) -> bool:
        """Returns whether anything of this stream waits in the passing queue."""
        return stream in self._items

    def queue_data(self, stream: int, flags: int, payload: bytes, padding_bytes: int) -> None:
        """Queues DATA of a passing stream; its padding is dropped here, and given back to the client at once."""
        self._queue(_Waiting(stream, payload, flags=flags & ~PADDED, is_data=True))
        if padding_bytes:
            self._accounts.credit_connection(padding_bytes)
            self._accounts.credit_passing(stream, padding_bytes)

    def queue_block(self, stream: int, frames: bytes, on_sent: Callable[[], None] | None = None) -> None:
        """Queues a header block, or an acknowledgement of SETTINGS: it keeps its place among what waits."""
        self._queue(_Waiting(stream, frames, is_block=True, on_sent=on_sent))

    def queue_rest(self, stream: Stream, trailers: bytes) -> None:
        """Queues the rest of a released stream's DATA, then the trailers by which the client has ended it.

        Its DATA now goes before all that comes later on the connection, since header blocks keep their order.
        """
        self._released.pop(stream.id, None)
        if stream.left_bytes:
            self._queue(_Waiting(stream.id, stream.take(stream.left_bytes), owner=stream))
        self.queue_block(stream.id, trailers)

    def queue_frame(self, stream: int, frames: bytes, on_sent: Callable[[], None] | None = None) -> None:
        """Queues frames that must follow their stream's header block (RST_STREAM); calls ``on_sent`` as they go out."""
        self._queue(_Waiting(stream, frames, on_sent=on_sent))

    def _queue(self, item: _Waiting) -> None:
        self.passing.append(item)
        self._items[item.stream] += 1
        self._blocks += item.is_block
        self._bytes += item.size_bytes
        if not self._full and (len(self.passing) > _FULL_ITEMS or self._bytes > _FULL_BYTES):
            self._full = True
            self._accounts.outbox_full(True)

    def _unqueued(self, item: _Waiting) -> None:
        self._blocks -= item.is_block
        self._bytes -= item.size_bytes
        self._items[item.stream] -= 1
        if not self._items[item.stream]:
            del self._items[item.stream]
        if self._full and len(self.passing) < _FULL_ITEMS // 2 and self._bytes < _FULL_BYTES // 2:
            self._full = False
            self._accounts.outbox_full(False)

    def release(self, stream: Stream) -> None:
        """Lets a held stream go on: with what there is of its data, and what will be added to it."""
        self._released[stream.id] = stream

    def whole(self, stream: Stream, body: bytes) -> bytes | None:
        """Returns all of a held stream's DATA in one frame, as sent; None if anything waits or a window is small."""
        size = len(body)
        if self.passing or not stream.client_ended:
            return None
        if size > min(self.window_bytes, stream.window_bytes, self.max_frame_bytes):
            return None
        self.window_bytes -= size
        stream.window_bytes -= size
        stream.end_sent = True
        return frame(DATA, END_STREAM, stream.id, body)

    def forget(self, stream: int) -> None:
        """Drops the DATA of a stream that was reset. Header blocks stay, for the peer's table."""
        self._released.pop(stream, None)
        if stream not in self._items:
            return
        dropped = [item for item in self.passing if item.stream == stream and item.is_data]
        self.passing = deque(item for item in self.passing if item.stream != stream or not item.is_data)
        for item in dropped:
            self._unqueued(item)
            if item.owner is None:
                self._accounts.credit_connection(len(item.payload))

    def pump(self) -> list[bytes]:
        """Returns whole frames that may go to the runtime now."""
        out: list[bytes] = []
        self._pump_passing(out)
        if not self.passing:
            for stream in list(self._released.values()):
                self._pump_released(stream, out)
        return out

    def _pump_passing(self, out: list[bytes]) -> None:
        while self.passing:
            item = self.passing[0]
            if not item.is_data:
                out.append(item.payload)
                if item.on_sent is not None:
                    item.on_sent()
            elif not self._pump_item(item, out):
                return
            self.passing.popleft()
            self._unqueued(item)

    def _pump_item(self, item: _Waiting, out: list[bytes]) -> bool:
        """Sends of one item what the windows allow; True if that was all."""
        owner = item.owner
        while True:
            room = self.window_bytes if owner is None else min(self.window_bytes, owner.window_bytes)
            take = max(0, min(len(item.payload), room, self.max_frame_bytes))
            rest = item.payload[take:]
            if take == 0 and rest:
                return False
            out.append(frame(DATA, item.flags & ~END_STREAM if rest else item.flags, item.stream, item.payload[:take]))
            item.payload = rest
            self.window_bytes -= take
            if owner is None:
                self._accounts.credit_connection(take)
            else:
                owner.window_bytes -= take
                self._accounts.account(owner, -take)
            if not rest:
                return True

    def _pump_released(self, stream: Stream, out: list[bytes]) -> None:
        while stream.data:
            room = min(self.window_bytes, stream.window_bytes, self.max_frame_bytes)
            if room <= 0:
                return
            piece = stream.take(room)
            take = len(piece)
            ends = stream.client_ended and not stream.data
            out.append(frame_header(take, DATA, END_STREAM if ends else 0, stream.id))
            out.append(piece)
            stream.window_bytes -= take
            self.window_bytes -= take
            stream.end_sent = ends
            self._accounts.account(stream, -take)
            self._give_back(stream, take)
        if stream.client_ended and not stream.end_sent:
            out.append(frame_header(0, DATA, END_STREAM, stream.id))
            stream.end_sent = True
        if stream.end_sent:
            del self._released[stream.id]

    def _give_back(self, stream: Stream, size_bytes: int) -> None:
        size_bytes = min(size_bytes, stream.uncredited_bytes)
        if size_bytes and not stream.client_ended:
            stream.uncredited_bytes -= size_bytes
            self._accounts.credit_stream(stream, size_bytes)
