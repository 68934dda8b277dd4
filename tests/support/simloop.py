"""The event loop of a simulation: nothing happens in it but what its driver lets happen, and its clock is the driver's.

Callbacks run in the order in which they were asked for, timers by their due time, as in asyncio; when the next one
runs, between which other events, is the driver's choice. An exception in a callback ends the run: a real loop
would log it, or abort the transport.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from itertools import count
from typing import Any


class _Task(asyncio.Task[Any]):
    """Tasks in a set are in the order of their numbers, not of where they are in memory: who is cancelled first."""

    _numbers = count()

    def __new__(cls, *_: Any, **__: Any) -> _Task:
        made = super().__new__(cls)
        made.number = next(cls._numbers)
        return made

    number: int

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.AbstractEventLoop):
    def __init__(self) -> None:
        self.ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = count()
        self._coroutines: list[Coroutine[Any, Any, Any]] = []
        self._now_s = 1000.0

    # what asyncio uses of a loop

    def time(self) -> float:
        return self._now_s

    def get_debug(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer stays in the heap until its time."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        self._coroutines.append(coro)
        return _Task(coro, loop=self, **options)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A question that nobody waits for any more may have been answered by an exception, which nobody then sees."""

    # what the driver does

    def run_one(self) -> bool:
        """Run the next callback; False if none is ready."""
        while self.ready:
            handle = self.ready.popleft()
            if not handle.cancelled():
                handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                return True
        return False

    def run_ready(self, most: int = sys.maxsize) -> int:
        """Run callbacks until none is ready, or ``most`` have run. Returns how many."""
        count = 0
        while count < most and self.run_one():
            count += 1
        return count

    def abandon(self) -> None:
        """Nothing more happens: who still waits, or has not begun, never goes on."""
        for coroutine in self._coroutines:
            coroutine.close()

    @property
    def has_timer(self) -> bool:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return bool(self._timers)

    def pass_time(self, seconds: float) -> bool:
        """Let time pass until the next timer is due, and make it ready, or by ``seconds``; False if none was due."""
        until_s = self._now_s + seconds
        if self.has_timer and self._timers[0][0] <= until_s:
            return self.fire_timer()
        self._now_s = until_s
        return False

    def fire_timer(self) -> bool:
        """Let time pass until the next timer is due, and make it ready; False if there is none."""
        if not self.has_timer:
            return False
        when, _, handle = heapq.heappop(self._timers)
        self._now_s = max(self._now_s, when)
        self.ready.append(handle)
        return True
