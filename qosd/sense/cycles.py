"""Counts cycles and instructions of containers for 10 seconds out of every 60, if the CPU's counters are available.

A window is opened at one run, and read and closed at the next, so that nothing waits. Containers take turns: as many
as ``max_descriptors`` allows count at a time. Invariant: every descriptor of a window is closed at its end, whatever
fails. Without counters (most virtual machines) the collector says why and tries again seldom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from koord.host import perf
from koord.host.perf import CYCLES, INSTRUCTIONS, PerfError
from qosd.model.metric import Kind, Koordlet, Scope
from qosd.sense.host import CollectorHost
from qosd.sense.rates import NANOSECONDS
from qosd.sense.row import NO_SAMPLE, Column, Row
from qosd.sense.targets import SampledCgroup
from qosd.sense.tick import Batch, NotApplicable, Tick

MAX_DESCRIPTORS = 2048
CYCLES_S = 60.0
_WINDOW_S = 10.0
_RUNS_PER_CYCLE = round(CYCLES_S / _WINDOW_S)


class CyclesRow(Row, source="cycles", scope=Scope.CONTAINER, period_s=CYCLES_S):
    cycles_per_instruction: Column = Column("cycles", "CPI over the window: cycles / instructions.", Kind.RATE)
    instructions_per_s: Column = Column("1/s", "Instructions retired per second.", Kind.RATE)
    window_cycles: Column = Column(
        "cycles",
        "CPU cycles in the window.",
        koordlet=Koordlet("container_cpi", {"cpi_field": "cycles"}),
        history=False,
    )
    window_instructions: Column = Column(
        "instructions",
        "Instructions in the window.",
        koordlet=Koordlet("container_cpi", {"cpi_field": "instructions"}),
        history=False,
    )


class Counters:
    """Counts a cgroup's cycles by the CPU's counters on this machine."""

    def __init__(self, cpus: Callable[[], Sequence[int]]) -> None:
        self._cpus = cpus
        self._perf: perf.Perf | None = None

    def unavailable(self) -> str:
        """Returns why nothing can be counted; "" if it can."""
        cpus = self._cpus()
        if not cpus:
            return "no CPU is online as far as sysfs tells"
        try:
            self._perf = self._perf or perf.Perf()
        except PerfError as error:
            return f"{error.filename}: {error.why}"
        return self._perf.unavailable(perf.CPI, cpus[0])

    def descriptors(self) -> int:
        """Returns the number of descriptors that one container takes."""
        return len(perf.CPI) * max(1, len(self._cpus()))

    def open(self, directory: str) -> perf.Meter:
        """Opens the counters of a cgroup. Raises OSError."""
        self._perf = self._perf or perf.Perf()
        return perf.Meter(self._perf, directory, self._cpus(), perf.CPI)


class CyclesCollector:
    """The collector ``cycles``."""

    name = "cycles"
    period_s = _WINDOW_S
    panels = (CyclesRow.panel,)

    def __init__(
        self, host: CollectorHost, counters: Counters | None = None, max_descriptors: int = MAX_DESCRIPTORS
    ) -> None:
        self._tree, self._clock, self._max = host.tree, host.clock, max_descriptors
        self._counters = counters or Counters(host.cpus)
        self._window: list[tuple[str, perf.Meter, int]] = []
        self._run = -1
        self._next = 0

    def collect(self, tick: Tick) -> Batch:
        self._run = (self._run + 1) % _RUNS_PER_CYCLE
        if self._run == 1:
            return [(CyclesRow.panel, self._read())]
        if self._run == 0:
            self.close()
            why = self._counters.unavailable()
            if why:
                self._run = -1
                raise NotApplicable(why)
            self._open(tick.targets.cgroups[Scope.CONTAINER])
        return []

    def close(self) -> None:
        for _, meter, _ in self._window:
            meter.close()
        self._window.clear()

    def _open(self, cgroups: Sequence[SampledCgroup]) -> None:
        """Begins to count the containers whose turn it is; passes over one that cannot be counted."""
        most = max(1, self._max // self._counters.descriptors())
        start = self._next if self._next < len(cgroups) else 0
        self._next = start + most
        for cgroup in cgroups[start : self._next]:
            try:
                meter = self._counters.open(str(self._tree.directory(cgroup.path, "perf_event")))
            except (OSError, ValueError):
                continue
            self._window.append((cgroup.subject, meter, self._clock()))

    def _read(self) -> Mapping[str, Row]:
        rows: dict[str, Row] = {}
        try:
            for subject, meter, since_ns in self._window:
                try:
                    counts = meter.read()
                except OSError:
                    continue
                if counts is not None:
                    rows[subject] = _row(counts, self._clock() - since_ns)
        finally:
            self.close()
        return rows


def _row(counts: Mapping[str, float], elapsed_ns: int) -> CyclesRow:
    cycles, instructions = counts[CYCLES.name], counts[INSTRUCTIONS.name]
    return CyclesRow(
        cycles_per_instruction=cycles / instructions if instructions else NO_SAMPLE,
        instructions_per_s=instructions * NANOSECONDS / elapsed_ns if elapsed_ns > 0 else NO_SAMPLE,
        window_cycles=cycles,
        window_instructions=instructions,
    )
