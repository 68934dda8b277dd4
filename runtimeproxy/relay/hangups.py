"""Notices that a peer has gone which is not being read.

A transport whose reading is paused hears nothing of its end, so a pair whose runtime has gone would stay for as long
as its client does not read. The kernel does tell, to an epoll that asks for nothing else; and that epoll is itself
something that the event loop can wait for.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress


class Hangups:
    """``watch`` and ``forget`` take file descriptors; each is told of once."""

    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        self._gone: dict[int, Callable[[], None]] = {}

    def watch(self, loop: asyncio.AbstractEventLoop, descriptor: int, gone: Callable[[], None]) -> None:
        """Call ``gone`` when the peer has closed its end; never where the kernel has no descriptor left for that."""
        if self._gone.get(descriptor) == gone:
            return
        with suppress(OSError):
            if self._epoll is None:
                self._epoll = select.epoll()
                loop.add_reader(self._epoll.fileno(), self._told, self._epoll)
            self._gone[descriptor] = gone
            self._epoll.register(descriptor, 0)  # EPOLLHUP and EPOLLERR are always told

    def forget(self, descriptor: int, gone: Callable[[], None]) -> None:
        """Watch no more. The descriptor may be closed by now, or belong to another connection already."""
        if self._gone.get(descriptor) == gone:
            self._drop(descriptor)

    def _told(self, epoll: select.epoll) -> None:
        for descriptor, _ in epoll.poll(0):
            gone = self._gone.get(descriptor)
            self._drop(descriptor)
            if gone is not None:
                gone()

    def _drop(self, descriptor: int) -> None:
        self._gone.pop(descriptor, None)
        if self._epoll is not None:
            with suppress(OSError):
                self._epoll.unregister(descriptor)
