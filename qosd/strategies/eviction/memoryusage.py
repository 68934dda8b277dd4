"""Frees memory of pods before an allocation fails at a memory limit: of best-effort pods, or by priority.

There are two memory limits: the node's memory, and the limit of the cgroup of all pods, which kubelet sets on most
nodes. Only memory that the kernel cannot reclaim counts: MemTotal - MemAvailable of the node, and
``memory_unreclaimable_bytes`` of the pods' cgroup. Reclaimable memory (page cache, dentries and inodes) is never a
reason to throttle, freeze or evict; if the working set (kubelet's measure, which includes it) comes too near to the
pods' limit, best-effort pods' cache is reclaimed, before latency-sensitive pods have to wait for reclaim.

Pods that may not be evicted can fill the pods' limit beyond the threshold by themselves: no eviction could bring the
usage below it then, so only cache is reclaimed, unless the limit will be reached soon, when evicting still gains time.
If these pods alone use more than the lower percent, eviction stops at what they use.

Where memory fills fast a percentage is reached too late: so the slope of the last seconds counts too, and a limit that
would be reached within ``HORIZON_S`` counts as reached. The strategies never demand more than the usage above the lower
percent. The kernel wakes the daemon when tasks stall for memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar

import msgspec

from koord.model import readable
from koord.model.formulas import Formula
from koord.model.qos import KubeQoS
from koord.model.slo import ResourceThresholds
from qosd.decide.decision import Decision
from qosd.decide.shortage import OrderKey, ReliefStep, Resource, Shortage, Victims
from qosd.decide.victims import is_victim
from qosd.model.metric import Metric, Scope
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import NodeSnapshot, PressureTrigger, Window
from qosd.sense.limits import LIMITS
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE
from qosd.strategies.eviction.evicting import (
    BEST_EFFORT_BY_AMOUNT,
    BEST_EFFORT_LISTS,
    BY_PRIORITY,
    LISTS,
    MEMORY_TO_RELEASE,
    SAMPLES_S,
    Evicting,
    best_effort,
    by_priority,
    percent_of,
    release_inputs,
    required,
    to_release,
    usage_percents,
)

HORIZON_S = 10.0
"""As long as the mild steps take before a pod is evicted."""
LAST_PERCENT = 99
"""Of the limit: beyond it the kernel is reclaiming, or about to kill, whatever the slope is."""
SLOPE_S = 6.0
"""A little more than the time after which every cgroup's memory is read anew, whatever its charge is."""
_SLOPE_SAMPLES, _SLOPE_SPAN_S = 3, 1.5
"""Two samples, or some between two beats, are no slope."""
_SAMPLES: Mapping[str, float] = MappingProxyType({"node": SAMPLES_S, "usage": SAMPLES_S, "limits": 30.0})
"""Three samples of each."""
_ROOT = KubeQoS.GUARANTEED
_TIER, _POD = USAGE[Scope.TIER], USAGE[Scope.POD]
_LIMIT = LIMITS[Scope.TIER].memory_limit_bytes
_NODE_SLOPE, _ROOT_SLOPE = Window(NodeRow.memory_usage_bytes, SLOPE_S), Window(_TIER.memory_usage_bytes, SLOPE_S)
GROWTH = Window(_POD.memory_usage_bytes, SLOPE_S)
_TRIGGERS = tuple([PressureTrigger("memory", "some", 100_000, 1_000_000, tier) for tier in (None, _ROOT)])


class _MemoryLimit(msgspec.Struct, frozen=True):
    """A limit. ``used_bytes``: unreclaimable memory; ``with_cache_bytes``: with what the kernel has not reclaimed yet.

    ``is_of_pods``: it is the limit of all pods, beside which the node may have memory left.
    """

    name: str
    capacity_bytes: int
    used_bytes: int
    with_cache_bytes: int
    slope_bytes_per_s: float
    is_of_pods: bool = False

    @property
    def left_s(self) -> float | None:
        """The seconds until the limit is reached if usage grows on like this; None: more than ``HORIZON_S``."""
        if self.slope_bytes_per_s <= 0:
            return None
        left_s = max(0, self.capacity_bytes - self.used_bytes) / self.slope_bytes_per_s
        return left_s if left_s <= HORIZON_S else None

    @property
    def late_s(self) -> float | None:
        """The same; 0 from ``LAST_PERCENT`` on, where usage may stop growing because nothing is left."""
        return 0.0 if percent_of(self.used_bytes, self.capacity_bytes) >= LAST_PERCENT else self.left_s


