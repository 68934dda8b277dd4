"""A connected socket between the relay and one end, with buffers that can be full and ends that can go.

``incoming`` is on its way to the relay; what the relay writes fills the socket up to ``capacity_bytes``, then the
transport's own buffer, whose size pauses and resumes the relay as asyncio's transports do.
"""

from __future__ import annotations

import asyncio

from koord.http2.reading import FairProtocol
from tests.support.simloop import SimLoop


class SimTransport(asyncio.Transport):
    def __init__(self, loop: SimLoop, capacity_bytes: int, high_water_bytes: int) -> None:
        super().__init__()
        self.incoming = bytearray()
        self.incoming_ended = False
        self._loop = loop
        self._protocol: FairProtocol | None = None
        self._socket = bytearray()
        self._buffer = bytearray()
        self._capacity_bytes, self._high_bytes = capacity_bytes, high_water_bytes
        self._reading = True
        self._paused = False
        self._closing = False
        self._losing = False
        self._peer_gone = False
        self.lost = False

    def connect(self, protocol: FairProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    # asyncio.Transport

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if self._closing:
            return
        if self._peer_gone:
            self._lose(BrokenPipeError())
            return
        self._buffer += data
        self._fill()
        if not self._paused and len(self._buffer) > self._high_bytes:
            self._paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The run has its own limits, low enough to be met."""

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._buffer:
                self._lose(None)

    def abort(self) -> None:
        self._buffer.clear()
        self._lose(None)

    # what the scheduler and the far end do

    def deliver(self, size_bytes: int) -> bool:
        """Give the relay so many bytes at most; False if it has nothing to read, or does not read."""
        if self._protocol is None or not self._reading or self._closing:
            return False
        if self.incoming:
            data = bytes(self.incoming[:size_bytes])
            del self.incoming[:size_bytes]
            self._protocol.data_received(data)
            if self.incoming:
                self._protocol.pause_for_turn()
            return True
        if self.incoming_ended:
            if not self._protocol.eof_received():
                self.close()
            return True
        return False

    def take(self, size_bytes: int) -> bytes:
        """What the far end reads."""
        data = bytes(self._socket[:size_bytes])
        del self._socket[:size_bytes]
        if self._buffer:
            self._fill()
            if self._closing and not self._buffer:
                self._lose(None)
        if self._paused and len(self._buffer) <= self._high_bytes // 4:
            self._paused = False
            assert self._protocol is not None
            self._protocol.resume_writing()
        return data

    @property
    def unread_bytes(self) -> int:
        """By the far end."""
        return len(self._socket)

    @property
    def ended(self) -> bool:
        """Has the far end read all, and the relay hung up?"""
        return self.lost and not self._socket

    def hang_up(self) -> None:
        """The far end goes: it reads no more, and what it has sent can still be read."""
        self.incoming_ended = True
        self._peer_gone = True
        self._socket.clear()
        if self._buffer:
            self._buffer.clear()
            self._lose(BrokenPipeError())

    def _fill(self) -> None:
        room = self._capacity_bytes - len(self._socket)
        if room > 0:
            self._socket += self._buffer[:room]
            del self._buffer[:room]

    def _lose(self, error: Exception | None) -> None:
        self._closing = True
        if not self._losing:
            self._losing = True
            self._loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        self.lost = True
        if self._protocol is not None:
            self._protocol.connection_lost(error)
