"""Measures the node's work for free memory: direct reclaim, swap, major faults and OOM kills, from /proc/vmstat.

PSI says that tasks waited for memory; this says why, and shows the beginning, when kswapd does not keep up and tasks
that allocate scan for pages themselves. Invariant: a counter that this kernel lacks, or that fell, leaves only its own
figure without a sample.
"""

from __future__ import annotations

from collections.abc import Mapping

from koord.host import proc
from qosd.model.metric import Kind, Scope
from qosd.sense.host import CollectorHost
from qosd.sense.rates import per_second
from qosd.sense.row import NO_SAMPLE, TICK_S, Column, Row
from qosd.sense.tick import Batch, NotApplicable, Tick

_KEYS = (b"pgscan_direct", b"pswpin", b"pswpout", b"pgmajfault", b"oom_kill")


class ReclaimRow(Row, source="reclaim", scope=Scope.NODE, period_s=TICK_S):
    direct_reclaim_pages_per_s: Column = Column(
        "pages/s", "Pages that tasks scanned themselves when they allocated, because kswapd did not keep up.", Kind.RATE
    )
    swapped_in_pages_per_s: Column = Column("pages/s", "Pages read back from swap.", Kind.RATE)
    swapped_out_pages_per_s: Column = Column("pages/s", "Pages written to swap.", Kind.RATE)
    major_faults_per_s: Column = Column("1/s", "Page faults that had to read from a disk.", Kind.RATE)
    oom_kills_per_s: Column = Column("1/s", "Processes that the kernel killed for want of memory.", Kind.RATE)


class ReclaimCollector:
    """The collector ``reclaim``."""

    name = "reclaim"
    period_s = TICK_S
    panels = (ReclaimRow.panel,)

    def __init__(self, host: CollectorHost) -> None:
        self._files, self._clock, self._path = host.files, host.clock, str(host.proc / "vmstat")
        self._at_ns = 0
        self._before: Mapping[bytes, int] = {}

    def collect(self, tick: Tick) -> Batch:
        data = self._files.read_all(self._path)
        if data is None:
            raise NotApplicable(f"no {self._path}")
        was_ns, self._at_ns = self._at_ns, self._clock()
        before, self._before = self._before, proc.counters(self._path, data, _KEYS)
        scanned, swapped_in, swapped_out, faults, kills = (
            per_second(before[key], self._before[key], self._at_ns - was_ns)
            if key in before and key in self._before
            else NO_SAMPLE
            for key in _KEYS
        )
        row = ReclaimRow(
            direct_reclaim_pages_per_s=scanned,
            swapped_in_pages_per_s=swapped_in,
            swapped_out_pages_per_s=swapped_out,
            major_faults_per_s=faults,
            oom_kills_per_s=kills,
        )
        return [(ReclaimRow.panel, {"": row})]

    def close(self) -> None:
        self._files.drop([self._path])
