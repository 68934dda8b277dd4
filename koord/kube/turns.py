"""One piece of work at a time, and those whom it is done for take turns: who brings much waits behind his own.

A server that works on whatever is there first belongs to whoever sends most. Here each source waits for one piece of
every other one at most, and for all of its own that came before. Invariants: there is one holder at most; a turn begins
in a pass of the event loop of its own, so that other work of the loop comes between two of them; who is cancelled while
he waits takes nobody's turn with him.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """For the event loop that runs."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By source, in the order in which their turns come."""

    @asynccontextmanager
    async def turn(self, source: str) -> AsyncIterator[None]:
        """Of ``source``, for as long as the block lasts."""
        if self._is_taken:
            await self._called(source)
        self._is_taken = True
        try:
            await asyncio.sleep(0)
            yield
        finally:
            self._call_next()

    async def _called(self, source: str) -> None:
        called = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(source, deque()).append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():
                self._call_next()
            raise

    def _call_next(self) -> None:
        """Futures of who was cancelled are still among them."""
        while self._waiting:
            source = next(iter(self._waiting))
            queue = self._waiting.pop(source)
            called = queue.popleft()
            if queue:
                self._waiting[source] = queue
            if not called.done():
                called.set_result(None)
                return
        self._is_taken = False
