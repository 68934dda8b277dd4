"""Keys that wait to be looked at: each once however often it was added, and never in two hands.

What is added while somebody works on it is looked at again afterwards; what fails is tried again later and later.
Fair: first come, first served. Invariants: a key that was added is handed out after that moment, unless the queue is
closed; between two keys of a worker other work of the event loop has its pass, also where looking at one waits for
nothing. ``close`` lets what already waits be handed out and nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from random import random as uniform
from typing import Generic, TypeVar

from koord.kube.backoff import Backoff, Random
from koord.kube.errors import KubeError

_log = logging.getLogger(__name__)
BACKOFF = Backoff(base_s=0.1, max_s=60.0)
K = TypeVar("K", bound=Hashable)
Handle = Callable[[K], Awaitable[float | None]]
"""Looks at a key; says after how many seconds to look again, None if nothing is due."""


class QueueClosed(Exception):
    """Nothing waits, and nothing will."""


class WorkQueue(Generic[K]):
    """For the event loop that runs. ``name``: of the work, for the log."""

    def __init__(self, name: str, backoff: Backoff = BACKOFF, random: Random = uniform) -> None:
        self.name = name
        self._backoff, self._random = backoff, random
        self._waiting: dict[K, None] = {}
        self._at_work: set[K] = set()
        self._again: set[K] = set()
        self._later: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()
        self._is_closed = False
        self.handled = 0
        self.failed = 0

    def __len__(self) -> int:
        """How many keys wait for a worker."""
        return len(self._waiting)

    def add(self, key: K) -> None:
        if not self._is_closed:
            self._enter(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """The sooner of two calls counts; ``add`` in between takes nothing away."""
        if self._is_closed:
            return
        if delay_s <= 0:
            self._enter(key)
            return
        loop = asyncio.get_running_loop()
        planned = self._later.get(key)
        if planned is not None:
            if planned.when() <= loop.time() + delay_s:
                return
            planned.cancel()
        self._later[key] = loop.call_later(delay_s, self._ripen, key)

    def retry(self, key: K) -> float:
        """Adds the key after a delay that grows from one failure to the next: the delay in seconds."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = self._backoff.delay_s(self._failures[key], self._random)
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """The key's next failure is the first."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The key that waits longest; it is the caller's until ``done``. Raises QueueClosed."""
        while not self._waiting:
            if self._is_closed and not self._again:
                raise QueueClosed
            self._changed.clear()
            await self._changed.wait()
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._at_work.add(key)
        return key

    def done(self, key: K) -> None:
        self._at_work.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._waiting[key] = None
        self._changed.set()

    def close(self) -> None:
        self._is_closed = True
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()
        self._changed.set()

    async def work(self, handle: Handle[K], workers: int = 1) -> None:
        """Hands keys to ``workers`` concurrent calls of ``handle`` until the queue is closed and empty."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(handle))

    async def _work(self, handle: Handle[K]) -> None:
        while True:
            try:
                key = await self.get()
            except QueueClosed:
                return
            try:
                await self._look(handle, key)
            finally:
                self.done(key)
            await asyncio.sleep(0)

    async def _look(self, handle: Handle[K], key: K) -> None:
        self.handled += 1
        try:
            again_s = await handle(key)
        except KubeError as error:
            self.failed += 1
            _log.warning("%s %s, again in %.1f s: %s", self.name, key, self.retry(key), error)
        except Exception:  # noqa: BLE001 - the root of the work on one key, which must not end that on others
            self.failed += 1
            _log.exception("%s %s, again in %.1f s", self.name, key, self.retry(key))
        else:
            self.forget(key)
            if again_s is not None:
                self.add_after(key, again_s)

    def _ripen(self, key: K) -> None:
        del self._later[key]
        self._enter(key)

    def _enter(self, key: K) -> None:
        if key in self._at_work:
            self._again.add(key)
        else:
            self._waiting[key] = None
            self._changed.set()
