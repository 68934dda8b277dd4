"""PSI of the node, and of containers, pods, tiers and host applications.

The kernel's averages are taken as they are; ``total`` becomes exact stall time per second. On a cgroup v1 node the
files are in the v2 tree beside it. A kernel that has no ``full`` line for the CPU yields no sample there. Invariant:
a cgroup without pressure files (or with PSI switched off in it) costs its own samples only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from koord.host import psi
from koord.host.cgroup import Tree
from koord.host.psi import Stall
from koord.host.reader import KeptFiles
from qosd.sense import table
from qosd.sense.meters import Clock, path_of
from qosd.sense.metric import NO_SAMPLE, Panel
from qosd.sense.rates import per_second
from qosd.sense.store import Row
from qosd.sense.targets import PerGroup
from qosd.sense.tick import Batch, NotApplicable, Tick

_NOTHING: tuple[float, ...] = (NO_SAMPLE,) * 4


class Pressure:
    """The collector ``pressure``, of cgroups. ``proc_root`` tells whether the kernel keeps PSI at all."""

    name = "pressure"
    period_s = table.SLOW_S
    panels: Sequence[Panel] = tuple(table.PRESSURE.values())

    def __init__(self, tree: Tree, files: KeptFiles, clock: Clock, proc_root: Path) -> None:
        self._proc_root, self._tree = proc_root, tree
        self._gauges = PerGroup(
            make=lambda group: Gauge(
                [path_of(tree, group.path, f"{resource}.pressure") for resource in table.PRESSURES], files, clock
            ),
            end=lambda gauge: files.drop(gauge.paths),
        )

    def collect(self, tick: Tick) -> Batch:
        batch = [(table.PRESSURE[scope], _rows(gauges)) for scope, gauges in self._gauges.of(tick.targets).items()]
        if not any(rows for _, rows in batch):
            must_have_psi(self._proc_root, self._tree)
        return batch

    def close(self) -> None:
        self._gauges.close()


class NodePressure:
    """The collector ``node_pressure``: /proc/pressure."""

    name = "node_pressure"
    period_s = table.TICK_S
    panels: Sequence[Panel] = (table.NODE_PRESSURE,)

    def __init__(self, files: KeptFiles, clock: Clock, proc_root: Path) -> None:
        self._files, self._proc_root = files, proc_root
        self._gauge = Gauge([str(proc_root / "pressure" / name) for name in table.PRESSURES], files, clock)

    def collect(self, tick: Tick) -> Batch:
        sample = self._gauge.sample()
        if sample is None:
            must_have_psi(self._proc_root)
            return []
        return [(table.NODE_PRESSURE, {"": sample})]

    def close(self) -> None:
        self._files.drop(self._gauge.paths)


def must_have_psi(proc_root: Path, tree: Tree | None = None) -> None:
    """Raises NotApplicable where the kernel keeps no PSI, or none of the cgroups of ``tree``."""
    if not (proc_root / "pressure/cpu").exists():
        raise NotApplicable(f"no {proc_root}/pressure: the kernel has no PSI, or was booted with psi=0")
    if tree is not None and tree.version == 1 and tree.unified is None:
        raise NotApplicable("cgroup v1 without a v2 tree beside it: no pressure files")


class Gauge:
    """The three pressure files of one object, as a row of a pressure panel."""

    __slots__ = ("_clock", "_files", "_resources", "paths")

    def __init__(self, paths: Sequence[str], files: KeptFiles, clock: Clock) -> None:
        self.paths, self._files, self._clock = tuple(paths), files, clock
        self._resources = [_Resource() for _ in paths]

    def sample(self) -> Row | None:
        """None if there is none of the files."""
        kept: tuple[float, ...] = ()
        newest: tuple[float, ...] = ()
        found = False
        for path, resource in zip(self.paths, self._resources, strict=True):
            try:
                data = self._files.read(path)
                resource.take(path, data, self._files.inode(path), self._clock())
                found = found or data is not None
            except (OSError, ValueError):
                resource.lose()
            kept += resource.kept
            newest += resource.newest
        return kept + newest if found else None


class _Resource:
    """One pressure file: (stall µs/s, avg10) of some and full in ``kept``, (avg60, avg300) of both in ``newest``."""

    __slots__ = ("_at", "_before", "_inode", "_quiet", "_text", "kept", "newest")

    def __init__(self) -> None:
        self._at = self._inode = 0
        self.lose()

    def lose(self) -> None:
        """Nothing is known: the next reading is a first one."""
        self._text: bytes | None = None
        self._before: psi.Pressure | None = None
        self.kept = self.newest = self._quiet = _NOTHING

    def take(self, path: str, text: bytes | None, inode: int, at_ns: int) -> None:
        """Raises ParseError."""
        if text is None or inode != self._inode:
            self.lose()
            self._inode = inode
        elapsed, self._at = at_ns - self._at, at_ns
        if text is None:
            return
        if text == self._text:
            self.kept = self._quiet
            return
        now, before = psi.parse(path, text), self._before
        self._text, self._before = text, now
        self.kept = (
            *_stalled(before.some if before else None, now.some, elapsed),
            *_stalled(before.full if before else None, now.full, elapsed),
        )
        self._quiet = (*_stalled(now.some, now.some, 1), *_stalled(now.full, now.full, 1))
        self.newest = (*_longer(now.some), *_longer(now.full))


def _stalled(before: Stall | None, now: Stall | None, elapsed_ns: int) -> tuple[float, float]:
    """(stall µs/s since ``before``, avg10)."""
    if now is None:
        return NO_SAMPLE, NO_SAMPLE
    return (NO_SAMPLE if before is None else per_second(before.total_us, now.total_us, elapsed_ns)), now.avg10


def _longer(now: Stall | None) -> tuple[float, float]:
    return (NO_SAMPLE, NO_SAMPLE) if now is None else (now.avg60, now.avg300)


def _rows(gauges: Sequence[tuple[str, Gauge]]) -> Mapping[str, Row]:
    return {subject: row for subject, gauge in gauges if (row := gauge.sample()) is not None}
