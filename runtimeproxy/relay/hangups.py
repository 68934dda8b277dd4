"""Notices that a peer that is not being read has gone.

A transport whose reading is paused does not notice that its peer has closed, so a pair whose runtime has gone would
stay until its client reads. The kernel reports hang-ups even to an epoll instance that asks for no event, and the event
loop can wait for that instance.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress


class Hangups:
    """Watches file descriptors; each hang-up is reported once."""

    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        self._watched: dict[int, Callable[[], None]] = {}

    def watch(self, loop: asyncio.AbstractEventLoop, descriptor: int, on_hangup: Callable[[], None]) -> None:
        """Calls ``on_hangup`` when the peer has closed its end; never where the kernel has no descriptor for that."""
        if self._watched.get(descriptor) == on_hangup:
            return
        with suppress(OSError):
            if self._epoll is None:
                self._epoll = select.epoll()
                loop.add_reader(self._epoll.fileno(), self._read_events, self._epoll)
            self._watched[descriptor] = on_hangup
            self._epoll.register(descriptor, 0)  # EPOLLHUP and EPOLLERR are always told

    def forget(self, descriptor: int, on_hangup: Callable[[], None]) -> None:
        """Stops watching. The descriptor may be closed by now, or belong to another connection already."""
        if self._watched.get(descriptor) == on_hangup:
            self._drop(descriptor)

    def _read_events(self, epoll: select.epoll) -> None:
        for descriptor, _ in epoll.poll(0):
            on_hangup = self._watched.get(descriptor)
            self._drop(descriptor)
            if on_hangup is not None:
                on_hangup()

    def _drop(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)
        if self._epoll is not None:
            with suppress(OSError):
                self._epoll.unregister(descriptor)
