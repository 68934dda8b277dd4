"""When to tick: at a steady beat, and at once when something changed in between.

Invariant: two ticks never overlap, and begin at least ``GAP_S`` apart; a beat that was missed (a slow tick, a machine
that was suspended) is left out, not made up for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

GAP_S = 0.02


class Pace:
    """``interval_s`` between two beats."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Something changed: tick as soon as may be."""
        self._woken.set()

    async def run(self, tick: Callable[[bool], Awaitable[None]]) -> None:
        """Call ``tick`` for ever; its argument says whether it is a beat (True) or a wake-up in between."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            is_beat = not await self._woken_before(due_s - loop.time())
            self._woken.clear()
            if is_beat:
                late_s = max(0.0, loop.time() - due_s)
                due_s += self._interval_s * (1 + late_s // self._interval_s)
            await tick(is_beat)
            await asyncio.sleep(GAP_S)

    async def _woken_before(self, timeout_s: float) -> bool:
        if timeout_s <= 0:
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        return True
