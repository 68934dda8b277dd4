"""The steps of relief: the effects of each on one claim at one moment, as plain values.

Each step gets the same case: how much is still needed, and which pods may give it in which order. Pure; of earlier
steps only the frozen pods are known here. A step that can do nothing on this node, or with these pods, returns None,
and the next one is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from koord.host.files import Target
from koord.model import cfs
from koord.model.formulas import FORMULA, Inputs
from koord.model.quantity import MilliCPU
from qosd.decide.decision import Eviction, OneShot, Opinion, Opinions
from qosd.decide.shortage import Key, Measure, ReliefStep, Resource, ShortageClaim
from qosd.decide.victims import Amounts, Candidate, Owner, container_cpu_milli, parts_of
from qosd.model.snapshot import EvictionPhase, EvictionState, NodeSnapshot, PodView, running_containers

SECOND_NS = 1_000_000_000
RECLAIM_WAIT_NS = 2 * SECOND_NS
"""The kernel reclaims while the write lasts; the next sample but one shows all of it."""
LEAST_PART = 8
"""A step that frees less than this part of the need is left out, and growth below it does not count."""
GROWTH_S = 10
"""The growth of a pod counts over so long."""
THROTTLE_WAIT_NS = 5 * SECOND_NS
"""A bound below the usage needs some CFS periods, or the allocations of some seconds, to be felt."""
FREEZE_WAIT_NS = 5 * SECOND_NS
"""Half of ``FREEZE_MOST_NS``: if an eviction has to follow, it finds the pod still frozen."""
FREEZE_MOST_NS = 10 * SECOND_NS
"""Liveness probes and clients of a frozen pod give up after some tens of seconds; it has to run before."""
STOP_NS = 2 * SECOND_NS
"""The time that the runtime has to kill the processes of a frozen pod, before it is thawed and they end."""
EVICTIONS_PER_MINUTE = 10
"""A wrong threshold must not empty a node before people see it."""
COOL_NS = {Resource.CPU_MILLI: 20 * SECOND_NS, Resource.MEMORY_BYTES: 4 * SECOND_NS}
"""How long evictions for a resource rest after a round of them: upstream's cool-down times."""
_THAW_NS = 2 * SECOND_NS
"""The first rate of a thawed pod still counts a part of the time in which it stood still."""
MEMORY_FLOOR_BYTES = 16 << 20
"""Below it a process only faults its own code in again and again."""
CPU_FLOOR_MILLI = 100
"""Enough to answer probes and to end in order."""
_CONTAINER_FLOOR_MILLI = 10

QUOTA, HIGH, FREEZE = "cpu_quota", "memory.high", "cgroup.freeze"
ROWS: frozenset[str] = frozenset({QUOTA, HIGH, FREEZE})
"""The kernel files of the opinions."""
_RECLAIM = {1: "memory.force_empty", 2: "memory.reclaim"}
FLOORS = {Resource.CPU_MILLI: CPU_FLOOR_MILLI, Resource.MEMORY_BYTES: MEMORY_FLOOR_BYTES}

_NOBODY_GROWS = f"none of them grows, so none is frozen: nobody is evicted for {FREEZE_WAIT_NS // SECOND_NS} s"

NO_GIFTS: Mapping[str, int] = MappingProxyType({})


class Throttle(msgspec.Struct, frozen=True, eq=False):
    """A pod bounded to ``allowance`` of ``resource``. ``opinions``: on the containers of this view of the pod.

    ``used_milli``: the CPU that it used before.
    """

    pod: PodView
    resource: Resource
    allowance: int
    why: str
    used_milli: int
    opinions: Opinions


class Freeze(msgspec.Struct, frozen=True):
    """A pod that episode ``key`` froze; kept after the freeze, because an episode freezes a pod only once."""

    key: Key
    since_ns: int
    used_milli: int
    target: Target
    opinion: Opinion
    over_ns: int | None = None
    """When it was withdrawn; None: it is in force."""

    def is_over(self, eviction: EvictionState | None, now_ns: int) -> bool:
        """Is it over by the clock, or is it to be, so that processes that the eviction has killed can end (v1)?"""
        if now_ns - self.since_ns >= FREEZE_MOST_NS:
            return True
        if eviction is None or eviction.since_ns < self.since_ns:
            return False
        return eviction.phase is not EvictionPhase.STOPPING or now_ns - eviction.since_ns >= STOP_NS

    def is_felt(self, sampled_ns: int) -> bool:
        """May samples of ``sampled_ns`` show less CPU than the pod uses when it is not frozen?"""
        return self.over_ns is None or sampled_ns < self.over_ns + _THAW_NS


