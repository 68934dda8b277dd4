"""How many requests are under way at once: one more a window of answers, half when the server says that it is too much.

A server that has more to do than it can do answers 429, or not in time. Additive increase and multiplicative decrease
share it fairly with its other clients, as TCP shares a line. How long answers take says nothing: requests that come
together are written to etcd together, so a server is the faster, and its work for each the less, the more there are,
up to some thirty.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from koord.kube.errors import APIError, KubeError, Unreachable

FIRST, LEAST, MOST = 32.0, 2.0, 96.0
"""The client has 128 connections, and other requests than these."""
_TOO_MANY = 429


class RequestWindow:
    """``size``: how many there may be."""

    def __init__(self, first: float = FIRST) -> None:
        self.size = first
        self.under_way = 0
        self._answers_until_halving = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether requests wait for a place."""
        return bool(self._waiting)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Within the block one request is under way; what it raises tells how the server is."""
        await self._enter()
        try:
            yield
        except KubeError as error:
            if is_overload(error):
                self._refused()
            else:
                self._answered()
            raise
        else:
            self._answered()
        finally:
            self._leave()

    async def _enter(self) -> None:
        """Returns once there is a place, which is taken then; who came first is first."""
        if self.under_way < self.size and not self._waiting:
            self.under_way += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        """Gives the place to the next, and further ones that there are by now."""
        self.under_way -= 1
        while self._waiting and self.under_way < self.size:
            turn = self._waiting.popleft()
            if not turn.done():
                self.under_way += 1
                turn.set_result(None)

    def _answered(self) -> None:
        self._answers_until_halving -= 1
        self.size = min(MOST, self.size + 1 / self.size)

    def _refused(self) -> None:
        self._answers_until_halving -= 1
        if self._answers_until_halving <= 0:
            self.size = max(LEAST, self.size / 2)
            self._answers_until_halving = self.size


def is_overload(error: KubeError) -> bool:
    """Returns whether the server has too much to do, or may have."""
    return isinstance(error, Unreachable) or (isinstance(error, APIError) and error.status == _TOO_MANY)
