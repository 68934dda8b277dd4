"""How many requests a process sends: ``qps`` each second in the long run, ``burst`` at once after a rest.

Invariant: callers go in the order in which they came; a caller that is cancelled gives its place back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class RateLimit:
    """A token bucket. ``waited_s``: what all callers waited, in sum."""

    def __init__(
        self,
        qps: float,
        burst: int,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"qps {qps:g} and burst {burst} let no request through")
        self._qps, self._burst, self._clock, self._sleep = qps, burst, clock, sleep
        self._tokens, self._at_s = float(burst), clock()
        self.waited_s = 0.0

    async def take(self) -> None:
        """Returns when one request more may be sent."""
        delay_s = self._reserve()
        if delay_s <= 0:
            return
        self.waited_s += delay_s
        try:
            await self._sleep(delay_s)
        except asyncio.CancelledError:
            self._tokens += 1
            raise

    def _reserve(self) -> float:
        """Tokens below zero are those of the callers that wait."""
        now_s = self._clock()
        self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._qps)
        self._at_s = now_s
        self._tokens -= 1
        return -self._tokens / self._qps
