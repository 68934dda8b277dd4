"""Measures PSI of the node, and of containers, pods, tiers and host applications.

The kernel's averages are taken as they are; ``total`` becomes exact stall time per second. On a cgroup v1 node the
files are in the v2 tree beside it. A kernel without a ``full`` line for the CPU yields no sample there. Invariant: a
cgroup without pressure files (or with PSI switched off in it) leaves only itself without samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

from koord.host import psi
from koord.host.cgroup import Tree
from koord.host.psi import RESOURCES, Stall
from koord.host.reader import KeptFiles
from qosd.model.metric import CGROUP_SCOPES, Kind, Koordlet, Scope
from qosd.sense.host import Clock, CollectorHost
from qosd.sense.meters import path_of
from qosd.sense.percgroup import CgroupGauge, PerCgroup
from qosd.sense.rates import per_second
from qosd.sense.row import NO_SAMPLE, SLOW_S, TICK_S, Column, Row
from qosd.sense.targets import SampledCgroup
from qosd.sense.tick import Batch, NotApplicable, Tick

DEGREES = ("some", "full")
_FIGURES = ("us_per_s", "avg10_percent", "avg60_percent", "avg300_percent")
_NOTHING = (NO_SAMPLE,) * len(_FIGURES)


def _waits(resource: str, degree: str) -> str:
    return f"PSI: {'a task' if degree == 'some' else 'every non-idle task'} waited for {resource}"


def _stall(resource: str, degree: str) -> Column:
    return Column("us/s", f"{_waits(resource, degree)}, exactly, from `total`.", Kind.RATE)


def _average(resource: str, degree: str, average: str) -> Column:
    kind = "mem" if resource == "memory" else resource
    labels = {"psi_resource_type": kind, "psi_precision": average, "psi_degree": degree}
    return Column(
        "percent",
        f"{_waits(resource, degree)}, the kernel's {average}.",
        koordlet={scope: Koordlet(f"{scope}_psi", labels) for scope in (Scope.POD, Scope.CONTAINER)},
        history=average == "avg10",
    )


class PressureRow(Row):
    cpu_pressure_some_us_per_s: Column = _stall("cpu", "some")
    cpu_pressure_some_avg10_percent: Column = _average("cpu", "some", "avg10")
    cpu_pressure_some_avg60_percent: Column = _average("cpu", "some", "avg60")
    cpu_pressure_some_avg300_percent: Column = _average("cpu", "some", "avg300")
    cpu_pressure_full_us_per_s: Column = _stall("cpu", "full")
    cpu_pressure_full_avg10_percent: Column = _average("cpu", "full", "avg10")
    cpu_pressure_full_avg60_percent: Column = _average("cpu", "full", "avg60")
    cpu_pressure_full_avg300_percent: Column = _average("cpu", "full", "avg300")
    memory_pressure_some_us_per_s: Column = _stall("memory", "some")
    memory_pressure_some_avg10_percent: Column = _average("memory", "some", "avg10")
    memory_pressure_some_avg60_percent: Column = _average("memory", "some", "avg60")
    memory_pressure_some_avg300_percent: Column = _average("memory", "some", "avg300")
    memory_pressure_full_us_per_s: Column = _stall("memory", "full")
    memory_pressure_full_avg10_percent: Column = _average("memory", "full", "avg10")
    memory_pressure_full_avg60_percent: Column = _average("memory", "full", "avg60")
    memory_pressure_full_avg300_percent: Column = _average("memory", "full", "avg300")
    io_pressure_some_us_per_s: Column = _stall("io", "some")
    io_pressure_some_avg10_percent: Column = _average("io", "some", "avg10")
    io_pressure_some_avg60_percent: Column = _average("io", "some", "avg60")
    io_pressure_some_avg300_percent: Column = _average("io", "some", "avg300")
    io_pressure_full_us_per_s: Column = _stall("io", "full")
    io_pressure_full_avg10_percent: Column = _average("io", "full", "avg10")
    io_pressure_full_avg60_percent: Column = _average("io", "full", "avg60")
    io_pressure_full_avg300_percent: Column = _average("io", "full", "avg300")


_row = PressureRow.in_order(
    [f"{resource}_pressure_{degree}_{figure}" for resource, degree, figure in product(RESOURCES, DEGREES, _FIGURES)]
)
PRESSURE = PressureRow.by_scope(CGROUP_SCOPES, "pressure", SLOW_S)


class NodePressureRow(PressureRow, source="node_pressure", scope=Scope.NODE, period_s=TICK_S):
    """The same of the whole node, and every second."""


class CgroupPressure:
    """Collects from the three pressure files of each cgroup for which ``measures`` is true."""

    def __init__(
        self,
        rows: Mapping[Scope, type[Row]],
        gauge: Callable[[Sequence[str]], CgroupGauge],
        host: CollectorHost,
        measures: Callable[[SampledCgroup], bool] = lambda _: True,
    ) -> None:
        def of_cgroup(cgroup: SampledCgroup) -> CgroupGauge:
            return gauge([path_of(host.tree, cgroup.path, f"{resource}.pressure") for resource in RESOURCES])

        self._host = host
        self._gauges = PerCgroup(rows, host.files, of_cgroup, measures)

    def collect(self, tick: Tick) -> Batch:
        batch = self._gauges.batch(tick)
        if not any(rows for _, rows in batch):
            _must_have_psi(self._host.proc, self._host.tree)
        return batch

    def close(self) -> None:
        self._gauges.close()


class PressureCollector(CgroupPressure):
    """The collector ``pressure``, of cgroups."""

    name = "pressure"
    period_s = SLOW_S
    panels = tuple(row.panel for row in PRESSURE.values())

    def __init__(self, host: CollectorHost) -> None:
        super().__init__(PRESSURE, lambda paths: PressureGauge(paths, host.files, host.clock), host)


class NodePressureCollector:
    """The collector ``node_pressure``: /proc/pressure."""

    name = "node_pressure"
    period_s = TICK_S
    panels = (NodePressureRow.panel,)

    def __init__(self, host: CollectorHost) -> None:
        self._host = host
        self._gauge = PressureGauge(
            [str(host.proc / "pressure" / resource) for resource in RESOURCES], host.files, host.clock
        )

    def collect(self, tick: Tick) -> Batch:
        sample = self._gauge.sample()
        if sample is None:
            _must_have_psi(self._host.proc)
            return []
        return [(NodePressureRow.panel, {"": sample})]

    def close(self) -> None:
        self._host.files.drop(self._gauge.paths)


def _must_have_psi(proc_root: Path, tree: Tree | None = None) -> None:
    """Raises NotApplicable if the kernel keeps no PSI, or none of the cgroups of ``tree``."""
    if not (proc_root / "pressure/cpu").exists():
        raise NotApplicable(f"no {proc_root}/pressure: the kernel has no PSI, or was booted with psi=0")
    if tree is not None and tree.version == 1 and tree.unified is None:
        raise NotApplicable("cgroup v1 without a v2 tree beside it: no pressure files")


class PressureGauge:
    """The pressure files of one object. ``paths``: in the order of ``RESOURCES``."""

    __slots__ = ("_clock", "_files", "_resources", "paths")

    def __init__(self, paths: Iterable[str], files: KeptFiles, clock: Clock) -> None:
        self.paths, self._files, self._clock = tuple(paths), files, clock
        self._resources = [_Resource() for _ in self.paths]

    def sample(self) -> PressureRow | None:
        """Returns the row; None if none of the files is there."""
        figures: tuple[float, ...] = ()
        found = False
        for path, resource in zip(self.paths, self._resources, strict=True):
            try:
                data = self._files.read(path)
                resource.take(path, data, self._files.inode(path), self._clock())
                found = found or data is not None
            except (OSError, ValueError):
                resource.lose()
            figures += resource.figures
        return _row(figures) if found else None


class _Resource:
    """One pressure file: ``figures`` of some and of full."""

    __slots__ = ("_at", "_before", "_inode", "_quiet", "_text", "figures")

    def __init__(self) -> None:
        self._at = self._inode = 0
        self.lose()

    def lose(self) -> None:
        """Forgets the last reading, so that the next one is a first one."""
        self._text: bytes | None = None
        self._before: psi.Pressure | None = None
        self.figures = self._quiet = _NOTHING + _NOTHING

    def take(self, path: str, text: bytes | None, inode: int, at_ns: int) -> None:
        """Makes ``figures`` of the file's content (None: there is no file): averages as they are, stall times since the
        reading before. A first reading, or one of another inode, has no stall times.

        Raises ParseError; then call ``lose``.
        """
        if text is None or inode != self._inode:
            self.lose()
            self._inode = inode
        elapsed, self._at = at_ns - self._at, at_ns
        if text is None:
            return
        if text == self._text:
            self.figures = self._quiet
            return
        now, before = psi.parse(path, text), self._before
        self._text, self._before = text, now
        self.figures = (
            *_stalled(before.some if before else None, now.some, elapsed),
            *_stalled(before.full if before else None, now.full, elapsed),
        )
        self._quiet = (*_stalled(now.some, now.some, 1), *_stalled(now.full, now.full, 1))


def _stalled(before: Stall | None, now: Stall | None, elapsed_ns: int) -> tuple[float, ...]:
    """Returns (stall µs/s since ``before``, avg10, avg60, avg300)."""
    if now is None:
        return _NOTHING
    stall = NO_SAMPLE if before is None else per_second(before.total_us, now.total_us, elapsed_ns)
    return stall, now.avg10, now.avg60, now.avg300
