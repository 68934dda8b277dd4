"""/proc as kernels print it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from koord.host import proc
from koord.host.kernelfile import ParseError
from koord.host.proc import TCP, CPUTimes, Disk, Interface, SchedStat

STAT = b"""\
cpu  100 10 50 1000 7 3 2 9 5 0
cpu0 60 5 30 500 4 2 1 5 5 0
cpu3 40 5 20 500 3 1 1 4 0 0
intr 12345 0 0
ctxt 999
"""
MEMINFO = b"""\
MemTotal:       24780592 kB
MemFree:         2000000 kB
MemAvailable:   20000000 kB
SwapCached:            1 kB
Cached:            30000 kB
HugePages_Total:       4
Hugepagesize:       2048 kB
"""
NODE_MEMINFO = b"""\
Node 0 MemTotal:       1000 kB
Node 0 MemFree:         400 kB
Node 0 Active(file):     50 kB
Node 0 Inactive(file):   60 kB
Node 0 SReclaimable:      7 kB
"""
DISKS = b"""\
   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 10 2 300 44 20 5 600 55 0 66 77 1 0 2 3 4 5
 259       1 nvme0n1p1 1 0 2 3 0 0 0 0 0 6 7
"""
NET = b"""\
Inter-|   Receive                                     |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 100 2 0 0 0 0 0 0 100 2 0 0 0 0 0 0
  eth0:1468243376 66360 1 2 0 0 0 0 4693973 44643 3 4 0 0 0 0
"""


@pytest.mark.parametrize(
    ("parse", "data", "file"),
    [
        (proc.cpu_times, b"", proc.STAT),
        (proc.cpu_times, b"cpu  1 2 3\n", proc.STAT),
        (proc.cpu_times, b"cpu0 1 2 3 4 5 6 7 8\n", proc.STAT),
        (proc.per_cpu_times, b"cpu  1\ncpu0 1 2 x 4 5 6 7 8\n", proc.STAT),
        (proc.per_cpu_times, b"cpu  1\ncpux 1 2 3 4 5 6 7 8\n", proc.STAT),
        (proc.disks, b"254 0 vda 10\n", proc.DISKSTATS),
        (proc.disks, b"254 0 vda a 2 3 4 5 6 7 8 9 10 11\n", proc.DISKSTATS),
        (proc.interfaces, b"\n\nlo 1 2\n", proc.NET_DEV),
        (proc.interfaces, b"\n\nlo: 1 2 3\n", proc.NET_DEV),
        (proc.tcp, b"", proc.NET_SNMP),
        (proc.tcp, b"Tcp: OutSegs RetransSegs\n", proc.NET_SNMP),
        (proc.tcp, b"Tcp: OutSegs RetransSegs\nTcp: 1\n", proc.NET_SNMP),
        (proc.tcp, b"Tcp: OutSegs RetransSegs\nTcp: 1 many\n", proc.NET_SNMP),
        (proc.tcp, b"Tcp: InSegs OutSegs\nTcp: 1 2\n", proc.NET_SNMP),
        (lambda data: proc.meminfo_bytes(data, b"MemFree"), b"MemTotal: 1 kB\n", proc.MEMINFO),
        (lambda data: proc.meminfo_bytes(data, b"MemFree"), b"MemFree: few\n", proc.MEMINFO),
        (lambda data: proc.counters("f", data, [b"a"]), b"a b\n", "f"),
        (lambda data: proc.schedstat("f", data), b"1 2\n", "f"),
    ],
)
def test_broken_files_are_named(parse: Callable[[bytes], object], data: bytes, file: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(data)
    assert caught.value.file == file


def test_cpu_times() -> None:
    times = proc.cpu_times(STAT)
    assert times == CPUTimes(user=100, nice=10, system=50, idle=1000, iowait=7, irq=3, softirq=2, steal=9)
    assert times.busy == 165  # neither idle, nor iowait, nor steal


def test_per_cpu_times_may_have_gaps() -> None:
    times = proc.per_cpu_times(STAT)
    assert list(times) == [0, 3]
    assert (times[3].user, times[3].steal) == (40, 4)


@pytest.mark.parametrize(
    ("data", "field", "size"),
    [
        (MEMINFO, b"MemTotal", 24780592 * 1024),
        (MEMINFO, b"Cached", 30000 * 1024),
        (MEMINFO, b"HugePages_Total", 4),
        (NODE_MEMINFO, b"MemFree", 400 * 1024),
        (NODE_MEMINFO, b"Active(file)", 50 * 1024),
        (b"MemFree: 7 kB", b"MemFree", 7 * 1024),
    ],
)
def test_meminfo(data: bytes, field: bytes, size: int) -> None:
    assert proc.meminfo_bytes(data, field) == size


def test_counters_are_whole_keys_and_unknown_ones_are_left_out() -> None:
    data = b"pgscan 1\npgscan_direct 22\nworkingset_refault_anon 3"
    keys = [b"pgscan", b"pgscan_direct", b"direct", b"workingset_refault_anon", b"none"]
    assert proc.counters("vmstat", data, keys) == {
        b"pgscan": 1,
        b"pgscan_direct": 22,
        b"workingset_refault_anon": 3,
    }


def test_disks_that_were_used() -> None:
    assert proc.disks(DISKS) == [
        Disk("vda", "254:0", 10, 153600, 44, 20, 307200, 55, 66, 77),
        Disk("nvme0n1p1", "259:1", 1, 1024, 3, 0, 0, 0, 6, 7),
    ]


def test_interfaces_also_without_a_space_after_the_colon() -> None:
    assert proc.interfaces(NET) == [
        Interface("lo", 100, 2, 0, 0, 100, 2, 0, 0),
        Interface("eth0", 1468243376, 66360, 1, 2, 4693973, 44643, 3, 4),
    ]


def test_tcp() -> None:
    names = b"Tcp: RtoAlgorithm MaxConn InSegs OutSegs RetransSegs InErrs"
    data = b"Ip: Forwarding\nIp: 1\n" + names + b"\nTcp: 1 -1 41249 25335 7 0\nUdp: InDatagrams\nUdp: 3\n"
    assert proc.tcp(data) == TCP(25335, 7)


def test_schedstat() -> None:
    assert proc.schedstat("f", b"577639 134316 2\n") == SchedStat(577639, 134316, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ("", "", frozenset())),
        ("vendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: fpu cat_l3 mba\n\nvendor_id\t: Other\n",
         ("GenuineIntel", "Xeon", {"fpu", "cat_l3", "mba"})),
        ("processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n", ("0x41", "", {"fp", "asimd"})),
    ],
)  # fmt: skip
def test_cpuinfo(text: str, said: tuple[str, str, set[str]]) -> None:
    assert tuple(proc.cpuinfo(text)) == said


def test_this_machine() -> None:
    stat = Path(proc.STAT).read_bytes()
    assert proc.cpu_times(stat).busy > 0
    assert len(proc.per_cpu_times(stat)) >= 1
    assert proc.meminfo_bytes(Path(proc.MEMINFO).read_bytes(), b"MemAvailable") > 0
    assert {one.name for one in proc.interfaces(Path(proc.NET_DEV).read_bytes())} >= {"lo"}
    proc.disks(Path(proc.DISKSTATS).read_bytes())
