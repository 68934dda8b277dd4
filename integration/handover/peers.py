"""The runtime, which can go away, and the hook server that holds calls, on both sides of the proxies."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

from integration.fuzz.hookservers import HookServer, edit
from integration.fuzz.peers import Runtime

LONGEST_HOLD_S = 0.3


class Backend:
    """The honest runtime on ``path``. ``away``: from when to when it was not there, by ``time.monotonic``."""

    def __init__(self, path: Path) -> None:
        self.away: list[tuple[float, float]] = []
        self._path = path
        self._connections: set[Runtime] = set()
        self._listener: asyncio.AbstractServer | None = None

    async def come(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(self._accept, str(self._path))

    def go(self) -> None:
        """Every connection ends."""
        assert self._listener is not None
        self._listener.close()
        self._path.unlink(missing_ok=True)
        for connection in self._connections:
            connection.abort()
        self._connections.clear()

    async def leave_for(self, seconds: float) -> None:
        began = time.monotonic()
        self.away.append((began, math.inf))
        self.go()
        try:
            await asyncio.sleep(seconds)
        finally:
            await self.come()
            self.away[-1] = (began, time.monotonic())

    def _accept(self) -> Runtime:
        connection = Runtime()
        self._connections.add(connection)
        return connection


class Holding(HookServer):
    """Answers each call with the edit, after at most ``LONGEST_HOLD_S``."""

    def __init__(self, chance: Random) -> None:
        super().__init__(edit)
        self._chance = chance

    def reply(self, stream: int) -> None:
        delay_s = self._chance.uniform(0, LONGEST_HOLD_S)
        asyncio.get_running_loop().call_later(delay_s, super().reply, stream)


@contextlib.asynccontextmanager
async def holding(path: Path, chance: Random) -> AsyncIterator[None]:
    """The hook server for the time of the block."""
    listener = await asyncio.get_running_loop().create_unix_server(lambda: Holding(chance), str(path))
    try:
        yield
    finally:
        listener.close()
