"""Run-queue delay of latency-sensitive containers: for how long their threads were runnable and had no CPU.

The kernel counts it per thread only (/proc/TID/schedstat), so it is summed over a container's threads: those that
were there at this reading and the one before. Where PSI tells that no task of the container waited since the batch
before, the delay is 0 and no thread is read; where there is no PSI, all are read, and seldom. How many are looked at is
bounded by ``max_threads`` for the whole node, shared equally among the containers that waited; within a container the
first of the kernel's list. Invariant: a thread that ends between two calls, or whose number another thread got (its
counters fall), costs nothing but itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from koord.host import proc
from koord.host.cgroup import GONE, Tree
from koord.host.reader import KeptFiles
from qosd.sense import table
from qosd.sense.meters import Clock, path_of
from qosd.sense.metric import NO_SAMPLE, Panel, Scope
from qosd.sense.rates import per_second
from qosd.sense.store import Row
from qosd.sense.targets import Group, PerGroup
from qosd.sense.tick import Batch, NotApplicable, Tick

MAX_THREADS = 512
_STALL = "container_cpu_stall_some_us_per_s"


class RunQueue:
    """The collector ``run_queue``."""

    name = "run_queue"
    panels: Sequence[Panel] = (table.RUN_QUEUE,)

    def __init__(
        self, tree: Tree, files: KeptFiles, clock: Clock, proc_root: Path, max_threads: int = MAX_THREADS
    ) -> None:
        self._proc, self._max_threads = proc_root, max_threads
        self.period_s, self._ran_ns = table.SLOW_S, 0
        self._gauges = PerGroup(
            make=lambda group: Gauge(path_of(tree, group.path, "cgroup.threads"), str(proc_root), files, clock),
            end=lambda gauge: files.drop((gauge.path,)),
            wanted=_wanted,
        )

    def collect(self, tick: Tick) -> Batch:
        if not (self._proc / "self/schedstat").exists():
            raise NotApplicable(f"no {self._proc}/self/schedstat: the kernel has no scheduler statistics")
        stalls = tick.values(_STALL, table.STALLS[Scope.CONTAINER])
        self.period_s = table.TICK_S if stalls else table.SLOW_S
        gauges = self._gauges.of(tick.targets)[Scope.CONTAINER]
        is_next, self._ran_ns = tick.before_ns == self._ran_ns, tick.at_ns
        quiet = [item for item in gauges if is_next and item[1].is_read and stalls.get(item[0]) == 0]
        rows = {subject: gauge.rest() for subject, gauge in quiet}
        waiting = [item for item in gauges if item[0] not in rows]
        share = max(1, self._max_threads // max(1, len(waiting)))
        return [(table.RUN_QUEUE, {**rows, **_rows(waiting[: self._max_threads], share)})]

    def close(self) -> None:
        self._gauges.close()


def _wanted(group: Group) -> bool:
    return group.scope is Scope.CONTAINER and group.latency_sensitive


class Gauge:
    """The threads of one container. ``path``: the file that lists them."""

    __slots__ = ("_at_ns", "_before", "_clock", "_files", "_is_rested", "_proc", "path")

    def __init__(self, path: str, proc_root: str, files: KeptFiles, clock: Clock) -> None:
        self.path, self._proc, self._files, self._clock = path, proc_root, files, clock
        self._at_ns, self._is_rested = 0, False
        self._before: Mapping[int, proc.SchedStat] = {}

    @property
    def is_read(self) -> bool:
        """Is there a reading to which the next one can be compared?"""
        return bool(self._before)

    def rest(self) -> Row:
        """As ``sample`` of a container in which no task waited: what was read before still holds."""
        self._at_ns, self._is_rested = self._clock(), True
        return 0.0, 0.0, float(len(self._before))

    def sample(self, most: int) -> Row | None:
        """(delay µs/s, delay µs per time slice, threads), over at most ``most`` threads. Raises OSError, ValueError.

        After a rest the time slices of all of it have gone by: their mean is not known until the next sample.
        """
        listed = self._files.read_all(self.path)
        before, self._before = self._before, {}
        if listed is None:
            return None
        now = {tid: stat for tid in map(int, listed.split(None, most)[:most]) if (stat := self._stat(tid)) is not None}
        was_ns, self._at_ns, self._before = self._at_ns, self._clock(), now
        was_rested, self._is_rested = self._is_rested, False
        pairs = ((before[tid], stat) for tid, stat in now.items() if tid in before)
        grown = [(stat.wait_ns - old.wait_ns, stat.slices - old.slices) for old, stat in pairs]
        waits = [pair for pair in grown if min(pair) >= 0]
        if not waits:
            return NO_SAMPLE, NO_SAMPLE, float(len(now))
        wait_ns, slices = (sum(numbers) for numbers in zip(*waits, strict=True))
        per_slice_us = wait_ns / 1000 / slices if slices else 0.0
        return (
            per_second(0, wait_ns, self._at_ns - was_ns) / 1000,
            NO_SAMPLE if was_rested else per_slice_us,
            float(len(waits)),
        )

    def _stat(self, tid: int) -> proc.SchedStat | None:
        """Opened for this reading only: threads come and go, and descriptors are few."""
        path = f"{self._proc}/{tid}/schedstat"
        try:
            with open(path, "rb", buffering=0) as file:
                return proc.schedstat(path, file.read())
        except OSError as error:
            if error.errno in GONE:
                return None
            raise


def _rows(gauges: Sequence[tuple[str, Gauge]], most: int) -> Mapping[str, Row]:
    rows: dict[str, Row] = {}
    for subject, gauge in gauges:
        try:
            row = gauge.sample(most)
        except (OSError, ValueError):
            continue
        if row is not None:
            rows[subject] = row
    return rows
