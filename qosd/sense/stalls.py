"""Stall time of kubelet's tiers and of latency-sensitive containers, second by second.

What protects a latency-sensitive container must see within a second that it waits; the kernel's own averages look back
ten. So only the totals of its pressure files are read, which is exact over any span and cheap. Invariant: a cgroup
without pressure files, or with PSI switched off in it, costs its own samples only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from koord.host import psi
from koord.host.cgroup import Tree
from koord.host.reader import KeptFiles
from qosd.sense import table
from qosd.sense.meters import Clock, path_of
from qosd.sense.metric import NO_SAMPLE, Panel, Scope
from qosd.sense.pressure import must_have_psi
from qosd.sense.rates import per_second
from qosd.sense.store import Row
from qosd.sense.targets import PerGroup
from qosd.sense.tick import Batch, Tick

_UNKNOWN = (NO_SAMPLE, NO_SAMPLE)


class Stalls:
    """The collector ``stalls``. ``proc_root`` tells whether the kernel keeps PSI at all."""

    name = "stalls"
    period_s = table.TICK_S
    panels: Sequence[Panel] = tuple(table.STALLS.values())

    def __init__(self, tree: Tree, files: KeptFiles, clock: Clock, proc_root: Path) -> None:
        self._tree, self._proc_root = tree, proc_root
        self._meters = PerGroup(
            make=lambda group: Meter(
                [path_of(tree, group.path, f"{resource}.pressure") for resource in table.PRESSURES], files, clock
            ),
            end=lambda meter: files.drop(meter.paths),
            wanted=lambda group: group.scope is Scope.TIER or group.latency_sensitive,
        )

    def collect(self, tick: Tick) -> Batch:
        meters = self._meters.of(tick.targets)
        batch = []
        for scope, panel in table.STALLS.items():
            rows = ((subject, meter.sample()) for subject, meter in meters.get(scope, ()))
            batch.append((panel, {subject: row for subject, row in rows if row is not None}))
        if not any(rows for _, rows in batch):
            must_have_psi(self._proc_root, self._tree)
        return batch

    def close(self) -> None:
        self._meters.close()


class Meter:
    """The three pressure files of one cgroup."""

    __slots__ = ("_before", "_clock", "_files", "paths")

    def __init__(self, paths: Sequence[str], files: KeptFiles, clock: Clock) -> None:
        self.paths, self._files, self._clock = tuple(paths), files, clock
        self._before: dict[str, tuple[int, int, tuple[int, int | None]]] = {}

    def sample(self) -> Row | None:
        """(some, full) in us/s of each file; None if there is none of them."""
        row: tuple[float, ...] = ()
        for path in self.paths:
            row += self._of(path)
        return row if self._before else None

    def _of(self, path: str) -> tuple[float, float]:
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
