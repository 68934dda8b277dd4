"""Measures the usage of containers, pods, tiers and host applications, in one batch.

The kubepods root and its pods are read in the same batch as the node, so that their difference is of one moment.
"""

from __future__ import annotations

from itertools import cycle

from koord.host.cgroup import Tree
from koord.host.reader import KeptFiles
from qosd.model.metric import CGROUP_SCOPES, Kind, Koordlet, Scope
from qosd.sense.host import Clock, CollectorHost
from qosd.sense.meters import REFRESH_TICKS, CpuV1, CpuV2, MemoryMeter
from qosd.sense.percgroup import PerCgroup
from qosd.sense.row import TICK_S, Column, Row, constructor
from qosd.sense.targets import SampledCgroup
from qosd.sense.tick import Batch, Tick


def _host_app(resource: str) -> dict[Scope, Koordlet]:
    return {Scope.HOST_APP: Koordlet("host_application_resource_usage", {"resource": resource})}


class UsageRow(Row):
    cpu_usage_cores: Column = Column("cores", "CPU in use by the cgroup and all below it.", Kind.RATE, _host_app("cpu"))
    cpu_throttled_ratio: Column = Column(
        "ratio", "CFS periods in which the quota ran out, of all; 0 if none began.", Kind.RATE
    )
    cpu_throttled_us_per_s: Column = Column("us/s", "Time for which the quota stopped runnable threads.", Kind.RATE)
    memory_usage_bytes: Column = Column(
        "bytes",
        "Memory without page cache: active and inactive anon pages + unevictable.",
        koordlet=_host_app("memory"),
    )
    memory_with_page_cache_bytes: Column = Column("bytes", "The same + active and inactive file pages.")
    memory_working_set_bytes: Column = Column(
        "bytes", "What kubelet evicts by: all charged memory - inactive file pages."
    )
    memory_refaults_per_s: Column = Column("pages/s", "Pages read back after reclaim had taken them.", Kind.RATE)
    memory_major_faults_per_s: Column = Column("1/s", "Page faults that had to read from a disk.", Kind.RATE)
    memory_unreclaimable_bytes: Column = Column(
        "bytes",
        "Memory that the kernel cannot take back by itself: without page cache, swap cache and dentries and inodes.",
        history=False,
    )
    memory_reclaimable_bytes: Column = Column(
        "bytes",
        "Memory that the kernel can take back at once: clean page cache, swap cache and, on cgroup v2, dentries and "
        "inodes.",
        history=False,
    )
    cpu_seconds: Column = Column("s", "CPU time that the cgroup has had since it exists.", Kind.COUNTER, history=False)


_usage = constructor(UsageRow)
USAGE = UsageRow.by_scope(CGROUP_SCOPES, "usage", TICK_S)


class UsageCollector:
    """The collector ``usage``."""

    name = "usage"
    period_s = TICK_S
    panels = tuple(row.panel for row in USAGE.values())

    def __init__(self, host: CollectorHost) -> None:
        phases = cycle(range(REFRESH_TICKS))  # so that not all are refreshed in the same tick

        def meter(cgroup: SampledCgroup) -> UsageGauge:
            return UsageGauge(host.tree, cgroup.path, host.files, host.clock, next(phases))

        self._meters = PerCgroup(USAGE, host.files, meter)

    def collect(self, tick: Tick) -> Batch:
        return self._meters.batch(tick)

    def close(self) -> None:
        self._meters.close()


class UsageGauge:
    """Measures all usage of one cgroup.

    ``phase``: in which of ``REFRESH_TICKS`` ticks it refreshes what seldom changes.
    """

    __slots__ = ("_cpu", "_memory", "_misses", "_rests")

    def __init__(self, tree: Tree, cgroup: str, files: KeptFiles, clock: Clock, phase: int = 0) -> None:
        make_cpu = CpuV1 if tree.version == 1 else CpuV2
        self._cpu: CpuV1 | CpuV2 = make_cpu(tree, cgroup, files, clock, phase)
        self._memory = MemoryMeter(tree, cgroup, files, clock, phase)
        self._misses = self._rests = 0

    @property
    def paths(self) -> tuple[str, ...]:
        return self._cpu.paths + self._memory.paths

    def sample(self) -> UsageRow | None:
        """Returns the usage; None without the cgroup. One that stays away is looked for less and less often."""
        if self._rests:
            self._rests -= 1
            return None
        cpu = self._cpu.sample()
        if cpu is None:
            self._memory.forget()
            self._misses += 1
            self._rests = min(self._misses // 4, 30)
            return None
        self._misses = 0
        cores, throttled_ratio, throttled_us_per_s = cpu
        (
            usage_bytes,
            with_page_cache_bytes,
            working_set_bytes,
            refaults_per_s,
            major_faults_per_s,
            unreclaimable_bytes,
            reclaimable_bytes,
        ) = self._memory.sample()
        return _usage(
            cpu_usage_cores=cores,
            cpu_throttled_ratio=throttled_ratio,
            cpu_throttled_us_per_s=throttled_us_per_s,
            memory_usage_bytes=usage_bytes,
            memory_with_page_cache_bytes=with_page_cache_bytes,
            memory_working_set_bytes=working_set_bytes,
            memory_refaults_per_s=refaults_per_s,
            memory_major_faults_per_s=major_faults_per_s,
            memory_unreclaimable_bytes=unreclaimable_bytes,
            memory_reclaimable_bytes=reclaimable_bytes,
            cpu_seconds=self._cpu.seconds,
        )
