"""Waiting for what others do: tasks, threads and processes. What does not come is an error that names it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

HANG_S = 60.0
"""Only a test that hangs takes so long, however busy the machine is."""
_PAUSE_S = 0.002


async def until(holds: Callable[[], object], what: str = "", within_s: float = HANG_S) -> None:
    """Return once ``holds()`` is true; other tasks run meanwhile. Raises AssertionError after ``within_s``."""
    try:
        async with asyncio.timeout(within_s):
            while not holds():  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError as error:
        raise AssertionError(f"not within {within_s:g} s: {what or holds}") from error


def wait_until(holds: Callable[[], object], what: str = "", within_s: float = HANG_S) -> None:
    """As ``until``, for threads and processes; an OSError means "not yet". Raises AssertionError after ``within_s``."""
    deadline_s = time.monotonic() + within_s
    while not _is_true(holds):
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what or holds}"
        time.sleep(10 * _PAUSE_S)


def _is_true(holds: Callable[[], object]) -> bool:
    try:
        return bool(holds())
    except OSError:
        return False
