"""What a node offers again, written a second time: an oracle.

Plain, slow and obvious: dicts as the API serves them, fractions, one resource at a time. Where the formula is silent:

* every pod that is not of batch counts, free ones too; so does every dangling entry whose priority is not koord-batch;
  of a pod of batch its native overhead does, as it is requested;
* a pod of which a resource is not measured counts with its request, under any policy;
* a request is the native resource and the mid one together; on an amplified node the native one is divided by the
  ratio, which mid resources never were multiplied by;
* of an LSE pod whose request of CPU cannot be read, the measured use counts;
* an amount that cannot be read, or is negative, is absent; so is an annotation that is no JSON object;
* where the node's capacity is absent, or what the system uses cannot be read, nothing can be offered;
* of batch and mid resources a node shows no less than what its pods request that run, or that kubelet has given a start
  time and that have neither succeeded nor failed, whatever their class, since kubelet admits them again when it
  restarts; also where nothing may be offered. Where the strategy says ``extensions.koord.coverRunningPods: false`` it
  shows the formula's result alone, as Koordinator's does;
* a node without an allocatable amount has all of its capacity allocatable, as Kubernetes' API says of that field.

Invariant: CPU in thousandths, memory in bytes, each amount rounded up; margins, limits and shares truncated.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from fractions import Fraction
from math import ceil, floor, trunc
from typing import Any

from tests.oracles.objects import (
    BATCH,
    CPU,
    MEMORY,
    MID,
    Document,
    Unreadable,
    at,
    effective_class,
    raw_qos,
    read,
    request,
    units,
)

KEYS = (
    "batch_cpu_milli",
    "batch_memory_bytes",
    "mid_cpu_milli",
    "mid_memory_bytes",
    "original_batch_cpu_milli",
    "original_batch_memory_bytes",
)
DEFAULTS: Document = {
    "cpuReclaimThresholdPercent": 60,
    "memoryReclaimThresholdPercent": 65,
    "cpuCalculatePolicy": "usage",
    "memoryCalculatePolicy": "usage",
    "degradeTimeMinutes": 15,
    "midCPUThresholdPercent": 100,
    "midMemoryThresholdPercent": 100,
    "midUnallocatedPercent": 0,
    "midStaticCPUReservedPercent": 0,
    "midStaticMemoryReservedPercent": 0,
}
NODE = "node.koordinator.sh/"

Branches = Counter[tuple[str, bool]]
"""How often each condition held, and how often not."""


def expected(
    node: Document,
    pods: list[Document],
    metric: Document | None,
    strategy: Document,
    now_s: float,
    *,
    metric_seen_s: float | None = None,
    ratio_hundredths: int = 100,
    branches: Branches | None = None,
) -> dict[str, int | None]:
    """By ``KEYS``; None: the node shows no such resource at all. ``original``: before others' allocations."""
    observed = _Node(node, pods, metric, strategy, Counter() if branches is None else branches)
    batch_held, mid_held = (
        {resource: observed.held(names[resource]) for resource in (CPU, MEMORY)} for names in (BATCH, MID)
    )
    original: dict[str, Any] = {CPU: None, MEMORY: None}
    if observed.is_degraded(now_s, metric_seen_s):
        batch, mid = (held if any(held.values()) else original for held in (batch_held, mid_held))
    else:
        original = {resource: observed.batch(resource) for resource in (CPU, MEMORY)}
        original[CPU] = floor(Fraction(original[CPU] * ratio_hundredths, 100))
        left = {resource: original[resource] - observed.third_party(resource) for resource in (CPU, MEMORY)}
        batch = {resource: observed.at_least(left[resource], batch_held[resource]) for resource in left}
        mid = {resource: observed.at_least(observed.mid(resource), mid_held[resource]) for resource in left}
    found = [amounts[resource] for amounts in (batch, mid, original) for resource in (CPU, MEMORY)]
    return dict(zip(KEYS, found, strict=True))