class StepEffects(msgspec.Struct, frozen=True, eq=False):
    """The effects of one step on one claim. ``stops_growth``: does it stop its pods from taking more at once?"""

    step: ReliefStep
    wait_ns: int = 0
    gives: Mapping[str, int] = NO_GIFTS
    one_shots: tuple[OneShot, ...] = ()
    throttles: Mapping[str, Throttle] = MappingProxyType({})
    freezes: Mapping[str, Freeze] = MappingProxyType({})
    evictions: tuple[Eviction, ...] = ()
    remark: str = ""
    stops_growth: bool = True

    @property
    def is_any(self) -> bool:
        """Has the step an effect? Not if evictions are due and none is allowed yet."""
        return self.step is not ReliefStep.EVICT or bool(self.evictions)


NO_EFFECTS = StepEffects(ReliefStep.RECLAIM)


class Case(msgspec.Struct, frozen=True, eq=False):
    """A claim at the moment of a step: ``need`` is the amount that nothing on its way covers.

    ``taken``: how many pods of each owner have been evicted lately. ``rests_ns``: how long evictions rest.
    """

    claim: ShortageClaim
    node: NodeSnapshot
    need: int
    candidates: tuple[Candidate, ...]
    amounts: Amounts
    freezes: Mapping[str, Freeze]
    evictions_left: int
    taken: Mapping[Owner, int] = MappingProxyType({})
    rests_ns: int = 0

    @property
    def resource(self) -> Resource:
        return self.claim.shortage.resource

    def parts(self, able: Iterable[Candidate], floor: int = 0) -> list[tuple[Candidate, int]]:
        """Returns the candidates that are to give, each with its part."""
        return list(parts_of(able, self.need, self.claim.shortage.order, self.taken, floor))

    def parts_with_growing(self, able: Iterable[Candidate], floor: int = 0) -> list[tuple[Candidate, int]]:
        """Returns ``parts``; if it is soon too late, also the growing candidates that have nothing to give yet."""
        able = tuple(able)
        parts = self.parts(able, floor)
        giving = {candidate.pod.uid for candidate, _ in parts}
        if self.claim.shortage.left_s is None:
            return parts
        return [*parts, *((each, 0) for each in able if each.pod.uid not in giving and self._grows(each))]

    def growing(self, able: Iterable[Candidate]) -> list[tuple[Candidate, int]]:
        """Returns the candidates that grow, each with the part of its amount that counts.

        Without a window of growth it returns those that are to give.
        """
        if self.claim.shortage.growth is None:
            return self.parts(able)
        return [(each, min(each.amount, self.need)) for each in able if self._grows(each)]

    def _grows(self, candidate: Candidate) -> bool:
        window = self.claim.shortage.growth
        growth = None if window is None else self.node.window(window, candidate.pod.cgroup)
        return growth is not None and growth.slope_per_s * GROWTH_S * LEAST_PART >= self.need

    def waits_in_vain(self, effects: StepEffects) -> bool:
        """Is it too late before the step takes effect?"""
        left_s = self.claim.shortage.left_s
        return left_s is not None and not effects.stops_growth and effects.wait_ns > left_s * SECOND_NS

    def has(self, row: str) -> bool:
        return row in (self.node.policy.host.files or ())

    def why(self, step: ReliefStep, candidate: Candidate, part: int) -> str:
        said, measure = self.resource.said, self.claim.shortage.measure
        verb = "uses" if measure is Measure.USAGE else "requests"
        return (
            f"{self.claim.strategy}: {said(self.need)} of {self.resource} must be freed ({self.claim.shortage.why}); "
            f"{step.name.lower()}: {candidate.pod.key} {verb} {said(candidate.amount)}, of which {said(part)} count"
        )


