"""Measures the run-queue delay of latency-sensitive containers: how long their threads were runnable without a CPU.

The kernel counts it per thread only (/proc/TID/schedstat), so it is summed over the threads of a container that were
there at this reading and the one before. If PSI tells that no task of the container waited since the last batch, the
delay is 0 and no thread is read; without PSI, all are read, and seldom. ``max_threads`` bounds the threads that are
read on the whole node; containers that waited share it equally, and within one the first of the kernel's list are read.
Invariant: a thread that ends between two readings, or whose number another thread got (its counters fall), leaves out
only itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from koord.host import proc
from koord.host.cgroup import GONE
from koord.host.reader import KeptFiles
from qosd.model.metric import Kind, Scope
from qosd.sense.host import Clock, CollectorHost
from qosd.sense.meters import path_of
from qosd.sense.percgroup import PerCgroup
from qosd.sense.rates import per_second
from qosd.sense.row import NO_SAMPLE, SLOW_S, TICK_S, Column, Row
from qosd.sense.stalls import STALLS
from qosd.sense.targets import SampledCgroup
from qosd.sense.tick import Batch, NotApplicable, Tick

MAX_THREADS = 512
_STALL = STALLS[Scope.CONTAINER].cpu_stall_some_us_per_s


class RunQueueRow(Row, source="run_queue", scope=Scope.CONTAINER, period_s=TICK_S):
    run_queue_delay_us_per_s: Column = Column(
        "us/s",
        "Time for which threads of a latency-sensitive container were runnable and waited for a CPU, summed.",
        Kind.RATE,
    )
    run_queue_delay_us: Column = Column("us", "The same per time slice: mean wait for a CPU.", Kind.RATE)
    run_queue_threads: Column = Column("threads", "Threads whose delay is in the sum.", history=False)


class RunQueueCollector:
    """The collector ``run_queue``."""

    name = "run_queue"
    panels = (RunQueueRow.panel,)

    def __init__(self, host: CollectorHost, max_threads: int = MAX_THREADS) -> None:
        def gauge(cgroup: SampledCgroup) -> RunQueueGauge:
            threads = path_of(host.tree, cgroup.path, "cgroup.threads")
            return RunQueueGauge(threads, str(host.proc), host.files, host.clock)

        self._proc, self._max_threads = host.proc, max_threads
        self.period_s, self._ran_ns = SLOW_S, 0
        self._gauges = PerCgroup(
            {Scope.CONTAINER: RunQueueRow}, host.files, gauge, measures=lambda cgroup: cgroup.latency_sensitive
        )

    def collect(self, tick: Tick) -> Batch:
        if not (self._proc / "self/schedstat").exists():
            raise NotApplicable(f"no {self._proc}/self/schedstat: the kernel has no scheduler statistics")
        stalls = tick.values(_STALL)
        self.period_s = TICK_S if stalls else SLOW_S
        is_next, self._ran_ns = tick.before_ns == self._ran_ns, tick.at_ns
        gauges = self._gauges.of(tick.targets)[Scope.CONTAINER]
        for subject, gauge in gauges:
            gauge.has_waited = not (is_next and stalls.get(subject) == 0)
        waiting = [gauge for _, gauge in gauges if gauge.is_to_be_read]
        share = max(1, self._max_threads // max(1, len(waiting)))
        for position, gauge in enumerate(waiting):
            gauge.most = share if position < self._max_threads else 0
        return self._gauges.batch(tick)

    def close(self) -> None:
        self._gauges.close()


class RunQueueGauge:
    """At most ``most`` threads of one container, if any of them ``has_waited`` since the batch before."""

    __slots__ = ("_at_ns", "_before", "_clock", "_files", "_has_rested", "_path", "_proc", "has_waited", "most")

    def __init__(self, path: str, proc_root: str, files: KeptFiles, clock: Clock) -> None:
        """``path``: the file that lists the threads."""
        self._path, self._proc, self._files, self._clock = path, proc_root, files, clock
        self._at_ns = self.most = 0
        self.has_waited, self._has_rested = True, False
        self._before: Mapping[int, proc.SchedStat] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        return (self._path,)

    @property
    def is_to_be_read(self) -> bool:
        """Is it to be read? Not if no task waited and there is a reading to compare the next one with."""
        return self.has_waited or not self._before

    def sample(self) -> RunQueueRow | None:
        """Returns the delays; None if the container is gone, or has no thread. Raises OSError, ValueError."""
        if self.is_to_be_read:
            return self._read()
        self._at_ns, self._has_rested = self._clock(), True
        return RunQueueRow(
            run_queue_delay_us_per_s=0.0, run_queue_delay_us=0.0, run_queue_threads=float(len(self._before))
        )

    def _read(self) -> RunQueueRow | None:
        """Reads the threads. After a rest the delay per time slice is unknown until the next reading."""
        listed = self._files.read_all(self._path) if self.most else None
        before, self._before = self._before, {}
        if listed is None:
            return None
        now = {
            tid: stat
            for tid in map(int, listed.split(None, self.most)[: self.most])
            if (stat := self._stat(tid)) is not None
        }
        was_ns, self._at_ns, self._before = self._at_ns, self._clock(), now
        had_rested, self._has_rested = self._has_rested, False
        pairs = ((before[tid], stat) for tid, stat in now.items() if tid in before)
        grown = [(stat.wait_ns - old.wait_ns, stat.slices - old.slices) for old, stat in pairs]
        waits = [pair for pair in grown if min(pair) >= 0]
        if not waits:
            return RunQueueRow(
                run_queue_delay_us_per_s=NO_SAMPLE, run_queue_delay_us=NO_SAMPLE, run_queue_threads=float(len(now))
            )
        wait_ns, slices = (sum(numbers) for numbers in zip(*waits, strict=True))
        per_slice_us = wait_ns / 1000 / slices if slices else 0.0
        return RunQueueRow(
            run_queue_delay_us_per_s=per_second(0, wait_ns, self._at_ns - was_ns) / 1000,
            run_queue_delay_us=NO_SAMPLE if had_rested else per_slice_us,
            run_queue_threads=float(len(waits)),
        )

    def _stat(self, tid: int) -> proc.SchedStat | None:
        """Reads a thread's counters; the file is opened for this reading only, because descriptors are few."""
        path = f"{self._proc}/{tid}/schedstat"
        try:
            with open(path, "rb", buffering=0) as file:
                return proc.schedstat(path, file.read())
        except OSError as error:
            if error.errno in GONE:
                return None
            raise
