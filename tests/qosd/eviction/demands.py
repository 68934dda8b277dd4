"""What has to go: Koordinator's formulas in words of their own, and what the pages promise beyond them.

Written apart from the strategies and without them: thresholds, samples and pod list in, per strategy the amounts that
lack. Exact fractions, so that a truncation too early or too late shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from koord.model.slo import CPUEvictPolicy, ResourceThresholds
from qosd.model.metric import Metric, Scope
from qosd.model.snapshot import Aggregate, NodeSnapshot, PodView
from qosd.sense.besteffort import BestEffortRow
from qosd.sense.limits import LIMITS
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE
from tests.fakes.clock import S
from tests.qosd.eviction.modelpods import Pod
from tests.qosd.eviction.world import ROOT, STAYS

RECLAIM, THROTTLE, FREEZE, EVICT = "reclaim", "throttle", "freeze", "evict"
STEPS = (RECLAIM, THROTTLE, FREEZE, EVICT)
STRATEGIES = {
    "BECPUEvict": "beCPUEvict",
    "CPUAllocatableEvict": "cpuAllocatableEvict",
    "CPUEvict": "cpuEvict",
    "BEMemoryEvict": "beMemoryEvict",
    "MemoryAllocatableEvict": "memoryAllocatableEvict",
    "MemoryEvict": "memoryEvict",
}
"""By gate, in the order in which upstream serves them."""
_BEST_EFFORT_LISTS = {"pods": 90}
_LISTS = {**_BEST_EFFORT_LISTS, "kubelet": 90}
_MOST_S: Mapping[str, Mapping[str, float]] = {
    "BECPUEvict": {"besteffort": 3, "usage": 3, **_BEST_EFFORT_LISTS},
    "CPUAllocatableEvict": {"usage": 3, **_LISTS},
    "CPUEvict": {"node": 3, "usage": 3, **_LISTS},
    "BEMemoryEvict": {"node": 3, "usage": 3, "limits": 30, **_BEST_EFFORT_LISTS},
    "MemoryAllocatableEvict": {"usage": 3, **_LISTS},
    "MemoryEvict": {"node": 3, "usage": 3, "limits": 30, **_LISTS},
}
"""How old what a gate's strategy goes by may be."""
BANDS = {"koord-prod": (9000, 9999, 9500), "koord-mid": (7000, 7999, 7500), "koord-batch": (5000, 5999, 5500),
         "koord-free": (3000, 3999, 3500)}  # fmt: skip
HORIZON_S, SLOPE_S = 10, 6
TIER = USAGE[Scope.TIER]


@dataclass(frozen=True)
class Demand:
    """``amount`` in thousandths of a CPU or in bytes; ``extended_resource``: requests of this one have to go."""

    gate: str
    resource: str
    amount: int
    extended_resource: str = ""
    steps: tuple[str, ...] = STEPS
    left_s: float | None = None
    sampled_ns: int = 0
    is_in_vain: bool = False

    @property
    def strategy(self) -> str:
        return STRATEGIES[self.gate]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.strategy, self.resource, self.extended_resource


class Refused(Exception):
    """The settings do not allow anything."""


def band_of(pod: Pod, told: int | None) -> str:
    """The label, else the number's band, else by the class; a label that nobody knows is none."""
    label = pod.labels.get("koordinator.sh/priority-class")
    if label is not None:
        by_label = label if label in BANDS else ""
    else:
        by_label = next(
            (name for name, (low, high, _) in BANDS.items() if told is not None and low <= told <= high), ""
        )
    is_best_effort = pod.qos == "BE" or (not pod.qos and "besteffort" in pod.cgroup)
    return by_label or ("koord-batch" if is_best_effort else "koord-prod")


def number_of(pod: Pod, told: int) -> int:
    """The number that evictions compare."""
    return told or BANDS[band_of(pod, told)][2]


def is_live(view: PodView) -> bool:
    return view.state != "SANDBOX_NOTREADY" or any(
        each.state == "CONTAINER_RUNNING" for each in view.containers if not each.is_sandbox
    )


def demands(
    at: NodeSnapshot, pods: Mapping[str, Pod], evictable_bytes: Callable[[str], int]
) -> dict[str, tuple[Demand, ...]]:
    """By gate; a gate that is not there is shut, or what it goes by is too old.

    ``evictable_bytes``: what all pods have that a gate may evict.
    """
    thresholds = at.policy.slo.thresholds
    assert thresholds is not None
    found = {}
    for gate in STRATEGIES:
        if not thresholds.enable or not at.policy.node.features.get(gate):
            continue
        if any(at.ages_s.get(name, most_s + 1) > most_s for name, most_s in _MOST_S[gate].items()):
            continue
        try:
            of_memory = _OF_MEMORY.get(gate)
            if of_memory is not None:
                found[gate] = tuple(of_memory(at, thresholds, evictable_bytes))
            else:
                found[gate] = tuple(_OF_GATE[gate](at, thresholds, pods))
        except Refused:
            found[gate] = ()
    return found


def oldest_ns(at: NodeSnapshot, *names: str) -> int:
    return min(at.sampled_ns, *(round(at.monotonic_ns - at.ages_s[name] * S) for name in names))