def _reclaim(case: Case) -> StepEffects | None:
    """Reclaims memory that the kernel can take back: page cache, and with swap the rest."""
    version = case.node.policy.host.cgroup_version
    row = _RECLAIM[version]
    if case.resource is not Resource.MEMORY_BYTES or not case.has(row):
        return None
    candidates = {each.pod.uid: each for each in case.candidates}
    able = [replace(each, amount=case.amounts.reclaimable_bytes(each.pod)) for each in case.candidates]
    gives = _gives(case.parts(able))
    if sum(gives.values()) * LEAST_PART < case.need:
        return None
    one_shots = []
    for uid, part in gives.items():
        pod, why = candidates[uid].pod, case.why(ReliefStep.RECLAIM, candidates[uid], part)
        value = part if version == 2 else 0
        one_shots.append(OneShot(Target(pod.cgroup, row), value, why, case.claim.shortage.inputs, pod.key))
    return StepEffects(ReliefStep.RECLAIM, RECLAIM_WAIT_NS, gives, one_shots=tuple(one_shots), stops_growth=False)


def _throttle(case: Case) -> StepEffects | None:
    resource = case.resource
    if resource is Resource.MEMORY_BYTES and not case.has(HIGH):
        return _slow_down(case)
    able = [each for each in case.candidates if resource is Resource.MEMORY_BYTES or running_containers(each.pod)]
    parts = case.parts_with_growing(able, FLOORS[resource])
    throttles = {}
    for candidate, part in parts:
        pod, why = candidate.pod, case.why(ReliefStep.THROTTLE, candidate, part)
        allowance = max(candidate.amount - part, FLOORS[resource])
        throttles[pod.uid] = throttled(case.node, pod, resource, allowance, why, _cpu_milli(case, pod))
    return StepEffects(ReliefStep.THROTTLE, THROTTLE_WAIT_NS, _gives(parts), throttles=throttles) if parts else None


def _slow_down(case: Case) -> StepEffects | None:
    """Slows growing pods down by their CPU, where nothing throttles memory. It frees nothing, so other pods are left
    alone."""
    able = [
        each
        for each in case.candidates
        if running_containers(each.pod) and _cpu_milli(case, each.pod) > CPU_FLOOR_MILLI
    ]
    throttles = {}
    for candidate, part in case.growing(able):
        pod = candidate.pod
        why = f"{case.why(ReliefStep.THROTTLE, candidate, part)}; without {HIGH} by its CPU, so that it grows slower"
        throttles[pod.uid] = throttled(case.node, pod, Resource.CPU_MILLI, CPU_FLOOR_MILLI, why, _cpu_milli(case, pod))
    if not throttles:
        return None
    return StepEffects(ReliefStep.THROTTLE, THROTTLE_WAIT_NS, throttles=throttles, stops_growth=False)


def _cpu_milli(case: Case, pod: PodView) -> int:
    return case.amounts.usage(pod, Resource.CPU_MILLI) or 0


def _freeze(case: Case) -> StepEffects | None:
    """Freezes pods. A pod that is frozen for another claim counts too; one that was frozen before is not frozen again.

    A freeze frees no memory: for memory only growing pods are frozen, and without any the step is a wait as long.
    """
    if not case.has(FREEZE):
        return None
    parts, freezes = [], {}
    able = [each for each in case.candidates if not _was_frozen(case.freezes, each)]
    is_memory = case.resource is Resource.MEMORY_BYTES
    stopped = case.growing(able) if is_memory else case.parts(able)
    if is_memory and case.candidates and not stopped:
        return StepEffects(ReliefStep.FREEZE, FREEZE_WAIT_NS, remark=_NOBODY_GROWS, stops_growth=False)
    for candidate, part in stopped:
        pod = candidate.pod
        if pod.uid in case.freezes:
            continue
        parts.append((candidate, part))
        why = case.why(ReliefStep.FREEZE, candidate, part)
        opinion = Opinion.set(1, why, {FORMULA: "given", "value": 1}, pod.key)
        target = Target(pod.cgroup, FREEZE)
        freezes[pod.uid] = Freeze(case.claim.key, case.node.monotonic_ns, _cpu_milli(case, pod), target, opinion)
    gives = _gives(parts) if case.resource is Resource.CPU_MILLI else NO_GIFTS
    return StepEffects(ReliefStep.FREEZE, FREEZE_WAIT_NS, gives, freezes=freezes) if freezes else None