class _Node:
    """One node at one moment."""

    def __init__(
        self, node: Document, pods: list[Document], metric: Document | None, strategy: Document, branches: Branches
    ) -> None:
        self.node, self.metric, self.branches = node, metric, branches
        self.strategy = {**DEFAULTS, **{key: value for key, value in strategy.items() if value not in (None, "")}}
        self.admitted = [pod for pod in pods if self.when("admitted", self.is_admitted(pod))]
        self.pods = [pod for pod in pods if self.when("pod is there", self.phase(pod) in ("Running", "Pending"))]
        entries = at(metric, "status", "podsMetric") or []
        self.usages = {(at(entry, "namespace") or "", at(entry, "name") or ""): entry for entry in entries}
        self.hosts = at(metric, "status", "hostApplicationMetric") or []
        self.annotations: dict[str, Document] = {}

    def when(self, branch: str, outcome: bool) -> bool:
        """``outcome``, counted."""
        self.branches[branch, outcome] += 1
        return outcome

    def setting(self, resource: str, for_cpu: str, for_memory: str) -> Any:
        return self.strategy.get(for_cpu if resource == CPU else for_memory)

    # what a restart of kubelet counts again

    def held(self, name: str) -> int:
        stated = at(self.strategy, "extensions", "koord", "coverRunningPods")
        if self.when("running pods are not covered", stated is False):
            return 0
        return sum(self.amount(pod, name) for pod in self.admitted)

    def is_admitted(self, pod: Document) -> bool:
        if self.phase(pod) in ("Succeeded", "Failed"):
            return False
        has_start_time = at(pod, "status", "startTime") is not None
        return self.when("has a start time", has_start_time) or self.phase(pod) == "Running"

    def at_least(self, amount: int, held: int) -> int:
        return held if self.when("more is held than offered", held > amount) else max(amount, 0)

    # freshness

    def is_degraded(self, now_s: float, metric_seen_s: float | None) -> bool:
        updated_s = _unix_s(at(self.metric, "status", "updateTime"))
        self.when("no metric", self.metric is None)
        if updated_s is None or at(self.metric, "status", "nodeMetric") is None:
            self.when("no update time", updated_s is None)
            return self.when("nothing measured", True)
        self.when("nothing measured", False)
        self.when("updated in the future", updated_s > now_s)
        age_s = now_s - min(updated_s, now_s, now_s if metric_seen_s is None else metric_seen_s)
        return self.when("stale", age_s > self.strategy["degradeTimeMinutes"] * 60) or self.is_unknown()

    def is_unknown(self) -> bool:
        capacity = at(self.node, "status", "capacity")
        system = at(self.metric, "status", "nodeMetric", "systemUsage", "resources")
        unreadable = [at(system, name) is not None and read(system, name) is None for name in (CPU, MEMORY)]
        no_capacity = self.when("no capacity", None in [read(capacity, name) for name in (CPU, MEMORY)])
        return self.when("system unreadable", any(unreadable)) or no_capacity

    # batch

    def batch(self, resource: str) -> int:
        total = self.capacity(resource)
        percent = self.setting(resource, "cpuReclaimThresholdPercent", "memoryReclaimThresholdPercent")
        self.when("threshold above 100", percent > 100)
        left = total - trunc(Fraction(total * (100 - percent), 100))
        if self.when("memory by request", self.policy(resource) == "request"):
            left -= self.reserved(resource)
        else:
            left -= self.system(resource, ("koord-prod", "koord-mid"))
        amount = max(left - self.demand(resource), 0)
        self.when("nothing left for batch", amount == 0)
        limit = self.setting(resource, "batchCPUThresholdPercent", "batchMemoryThresholdPercent")
        if self.when("batch is limited", limit is not None):
            amount = min(amount, trunc(Fraction(total * limit, 100)))
        return amount

    def policy(self, resource: str) -> str:
        policy = self.setting(resource, "cpuCalculatePolicy", "memoryCalculatePolicy")
        if self.when("cpu by request", resource == CPU and policy == "request"):
            return "usage"
        return str(policy)

    def capacity(self, resource: str) -> int:
        return read(at(self.node, "status", "capacity"), resource) or 0

    def reserved(self, resource: str) -> int:
        """NodeReserved: what kubelet or the annotation keeps, whichever is more."""
        kubelet = max(self.capacity(resource) - self.allocatable(resource), 0)
        annotation = self.annotation("reservation")
        amount = read(_table(annotation.get("resources")), resource) or 0
        cpus = _cpu_count(annotation.get("reservedCPUs")) if resource == CPU else None
        if self.when("reserved CPUs", cpus is not None):
            amount = 1000 * (cpus or 0)
        self.when("annotation reserves more than kubelet", amount > kubelet)
        return max(kubelet, amount)

    def allocatable(self, resource: str) -> int:
        raw = read(self.annotation("raw-allocatable"), resource)
        has_ratio = at(self.node, "metadata", "annotations", NODE + "resource-amplification-ratio") is not None
        if self.when("raw allocatable", raw is not None) and self.when("raw of an amplified node", has_ratio):
            return raw or 0
        amount = read(at(self.node, "status", "allocatable"), resource)
        return self.capacity(resource) if self.when("no allocatable", amount is None) else amount or 0

    def system(self, resource: str, classes: tuple[str, ...]) -> int:
        used = read(at(self.metric, "status", "nodeMetric", "systemUsage", "resources"), resource) or 0
        for application in self.hosts:
            if self.when(f"host application of {'/'.join(classes)}", at(application, "priority") in classes):
                used += read(at(application, "usage", "resources"), resource) or 0
        reserved = self.reserved(resource)
        self.when("more is reserved than used", reserved > used)
        return max(used, reserved)

    def demand(self, resource: str) -> int:
        """HPRequest, HPUsed or HPMaxUsedReq, by the policy."""
        policy = self.policy(resource)
        pods, demand = [], 0
        for pod in self.pods:
            if self.when("pod of batch", effective_class(pod) == "koord-batch"):
                overhead = {resource: at(pod, "spec", "overhead", resource)}
                demand += self.request({**pod, "spec": {"overhead": overhead}}, resource)
            else:
                pods.append(pod)
        demand += sum(self.of_pod(pod, resource, policy) for pod in pods)
        return demand if policy == "request" else demand + self.dangling(resource)

    def of_pod(self, pod: Document, resource: str, policy: str) -> int:
        requested = self.request(pod, resource)
        is_lse = resource == CPU and raw_qos(pod) == "LSE" and self.is_readable(pod, resource)
        if policy == "request":
            return requested
        if self.when("pod without metric", _key(pod) not in self.usages):
            return requested
        used = read(at(self.usages[_key(pod)], "podUsage", "resources"), resource)
        if self.when("resource not measured", used is None):
            return requested
        if self.when("maxUsageRequest", policy == "maxUsageRequest"):
            self.when("used more than requested", (used or 0) > requested)
            return max(requested, used or 0)
        return requested if self.when("CPU of LSE", is_lse) else used or 0

    def dangling(self, resource: str) -> int:
        keys = {_key(pod) for pod in self.pods}
        total = 0
        for key, entry in self.usages.items():
            is_dangling = self.when("entry without pod", key not in keys)
            if is_dangling and not self.when("dangling entry of batch", at(entry, "priority") == "koord-batch"):
                total += read(at(entry, "podUsage", "resources"), resource) or 0
        return total

    def request(self, pod: Document, resource: str) -> int:
        mid, native = (self.amount(pod, name) for name in (MID[resource], resource))
        self.when("request of mid", mid > 0)
        if self.when("CPU of its own", resource == CPU and raw_qos(pod) in ("LSE", "LSR")):
            return native + mid
        return ceil(native / self.amplification(resource)) + mid

    def amount(self, pod: Document, name: str) -> int:
        if not self.when("request is readable", self.is_readable(pod, name)):
            return 0
        return units(name, request(pod, name))

    @staticmethod
    def is_readable(pod: Document, name: str) -> bool:
        try:
            request(pod, name)
        except Unreadable:
            return False
        return True

    def amplification(self, resource: str) -> Fraction:
        """Exactly what is written: 1.2 is no binary fraction."""
        ratio = self.annotation("resource-amplification-ratio", parse_float=Fraction).get(resource)
        if isinstance(ratio, bool) or not isinstance(ratio, int | Fraction):
            ratio = 1
        return Fraction(ratio) if self.when("amplified", ratio > 1) else Fraction(1)

    def third_party(self, resource: str) -> int:
        allocations = self.annotation("thirdPartyAllocations").get("allocations")
        total = 0
        for allocation in allocations if isinstance(allocations, list) else []:
            if self.when("others' allocation of batch", _table(allocation).get("priority") == "koord-batch"):
                total += read(_table(_table(allocation).get("resources")), BATCH[resource]) or 0
        return total

    def annotation(self, name: str, **options: Any) -> Document:
        """The JSON object in the node's annotation; empty if there is none."""
        if name not in self.annotations:
            self.annotations[name] = self.read_annotation(name, options)
        return self.annotations[name]

    def read_annotation(self, name: str, options: dict[str, Any]) -> Document:
        text = at(self.node, "metadata", "annotations", NODE + name)
        try:
            found = json.loads(text or "{}", **options)
        except ValueError:
            found = None
        return _table(found) if self.when(f"{name} is readable", isinstance(found, dict)) else {}

    # mid

    def mid(self, resource: str) -> int:
        capacity = self.capacity(resource)
        limit = self.setting(resource, "midCPUThresholdPercent", "midMemoryThresholdPercent")
        if self.when("mid is static", self.strategy.get("midReclaimMode") == "static"):
            percent = self.setting(resource, "midStaticCPUReservedPercent", "midStaticMemoryReservedPercent")
            amount = trunc(Fraction(capacity * percent, 100))
        else:
            share = trunc(Fraction(self.unallocated(resource) * self.strategy["midUnallocatedPercent"], 100))
            amount = max(min(self.reclaimable(resource), self.unused(resource)), 0) + share
        self.when("mid is limited", amount > trunc(Fraction(capacity * limit, 100)))
        return min(amount, trunc(Fraction(capacity * limit, 100)))

    def reclaimable(self, resource: str) -> int:
        amount = read(at(self.metric, "status", "prodReclaimableMetric", "resource", "resources"), resource)
        self.when("nothing predicted", amount is None)
        return amount or 0

    def unused(self, resource: str) -> int:
        usage = at(self.metric, "status", "nodeMetric", "nodeUsage", "resources")
        used = {name: read(usage, name) for name in (CPU, MEMORY)}
        if self.when("node not measured", None in used.values()):
            return 0
        return self.capacity(resource) - (used[resource] or 0)

    def unallocated(self, resource: str) -> int:
        left = self.capacity(resource) - self.system(resource, ("koord-prod",))
        for pod in self.pods:
            if self.when("pod of prod", effective_class(pod) == "koord-prod"):
                left -= self.request(pod, resource)
        self.when("something unallocated", left > 0)
        return max(left, 0)

    @staticmethod
    def phase(pod: Document) -> str:
        return at(pod, "status", "phase") or ""


def _key(pod: Document) -> tuple[str, str]:
    return at(pod, "metadata", "namespace") or "", at(pod, "metadata", "name") or ""


def _table(value: Any) -> Document:
    return value if isinstance(value, dict) else {}


def _unix_s(text: str | None) -> float | None:
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _cpu_count(text: Any) -> int | None:
    """How many CPUs "0-3,8" names; None if it names none, or is no list of CPUs."""
    cpus: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            low, high = int(first), int(last or first)
            if part.endswith("-") or low > high:
                return None
            cpus.update(range(low, high + 1))
    except (AttributeError, ValueError):
        return None
    return len(cpus)
