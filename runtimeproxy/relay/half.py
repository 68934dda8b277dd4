"""One direction of a connection: bytes in, whole frames out.

A half cuts what arrives into frames, lets a handler look at those it knows, and passes on everything that no
handler replaced, in runs as long as possible and without copying. Invariants: what is written to the other side is
whole frames, with header blocks atomic, in the order in which they came; a connection that was closed is gone after
LINGER_S, whether its peer reads or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from koord.http2.frames import DEFAULT_MAX_FRAME_BYTES, Frame, FrameError, split
from koord.http2.link import HIGH_WATER_BYTES, LINGER_S

if TYPE_CHECKING:
    from runtimeproxy.relay.connection import Connection

# Returns None to pass the frame on, or what goes on in its place (b"" = nothing).
Handler = Callable[[bytes, Frame], bytes | None]


class Half(asyncio.Protocol):
    """Reads from ``transport``; what it passes on goes to `forward`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transport: asyncio.Transport | None = None
        self.max_frame_bytes = DEFAULT_MAX_FRAME_BYTES
        self._handlers: dict[int, Handler] = {}
        self._rest = bytearray()  # the begin of a frame; of many reads only the bytes are kept
        self._need_bytes = 0
        self._pauses: set[str] = set()
        self._relaying = False
        self._descriptor = -1  # while its end is watched
        self._abort: asyncio.TimerHandle | None = None
        self.unusual = False  # what comes is not, or not only, frames
        self._injected: list[bytes] = []
        self._early: list[bytes] = []  # what the other side sent before this one was there

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.connection.ended.done():  # the runtime has gone before its client was read
            self.transport.close()
            return
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        for data in self._early:
            self.transport.write(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self._need_bytes:
            self._rest += data
            if len(self._rest) < self._need_bytes:
                return
            data = bytes(self._rest)
            self._rest.clear()
        try:
            while data:
                used, self._need_bytes = self._take(data)
                data = data[used:]
                if self._need_bytes:
                    self._rest += data
                    return
        except FrameError as error:
            self._need_bytes = 0
            self._relaying = False
            self.connection.fail(error)

    def _take(self, data: bytes) -> tuple[int, int]:
        """Relay what ``data`` begins with: (bytes used, bytes needed to go on). Raises FrameError."""
        if self.unusual:
            return self.consume(data)
        frames, used, need_bytes = split(data, 0, self.max_frame_bytes)
        if used:
            self.relay(data, frames, used)
        return used, need_bytes

    def flush(self) -> None:
        """Pass on what waited for the rest of its frame."""
        data = bytes(self._rest)
        self._rest.clear()
        self._need_bytes = 0
        if data:
            self.forward(data)

    def pause_writing(self) -> None:
        self.connection.congested(self, True)

    def resume_writing(self) -> None:
        self.connection.congested(self, False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch_end(False)
        if self._abort is not None:
            self._abort.cancel()
        self.connection.lost(self)

    # relaying

    def consume(self, data: bytes) -> tuple[int, int]:
        """Relay what is no frames, while `unusual`: (bytes used, bytes needed to go on). Raises FrameError."""
        raise NotImplementedError

    def relay(self, data: bytes, frames: list[Frame], used: int) -> None:
        """Pass ``data[:used]`` on."""
        self.relay_with(self._handlers, data, frames, used)

    def relay_with(self, handlers: dict[int, Handler], data: bytes, frames: list[Frame], used: int) -> None:
        """Pass ``data[:used]`` on, with what the handlers put in the place of frames or inject behind them."""
        out: list[bytes] | None = None
        run = 0
        self._relaying = True
        for frame in frames:
            handler = handlers.get(frame[0])
            if handler is None:
                continue
            replacement = handler(data, frame)
            if replacement is None and not self._injected:
                continue
            if out is None:
                out = []
            _, _, _, begin, end = frame
            out.append(data[run : end if replacement is None else begin])
            if replacement:
                out.append(replacement)
            if self._injected:
                out += self._injected
                self._injected.clear()
            run = end
        self._relaying = False
        if out is None:
            self.forward(data if used == len(data) else data[:used])
            return
        out.append(data[run:used])
        whole = b"".join(out)
        if whole:
            self.forward(whole)

    def inject(self, frames: bytes) -> None:
        """Send whole frames of our own where the relayed ones go, behind those that came before."""
        if self._relaying:
            self._injected.append(frames)
        else:
            self.forward(frames)

    def forward(self, data: bytes) -> None:
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """Send whole frames to this half's own peer."""
        if self.transport is None:
            self._early.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def pause(self, reason: str, paused: bool) -> None:
        """Stop reading for this reason, or give the reason up; reading goes on when there is none left."""
        was = bool(self._pauses)
        (self._pauses.add if paused else self._pauses.discard)(reason)
        if self.transport is None or self.transport.is_closing() or was == bool(self._pauses):
            return
        if self._pauses:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
        self._watch_end(bool(self._pauses))

    def _watch_end(self, watched: bool) -> None:
        """Whoever is not read may go unnoticed."""
        hangups = self.connection.policy.hangups
        if watched and self.transport is not None and (sock := self.transport.get_extra_info("socket")) is not None:
            self._descriptor = sock.fileno()
            hangups.watch(self.connection.loop, self._descriptor, self._gone)
        elif self._descriptor >= 0:
            hangups.forget(self._descriptor, self._gone)
            self._descriptor = -1

    def _gone(self) -> None:
        """The peer has closed its end; who is to read what it said last has a moment to do so."""
        self._abort = self.connection.loop.call_later(LINGER_S, self._abort_unread)

    def _abort_unread(self) -> None:
        if self.transport is not None and self._pauses:
            self.transport.abort()

    def close(self) -> None:
        """Close behind what was written; a peer that does not read that in time loses it."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()
            self._abort = self.connection.loop.call_later(LINGER_S, self.transport.abort)
