"""One piece of work at a time, for clients that take turns: a client with much work waits behind its own.

A server that takes work in the order of its arrival is filled by the client that sends most. Here each network
(`network_of`) waits for at most one piece of every other network, each address in it for one piece of every other
address, and for all of its own that came before. A client that has kept others waiting for long may be put behind: it
gets one of ``_AHEAD`` turns if others want the rest. Invariants: there is one holder at most; between two turns other
work of the event loop has its pass, unless both together are as short as ``PASS_S``; each second of turns on the CPU is
followed by ``rest`` seconds without one, ``OWED_S`` of them later; a client that is cancelled while it waits takes no
other client's turn along, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from koord.model.clientnetwork import network_of

PASS_S, OWED_S = 0.005, 0.05
"""What comes in a burst, as honest clients' work does, waits for neither passes nor timers."""
_AHEAD = 8


class Turns:
    """For the event loop that runs. ``clock``: seconds; ``cpu_clock``: those of the thread on the CPU."""

    def __init__(
        self,
        rest: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._rest, self._clock, self._cpu_clock = rest, clock, cpu_clock
        self._rested_s = 0.0
        """When the loop has had its rest after all turns."""
        self._pass_s = 0.0
        """What turns have taken in this pass of the loop."""
        self._is_taken = False
        self._ahead, self._behind = _Line(), _Line()
        self._ahead_in_a_row = 0

    @asynccontextmanager
    async def turn(self, source: str, is_behind: bool = False) -> AsyncIterator[None]:
        """Gives ``source`` its turn, for as long as the block lasts."""
        if self._is_taken:
            await self._called(self._behind if is_behind else self._ahead, source)
        self._is_taken = True
        try:
            rest_s = self._rested_s - OWED_S - self._clock()
            if rest_s > 0 or self._pass_s >= PASS_S:
                await asyncio.sleep(max(0.0, rest_s))
            begin_s, cpu_begin_s = self._clock(), self._cpu_clock()
            try:
                yield
            finally:
                used_s = self._cpu_clock() - cpu_begin_s
                self._rested_s = max(self._rested_s, begin_s) + (1 + self._rest) * used_s
                self._count_in_pass(used_s)
        finally:
            self._call_next()

    def are_others_ahead(self, source: str) -> bool:
        """Returns whether a client of another network than ``source`` waits that is not put behind."""
        return self._ahead.has_others(network_of(source))

    def _count_in_pass(self, used_s: float) -> None:
        if not self._pass_s:
            asyncio.get_running_loop().call_soon(self._end_pass)
        self._pass_s += used_s

    def _end_pass(self) -> None:
        self._pass_s = 0.0

    async def _called(self, line: _Line, source: str) -> None:
        called = asyncio.get_running_loop().create_future()
        line.add(source, called)
        try:
            await called
        except asyncio.CancelledError:
            if called.cancelled():
                line.remove(source, called)
            else:
                self._call_next()
            raise

    def _call_next(self) -> None:
        called = None
        if self._ahead_in_a_row < _AHEAD - 1:
            called = self._ahead.take()
        if called is None:
            self._ahead_in_a_row = 0
            called = self._behind.take() or self._ahead.take()
        else:
            self._ahead_in_a_row += 1
        self._is_taken = called is not None
        if called is not None:
            called.set_result(None)


class _Line:
    """Who waits: by network, and by source in it, both in the order in which their turns come."""

    def __init__(self) -> None:
        self._networks: dict[str, dict[str, deque[asyncio.Future[None]]]] = {}

    def add(self, source: str, called: asyncio.Future[None]) -> None:
        self._networks.setdefault(network_of(source), {}).setdefault(source, deque()).append(called)

    def take(self) -> asyncio.Future[None] | None:
        """The next one who is not cancelled yet; both his network and his source come last then."""
        while self._networks:
            called = self._pop()
            if not called.done():
                return called
        return None

    def _pop(self) -> asyncio.Future[None]:
        network = next(iter(self._networks))
        sources = self._networks.pop(network)
        source = next(iter(sources))
        queue = sources.pop(source)
        called = queue.popleft()
        if queue:
            sources[source] = queue
        if sources:
            self._networks[network] = sources
        return called

    def remove(self, source: str, called: asyncio.Future[None]) -> None:
        """Forgets ``called``, which is cancelled and may have been passed over meanwhile."""
        network = network_of(source)
        sources = self._networks.get(network, {})
        queue = sources.get(source, deque())
        if called not in queue:
            return
        queue.remove(called)
        if not queue:
            del sources[source]
        if not sources:
            del self._networks[network]

    def has_others(self, network: str) -> bool:
        return len(self._networks) > (network in self._networks)
