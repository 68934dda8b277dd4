"""When the policy's file is read again: when it has settled, not in the middle of being saved.

Editors rename the old file away and make a new one, or truncate it and write; mounted ConfigMaps are swapped. So a
change counts when the file has been the same for ``SETTLED_S``, and its absence, or emptiness, after ``ABSENT_S``.
Invariant: every change is followed by a call of ``changed`` unless another change follows it within these times.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from koord.service.inotify import FileWatch

SETTLED_S = 0.2
ABSENT_S = 5.0


class PolicyWatch:
    """Calls ``changed()`` on ``loop``. Construct first, then read the file. Raises OSError as ``FileWatch``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        file: Path,
        changed: Callable[[], None],
        settled_s: float = SETTLED_S,
        absent_s: float = ABSENT_S,
    ) -> None:
        self._loop, self._file, self._changed = loop, file, changed
        self._settled_s, self._absent_s = settled_s, absent_s
        self._timer: asyncio.TimerHandle | None = None
        self._seen = _signature(file)
        self._absent_since_s: float | None = None
        self._watch = FileWatch(loop, str(file), self._touched)

    def close(self) -> None:
        self._watch.close()
        if self._timer is not None:
            self._timer.cancel()

    def _touched(self) -> None:
        self._seen = _signature(self._file)
        if self._seen is not None:
            self._absent_since_s = None
        self._look_in(self._settled_s)

    def _look_in(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        before, self._seen = self._seen, _signature(self._file)
        if self._seen is None:
            left_s = self._left_s()
            if left_s > 0:
                self._look_in(left_s)
                return
        elif before != self._seen:
            self._look_in(self._settled_s)
            return
        self._timer = self._absent_since_s = None
        self._changed()

    def _left_s(self) -> float:
        """Returns how long the absence has to last before it counts."""
        now_s = self._loop.time()
        if self._absent_since_s is None:
            self._absent_since_s = now_s
        return self._absent_since_s + self._absent_s - now_s


def _signature(file: Path) -> tuple[int, ...] | None:
    """Returns values that change when the file does; None if it is empty or absent."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    if status.st_size == 0:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode
