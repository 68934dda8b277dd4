"""Figures of the whole node from /proc: CPU times, memory, paging, disks, network, threads' run-queue delay.

Pure functions from a file's bytes to numbers in the unit that the name says (``_ticks`` are 1/CLK_TCK s). They run
every tick, so they look for the wanted fields and skip the rest. A line that cannot be read costs its own figures; a
file of which nothing can be read is a ParseError, which names it. A counter may be reset between two reads; the caller
decides what a difference means.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from koord.host.kernelfile import ParseError, readable

STAT, MEMINFO, VMSTAT = "/proc/stat", "/proc/meminfo", "/proc/vmstat"
DISKSTATS, CPUINFO = "/proc/diskstats", "/proc/cpuinfo"
NET_DEV, NET_SNMP = "/proc/net/dev", "/proc/net/snmp"
SECTOR_BYTES = 512
"""The unit of /proc/diskstats, whatever the device's own sectors are."""


class CPUTimes(NamedTuple):
    """Ticks since boot. ``user`` and ``nice`` contain guests' time."""

    user: int
    nice: int
    system: int
    idle: int
    iowait: int
    irq: int
    softirq: int
    steal: int

    @property
    def busy(self) -> int:
        """Ticks that this node's CPUs worked: neither idle, nor waiting for IO, nor taken by the hypervisor."""
        return self.user + self.nice + self.system + self.irq + self.softirq


def cpu_times(data: bytes) -> CPUTimes:
    """The sum over all CPUs, from /proc/stat."""
    return _times(data[: data.find(b"\n")], b"cpu")


def per_cpu_times(data: bytes) -> dict[int, CPUTimes]:
    """The times of each online CPU by its number, from /proc/stat; numbers may have gaps."""
    end = data.find(b"\nintr")
    lines = data[: end if end >= 0 else None].split(b"\n")[1:]
    return dict(readable(STAT, [line for line in lines if line.startswith(b"cpu")], _of_cpu))


def _of_cpu(line: bytes) -> tuple[int, CPUTimes]:
    name = line[: line.find(b" ")]
    return int(name[3:]), _times(line, name)


def _times(line: bytes, name: bytes) -> CPUTimes:
    words = line.split(None, 9)
    if len(words) < 9 or words[0] != name:
        raise ParseError(STAT, line, f"is not {name.decode()} and eight counters")
    try:
        return CPUTimes(*map(int, words[1:9]))
    except ValueError as error:
        raise ParseError(STAT, line, error) from error


def meminfo_bytes(data: bytes, field: bytes, file: str = MEMINFO) -> int:
    """Field such as ``MemAvailable`` of /proc/meminfo, in bytes.

    Also of a NUMA node's meminfo (name it in ``file``), whose lines begin with ``Node N``.
    """
    at = data.find(field + b":")
    while at > 0 and data[at - 1 : at] not in b"\n ":  # Cached is the end of SwapCached
        at = data.find(field + b":", at + 1)
    if at < 0:
        raise ParseError(file, data, f"has no {field.decode()}")
    words = data[at + len(field) + 1 : at + len(field) + 40].split(None, 2)
    try:
        return int(words[0]) * (1024 if words[1][:2] == b"kB" else 1)
    except (ValueError, IndexError) as error:
        raise ParseError(file, data[at : at + 60], error) from error


def counters(file: str, data: bytes, keys: Iterable[bytes]) -> dict[bytes, int]:
    """Returns ``keys`` of a file of ``key value`` lines (/proc/vmstat); those that it does not have are left out.

    Numbers that cannot be read are left out too, unless there is no other.
    """
    lines = []
    for key in keys:
        at = 0 if data.startswith(key + b" ") else data.find(b"\n" + key + b" ") + 1
        if at == 0 and not data.startswith(key + b" "):
            continue
        end = data.find(b"\n", at)
        lines.append(data[at : end if end >= 0 else None])
    return dict(readable(file, lines, _counter))


def _counter(line: bytes) -> tuple[bytes, int]:
    key, _, count = line.partition(b" ")
    return key, int(count)


