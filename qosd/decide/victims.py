"""Who may be made to give up what lacks, how much each has of it, and in which order they come.

Every claim asks the same three things of the same pods; said once here, two claims cannot count one pod differently.
The amount of a pod whose CPU is held down is what it used before: that it uses little now is the engine's own work, and
it comes back with the release. Memory that was taken is gone, so there the newest sample counts.

Invariants: pure; the answer never depends on the order of the pod list. A pod of which an amount is not known is no
candidate and gives nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from koord.model import podtotal, priority
from koord.model.podtotal import Role
from koord.model.qos import QoSClass
from qosd.decide.shortage import Measure, OrderKey, Resource, Shortage, Victims
from qosd.model.metric import Scope
from qosd.model.snapshot import EvictionPhase, NodeSnapshot, PodView, live
from qosd.sense.usage import USAGE

_POD_USAGE = {
    Resource.CPU_MILLI: USAGE[Scope.POD].cpu_usage_cores,
    Resource.MEMORY_BYTES: USAGE[Scope.POD].memory_usage_bytes,
}
_CONTAINER_CPU = USAGE[Scope.CONTAINER].cpu_usage_cores
LATE_S = 30
"""After the end of its grace period, what kubelet and the runtime may take to end a pod that is deleted."""


class Candidate(msgspec.Struct, frozen=True, eq=False):
    """A pod that may be made to give, with its amount of what lacks, above 0."""

    pod: PodView
    amount: int


class Amounts(msgspec.Struct, frozen=True, eq=False):
    """What the pods of one snapshot have. ``held_milli``: by UID what pods used whose CPU is held down since."""

    node: NodeSnapshot
    held_milli: Mapping[str, int]

    def of(self, pod: PodView, resource: Resource, measure: Measure) -> int | None:
        """The pod's part, in the resource's unit; None if nobody tells."""
        return self.usage(pod, resource) if measure is Measure.USAGE else request_of(pod, resource)

    def usage(self, pod: PodView, resource: Resource) -> int | None:
        sample = _whole(self.node.value(_POD_USAGE[resource], pod.cgroup), resource)
        if sample is None or resource is Resource.MEMORY_BYTES:
            return sample
        return max(sample, self.held_milli.get(pod.uid, 0))


def container_cpu_milli(node: NodeSnapshot, cgroup: str) -> int | None:
    """What the container uses; None without a sample."""
    return _whole(node.value(_CONTAINER_CPU, cgroup), Resource.CPU_MILLI)


def _whole(sample: float | None, resource: Resource) -> int | None:
    """A sample in the resource's unit."""
    if sample is None or not math.isfinite(sample):
        return None
    return round(sample * 1000) if resource is Resource.CPU_MILLI else int(sample)


def request_of(pod: PodView, resource: Resource) -> int | None:
    """The pod's request of its band, summed as the scheduler does; of the native resource if it has no other."""
    is_cpu = resource is Resource.CPU_MILLI
    parts = [
        (role, amounts.cpu_request_milli if is_cpu else amounts.memory_request_bytes)
        for name, role in _container_names(pod)
        if (amounts := pod.context.amounts_of(name)) is not None
    ]
    if parts:
        return podtotal.total(parts)
    return pod.cpu_request_milli if is_cpu else pod.memory_request_bytes


def _container_names(pod: PodView) -> Iterator[tuple[str, Role]]:
    if pod.spec_containers is not None:
        yield from ((container.name, container.role) for container in pod.spec_containers)
    else:
        yield from ((name, Role.MAIN) for name in pod.context.extended)


def is_pending(pod: PodView, node: NodeSnapshot) -> bool:
    """Is the pod about to give all that it has, without another step?"""
    eviction = node.evictions.get(pod.uid)
    if eviction is not None and eviction.phase is EvictionPhase.STOPPED:
        return False
    is_stopping = eviction is not None and eviction.phase is EvictionPhase.STOPPING
    return live(pod) and (is_stopping or _is_going(pod, node))


def _is_going(pod: PodView, node: NodeSnapshot) -> bool:
    """Does somebody delete the pod, who may still come to it? One that is stuck must not keep others from relief."""
    by_unix_s = pod.facts.deletion_unix_s
    return by_unix_s is not None and node.wall_ns < (by_unix_s + LATE_S) * 1e9


