"""Relays one direction of a connection: bytes in, whole frames out.

It cuts the bytes into frames, shows each frame to the handler of its kind, if there is one, and passes on everything
that no handler replaced, in runs as long as possible and without copying. Invariants: the other side gets whole frames,
with header blocks atomic, in the order in which they came; peers take turns (`FairProtocol`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from koord.http2.frames import Frame, FrameError, split
from koord.http2.reading import FairProtocol
from runtimeproxy.relay.direction import Direction
from runtimeproxy.relay.pair import ConnectionPair
from runtimeproxy.relay.peerwriter import TURN, PeerWriter

# Returns None to pass the frame on, or what goes on in its place (b"" = nothing).
Handler = Callable[[bytes, Frame], bytes | None]


class FrameRelay(FairProtocol):
    """Reads ``peer`` and passes on to ``direction``; calls ``on_lost`` when the peer's transport is gone."""

    def __init__(
        self, pair: ConnectionPair, peer: PeerWriter, direction: Direction, on_lost: Callable[[PeerWriter], None]
    ) -> None:
        super().__init__()
        self.pair = pair
        self.peer = peer
        self.direction = direction
        self.unusual = False  # the bytes are not, or not only, frames
        self._on_lost = on_lost
        self._handlers: dict[int, Handler] = {}
        self._rest = bytearray()  # the begin of a frame: bytes alone, however many reads brought them
        self._need_bytes = 0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.peer.transport = cast(asyncio.Transport, transport)
        if self.pair.ended.done():  # the runtime has gone before its client was read
            self.peer.transport.close()
            return
        self.peer.open()

    def data_received(self, data: bytes) -> None:
        if self._need_bytes:
            self._rest += data
            if len(self._rest) < self._need_bytes:
                return
            data = bytes(self._rest)
            self._rest.clear()
        try:
            while data:
                used_bytes, self._need_bytes = self._take(data)
                data = data[used_bytes:]
                if self._need_bytes:
                    self._rest += data
                    return
        except FrameError as error:
            self._need_bytes = 0
            self.direction.relaying = False
            self.pair.fail(error)

    def pause_for_turn(self) -> None:
        self.peer.pause(TURN, True)
        self.pair.loop.call_soon(self.peer.pause, TURN, False)

    def _take(self, data: bytes) -> tuple[int, int]:
        """Relays the begin of ``data``; returns (bytes used, bytes needed to go on). Raises FrameError."""
        if self.unusual:
            return self.consume(data)
        frames, used_bytes, need_bytes = split(data, 0, self.direction.max_frame_bytes)
        if used_bytes:
            self.relay(data, frames, used_bytes)
        return used_bytes, need_bytes

    def flush(self) -> None:
        """Passes on the bytes that waited for the rest of their frame."""
        data = bytes(self._rest)
        self._rest.clear()
        self._need_bytes = 0
        if data:
            self.direction.forward(data)

    def pause_writing(self) -> None:
        self.congested(True)

    def resume_writing(self) -> None:
        self.congested(False)

    def congested(self, full: bool) -> None:
        """Stops or resumes reading the ends that make us write to the peer, which does not read fast enough.

        Answers make us write to the client, and so do its own frames (credit, answers to what it sends), so neither end
        is read while the client does not read. Only the client's frames make us write to the runtime: held requests
        stay here meanwhile (`Uplink.pump`). This cannot become a deadlock, as each wait ends when one end reads its own
        socket, for which it needs nothing from us. (An HTTP/2 end that reads only after its writes stands still with
        any peer that credits late.)
        """
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        self.peer.lose()
        self._on_lost(self.peer)

    # relaying

    def consume(self, data: bytes) -> tuple[int, int]:
        """Relays bytes that are no frames, while `unusual`; returns (bytes used, bytes needed). Raises FrameError."""
        raise NotImplementedError

    def relay(self, data: bytes, frames: list[Frame], used_bytes: int) -> None:
        """Passes ``data[:used_bytes]`` on."""
        self.relay_with(self._handlers, data, frames, used_bytes)

    def relay_with(self, handlers: dict[int, Handler], data: bytes, frames: list[Frame], used_bytes: int) -> None:
        """Passes ``data[:used_bytes]`` on, with what the handlers put in the place of frames or inject behind them."""
        out: list[bytes] | None = None
        run = 0
        direction = self.direction
        injected = direction.injected
        direction.relaying = True
        for frame in frames:
            handler = handlers.get(frame[0])
            if handler is None:
                continue
            replacement = handler(data, frame)
            if replacement is None and not injected:
                continue
            if out is None:
                out = []
            _, _, _, begin, end = frame
            out.append(data[run : end if replacement is None else begin])
            if replacement:
                out.append(replacement)
            if injected:
                out += injected
                injected.clear()
            run = end
        direction.relaying = False
        if out is None:
            direction.forward(data if used_bytes == len(data) else data[:used_bytes])
            return
        out.append(data[run:used_bytes])
        whole = b"".join(out)
        if whole:
            direction.forward(whole)