class Disk(NamedTuple):
    """Counters of one block device since boot. ``io_ms``: time with at least one request under way."""

    name: str
    device: str
    reads: int
    read_bytes: int
    read_ms: int
    writes: int
    write_bytes: int
    write_ms: int
    io_ms: int
    queue_ms: int


def disks(data: bytes) -> list[Disk]:
    """Every device of /proc/diskstats that has ever been used, partitions included."""
    return [disk for disk in readable(DISKSTATS, data.splitlines(), _disk) if disk.reads or disk.writes]


def _disk(line: bytes) -> Disk:
    words = line.split(None, 14)
    if len(words) < 14:
        raise ValueError("has fewer than 14 words")
    reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms, _, io_ms, queue_ms = map(int, words[3:14])
    read_bytes, write_bytes = read_sectors * SECTOR_BYTES, write_sectors * SECTOR_BYTES
    name, device = _name(words[2]), f"{int(words[0])}:{int(words[1])}"
    return Disk(name, device, reads, read_bytes, read_ms, writes, write_bytes, write_ms, io_ms, queue_ms)


def _name(text: bytes) -> str:
    """Returns the name; bytes that are not UTF-8 are shown as ``\\xNN``, because the kernel takes almost any byte in a
    name."""
    return text.decode("utf-8", errors="backslashreplace")


class Interface(NamedTuple):
    """Counters of one network interface since it came up."""

    name: str
    rx_bytes: int
    rx_packets: int
    rx_errors: int
    rx_dropped: int
    tx_bytes: int
    tx_packets: int
    tx_errors: int
    tx_dropped: int


def interfaces(data: bytes) -> list[Interface]:
    """Every interface of /proc/net/dev, loopback included."""
    return readable(NET_DEV, data.splitlines()[2:], _interface)


def _interface(line: bytes) -> Interface:
    """A name may have colons in it, the counters after it have none."""
    name, colon, rest = line.rpartition(b":")
    words = rest.split()
    if not colon or len(words) < 16:
        raise ValueError("is not a name and 16 counters")
    return Interface(_name(name.strip()), *map(int, (*words[0:4], *words[8:12])))


class TCP(NamedTuple):
    """Segments of a network namespace since it was made. ``sent_segments`` does not count those that were sent
    again."""

    sent_segments: int
    retransmitted_segments: int


def tcp(data: bytes) -> TCP:
    """/proc/net/snmp, whose protocols have a line of names and a line of numbers each."""
    lines = [line.split() for line in data.splitlines() if line.startswith(b"Tcp:")]
    try:
        names, numbers = lines
        said = dict(zip(names, numbers, strict=True))
        return TCP(int(said[b"OutSegs"]), int(said[b"RetransSegs"]))
    except (ValueError, KeyError) as error:
        raise ParseError(NET_SNMP, data, error) from error


class SchedStat(NamedTuple):
    """A thread's time on a CPU, its time runnable without one (run-queue delay), and its number of turns."""

    run_ns: int
    wait_ns: int
    slices: int


def schedstat(file: str, data: bytes) -> SchedStat:
    """/proc/PID/task/TID/schedstat."""
    words = data.split()
    try:
        return SchedStat(int(words[0]), int(words[1]), int(words[2]))
    except (ValueError, IndexError) as error:
        raise ParseError(file, data, error) from error


class CPUInfo(NamedTuple):
    """The first CPU of /proc/cpuinfo; on architectures that tell less, "" and no flags."""

    vendor: str
    model: str
    flags: frozenset[str]


def cpuinfo(text: str) -> CPUInfo:
    """Never fails: a word that is missing is empty. Each word is taken from the first CPU that has it."""
    said: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        said.setdefault(key.strip(), value.strip())
    vendor = said.get("vendor_id") or said.get("CPU implementer", "")
    flags = said.get("flags") or said.get("Features", "")
    return CPUInfo(vendor, said.get("model name", ""), frozenset(flags.split()))
