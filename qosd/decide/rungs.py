"""The rungs of the ladder: what each can do about one claim at the moment of a step, as plain values.

Each looks at the same case: how much is needed yet, who may be made to give, in which order. Pure; nothing here knows
what was done before but for who is frozen. A rung that can do nothing on this node, or to these pods, says so with
None, and the next one is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec

from koord.host.files import Target
from koord.model import cfs
from koord.model.formulas import FORMULA, Inputs
from koord.model.quantity import MilliCPU
from qosd.decide.decision import Eviction, OneShot, Opinion, Opinions
from qosd.decide.shortage import Claim, Key, Measure, Resource, Rung
from qosd.decide.victims import Amounts, Candidate, container_cpu_milli, parts_of
from qosd.model.snapshot import ContainerView, NodeSnapshot, PodView, runs

SECOND_NS = 1_000_000_000
RECLAIM_WAIT_NS = 2 * SECOND_NS
"""The kernel reclaims while the write lasts; the next sample but one shows all of it."""
THROTTLE_WAIT_NS = 5 * SECOND_NS
"""A bound below the usage needs some CFS periods, or the allocations of some seconds, to be felt."""
FREEZE_WAIT_NS = 5 * SECOND_NS
"""Half of ``FREEZE_MOST_NS``: if an eviction has to follow, it finds the pod still frozen."""
FREEZE_MOST_NS = 10 * SECOND_NS
"""Liveness probes and clients of a frozen pod give up after some tens of seconds; it has to run before."""
EVICTIONS_PER_MINUTE = 10
"""A wrong threshold must not empty a node before people see it."""
_THAW_NS = 2 * SECOND_NS
"""The first rate of a thawed pod still counts a part of the time in which it stood still."""
MEMORY_FLOOR_BYTES = 16 << 20
"""A process below it does nothing but fault its own code in again and again."""
CPU_FLOOR_MILLI = 100
"""Enough to answer probes and to end in order."""
_CONTAINER_FLOOR_MILLI = 10

QUOTA, HIGH, FREEZE = "cpu_quota", "memory.high", "cgroup.freeze"
ROWS: frozenset[str] = frozenset({QUOTA, HIGH, FREEZE})
"""The kernel files that the opinions may speak of."""
_RECLAIM = {1: "memory.force_empty", 2: "memory.reclaim"}
UNITS = {Resource.CPU_MILLI: "milli-CPU", Resource.MEMORY_BYTES: "bytes"}
FLOORS = {Resource.CPU_MILLI: CPU_FLOOR_MILLI, Resource.MEMORY_BYTES: MEMORY_FLOOR_BYTES}

NO_GIFTS: Mapping[str, int] = MappingProxyType({})


class Throttle(msgspec.Struct, frozen=True, eq=False):
    """A pod that may use ``allowance`` of ``resource``. ``opinions`` hold for the containers of ``pod``, this view.

    ``used_milli``: its CPU before.
    """

    pod: PodView
    resource: Resource
    allowance: int
    why: str
    used_milli: int
    opinions: Opinions


class Freeze(msgspec.Struct, frozen=True):
    """A pod that episode ``key`` froze; remembered beyond its end, because the episode freezes it only once."""

    key: Key
    since_ns: int
    used_milli: int
    target: Target
    opinion: Opinion
    is_under_way: bool = False
    """Has its eviction been seen?"""
    over_ns: int | None = None
    """When it was withdrawn; None: it is in force."""

    def is_felt(self, sampled_ns: int) -> bool:
        """May samples of ``sampled_ns`` show less CPU than the pod uses when nobody freezes it?"""
        return self.over_ns is None or sampled_ns < self.over_ns + _THAW_NS


class Step(msgspec.Struct, frozen=True, eq=False):
    """What one rung does for one claim."""

    rung: Rung
    wait_ns: int = 0
    gives: Mapping[str, int] = NO_GIFTS
    one_shots: tuple[OneShot, ...] = ()
    throttles: Mapping[str, Throttle] = MappingProxyType({})
    freezes: Mapping[str, Freeze] = MappingProxyType({})
    evictions: tuple[Eviction, ...] = ()
    remark: str = ""

    @property
    def is_any(self) -> bool:
        """False where evictions are due, and none is allowed yet."""
        return self.rung is not Rung.EVICT or bool(self.evictions)


NO_STEP = Step(Rung.RECLAIM)


class Case(msgspec.Struct, frozen=True, eq=False):
    """A claim at the moment of a step: ``need`` is what nothing on its way covers."""

    claim: Claim
    node: NodeSnapshot
    need: int
    candidates: tuple[Candidate, ...]
    amounts: Amounts
    freezes: Mapping[str, Freeze]
    evictions_left: int

    @property
    def resource(self) -> Resource:
        return self.claim.shortage.resource

    def has(self, row: str) -> bool:
        return row in (self.node.rules.host.files or ())

    def why(self, rung: Rung, candidate: Candidate, part: int) -> str:
        unit, measure = UNITS[self.resource], self.claim.shortage.measure
        verb = "uses" if measure is Measure.USAGE else "requests"
        return (
            f"{self.claim.strategy}: {self.need} {unit} of {self.resource} lack ({self.claim.shortage.why}); "
            f"{rung.name.lower()}: {candidate.pod.key} {verb} {candidate.amount}, of which {part} count"
        )


def _reclaim(case: Case) -> Step | None:
    version = case.node.rules.host.cgroup_version
    row = _RECLAIM[version]
    if case.resource is not Resource.MEMORY_BYTES or not case.has(row):
        return None
    parts = list(parts_of(case.candidates, case.need))
    orders = []
    for candidate, part in parts:
        value, why = part if version == 2 else 0, case.why(Rung.RECLAIM, candidate, part)
        target = Target(candidate.pod.cgroup, row)
        orders.append(OneShot(target, value, why, case.claim.shortage.inputs, candidate.pod.key))
    return Step(Rung.RECLAIM, RECLAIM_WAIT_NS, _gives(parts), one_shots=tuple(orders)) if parts else None


def _throttle(case: Case) -> Step | None:
    resource = case.resource
    if resource is Resource.MEMORY_BYTES and not case.has(HIGH):
        return None
    able = [each for each in case.candidates if resource is Resource.MEMORY_BYTES or _running(each.pod)]
    parts = list(parts_of(able, case.need, FLOORS[resource]))
    throttles = {}
    for candidate, part in parts:
        pod, why = candidate.pod, case.why(Rung.THROTTLE, candidate, part)
        used_milli = case.amounts.usage(pod, Resource.CPU_MILLI) or 0
        throttles[pod.uid] = throttled(case.node, pod, resource, candidate.amount - part, why, used_milli)
    return Step(Rung.THROTTLE, THROTTLE_WAIT_NS, _gives(parts), throttles=throttles) if parts else None


def _freeze(case: Case) -> Step | None:
    """Who is frozen already, for whomever, covers its amount too; who was frozen before is not frozen again."""
    if not case.has(FREEZE):
        return None
    parts, freezes = [], {}
    able = [each for each in case.candidates if not _was_frozen(case.freezes, each)]
    for candidate, part in parts_of(able, case.need):
        pod = candidate.pod
        if pod.uid in case.freezes:
            continue
        parts.append((candidate, part))
        why = case.why(Rung.FREEZE, candidate, part)
        opinion = Opinion.set(1, why, {FORMULA: "given", "value": 1}, pod.key)
        used_milli = case.amounts.usage(pod, Resource.CPU_MILLI) or 0
        target = Target(pod.cgroup, FREEZE)
        freezes[pod.uid] = Freeze(case.claim.key, case.node.monotonic_ns, used_milli, target, opinion)
    gives = _gives(parts) if case.resource is Resource.CPU_MILLI else NO_GIFTS
    return Step(Rung.FREEZE, FREEZE_WAIT_NS, gives, freezes=freezes) if freezes else None


def _was_frozen(freezes: Mapping[str, Freeze], candidate: Candidate) -> bool:
    freeze = freezes.get(candidate.pod.uid)
    return freeze is not None and freeze.over_ns is not None


def _evict(case: Case) -> Step | None:
    parts = list(parts_of(case.candidates, case.need))
    remark = ""
    if len(parts) > case.evictions_left:
        waiting, parts = len(parts) - case.evictions_left, parts[: case.evictions_left]
        remark = f"{pods(waiting)} more would go, but {EVICTIONS_PER_MINUTE} evictions a minute are the most"
    evictions = tuple(
        [
            Eviction(
                candidate.pod.uid,
                candidate.pod.key,
                case.why(Rung.EVICT, candidate, part),
                candidate.pod.cgroup,
                inputs=case.claim.shortage.inputs,
                gate=case.claim.shortage.victims.gate,
            )
            for candidate, part in parts
        ]
    )
    return Step(Rung.EVICT, evictions=evictions, remark=remark) if evictions or remark else None


RUNGS: Mapping[Rung, Callable[[Case], Step | None]] = {
    Rung.RECLAIM: _reclaim,
    Rung.THROTTLE: _throttle,
    Rung.FREEZE: _freeze,
    Rung.EVICT: _evict,
}
"""The ladder, mildest first. None: the rung can do nothing here."""


def _gives(parts: Iterable[tuple[Candidate, int]]) -> Mapping[str, int]:
    return {candidate.pod.uid: part for candidate, part in parts}


def _running(pod: PodView) -> list[ContainerView]:
    return [each for each in pod.containers if each.cgroup and not each.is_sandbox and runs(each.state)]


def throttled(
    node: NodeSnapshot, pod: PodView, resource: Resource, allowance: int, why: str, used_milli: int
) -> Throttle:
    """The pod bounded to ``allowance``, with its containers as they are now."""
    make = _of_memory if resource is Resource.MEMORY_BYTES else _of_cpu
    return Throttle(pod, resource, allowance, why, used_milli, make(node, pod, allowance, why))


def _of_memory(node: NodeSnapshot, pod: PodView, allowance: int, why: str) -> Opinions:
    page_bytes = node.rules.host.page_bytes
    value = allowance // page_bytes * page_bytes
    return {Target(pod.cgroup, HIGH): Opinion.at_most(value, why, {FORMULA: "given", "value": value}, pod.key)}


def _of_cpu(node: NodeSnapshot, pod: PodView, allowance: int, why: str) -> Opinions:
    """cgroup v1 takes no quota of a pod below its containers', so each of these gets its share of the allowance."""
    running = _running(pod)
    usages = [container_cpu_milli(node, each.cgroup) for each in running]
    weights = [usage for usage in usages if usage is not None]
    if len(weights) < len(running) or not sum(weights):
        weights = [1] * len(running)
    opinions = {}
    for container, weight in zip(running, weights, strict=True):
        limit_milli = max(_CONTAINER_FLOOR_MILLI, allowance * weight // sum(weights))
        fed: Inputs = {FORMULA: "cpu_quota", "limit_milli": limit_milli, "period_us": cfs.PERIOD_US}
        value = cfs.quota_us(MilliCPU(limit_milli))
        opinions[Target(container.cgroup, QUOTA)] = Opinion.at_most(value, why, fed, pod.key)
    return opinions


def pods(count: int) -> str:
    """For people."""
    return f"{count} pod{'s' if count != 1 else ''}"
