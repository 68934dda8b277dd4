"""Block I/O of each cgroup, from ``io.stat`` (v2) and ``blkio.throttle.*_recursive`` (v1), summed over devices.

A device that stands on others (LVM, RAID, loop) counts as well as they do. v1 charges writes from the page cache to
nobody, so only direct and synchronous ones are seen there. Invariant: a cgroup whose file says nothing yet has done no
I/O; one that has no such file (no controller for it) has no row.
"""

from __future__ import annotations

from collections.abc import Sequence

from qosd.metric import GROUP_SCOPES, Kind
from qosd.sense.countergauge import Count, CounterGauge, Text
from qosd.sense.host import Host
from qosd.sense.meters import path_of
from qosd.sense.pergroup import TIERS_FIRST_S, PerGroup
from qosd.sense.row import TICK_S, Column, Row
from qosd.sense.targets import Group
from qosd.sense.tick import Batch, Tick

_V1_FILES = "blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"
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
    io_writes_per_s: Column = Column("1/s", "Writes to block devices, as far as their bytes count.", Kind.RATE)


_row = IORow.in_order(["io_read_bytes_per_s", "io_written_bytes_per_s", "io_reads_per_s", "io_writes_per_s"])
IO_ROWS = IORow.by_scope(GROUP_SCOPES, "io", TIERS_FIRST_S)


class IO:
    """The collector ``io``."""

    name = "io"
    period_s = TICK_S
    panels = tuple(row.panel for row in IO_ROWS.values())

    def __init__(self, host: Host) -> None:
        names, counts = (_V1_FILES, _v1) if host.tree.version == 1 else (("io.stat",), _v2)

        def gauge(group: Group) -> CounterGauge:
            return CounterGauge([path_of(host.tree, group.path, name) for name in names], counts, _row, host)

        self._gauges = PerGroup(IO_ROWS, host.files, gauge, phase_s=_PHASE_S)

    def collect(self, tick: Tick) -> Batch:
        return self._gauges.batch(tick)

    def close(self) -> None:
        self._gauges.close()


def _v1(texts: Sequence[Text]) -> Sequence[Count]:
    return [count for text in texts for count in _by_direction(text)]


def _by_direction(text: Text) -> Sequence[Count]:
    """(read, written) of lines such as ``8:0 Read 4096``; the total at the end stands alone. Raises ValueError."""
    if text is None:
        return None, None
    sums = dict.fromkeys(_V1_DIRECTIONS, 0)
    for line in text.splitlines():
        if not line.startswith(b"Total"):
            _, direction, count = line.split()
            if direction in sums:
                sums[direction] += int(count)
    return tuple(sums.values())


def _v2(texts: Sequence[Text]) -> Sequence[Count]:
    """Of lines such as ``8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0``. Raises ValueError.

    Some kernels print devices without I/O in front of another's line: so each word is looked at by itself.
    """
    sums = dict.fromkeys(_V2_KEYS, 0)
    for word in (texts[0] or b"").split():
        key, equals, count = word.partition(b"=")
        if key in sums:
            sums[key] += int(count)
        elif not equals and b":" not in word:
            raise ValueError(f"io.stat: {word!r} is neither a device nor a count")
    return tuple(sums.values())
