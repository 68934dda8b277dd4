"""What nobody waits for, done a moment later and all together.

To count and to log a call takes as long as to answer it, and done at once it takes the CPU from whoever was just given
the answer. A moment later it disturbs nobody, and what several calls left is done with warm caches. Invariants: it is
done in the order in which it came, and not later than ``DELAY_S``; ``flush`` does it now. A process that is killed
loses what it had put off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

DELAY_S = 0.1
MOST = 1000  # pieces of work that are put off
_log = logging.getLogger(__name__)


class Leisure:
    """Called with a function and its arguments; the loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, function: Callable[..., object], *arguments: object) -> None:
        self._work.append((function, arguments))
        if self._timer is None:
            self._timer = self._loop.call_later(DELAY_S, self.flush)
        elif len(self._work) >= MOST:
            self.flush()

    def flush(self) -> None:
        """Do now what was put off; what raises is logged, and the rest is done all the same."""
        if self._timer is not None:
            self._timer.cancel()
        work, self._work, self._timer = self._work, [], None
        for function, arguments in work:
            try:
                function(*arguments)
            except Exception:  # noqa: BLE001 - the root of this work
                _log.exception("what was put off could not be done")
