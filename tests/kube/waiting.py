"""Waiting for what another task does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LONGEST_S = 5.0


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(LONGEST_S):
        while not holds():  # noqa: ASYNC110 - another task's work
            await asyncio.sleep(0.002)