def _setting(value: int | None, low: int, high: int) -> int:
    if value is None or not low <= value <= high:
        raise Refused
    return value


def _window(at: NodeSnapshot, thresholds: ResourceThresholds, metric: Metric) -> Aggregate | None:
    """None where less than a third of it is covered."""
    seconds = max(1, thresholds.cpu_evict_time_window_seconds or 0)
    found = next((by for window, by in at.windows.items() if window.metric is metric and window.over_s == seconds), {})
    aggregate = found.get("")
    if aggregate is None or aggregate.count < max(1, seconds // 3) or aggregate.span_s + 1 < seconds // 3:
        return None
    return aggregate


def _milli(cores: float | None) -> int | None:
    return None if cores is None else round(cores * 1000)


# satisfaction of best-effort pods


def _satisfaction(at: NodeSnapshot, said: ResourceThresholds, pods: Mapping[str, Pod]) -> Iterator[Demand]:
    lower = _setting(said.cpu_evict_be_satisfaction_lower_percent, 1, 60)
    upper = _setting(said.cpu_evict_be_satisfaction_upper_percent, lower, 99)
    used_percent = said.cpu_evict_be_usage_threshold_percent
    used_percent = 90 if used_percent is None else used_percent
    rows = [BestEffortRow.be_cpu_usage_cores, BestEffortRow.be_cpu_request_cores]
    fixed = None
    if said.cpu_evict_policy is CPUEvictPolicy.BY_ALLOCATABLE:
        amount = at.policy.node.allocatable.get("kubernetes.io/batch-cpu")
        if amount is None:
            return
        fixed = max(1, amount.value())
    else:
        rows.append(BestEffortRow.be_cpu_real_limit_cores)
    means = [_window(at, said, row) for row in rows]
    lasts = [_milli(at.value(row)) for row in rows]
    if None in means or None in lasts:
        return
    mean = [_milli(each.mean) for each in means if each is not None] + ([fixed] if fixed is not None else [])
    last = lasts + ([fixed] if fixed is not None else [])
    release = None
    for usage, request, limit in (mean, last):
        assert usage is not None and request is not None and limit is not None
        if limit <= 0 or (limit >= 1000 and Fraction(usage, limit) < Fraction(used_percent, 100)):
            return
        if release is not None and [request, limit] == mean[1:]:
            continue
        if request <= 0 or Fraction(limit, request) > Fraction(lower, 100):
            return
        now = floor(request * (Fraction(upper, 100) - Fraction(limit, request)))
        release = now if release is None else min(release, now)
    if release is not None and release > 0:
        sampled_ns = oldest_ns(at, "besteffort", "usage")
        yield Demand("BECPUEvict", "cpu", release, "kubernetes.io/batch-cpu", (EVICT,), sampled_ns=sampled_ns)


# usage of CPU and memory


def _usage_percents(upper: int | None, lower: int | None) -> tuple[int, int]:
    upper = _setting(upper, 1, 100)
    return upper, max(0, upper - 2) if lower is None else _setting(lower, 0, upper - 1)


def _cpu_usage(at: NodeSnapshot, said: ResourceThresholds, pods: Mapping[str, Pod]) -> Iterator[Demand]:
    upper, lower = _usage_percents(said.cpu_evict_threshold_percent, said.cpu_evict_lower_percent)
    if said.evict_enabled_priority_threshold is None:
        raise Refused
    mean, last = _window(at, said, NodeRow.cpu_usage_cores), at.value(NodeRow.cpu_usage_cores)
    if mean is None or last is None:
        return
    capacity = len(at.topology.cpus) * 1000
    if floor(Fraction(round(mean.mean * 1000) * 100, capacity)) < upper:
        return
    percent = min(floor(Fraction(round(cores * 1000) * 100, capacity)) for cores in (mean.mean, last))
    amount = floor(Fraction(capacity * (percent - lower), 100))
    if amount > 0:
        yield Demand("CPUEvict", "cpu", amount, sampled_ns=oldest_ns(at, "node", "usage"))


def _memory(
    at: NodeSnapshot, said: ResourceThresholds, gate: str, evictable_bytes: Callable[[str], int]
) -> Iterator[Demand]:
    upper, lower = _usage_percents(said.memory_evict_threshold_percent, said.memory_evict_lower_percent)
    whole, cached, lefts, is_in_vain = [], [], [], False
    for is_of_pods, capacity, used, with_cache, slope in _walls(at):
        left_s = max(0, capacity - used) / slope if slope > 0 else None
        is_soon = left_s is not None and left_s <= HORIZON_S
        percent, cache_percent = used * 100 // capacity, with_cache * 100 // capacity
        amount, cache_amount = (capacity * (each - lower) // 100 for each in (percent, cache_percent))
        others = max(0, used - evictable_bytes(gate)) * 100 // capacity if is_of_pods else 0
        has_time = percent < 99 and not is_soon
        if amount > 0 and percent >= upper and has_time and others < upper:
            amount = capacity * (percent - max(lower, others)) // 100
        if amount > 0 and percent >= upper and has_time and others >= upper:
            is_in_vain = True
            cached.append(cache_amount)
        elif amount > 0 and (percent >= upper or is_soon):
            whole.append(amount)
        elif cache_percent >= upper:
            cached.append(cache_amount)
        else:
            continue
        if percent >= 99:
            lefts.append(0.0)
        elif is_soon and left_s is not None:
            lefts.append(left_s)
    if whole or cached:
        steps = STEPS if whole else (RECLAIM,)
        left_s = min(lefts, default=None)
        sampled_ns = oldest_ns(at, "node", "usage")
        yield Demand(gate, "memory", max(whole or cached), "", steps, left_s, sampled_ns, is_in_vain and not whole)


def _walls(at: NodeSnapshot) -> Iterator[tuple[bool, int, int, int, float]]:
    """Whether it is the pods' limit; capacity, what is used of it for good, the same with cache, bytes per second."""
    total, used = at.value(NodeRow.memory_total_bytes), at.value(NodeRow.memory_usage_bytes)
    if total and used is not None:
        yield False, int(total), int(used), int(used), _slope(at, NodeRow.memory_usage_bytes, "")
    rows = LIMITS[Scope.TIER].memory_limit_bytes, STAYS, TIER.memory_working_set_bytes
    figures = [at.value(row, ROOT) for row in rows]
    if None not in figures and figures[0]:
        limit, own, working_set = (int(each) for each in figures if each is not None)
        yield True, limit, own, max(own, working_set), _slope(at, TIER.memory_usage_bytes, ROOT)


def _slope(at: NodeSnapshot, metric: Metric, subject: str) -> float:
    found = next((by for window, by in at.windows.items() if window.metric is metric and window.over_s == SLOPE_S), {})
    aggregate = found.get(subject)
    is_enough = aggregate is not None and aggregate.count >= 3 and aggregate.span_s >= 1.5
    return aggregate.slope_per_s if is_enough and aggregate is not None else 0.0


def _best_effort_memory(
    at: NodeSnapshot, said: ResourceThresholds, evictable_bytes: Callable[[str], int]
) -> Iterator[Demand]:
    yield from _memory(at, said, "BEMemoryEvict", evictable_bytes)


def _memory_by_priority(
    at: NodeSnapshot, said: ResourceThresholds, evictable_bytes: Callable[[str], int]
) -> Iterator[Demand]:
    _usage_percents(said.memory_evict_threshold_percent, said.memory_evict_lower_percent)
    if said.evict_enabled_priority_threshold is None:
        raise Refused
    yield from _memory(at, said, "MemoryEvict", evictable_bytes)


# allocatable


def _ledger(
    at: NodeSnapshot, gate: str, upper: int | None, lower: int | None, threshold: int | None, pods: Mapping[str, Pod]
) -> Iterator[Demand]:
    upper = _setting(upper, 0, 1 << 31)
    lower, threshold = _setting(lower, 0, upper - 1), _setting(threshold, -(1 << 31), 7999)
    resource, unit = ("cpu", 1) if "CPU" in gate else ("memory", 1 << 20)
    for kind in ("batch", "mid"):
        extended_resource = f"kubernetes.io/{kind}-{resource}"
        there = at.policy.node.allocatable.get(extended_resource)
        if there is None:
            continue
        requested = 0
        for view in at.pods:
            pod, told = pods[view.uid], view.priority
            is_counted = told is not None and is_live(view) and number_of(pod, told) <= threshold
            if is_counted and pod.kind == kind and band_of(pod, told) == f"koord-{kind}":
                requested += pod.request * unit
        allocatable = there.value()
        if not allocatable:
            amount = requested
        elif Fraction(requested, allocatable) > Fraction(upper, 100):
            amount = floor(requested - Fraction(lower, 100) * allocatable)
        else:
            continue
        if amount > 0:
            yield Demand(gate, resource, amount, extended_resource, (EVICT,), sampled_ns=oldest_ns(at, "usage"))


def _cpu_ledger(at: NodeSnapshot, said: ResourceThresholds, pods: Mapping[str, Pod]) -> Iterator[Demand]:
    upper, lower = said.cpu_allocatable_evict_threshold_percent, said.cpu_allocatable_evict_lower_percent
    yield from _ledger(at, "CPUAllocatableEvict", upper, lower, said.allocatable_evict_priority_threshold, pods)


def _memory_ledger(at: NodeSnapshot, said: ResourceThresholds, pods: Mapping[str, Pod]) -> Iterator[Demand]:
    upper, lower = said.memory_allocatable_evict_threshold_percent, said.memory_allocatable_evict_lower_percent
    yield from _ledger(at, "MemoryAllocatableEvict", upper, lower, said.allocatable_evict_priority_threshold, pods)


_OF_GATE = {
    "BECPUEvict": _satisfaction,
    "CPUAllocatableEvict": _cpu_ledger,
    "CPUEvict": _cpu_usage,
    "MemoryAllocatableEvict": _memory_ledger,
}
_OF_MEMORY = {"BEMemoryEvict": _best_effort_memory, "MemoryEvict": _memory_by_priority}
