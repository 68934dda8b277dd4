"""Measures stall time of kubelet's tiers and of latency-sensitive containers, second by second.

Strategies that protect a latency-sensitive container must see within a second that it waits; the kernel's own averages
are over ten and more. So it reads only the totals in the pressure files, which is exact over any span and cheap.
Invariant: a cgroup without pressure files, or with PSI switched off in it, leaves only itself without samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from koord.host import psi
from koord.host.psi import RESOURCES
from koord.host.reader import KeptFiles
from qosd.model.metric import Kind, Scope
from qosd.sense.host import Clock, CollectorHost
from qosd.sense.pressure import DEGREES, CgroupPressure
from qosd.sense.rates import per_second
from qosd.sense.row import NO_SAMPLE, TICK_S, Column, Row
from qosd.sense.targets import SampledCgroup

_UNKNOWN = (NO_SAMPLE, NO_SAMPLE)


def _stall(resource: str, degree: str) -> Column:
    tasks = "a task" if degree == "some" else "every non-idle task"
    waited = f"Share of every second for which {tasks} waited for {resource}, exactly"
    return Column("us/s", f"{waited}; of tiers and latency-sensitive containers.", Kind.RATE)


class StallRow(Row):
    cpu_stall_some_us_per_s: Column = _stall("cpu", "some")
    cpu_stall_full_us_per_s: Column = _stall("cpu", "full")
    memory_stall_some_us_per_s: Column = _stall("memory", "some")
    memory_stall_full_us_per_s: Column = _stall("memory", "full")
    io_stall_some_us_per_s: Column = _stall("io", "some")
    io_stall_full_us_per_s: Column = _stall("io", "full")


_row = StallRow.in_order([f"{resource}_stall_{degree}_us_per_s" for resource, degree in product(RESOURCES, DEGREES)])
STALLS = StallRow.by_scope((Scope.TIER, Scope.CONTAINER), "stalls", TICK_S)


class StallsCollector(CgroupPressure):
    """The collector ``stalls``."""

    name = "stalls"
    period_s = TICK_S
    panels = tuple(row.panel for row in STALLS.values())

    def __init__(self, host: CollectorHost) -> None:
        super().__init__(STALLS, lambda paths: StallGauge(paths, host.files, host.clock), host, _is_protected)


def _is_protected(cgroup: SampledCgroup) -> bool:
    return cgroup.scope is Scope.TIER or cgroup.latency_sensitive


class StallGauge:
    """The three pressure files of one cgroup."""

    __slots__ = ("_before", "_clock", "_files", "paths")

    def __init__(self, paths: Sequence[str], files: KeptFiles, clock: Clock) -> None:
        self.paths, self._files, self._clock = tuple(paths), files, clock
        self._before: dict[str, tuple[int, int, tuple[int, int | None]]] = {}

    def sample(self) -> StallRow | None:
        """Returns the row; None if none of the files is there."""
        figures: tuple[float, ...] = ()
        for path in self.paths:
            figures += self._stalls(path)
        return _row(figures) if self._before else None

    def _stalls(self, path: str) -> tuple[float, float]:
        """Returns (some, full) since the last reading; NaN if that was of another file of the same name."""
        before = self._before.pop(path, None)
        try:
            data = self._files.read(path)
            if data is None:
                return _UNKNOWN
            totals = psi.totals_us(path, data)
        except (OSError, ValueError):
            return _UNKNOWN
        now_ns, inode = self._clock(), self._files.inode(path)
        self._before[path] = (now_ns, inode, totals)
        if before is None or before[1] != inode:
            return _UNKNOWN
        elapsed_ns, (some_us, full_us) = now_ns - before[0], before[2]
        full = NO_SAMPLE if full_us is None or totals[1] is None else per_second(full_us, totals[1], elapsed_ns)
        return per_second(some_us, totals[0], elapsed_ns), full