def candidates(shortage: Shortage, node: NodeSnapshot, amounts: Amounts) -> tuple[Candidate, ...]:
    """Those who may be made to give now, who goes first before the others."""
    ranked = []
    for pod in node.pods:
        if _may_be_chosen(pod, node) and _is_victim(pod, shortage.victims):
            amount = amounts.of(pod, shortage.resource, shortage.measure)
            if amount is not None and amount > 0:
                candidate = Candidate(pod, amount)
                ranked.append((_rank(candidate, shortage, amounts), candidate))
    return tuple([candidate for _, candidate in sorted(ranked, key=lambda pair: pair[0])])


def parts_of(victims: Iterable[Candidate], need: int, floor: int = 0) -> Iterator[tuple[Candidate, int]]:
    """Each in turn with what it gives, nobody below ``floor``, until ``need`` is covered."""
    for candidate in victims:
        part = min(candidate.amount - floor, need)
        if part > 0:
            yield candidate, part
            need -= part


def _may_be_chosen(pod: PodView, node: NodeSnapshot) -> bool:
    """Not while it is about to go, nor again before its time."""
    if not pod.cgroup or not live(pod) or is_pending(pod, node):
        return False
    eviction = node.evictions.get(pod.uid)
    if eviction is None:
        return True
    return eviction.phase is not EvictionPhase.STOPPED and node.monotonic_ns >= eviction.retry_ns


def _is_victim(pod: PodView, victims: Victims) -> bool:
    """SYSTEM pods are limited but guaranteed: nobody makes them give, whatever their priority."""
    if pod.qos is QoSClass.SYSTEM:
        return False
    annotations = pod.context.annotations
    is_willing = annotations.may_be_evicted_by(victims.gate)
    is_labelled = annotations.eviction_enabled or not victims.is_opt_in
    return is_willing and is_labelled and is_of_account(pod, victims)


def is_of_account(pod: PodView, victims: Victims) -> bool:
    """Is the pod one of those whose requests are summed where ``victims`` are to give, willing or not?"""
    if pod.qos not in victims.classes:
        return False
    at_most = victims.priority_at_most
    return at_most is None or (pod.priority is not None and priority_number(pod) <= at_most)


def pending_amount(pod: PodView, shortage: Shortage, amounts: Amounts) -> int:
    """What a pod that goes gives to the shortage: its usage in any case, its request only to the account it is in."""
    if shortage.measure is Measure.REQUEST and not is_of_account(pod, shortage.victims):
        return 0
    return amounts.of(pod, shortage.resource, shortage.measure) or 0


def priority_number(pod: PodView) -> int:
    """The number that evictions compare."""
    return priority.value(pod.priority, pod.priority_class)


def _sub_priority(pod: PodView) -> int:
    label = pod.context.annotations.priority
    return priority_number(pod) if label is None else label


def _use_of_request(candidate: Candidate, shortage: Shortage, amounts: Amounts) -> float:
    """Usage by request; a pod that uses without a request comes before all others."""
    usage = amounts.usage(candidate.pod, shortage.resource) or 0
    request = request_of(candidate.pod, shortage.resource) or 0
    if request > 0:
        return usage / request
    return math.inf if usage else 0.0


_KEYS: Mapping[OrderKey, Callable[[Candidate, Shortage, Amounts], float]] = {
    OrderKey.EVICTION_PRIORITY: lambda candidate, *_: candidate.pod.context.annotations.eviction_priority,
    OrderKey.PRIORITY: lambda candidate, *_: priority_number(candidate.pod),
    OrderKey.SUB_PRIORITY: lambda candidate, *_: _sub_priority(candidate.pod),
    OrderKey.AMOUNT: lambda candidate, *_: -candidate.amount,
    OrderKey.USE_OF_REQUEST: lambda *facts: -_use_of_request(*facts),
}
"""What each key compares: the lowest goes first."""


def _rank(candidate: Candidate, shortage: Shortage, amounts: Amounts) -> tuple[tuple[float, ...], str, str]:
    keys = tuple([_KEYS[key](candidate, shortage, amounts) for key in shortage.order])
    return keys, candidate.pod.key, candidate.pod.uid
