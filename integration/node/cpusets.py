"""The CPU sets of running containers, and when they were written, by the kernel's own events (cgroup v1)."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from integration.harness import cgroups
from koord.service.inotify import Inotify

IN_MODIFY = 0x00000002


def of(groups: Iterable[str]) -> set[str]:
    """The different CPU sets among ``groups``."""
    return {cgroups.read(cgroup).cpuset_cpus for cgroup in groups}


class Writes:
    """Unix times of the writes to the CPU sets of ``groups`` while the block runs, in order."""

    def __init__(self, groups: Iterable[str]) -> None:
        self.times_s: list[float] = []
        self._inotify = Inotify()
        mount = cgroups.hierarchies()["cpuset"]
        for cgroup in groups:
            self._inotify.add(str(mount / cgroup.lstrip("/") / "cpuset.cpus"), IN_MODIFY)
        self._over, self._end = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="cpuset writes")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._end)
        self._thread.join()
        os.close(self._over)
        self._inotify.close()

    def _watch(self) -> None:
        while True:
            ready, _, _ = select.select([self._inotify.fileno(), self._over], [], [])
            if self._over in ready:
                return
            at_s = time.time()
            self.times_s += [at_s for _ in self._inotify.read()]
