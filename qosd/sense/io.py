"""Block I/O of each cgroup, from ``io.stat`` (v2) and ``blkio.throttle.*_recursive`` (v1), summed over devices.

A device that stands on others (LVM, RAID, loop) counts in addition to them. v1 charges writes from the page cache to no
cgroup, and from Linux 6.10 on it counts I/O only of devices that have had a throttle limit. Invariant: a file that is
missing or cannot be read makes no row, and is never taken for no I/O; an empty ``io.stat`` is no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence

from koord.host.kernelfile import readable
from qosd.model.metric import CGROUP_SCOPES, Kind, Scope
from qosd.sense.countergauge import PERIODS_S, Count, CounterGauges, Text
from qosd.sense.host import CollectorHost
from qosd.sense.row import TICK_S, Column, Row
from qosd.sense.tick import Batch, NotApplicable, Tick

_V1_FILES = "blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"
_V1_LACK = (
    "the blkio controller counts no I/O of kubelet's tiers; since Linux 6.10 it does after a throttle limit was set"
)
_V2_FILES = ("io.stat",)
_V2_LACK = "kubelet's tiers have no io.stat: the io controller is not enabled for them"
_V1_DIRECTIONS = b"Read", b"Write"
_V2_KEYS = b"rbytes", b"wbytes", b"rios", b"wios"
_PHASE_S = 3.0


class IORow(Row):
    io_read_bytes_per_s: Column = Column(
        "bytes/s",
        "Read from block devices by the cgroup and all below it; devices that stand on others count too.",
        Kind.RATE,
    )
    io_written_bytes_per_s: Column = Column(
        "bytes/s", "Written to block devices; on v1 without what the page cache writes back.", Kind.RATE
    )
    io_reads_per_s: Column = Column("1/s", "Reads of block devices.", Kind.RATE)
    io_writes_per_s: Column = Column("1/s", "Writes to block devices; on v1 as their bytes are counted.", Kind.RATE)


_row = IORow.in_order(["io_read_bytes_per_s", "io_written_bytes_per_s", "io_reads_per_s", "io_writes_per_s"])
IO_ROWS = IORow.by_scope(CGROUP_SCOPES, "io", PERIODS_S)


class IOCollector:
    """The collector ``io``; runs after ``usage``."""

    name = "io"
    period_s = TICK_S
    panels = tuple(row.panel for row in IO_ROWS.values())

    def __init__(self, host: CollectorHost) -> None:
        is_v1 = host.tree.version == 1
        names, parse, self._lack = (_V1_FILES, _v1, _V1_LACK) if is_v1 else (_V2_FILES, _v2, _V2_LACK)
        self._gauges = CounterGauges(IO_ROWS, names, parse, _row, host, _PHASE_S)

    def collect(self, tick: Tick) -> Batch:
        batch = self._gauges.batch(tick)
        if tick.targets.cgroups[Scope.TIER] and not dict(batch)[IO_ROWS[Scope.TIER].panel]:
            raise NotApplicable(self._lack)
        return batch

    def close(self) -> None:
        self._gauges.close()


def _v1(texts: Sequence[Text]) -> Sequence[Count]:
    return [count for text in texts for count in _by_direction(text)]


def _by_direction(text: Text) -> Sequence[Count]:
    """Returns (read, written) from lines like ``8:0 Read 4096``, without the total at the end. Raises ValueError."""

    def counted(line: bytes) -> tuple[bytes, int]:
        _, direction, count = line.split()
        return direction, int(count)

    sums: dict[bytes, int] = {}
    lines = [line for line in (text or b"").splitlines() if not line.startswith(b"Total")]
    for direction, count in readable("blkio.throttle", lines, counted):
        sums[direction] = sums.get(direction, 0) + count
    return [sums.get(direction) for direction in _V1_DIRECTIONS]


def _v2(texts: Sequence[Text]) -> Sequence[Count]:
    """Returns the counters from lines like ``8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0``.

    Some kernels print devices without I/O in front of another's line, and ``(unknown)`` for one that is gone: so it
    parses each word by itself. An empty file is no I/O yet: zeros. One with words but no readable counter has no
    counters.
    """
    words = (texts[0] or b"").split()
    sums, is_counted = dict.fromkeys(_V2_KEYS, 0), not words
    for word in words:
        key, _, count = word.partition(b"=")
        if key in sums and count.isdigit():
            sums[key] += int(count)
            is_counted = True
    return tuple(sums.values() if is_counted else [None] * len(sums))
