"""Writes to one of the two peers of a pair, the client or the runtime, and decides whether it is read.

Invariants: what is written before the peer is there goes out first once it is; a peer that is not read is noticed all
the same when it hangs up (`Hangups`); one that was closed is gone after LINGER_S, whether it reads or not.
"""

from __future__ import annotations

import asyncio

from koord.http2.link import HIGH_WATER_BYTES, LINGER_S
from runtimeproxy.relay.hangups import Hangups

TURN = "turn"
"""The reason of a short pause: the other ends have their turn."""


class PeerWriter:
    """Writes to ``transport``, which is None until the peer is there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hangups: Hangups) -> None:
        self._loop = loop
        self._hangups = hangups
        self.transport: asyncio.Transport | None = None
        self.is_lost = False
        self._early: list[bytes] = []  # what the other side sent before this one was there
        self._pauses: set[str] = set()
        self._descriptor = -1  # while its end is watched
        self._abort: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Sends what waited: the transport is there."""
        assert self.transport is not None
        self.transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        for data in self._early:
            self.transport.write(data)
        self._early.clear()

    def write(self, data: bytes) -> None:
        """Sends whole frames."""
        if self.transport is None:
            self._early.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def pause(self, reason: str, paused: bool) -> None:
        """Stops reading for this reason, or gives the reason up; reading goes on when there is none left."""
        if paused == (reason in self._pauses):
            return
        was = bool(self._pauses)
        (self._pauses.add if paused else self._pauses.discard)(reason)
        if self.transport is None or self.transport.is_closing():
            return
        if was != bool(self._pauses):
            if paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        self._watch(bool(self._pauses - {TURN}))

    def close(self) -> None:
        """Closes behind the bytes that were written; a peer that does not read them in time loses them."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()
            self._abort = self._loop.call_later(LINGER_S, self.transport.abort)

    def lose(self) -> None:
        """Notes that the transport is gone."""
        self.is_lost = True
        self._watch(False)
        if self._abort is not None:
            self._abort.cancel()

    def _watch(self, unread: bool) -> None:
        if unread == (self._descriptor >= 0):
            return
        if unread and self.transport is not None and (sock := self.transport.get_extra_info("socket")) is not None:
            self._descriptor = sock.fileno()
            self._hangups.watch(self._loop, self._descriptor, self._hung_up)
        elif not unread:
            self._hangups.forget(self._descriptor, self._hung_up)
            self._descriptor = -1

    def _hung_up(self) -> None:
        """Aborts in a moment: the peer has closed its end, and its last bytes are read by then, or never."""
        self._abort = self._loop.call_later(LINGER_S, self._abort_unread)

    def _abort_unread(self) -> None:
        if self.transport is not None and self._pauses - {TURN}:
            self.transport.abort()
