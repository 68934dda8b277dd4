"""Measures how long the event loop keeps its work waiting: the delay that all other work may cost a call.

A timer that is due ``PERIOD_S`` after an iteration of the loop began is late by as long as the loop stood still since,
or waited for a CPU. Work arms it: streams that end, streams that begin and are tapped or held, and the status pages.
Invariants: without work there is no timer, so an idle node pays nothing; the loop's clock counts from the beginning of
an iteration, so a stall in the iteration that armed the timer is seen too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from runtimeproxy.metrics import Metrics

PERIOD_S = 0.02


class LoopLag:
    """Measures the delay. ``is_busy``: there is work in flight that will come back to the loop by itself."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        is_busy: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._metrics = metrics
        self._is_busy = is_busy
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._worked = False

    @property
    def is_armed(self) -> bool:
        return self._timer is not None

    def arm(self) -> None:
        """Begins to measure: the loop does something now."""
        self._worked = True
        if self._timer is None:
            self._begin()

    def _begin(self) -> None:
        self._worked = False
        self._due_s = self._loop.time() + PERIOD_S
        self._timer = self._loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        late_s = max(self._clock() - self._due_s, 0.0)
        self._metrics.loop_lag_seconds.observe(late_s)
        self._metrics.loop_lag_longest_seconds = max(self._metrics.loop_lag_longest_seconds, late_s)
        self._timer = None
        if self._worked or self._is_busy():
            self._begin()
