"""Measures CPU and memory of the whole node and of its NUMA nodes, from /proc and sysfs.

NUMA nodes are those that have a meminfo, whatever their numbers: there may be gaps, nodes without CPUs and nodes
without memory. Invariant: an error of a NUMA node leaves only that one without samples, never the whole node.

Formulas: busy = user + nice + system + irq + softirq ticks; cores = busy / elapsed / CLK_TCK.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from koord.host import proc
from koord.host.cgroup import ReadError
from koord.host.kernelfile import ParseError
from koord.host.proc import CPUTimes
from koord.model import cpuset
from qosd.model.metric import Kind, Koordlet, Scope
from qosd.sense.host import CollectorHost
from qosd.sense.rates import NANOSECONDS, per_second
from qosd.sense.row import NO_SAMPLE, TICK_S, Column, Row
from qosd.sense.tick import Batch, NotApplicable, Tick

_NUMA_LOOK_S = 60
_PAGE_CACHE = (b"Active(file)", b"Inactive(file)")


class NodeRow(Row, source="node", scope=Scope.NODE, period_s=TICK_S):
    cpu_usage_cores: Column = Column(
        "cores",
        "CPU in use: user, nice, system, irq and softirq time; idle, iowait and steal are not usage.",
        Kind.RATE,
        Koordlet("node_used_cpu_cores"),
    )
    cpu_steal_cores: Column = Column(
        "cores", "CPU that was wanted here and that the hypervisor gave to others.", Kind.RATE
    )
    cpu_iowait_cores: Column = Column("cores", "CPU idle while a task waited for I/O.", Kind.RATE)
    memory_usage_bytes: Column = Column(
        "bytes",
        "Memory in use without page cache: MemTotal - MemAvailable.",
        koordlet=Koordlet("node_used_memory_bytes"),
    )
    memory_with_page_cache_bytes: Column = Column("bytes", "Memory in use with page cache: MemTotal - MemFree.")
    page_cache_bytes: Column = Column("bytes", "File pages in memory: Active(file) + Inactive(file).")
    memory_total_bytes: Column = Column("bytes", "MemTotal.", history=False)
    swap_free_bytes: Column = Column("bytes", "SwapFree; 0 without swap.", history=False)


class NumaRow(Row, source="node", scope=Scope.NUMA, period_s=TICK_S):
    cpu_usage_cores: Column = Column("cores", "CPU in use on the CPUs of the NUMA node.", Kind.RATE)
    memory_usage_bytes: Column = Column(
        "bytes",
        "Memory in use without page cache: MemTotal - MemFree - Active(file) - Inactive(file) - SReclaimable.",
    )


class NodeCollector:
    """The collector ``node``."""

    name = "node"
    period_s = TICK_S
    panels = (NodeRow.panel, NumaRow.panel)

    def __init__(self, host: CollectorHost) -> None:
        self._files, self._clock, self._ticks_per_s = host.files, host.clock, host.ticks_per_s
        self._stat, self._meminfo = str(host.proc / "stat"), str(host.proc / "meminfo")
        self._numa_root = host.sys / "devices/system/node"
        self._numa: dict[str, frozenset[int]] = {}
        self._numa_seen_ns: int | None = None
        self._at = 0
        self._before: CPUTimes | None = None
        self._busy_before: Mapping[str, Mapping[int, int]] = {}

    def collect(self, tick: Tick) -> Batch:
        stat, at = self._must_read(self._stat), self._clock()
        elapsed, self._at = at - self._at, at
        before, self._before = self._before, proc.cpu_times(stat)
        busy, steal, iowait = self._cores(before, self._before, elapsed)
        meminfo = self._must_read(self._meminfo)
        total = proc.meminfo_bytes(meminfo, b"MemTotal")
        row = NodeRow(
            cpu_usage_cores=busy,
            cpu_steal_cores=steal,
            cpu_iowait_cores=iowait,
            memory_usage_bytes=float(total - proc.meminfo_bytes(meminfo, b"MemAvailable")),
            memory_with_page_cache_bytes=float(total - proc.meminfo_bytes(meminfo, b"MemFree")),
            page_cache_bytes=float(sum(proc.meminfo_bytes(meminfo, field) for field in _PAGE_CACHE)),
            memory_total_bytes=float(total),
            swap_free_bytes=float(_swap_free_bytes(meminfo)),
        )
        return [
            (NodeRow.panel, {"": row}),
            (NumaRow.panel, self._numa_rows(stat, meminfo, busy, elapsed, tick.at_ns)),
        ]

    def close(self) -> None:
        numa = [self._numa_meminfo(node) for node in self._numa]
        self._files.drop([self._stat, self._meminfo, *numa])

    def _must_read(self, path: str) -> bytes:
        data = self._files.read_all(path)
        if data is None:
            raise NotApplicable(f"no {path}")
        return data

    def _cores(self, before: CPUTimes | None, now: CPUTimes, elapsed_ns: int) -> tuple[float, float, float]:
        """Returns (busy, steal, iowait) in cores."""
        if before is None:
            return NO_SAMPLE, NO_SAMPLE, NO_SAMPLE
        pairs = ((before.busy, now.busy), (before.steal, now.steal), (before.iowait, now.iowait))
        busy, steal, iowait = (per_second(was, is_, elapsed_ns) / self._ticks_per_s for was, is_ in pairs)
        return busy, steal, iowait

    def _numa_rows(
        self, stat: bytes, meminfo: bytes, node_cores: float, elapsed_ns: int, at_ns: int
    ) -> Mapping[str, NumaRow]:
        if self._numa_seen_ns is None or at_ns - self._numa_seen_ns > _NUMA_LOOK_S * NANOSECONDS:
            self._numa, self._numa_seen_ns = _numa_nodes(self._numa_root), at_ns
        if len(self._numa) == 1:  # then it is the whole node
            usage_bytes = numa_memory_usage(meminfo, self._meminfo)
            return {node: NumaRow(cpu_usage_cores=node_cores, memory_usage_bytes=usage_bytes) for node in self._numa}
        cores = self._numa_cores(stat, elapsed_ns)
        return {
            node: NumaRow(cpu_usage_cores=cores.get(node, NO_SAMPLE), memory_usage_bytes=self._numa_memory(node))
            for node in self._numa
        }

    def _numa_cores(self, stat: bytes, elapsed_ns: int) -> Mapping[str, float]:
        """Returns the cores of each NUMA node from its CPUs' busy ticks; a new CPU or falling ticks count nothing."""
        try:
            times = proc.per_cpu_times(stat)
        except ParseError:
            times = {}
        before = self._busy_before
        self._busy_before = now = {
            node: {cpu: times[cpu].busy for cpu in cpus if cpu in times} for node, cpus in self._numa.items()
        }
        return {node: self._grown(before[node], now[node], elapsed_ns) for node in now if before.get(node)}

    def _grown(self, before: Mapping[int, int], now: Mapping[int, int], elapsed_ns: int) -> float:
        grown = sum(max(0, ticks - before[cpu]) for cpu, ticks in now.items() if cpu in before)
        return per_second(0, grown, elapsed_ns) / self._ticks_per_s

    def _numa_meminfo(self, node: str) -> str:
        return str(self._numa_root / f"node{node}" / "meminfo")

    def _numa_memory(self, node: str) -> float:
        path = self._numa_meminfo(node)
        try:
            data = self._files.read(path)
            return NO_SAMPLE if data is None else numa_memory_usage(data, path)
        except (ReadError, ParseError):
            return NO_SAMPLE


