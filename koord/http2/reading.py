"""A connection that is read READ_BYTES at a time, so that no peer keeps the others of its event loop waiting.

A read of everything that has come is 200 KiB on a unix socket, and of empty frames that is 20,000, which take half a
second. Invariants: between two reads of a connection that had more to give, every other connection has its turn; what
waits stays in the kernel, on the sender's account, and costs no memory here.
"""

from __future__ import annotations

import asyncio
import threading

READ_BYTES = 16 << 10


class _Buffer(threading.local):
    """What is read into. A read is over before the next one of its thread begins, so that one is enough."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES))


_buffer = _Buffer()


class FairProtocol(asyncio.BufferedProtocol):
    """Subclasses handle what has come, and stop reading for one turn of the event loop. It belongs to its thread."""

    def __init__(self) -> None:
        self._buffer = _buffer.view

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._buffer[:nbytes].tobytes())
        if nbytes == READ_BYTES:
            self.pause_for_turn()

    def data_received(self, data: bytes) -> None:
        raise NotImplementedError

    def pause_for_turn(self) -> None:
        """Read nothing until the event loop has gone round once."""
        raise NotImplementedError
