"""The BestEffort tier's CPU: what it uses, what its pods asked for, and what it can get at most.

Real limit: the smallest CPU set of the tier and of the containers in it, and the tier's CFS
quota / period where that is less. Containers' sets are read every 10 s and when pods change, and while CPU is being
suppressed each second. Requests are those of pods that run: a finished Job asks for nothing. Invariant: a container
whose directory is gone is passed over; only the tier's own files are needed.
"""

from __future__ import annotations

from koord.host.files import row
from koord.model import cpuset
from koord.model.priority import BATCH_CPU
from koord.model.qos import QoSClass
from qosd.model.metric import Kind, Koordlet, Scope
from qosd.model.snapshot import PodView, live
from qosd.sense.host import CollectorHost
from qosd.sense.meters import path_of
from qosd.sense.rates import NANOSECONDS
from qosd.sense.row import NO_SAMPLE, SLOW_S, TICK_S, Column, Row
from qosd.sense.targets import SampleTargets
from qosd.sense.tick import Batch, NotApplicable, Tick
from qosd.sense.usage import USAGE

_SETS_KNOWN = 64
_TIER_USAGE = USAGE[Scope.TIER].cpu_usage_cores
_CPUS, _QUOTA, _PERIOD = "cpuset_cpus", "cpu_quota", "cpu_period"


class BestEffortRow(Row, source="besteffort", scope=Scope.NODE, period_s=TICK_S):
    be_cpu_usage_cores: Column = Column(
        "cores", "CPU in use by the BestEffort tier.", Kind.RATE, Koordlet("be_suppress_be_used_cpu_cores")
    )
    be_cpu_request_cores: Column = Column("cores", "Sum of the batch-cpu requests of BE pods.")
    be_cpu_real_limit_cores: Column = Column(
        "cores", "CPU that the BestEffort tier can get: its CPU set, its CFS quota."
    )


class BestEffortCollector:
    """The collector ``besteffort``; runs after ``usage``."""

    name = "besteffort"
    period_s = TICK_S
    panels = (BestEffortRow.panel,)

    def __init__(self, host: CollectorHost) -> None:
        self._tree, self._files = host.tree, host.files
        self._sizes: dict[bytes, int] = {}
        self._targets: SampleTargets | None = None
        self._tier_set = self._quota = self._period = ""
        self._sets: tuple[str, ...] = ()
        self._sets_due_ns = 0
        self._smallest: float | None = None
        self._request_cores = 0.0

    def collect(self, tick: Tick) -> Batch:
        tier = tick.targets.tiers.besteffort
        if not tier:
            raise NotApplicable("kubelet has no BestEffort tier")
        if tick.targets is not self._targets:
            self._follow(tick.targets, tier)
        if tick.suppresses or tick.at_ns >= self._sets_due_ns:
            self._sets_due_ns = tick.at_ns + int(SLOW_S * NANOSECONDS)
            self._smallest = min((size for path in self._sets if (size := self._size(path))), default=None)
        usage = tick.value(_TIER_USAGE, tier)
        limits = (self._size(self._tier_set), self._smallest, self._quota_cores())
        row = BestEffortRow(
            be_cpu_usage_cores=NO_SAMPLE if usage is None else usage,
            be_cpu_request_cores=self._request_cores,
            be_cpu_real_limit_cores=min((limit for limit in limits if limit is not None), default=NO_SAMPLE),
        )
        return [(BestEffortRow.panel, {"": row})]

    def close(self) -> None:
        self._files.drop((self._tier_set, self._quota, self._period, *self._sets))

    def _follow(self, targets: SampleTargets, tier: str) -> None:
        sets = tuple(path_of(self._tree, cgroup.path, _CPUS) for cgroup in targets.below(tier))
        self._files.drop(set(self._sets).difference(sets))
        self._tier_set, self._quota, self._period = (
            path_of(self._tree, tier, name) for name in (_CPUS, _QUOTA, _PERIOD)
        )
        self._targets, self._sets, self._sets_due_ns = targets, sets, 0
        self._request_cores = sum(map(batch_request_milli, targets.pods)) / 1000

    def _size(self, path: str) -> float | None:
        """Returns the size of a CPU set; None without a file, or if it is empty (v1, not yet set up): no limit."""
        text = self._files.read(path)
        if text is None:
            return None
        size = self._sizes.get(text)
        if size is None:
            if len(self._sizes) > _SETS_KNOWN:
                self._sizes.clear()
            size = self._sizes[text] = len(cpuset.parse(text.decode().strip()))
        return float(size) if size else None

    def _quota_cores(self) -> float | None:
        """Returns the tier's CFS quota in cores; None if it has none."""
        quota, period = self._number(_QUOTA, self._quota), self._number(_PERIOD, self._period)
        return quota / period if quota >= 0 and period > 0 else None

    def _number(self, name: str, path: str) -> int:
        """Returns the number in the file; -1 if there is none."""
        text = self._files.read(path)
        value = -1 if text is None else row(name).parse(text.decode().strip(), self._tree.version)
        return value if isinstance(value, int) else -1


def batch_request_milli(pod: PodView) -> int:
    """Returns the sum of a BE pod's ``batch-cpu`` requests; 0 for other pods, and for one that has ended."""
    if pod.context.raw_qos is not QoSClass.BE or not live(pod):
        return 0
    return sum(resources.request_milli(BATCH_CPU) or 0 for resources in pod.context.extended.values())
