"""Which resctrl groups there are, as it changes: they are made and removed by others at any time.

A pod that is told to join a cgroup that is gone does not start, so this may not wait for the next load of the rules
file. inotify tells of directories made and removed below the mount; that the mount itself came or went shows only in
the directory's identity, which ``look_again`` compares, and where the kernel has no watch left its time does.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from koord.service.inotify import DirectoryWatch

_log = logging.getLogger(__name__)


class ResctrlWatch:
    """Calls ``changed()`` on ``loop`` when a cgroup below ``root`` came or went, perhaps more often."""

    def __init__(self, loop: asyncio.AbstractEventLoop, root: Path, changed: Callable[[], object]) -> None:
        self._loop, self._root, self._changed = loop, root, changed
        self._watch: DirectoryWatch | None = None
        self._seen = _signature(root)
        self._arm()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def look_again(self) -> None:
        """Calls ``changed`` if the mount has come, gone or been replaced, or if something happened without an event."""
        before, self._seen = self._seen, _signature(self._root)
        if before == self._seen:
            return
        if before is None or self._seen is None or before[:2] != self._seen[:2]:
            self.close()
            self._arm()
        self._changed()

    def _arm(self) -> None:
        self._watch = None
        try:
            self._watch = DirectoryWatch(self._loop, str(self._root), self._on_change)
        except OSError as error:
            _log.warning("%s is not watched, it is looked at every few seconds: %s", self._root, error)

    def _on_change(self, names: frozenset[str]) -> None:
        self._seen = _signature(self._root)
        self._changed()


def _signature(directory: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(directory)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
