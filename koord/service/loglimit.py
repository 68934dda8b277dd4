"""Limits the log lines that strangers can cause.

A log that grows with a stranger's requests fills the disk and hides the rest. Invariant: one logger writes no more than
``lines`` in ``period_s``; the next line says how many were left out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LINES = 20
PERIOD_S = 60.0


class LineLimit(logging.Filter):
    """Filters the lines of one logger. ``clock``: seconds."""

    def __init__(
        self, lines: int = LINES, period_s: float = PERIOD_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._lines, self._period_s, self._clock = lines, period_s, clock
        self._begin_s, self._come, self._left_out = clock(), 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        now_s = self._clock()
        if now_s - self._begin_s >= self._period_s:
            self._begin_s, self._come = now_s, 0
        if self._come >= self._lines:
            self._left_out += 1
            return False
        self._come += 1
        if self._left_out:
            record.msg, record.args = f"{record.getMessage()} ({self._left_out} lines were left out)", ()
            self._left_out = 0
        return True


def limit(*names: str) -> None:
    """Limits the loggers of these names, each by itself; one that is limited already stays as it is."""
    for name in names:
        logger = logging.getLogger(name)
        if not any(isinstance(each, LineLimit) for each in logger.filters):
            logger.addFilter(LineLimit())