def _swap_free_bytes(meminfo: bytes) -> int:
    """Returns SwapFree; 0 without that line, which some containers' views of the file lack."""
    return proc.meminfo_bytes(meminfo, b"SwapFree") if b"\nSwapFree:" in meminfo else 0


def numa_memory_usage(data: bytes, file: str) -> float:
    """Returns MemTotal - (MemFree + Active(file) + Inactive(file) + SReclaimable), at least 0. Raises ParseError."""
    total = proc.meminfo_bytes(data, b"MemTotal", file)
    free = (b"MemFree", *_PAGE_CACHE, b"SReclaimable")
    return float(max(0, total - sum(proc.meminfo_bytes(data, field, file) for field in free)))


def _numa_nodes(root: Path) -> dict[str, frozenset[int]]:
    """Returns the CPUs of each NUMA node that has a meminfo, without nodes of a generic initiator."""
    devices = _listed(root / "has_generic_initiator")
    nodes = [path.parent.name.removeprefix("node") for path in sorted(root.glob("node[0-9]*/meminfo"))]
    return {node: _listed(root / f"node{node}" / "cpulist") for node in nodes if int(node) not in devices}


def _listed(file: Path) -> frozenset[int]:
    try:
        return frozenset(cpuset.parse(file.read_text(encoding="ascii").strip()))
    except (OSError, ValueError):
        return frozenset()