def _was_frozen(freezes: Mapping[str, Freeze], candidate: Candidate) -> bool:
    freeze = freezes.get(candidate.pod.uid)
    return freeze is not None and freeze.over_ns is not None


def _evict(case: Case) -> StepEffects | None:
    parts = case.parts(case.candidates)
    remark = ""
    if parts and case.rests_ns > 0:
        remark = f"evictions for {case.resource} rest for {case.rests_ns / SECOND_NS:.3g} s more"
        return StepEffects(ReliefStep.EVICT, remark=remark)
    if len(parts) > case.evictions_left:
        waiting, parts = len(parts) - case.evictions_left, parts[: case.evictions_left]
        remark = f"{pods(waiting)} more would go, but {EVICTIONS_PER_MINUTE} evictions a minute are the most"
    evictions = tuple([_eviction(case, candidate, part) for candidate, part in parts])
    return StepEffects(ReliefStep.EVICT, evictions=evictions, remark=remark) if evictions or remark else None


def _eviction(case: Case, candidate: Candidate, part: int) -> Eviction:
    pod, shortage = candidate.pod, case.claim.shortage
    why = case.why(ReliefStep.EVICT, candidate, part)
    return Eviction(pod.uid, pod.key, why, pod.cgroup, inputs=shortage.inputs, gate=shortage.victims.gate)


STEPS: Mapping[ReliefStep, Callable[[Case], StepEffects | None]] = {
    ReliefStep.RECLAIM: _reclaim,
    ReliefStep.THROTTLE: _throttle,
    ReliefStep.FREEZE: _freeze,
    ReliefStep.EVICT: _evict,
}
"""The steps, mildest first. One that can do nothing returns None."""


def _gives(parts: Iterable[tuple[Candidate, int]]) -> Mapping[str, int]:
    return {candidate.pod.uid: part for candidate, part in parts}


def throttled(
    node: NodeSnapshot, pod: PodView, resource: Resource, allowance: int, why: str, used_milli: int
) -> Throttle:
    """Returns the pod bounded to ``allowance``, with opinions on its present containers."""
    make = _of_memory if resource is Resource.MEMORY_BYTES else _of_cpu
    return Throttle(pod, resource, allowance, why, used_milli, make(node, pod, allowance, why))


def _of_memory(node: NodeSnapshot, pod: PodView, allowance: int, why: str) -> Opinions:
    page_bytes = node.policy.host.page_bytes
    value = allowance // page_bytes * page_bytes
    return {Target(pod.cgroup, HIGH): Opinion.at_most(value, why, {FORMULA: "given", "value": value}, pod.key)}


def _of_cpu(node: NodeSnapshot, pod: PodView, allowance: int, why: str) -> Opinions:
    """Divides the allowance among the containers: cgroup v1 refuses a pod's quota below its containers'."""
    running = running_containers(pod)
    usages = [container_cpu_milli(node, each.cgroup) for each in running]
    weights = [usage for usage in usages if usage is not None]
    if len(weights) < len(running) or not sum(weights):
        weights = [1] * len(running)
    opinions = {}
    for container, weight in zip(running, weights, strict=True):
        limit_milli = max(_CONTAINER_FLOOR_MILLI, allowance * weight // sum(weights))
        period_us = container.requested.quota_period_us
        fed: Inputs = {FORMULA: "cpu_quota", "limit_milli": limit_milli, "period_us": period_us}
        value = cfs.quota_us(MilliCPU(limit_milli), period_us)
        opinions[Target(container.cgroup, QUOTA)] = Opinion.at_most(value, why, fed, pod.key)
    return opinions


def pods(count: int) -> str:
    """Returns the number of pods in words, for people."""
    return f"{count} pod{'s' if count != 1 else ''}"