class _Demand(msgspec.Struct, frozen=True):
    """The amount to free for one limit, down to ``lower_percent``, and the steps that may be taken for it."""

    limit: _MemoryLimit
    amount: int
    used_bytes: int
    lower_percent: int
    steps: frozenset[ReliefStep]
    why: str


class _Memory(Evicting[None]):
    formulas: ClassVar[tuple[Formula, ...]] = (MEMORY_TO_RELEASE,)
    triggers: ClassVar[tuple[PressureTrigger, ...]] = _TRIGGERS
    order: ClassVar[tuple[OrderKey, ...]]

    def windows_under(self, policy: EffectivePolicy) -> tuple[Window, ...]:
        return (_NODE_SLOPE, _ROOT_SLOPE, GROWTH) if self.is_on(policy) else ()

    def victims(self, thresholds: ResourceThresholds) -> Victims:
        """Raises SettingError."""
        raise NotImplementedError

    def states(self, snapshot: NodeSnapshot, thresholds: ResourceThresholds, last: None) -> tuple[Decision, None]:
        upper, lower = usage_percents(thresholds, "memory_evict_threshold_percent", "memory_evict_lower_percent")
        victims = self.victims(thresholds)
        limits = list(_limits(snapshot))
        if not limits:
            return Decision("the node's memory has not been measured yet"), None
        demands = [
            demand
            for limit in limits
            if (demand := _demand(limit, upper, lower, lambda: self._evictable_bytes(victims, snapshot))) is not None
        ]
        if not demands:
            has = " and ".join(
                f"{percent_of(limit.used_bytes, limit.capacity_bytes)} % of {limit.name}" for limit in limits
            )
            return Decision(f"{has} is in use: no pod is evicted below {upper} %"), None
        worst = max(demands, key=lambda demand: (len(demand.steps), demand.amount))
        inputs = release_inputs(
            Resource.MEMORY_BYTES, worst.used_bytes, worst.limit.capacity_bytes, worst.lower_percent
        )
        shortage = Shortage(
            Resource.MEMORY_BYTES,
            worst.amount,
            victims,
            self.order,
            worst.why,
            steps=worst.steps,
            inputs=inputs,
            sampled_ns=snapshot.sampled_by("node", "usage"),
            left_s=min((late_s for each in demands if (late_s := each.limit.late_s) is not None), default=None),
            growth=GROWTH,
        )
        return Decision(f"{worst.why}: {readable.memory(worst.amount)} must be freed", shortages=(shortage,)), None

    def _evictable_bytes(self, victims: Victims, snapshot: NodeSnapshot) -> int:
        """Returns the unreclaimable memory of all pods that may be evicted, also of those already being evicted."""
        anything = Shortage(Resource.MEMORY_BYTES, 1, victims, self.order, "")
        pods = [pod for pod in snapshot.pods if is_victim(pod, anything, snapshot)]
        return sum([_bytes(snapshot, _POD.memory_unreclaimable_bytes, pod.cgroup) or 0 for pod in pods])


class BestEffortMemory(_Memory):
    """The strategy ``beMemoryEvict``."""

    name: ClassVar[str] = "beMemoryEvict"
    gate: ClassVar[str] = "BEMemoryEvict"
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({**_SAMPLES, **BEST_EFFORT_LISTS})
    order: ClassVar[tuple[OrderKey, ...]] = BEST_EFFORT_BY_AMOUNT

    def victims(self, thresholds: ResourceThresholds) -> Victims:
        return best_effort(self.gate)


