"""Disks and network interfaces of the node, from /proc.

It measures whole disks, not partitions (their traffic is the disk's), loop devices or RAM disks; and interfaces that
stand on no other, so neither a pod's veth nor a VLAN, and not loopback. Invariant: a device that was replaced by
another of its name (its counters fall) has no sample for one run.
"""

from __future__ import annotations

from collections.abc import Mapping

from koord.host import proc
from koord.host.proc import Disk, Interface
from qosd.model.metric import Kind, Scope
from qosd.sense.host import CollectorHost
from qosd.sense.rates import per_second
from qosd.sense.row import Column, Row
from qosd.sense.tick import Batch, NotApplicable, Tick

DEVICES_S = 5.0
_NOT_DISKS = ("loop", "ram", "zram")


class DiskRow(Row, source="disks", scope=Scope.DISK, period_s=DEVICES_S):
    read_bytes_per_s: Column = Column("bytes/s", "Read from the block device.", Kind.RATE)
    written_bytes_per_s: Column = Column("bytes/s", "Written to the block device.", Kind.RATE)
    reads_per_s: Column = Column("1/s", "Reads completed.", Kind.RATE)
    writes_per_s: Column = Column("1/s", "Writes completed.", Kind.RATE)
    busy_ratio: Column = Column("ratio", "Share of time with at least one request in flight.", Kind.RATE)
    wait_us: Column = Column("us", "Mean time from request to completion, reads and writes.", Kind.RATE)


class InterfaceRow(Row, source="network", scope=Scope.NETWORK, period_s=DEVICES_S):
    received_bytes_per_s: Column = Column("bytes/s", "Received by the interface.", Kind.RATE)
    sent_bytes_per_s: Column = Column("bytes/s", "Sent by the interface.", Kind.RATE)
    received_packets_per_s: Column = Column("1/s", "Packets received.", Kind.RATE)
    sent_packets_per_s: Column = Column("1/s", "Packets sent.", Kind.RATE)
    drops_per_s: Column = Column("1/s", "Packets dropped, both ways.", Kind.RATE)


class DisksCollector:
    """The collector ``disks``."""

    name = "disks"
    period_s = DEVICES_S
    panels = (DiskRow.panel,)

    def __init__(self, host: CollectorHost) -> None:
        self._files, self._clock, self._file = host.files, host.clock, str(host.proc / "diskstats")
        self._block = host.sys / "block"
        self._before: Mapping[str, Disk] = {}
        self._at = 0

    def collect(self, tick: Tick) -> Batch:
        data, at = self._files.read_all(self._file), self._clock()
        if data is None:
            raise NotApplicable(f"no {self._file}")
        now = {disk.name: disk for disk in proc.disks(data) if self._whole(disk.name)}
        before, was, self._before, self._at = self._before, self._at, now, at
        return [(DiskRow.panel, {name: _disk(before[name], now[name], at - was) for name in now if name in before})]

    def close(self) -> None:
        self._files.drop((self._file,))

    def _whole(self, name: str) -> bool:
        """Is it a whole disk? These have a directory in sysfs, with an exclamation mark for a slash in the name."""
        if name.rstrip("0123456789") in _NOT_DISKS:
            return False
        return name in self._before or (self._block / name.replace("/", "!")).exists()


def _disk(was: Disk, now: Disk, elapsed_ns: int) -> DiskRow:
    done = now.reads - was.reads + now.writes - was.writes
    waited_ms = now.read_ms - was.read_ms + now.write_ms - was.write_ms
    return DiskRow(
        read_bytes_per_s=per_second(was.read_bytes, now.read_bytes, elapsed_ns),
        written_bytes_per_s=per_second(was.write_bytes, now.write_bytes, elapsed_ns),
        reads_per_s=per_second(was.reads, now.reads, elapsed_ns),
        writes_per_s=per_second(was.writes, now.writes, elapsed_ns),
        busy_ratio=per_second(was.io_ms, now.io_ms, elapsed_ns) / 1000,
        wait_us=max(0, waited_ms) * 1000 / done if done > 0 else 0.0,
    )


class NetworkCollector:
    """The collector ``network``."""

    name = "network"
    period_s = DEVICES_S
    panels = (InterfaceRow.panel,)

    def __init__(self, host: CollectorHost) -> None:
        self._files, self._clock, self._file = host.files, host.clock, str(host.proc / "net/dev")
        self._net = host.sys / "class/net"
        self._own: dict[str, bool] = {}
        self._before: Mapping[str, Interface] = {}
        self._at = 0

    def collect(self, tick: Tick) -> Batch:
        data, at = self._files.read_all(self._file), self._clock()
        if data is None:
            raise NotApplicable(f"no {self._file}")
        found = {one.name: one for one in proc.interfaces(data)}
        self._own = {name: self._own.get(name) or self._stands_alone(name) for name in found}
        now = {name: one for name, one in found.items() if self._own[name]}
        before, was, self._before, self._at = self._before, self._at, now, at
        return [
            (
                InterfaceRow.panel,
                {name: _interface(before[name], now[name], at - was) for name in now if name in before},
            )
        ]

    def close(self) -> None:
        self._files.drop((self._file,))

    def _stands_alone(self, name: str) -> bool:
        try:
            index, below = ((self._net / name / file).read_text() for file in ("ifindex", "iflink"))
        except OSError:
            return False
        return name != "lo" and index == below


def _interface(was: Interface, now: Interface, elapsed_ns: int) -> InterfaceRow:
    return InterfaceRow(
        received_bytes_per_s=per_second(was.rx_bytes, now.rx_bytes, elapsed_ns),
        sent_bytes_per_s=per_second(was.tx_bytes, now.tx_bytes, elapsed_ns),
        received_packets_per_s=per_second(was.rx_packets, now.rx_packets, elapsed_ns),
        sent_packets_per_s=per_second(was.tx_packets, now.tx_packets, elapsed_ns),
        drops_per_s=per_second(was.rx_dropped + was.tx_dropped, now.rx_dropped + now.tx_dropped, elapsed_ns),
    )
