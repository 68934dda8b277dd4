"""The node's use at this moment: the figures of a NodeMetric over the last two beats, without batch pods.

Pure. They are made of the same samples as the report's (``nodemetric``), so that the manager may put one in the place
of the other. Invariants: only measured figures are told: without the node's or the system's use there are none. A
report is due by the mean of the very samples that it is made of: if that mean were ahead of them, as after a sample
between two beats, the rest of a step would be told with the next report only.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from koord.model.nodemetric import MemoryCollectPolicy
from koord.model.priority import PriorityClass
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.report import FreshPod, FreshUsage
from qosd.cluster import systemusage, usage
from qosd.model.metric import Scope
from qosd.model.snapshot import NodeSnapshot
from qosd.sense.node import NodeRow
from qosd.sense.store import SampleStore
from qosd.sense.system import SystemRow
from qosd.sense.usage import USAGE

WINDOW_S = 1.5
"""The window holds the samples of two beats, about a second apart, and all samples between them."""
_POD = USAGE[Scope.POD]


class Level(NamedTuple):
    """The use that batch pods must make room for, roughly and at next to no cost: to see that it moves."""

    cpu_cores: float
    memory_bytes: float


class RecentLevels:
    """The levels within ``WINDOW_S``, the window of ``fresh_usage``."""

    def __init__(self) -> None:
        self._levels: deque[tuple[int, Level]] = deque()

    def mean_with(self, sampled_ns: int, newest: Level) -> Level:
        """Returns the mean of the levels in the window, with the newest among them."""
        since_ns = usage.begin_ns(sampled_ns, WINDOW_S)
        while self._levels and self._levels[0][0] < since_ns:
            self._levels.popleft()
        self._levels.append((sampled_ns, newest))
        cores, bytes_ = zip(*(level for _, level in self._levels), strict=True)
        return Level(sum(cores) / len(cores), sum(bytes_) / len(bytes_))


def level(snapshot: NodeSnapshot) -> Level | None:
    """Returns the level by the newest samples; None without them."""
    system, others = (
        snapshot.value(metric) for metric in (SystemRow.system_cpu_usage_cores, SystemRow.non_be_pods_cpu_usage_cores)
    )
    memory = snapshot.value(NodeRow.memory_usage_bytes)
    if system is None or others is None or memory is None:
        return None
    return Level(system + others + (snapshot.value(SystemRow.unattributed_cpu_cores) or 0.0), memory)


def fresh_usage(snapshot: NodeSnapshot, store: SampleStore, memory: MemoryCollectPolicy) -> FreshUsage | None:
    since_ns = usage.begin_ns(snapshot.sampled_ns, WINDOW_S)
    node = _both(
        usage.mean(store.series(NodeRow.cpu_usage_cores, "", since_ns)),
        usage.mean(store.series(NodeRow.memory_usage_bytes, "", since_ns)),
    )
    system = _both(
        usage.mean(systemusage.read(snapshot, store, systemusage.CPU, since_ns).total),
        usage.mean(systemusage.read(snapshot, store, systemusage.MEMORY, since_ns).total),
    )
    if node is None or system is None:
        return None
    return FreshUsage(node, system, _pods(snapshot, store, memory, since_ns))


def _pods(
    snapshot: NodeSnapshot, store: SampleStore, memory: MemoryCollectPolicy, since_ns: int
) -> tuple[FreshPod, ...]:
    """Returns the use of each pod; two pods of one name, such as one that ends and its successor, are one."""
    with_page_cache = memory is MemoryCollectPolicy.PAGE_CACHE
    cores = usage.means(store, _POD.cpu_usage_cores, since_ns)
    metric = _POD.memory_with_page_cache_bytes if with_page_cache else _POD.memory_usage_bytes
    bytes_ = usage.means(store, metric, since_ns)
    pods: dict[tuple[str, str], FreshPod] = {}
    for pod in snapshot.pods:
        amount = _both(cores.get(pod.cgroup), bytes_.get(pod.cgroup))
        if amount is None or pod.priority_class is PriorityClass.BATCH:
            continue
        key = pod.namespace, pod.name
        if (other := pods.get(key)) is not None:
            amount += other.usage
        pods[key] = FreshPod(*key, pod.priority_class.value, amount)
    return tuple(pods.values())


def _both(cores: float | None, bytes_: float | None) -> CPUMemory | None:
    return None if cores is None or bytes_ is None else CPUMemory(int(cores * 1000), int(bytes_))