class MemoryByPriority(_Memory):
    """The strategy ``memoryEvict``."""

    name: ClassVar[str] = "memoryEvict"
    gate: ClassVar[str] = "MemoryEvict"
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({**_SAMPLES, **LISTS})
    order: ClassVar[tuple[OrderKey, ...]] = BY_PRIORITY

    def victims(self, thresholds: ResourceThresholds) -> Victims:
        return by_priority(self.gate, required(thresholds, "evict_enabled_priority_threshold"))


def _limits(snapshot: NodeSnapshot) -> Iterator[_MemoryLimit]:
    """Yields the memory limits whose figures are all known."""
    total, used = (_bytes(snapshot, metric) for metric in (NodeRow.memory_total_bytes, NodeRow.memory_usage_bytes))
    if total and used is not None:
        yield _MemoryLimit("the node's memory", total, used, used, _slope(snapshot, _NODE_SLOPE, ""))
    root = snapshot.tiers.get(_ROOT, "")
    metrics = (_LIMIT, _TIER.memory_unreclaimable_bytes, _TIER.memory_working_set_bytes)
    limit, used, working_set = (_bytes(snapshot, metric, root) for metric in metrics)
    if limit and used is not None and working_set is not None:
        slope = _slope(snapshot, _ROOT_SLOPE, root)
        yield _MemoryLimit("the pods' limit", limit, used, max(used, working_set), slope, is_of_pods=True)


def _bytes(snapshot: NodeSnapshot, metric: Metric, subject: str = "") -> int | None:
    value = snapshot.value(metric, subject)
    return None if value is None or not math.isfinite(value) else int(value)


def _slope(snapshot: NodeSnapshot, window: Window, subject: str) -> float:
    """Returns bytes per second; 0 while there are too few samples."""
    aggregate = snapshot.window(window, subject)
    if aggregate is None or aggregate.count < _SLOPE_SAMPLES or aggregate.span_s < _SLOPE_SPAN_S:
        return 0.0
    return aggregate.slope_per_s


def _demand(
    limit: _MemoryLimit, upper_percent: int, lower_percent: int, evictable_bytes: Callable[[], int]
) -> _Demand | None:
    """Returns the demand; None: the limit is far. ``evictable_bytes``: the memory of the pods that may be evicted."""
    percent = percent_of(limit.used_bytes, limit.capacity_bytes)
    amount = to_release(limit.used_bytes, limit.capacity_bytes, lower_percent)
    size = readable.memory(limit.capacity_bytes)
    has = f"{percent} % of {limit.name} ({size}) is in use"
    if amount > 0 and percent >= upper_percent:
        stops_at, remark = lower_percent, ""
        if limit.is_of_pods and limit.late_s is None:
            others = percent_of(max(0, limit.used_bytes - evictable_bytes()), limit.capacity_bytes)
            if others >= upper_percent:
                return _of_cache(
                    limit,
                    lower_percent,
                    f"{has}; without the pods that may be evicted it would be {others} %, and eviction starts at "
                    f"{upper_percent} %: page cache alone is reclaimed",
                )
            if others > lower_percent:
                stops_at, remark = others, ", what it would be without the pods that may be evicted"
        why = f"{has}; eviction starts at {upper_percent} % and stops at {stops_at} %{remark}"
        amount = to_release(limit.used_bytes, limit.capacity_bytes, stops_at)
        return _Demand(limit, amount, limit.used_bytes, stops_at, frozenset(ReliefStep), why)
    if amount > 0 and limit.left_s is not None:
        why = f"{has}, and all of it in {limit.left_s:.0f} s if that goes on"
        return _Demand(limit, amount, limit.used_bytes, lower_percent, frozenset(ReliefStep), why)
    percent = percent_of(limit.with_cache_bytes, limit.capacity_bytes)
    if percent < upper_percent:
        return None
    why = f"{percent} % of {limit.name} ({size}) is in use with page cache, which can be reclaimed"
    return _of_cache(limit, lower_percent, why)


def _of_cache(limit: _MemoryLimit, lower_percent: int, why: str) -> _Demand:
    """Returns a demand for which only cache is reclaimed."""
    amount = to_release(limit.with_cache_bytes, limit.capacity_bytes, lower_percent)
    return _Demand(limit, amount, limit.with_cache_bytes, lower_percent, frozenset({ReliefStep.RECLAIM}), why)
