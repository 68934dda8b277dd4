"""Calls ticks: at a steady beat, and in between when something changed or is urgent.

Invariant: two ticks never overlap, and begin at least ``GAP_S`` apart; an urgent one, which samples, at least
``SAMPLES_GAP_S`` after the samples before and as long before the next beat, or else that beat is its answer. A beat
that was missed (a slow tick, a machine that was suspended) is left out, not made up for.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from enum import StrEnum

GAP_S = 0.02
SAMPLES_GAP_S = 0.2
"""Rates over less are noise; and a lasting urgency must not sample more often."""


class TickReason(StrEnum):
    """Why the loop ticks: BEAT samples what is due; CHANGE samples nothing; URGENT samples first, due or not."""

    BEAT = "beat"
    CHANGE = "change"
    URGENT = "urgent"


class TickScheduler:
    """``interval_s`` between two beats."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._woken = asyncio.Event()
        self._is_urgent = self._is_changed = False

    def wake(self) -> None:
        """Asks for a tick as soon as possible, by the samples that are there: something changed."""
        self._is_changed = True
        self._woken.set()

    def urge(self) -> None:
        """Asks for a tick as soon as possible, by new samples: something is happening."""
        self._is_urgent = True
        self._woken.set()

    async def run(self, tick: Callable[[TickReason], Awaitable[None]]) -> None:
        """Calls ``tick`` for ever."""
        loop = asyncio.get_running_loop()
        due_s, sampled_s = loop.time(), -math.inf
        while True:
            reason = await self._next(due_s, sampled_s + SAMPLES_GAP_S)
            if reason is TickReason.BEAT:
                late_s = max(0.0, loop.time() - due_s)
                due_s += self._interval_s * (1 + late_s // self._interval_s)
            if reason is not TickReason.CHANGE:
                sampled_s = loop.time()
            await tick(reason)
            await asyncio.sleep(GAP_S)

    async def _next(self, due_s: float, may_sample_s: float) -> TickReason:
        """Waits until the next tick is due, and returns its reason. A tick serves every lesser reason as well."""
        loop = asyncio.get_running_loop()
        while True:
            self._woken.clear()
            now_s = loop.time()
            if now_s >= due_s:
                self._is_urgent = self._is_changed = False
                return TickReason.BEAT
            has_room = max(now_s, may_sample_s) <= due_s - SAMPLES_GAP_S
            if self._is_urgent and has_room and now_s >= may_sample_s:
                self._is_urgent = self._is_changed = False
                return TickReason.URGENT
            if self._is_changed:
                self._is_changed = False
                return TickReason.CHANGE
            await self._woken_before((may_sample_s if self._is_urgent and has_room else due_s) - now_s)

    async def _woken_before(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            pass
