"""Works on large messages in a thread beside the event loop.

A message is scanned field by field in Python: microseconds for a usual one, most of a second for the environment of a
pod among ten thousand services. All other calls would stand still meanwhile. One thread, so that several large requests
cannot take the interpreter from the loop together. Invariant: the work is pure; small work is done at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

LARGE_BYTES = 64 * 1024  # about ten milliseconds' work if its fields are as small as they can be
T = TypeVar("T")


class LargeMessageWorker:
    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def __call__(self, size_bytes: int, work: Callable[[], T]) -> T:
        """Returns the result of ``work``, which looks at so many bytes."""
        if size_bytes <= LARGE_BYTES:
            return work()
        if self._thread is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - most proxies never need it

            self._thread = ThreadPoolExecutor(1, "large messages")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
