"""How many requests are under way at once: as many as make the server faster, half when it says that it is too much.

A server that has more to do than it can do answers 429, or not in time. Additive increase and multiplicative decrease
share it fairly with its other clients, as TCP shares a line. Long before that requests wait in the server for each
other: then more of them bring nothing, and cost connections. How many wait is estimated as TCP Vegas does (Brakmo and
Peterson, 1995): of ``size`` requests, the part by which an answer takes longer than the fastest.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from koord.kube.errors import APIError, KubeError, Unreachable

FIRST, LEAST, MOST = 16.0, 2.0, 512.0
NARROW = 8.0
"""Slowness alone makes it no smaller: a few requests that wait keep each CPU of the server busy."""

FEW_WAIT, MANY_WAIT = 4.0, 8.0
_SMOOTHING = 1 / 16
_EPOCH = 1000
"""The fastest of this many answers, and of as many before them, counts: a server may become slower for good."""

_TOO_MANY = 429


class RequestWindow:
    """``size``: how many there may be. It changes by one a window of answers, and is halved once a window of refusals.
    ``monotonic_s``: the clock by which answers are fast or slow.
    """

    def __init__(self, first: float = FIRST, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.size = first
        self.under_way = 0
        self._monotonic_s = monotonic_s
        self._usual_s = 0.0
        self._fastest_s = self._fastest_before_s = float("inf")
        self._answers = 0
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
        begun_s = self._monotonic_s()
        try:
            yield
        except KubeError as error:
            if is_overload(error):
                self._refused()
            else:
                self._answered(self._monotonic_s() - begun_s)
            raise
        else:
            self._answered(self._monotonic_s() - begun_s)
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

    def _answered(self, taken_s: float) -> None:
        self._answers_until_halving -= 1
        waiting = self._waiting_in_server(taken_s)
        if waiting < FEW_WAIT:
            self.size = min(MOST, self.size + 1 / self.size)
        elif waiting > MANY_WAIT and self.size > NARROW:
            self.size = max(NARROW, self.size - 1 / self.size)

    def _waiting_in_server(self, taken_s: float) -> float:
        """Estimates how many requests of a full window wait for others."""
        self._usual_s += (taken_s - self._usual_s) * (_SMOOTHING if self._answers else 1.0)
        self._answers += 1
        if self._answers % _EPOCH == 0:
            self._fastest_before_s, self._fastest_s = self._fastest_s, float("inf")
        self._fastest_s = min(self._fastest_s, taken_s)
        fastest_s = min(self._fastest_s, self._fastest_before_s)
        return self.size * (1 - fastest_s / self._usual_s) if self._usual_s > 0 else 0.0

    def _refused(self) -> None:
        self._answers_until_halving -= 1
        if self._answers_until_halving <= 0:
            self.size = max(LEAST, self.size / 2)
            self._answers_until_halving = self.size


def is_overload(error: KubeError) -> bool:
    """Returns whether the server has too much to do, or may have."""
    return isinstance(error, Unreachable) or (isinstance(error, APIError) and error.status == _TOO_MANY)
