"""Finds the pods that may be made to give a resource, how much of it each has, and in which order they come.

All claims count pods here, so two claims cannot count one pod differently. The amount of a pod whose CPU is held down
is what it used before: it uses little now because of the engine, and would use it again after a release. Memory that
was reclaimed is gone, so there the newest sample counts.

Invariants: pure; the answer never depends on the order of the pod list. A pod with an unknown amount is no candidate
and gives nothing; nor is, where priority counts, a pod whose priority kubelet has not confirmed. For a pod labelled
with its class the priority confirmed last counts, however long kubelet has been silent: it cannot change.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from koord.model import podtotal, priority
from koord.model.core import is_of_api
from koord.model.podtotal import Role
from koord.model.qos import QoSClass
from qosd.decide.shortage import Measure, OrderKey, Resource, Shortage, Victims
from qosd.model.metric import Scope
from qosd.model.snapshot import EvictionPhase, EvictionState, NodeSnapshot, PodView, is_kata, live
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE

_OF_POD = USAGE[Scope.POD]
_POD_USAGE = {
    Resource.CPU_MILLI: _OF_POD.cpu_usage_cores,
    Resource.MEMORY_BYTES: _OF_POD.memory_usage_bytes,
}
_CONTAINER_CPU = USAGE[Scope.CONTAINER].cpu_usage_cores
PATIENCE_S = 30
"""The engine waits so long for a pod that is being deleted, if there is time: the default grace period of pods."""
LATE_S = 30
"""The time that kubelet and the runtime may take after the grace period to end a pod that is deleted."""
_ALIVE = ("Pending", "Running")

Owner = Hashable
"""The controller of a pod; the UID of a pod without one."""


class Candidate(msgspec.Struct, frozen=True, eq=False):
    """A pod that may be made to give, with its amount of the resource, above 0."""

    pod: PodView
    amount: int
    use_of_request: float = 0.0
    lost_work_s: float = 0.0


class Amounts(msgspec.Struct, frozen=True, eq=False):
    """The amounts of the pods of one snapshot. ``held_milli``: by UID the CPU of pods before theirs was held down."""

    node: NodeSnapshot
    held_milli: Mapping[str, int]

    def of(self, pod: PodView, shortage: Shortage) -> int | None:
        """Returns the pod's amount, in the resource's unit; None if it is unknown."""
        if shortage.measure is Measure.USAGE:
            return self.usage(pod, shortage.resource)
        return request_of(pod, shortage.resource, shortage.extended_resource)

    def usage(self, pod: PodView, resource: Resource) -> int | None:
        sample = _whole(self.node.value(_POD_USAGE[resource], pod.cgroup), resource)
        if sample is None or resource is Resource.MEMORY_BYTES:
            return sample
        return max(sample, self.held_milli.get(pod.uid, 0))

    def reclaimable_bytes(self, pod: PodView) -> int:
        """Returns the pod's memory that the kernel can take back: at once, and as much of the rest as swap holds."""
        usage = self.usage(pod, Resource.MEMORY_BYTES) or 0
        at_once = _whole(self.node.value(_OF_POD.memory_reclaimable_bytes, pod.cgroup), Resource.MEMORY_BYTES) or 0
        swap = _whole(self.node.value(NodeRow.swap_free_bytes), Resource.MEMORY_BYTES) or 0
        return at_once + min(usage, swap)

    def lost_work_s(self, pod: PodView) -> float:
        """Returns the CPU time that the pod has had; 0 if it is unknown."""
        seconds = self.node.value(_OF_POD.cpu_seconds, pod.cgroup)
        return seconds if seconds is not None and math.isfinite(seconds) else 0.0


def container_cpu_milli(node: NodeSnapshot, cgroup: str) -> int | None:
    """Returns the CPU that the container uses; None without a sample."""
    return _whole(node.value(_CONTAINER_CPU, cgroup), Resource.CPU_MILLI)


def _whole(sample: float | None, resource: Resource) -> int | None:
    """Returns a sample in the resource's unit."""
    if sample is None or not math.isfinite(sample):
        return None
    return round(sample * 1000) if resource is Resource.CPU_MILLI else int(sample)


def request_of(pod: PodView, resource: Resource, extended_resource: str = "") -> int | None:
    """Returns the pod's request of ``extended_resource``, summed as the scheduler does.

    Without one it is the request of the band's resource, or the native one if the pod has no other.
    """
    if extended_resource:
        return podtotal.total(_of_extended_resource(pod, resource, extended_resource))
    is_cpu = resource is Resource.CPU_MILLI
    parts = [
        (role, amounts.cpu_request_milli if is_cpu else amounts.memory_request_bytes)
        for name, role in _container_names(pod)
        if (amounts := pod.context.amounts_of(name)) is not None
    ]
    if parts:
        return podtotal.total(parts)
    return pod.cpu_request_milli if is_cpu else pod.memory_request_bytes


def _of_extended_resource(pod: PodView, resource: Resource, extended_resource: str) -> Iterator[tuple[Role, int]]:
    for name, role in _container_names(pod):
        resources = pod.context.extended_of(name)
        if resources is not None:
            is_cpu = resource is Resource.CPU_MILLI
            yield (
                role,
                (resources.request_milli(extended_resource) if is_cpu else resources.request_bytes(extended_resource))
                or 0,
            )


def _container_names(pod: PodView) -> Iterator[tuple[str, Role]]:
    if pod.spec_containers is not None:
        yield from ((container.name, container.role) for container in pod.spec_containers)
    else:
        yield from ((name, Role.MAIN) for name in pod.context.extended)


def is_pending(pod: PodView, node: NodeSnapshot) -> bool:
    """Is the pod about to go without another step, however long that takes?"""
    eviction = node.evictions.get(pod.uid)
    if eviction is not None and eviction.phase is EvictionPhase.STOPPED:
        return False
    is_stopping = eviction is not None and eviction.phase is EvictionPhase.STOPPING
    return live(pod) and (is_stopping or _is_terminating(pod, node))


def gives_soon(pod: PodView, node: NodeSnapshot, left_s: float | None) -> bool:
    """Is the pod about to give all that it has before a shortage with ``left_s`` would take another step?

    A pod that others delete counts only if its grace period ends by then. Evictions under way always count: an
    emergency ends them at once.
    """
    eviction = node.evictions.get(pod.uid)
    if not is_pending(pod, node):
        return False
    by_unix_s = pod.facts.deletion_unix_s
    if by_unix_s is None or (eviction is not None and eviction.phase is EvictionPhase.STOPPING):
        return True
    rest_s = by_unix_s - node.wall_ns / 1e9
    return rest_s <= PATIENCE_S if left_s is None else 0 < rest_s <= left_s


def _is_terminating(pod: PodView, node: NodeSnapshot) -> bool:
    """Is the pod being deleted, and not long overdue? A pod that is stuck must not keep relief from other pods."""
    by_unix_s = pod.facts.deletion_unix_s
    return by_unix_s is not None and node.wall_ns < (by_unix_s + LATE_S) * 1e9


def has_given_request(eviction: EvictionState, node: NodeSnapshot) -> bool:
    """Has the pod been evicted, so that nothing more can be done to it now?

    Its request counts until its object is deleted, which a node cannot do; evicting others in its place would end with
    all pods evicted.
    """
    if eviction.phase is EvictionPhase.RESTARTED:
        return node.monotonic_ns < eviction.retry_ns
    return eviction.phase in (EvictionPhase.STOPPING, EvictionPhase.STOPPED)


def candidates(shortage: Shortage, node: NodeSnapshot, amounts: Amounts) -> tuple[Candidate, ...]:
    """Returns the pods that may be made to give now, sorted by name."""
    able = []
    for pod in node.pods:
        if _may_be_chosen(pod, shortage, node) and is_victim(pod, shortage, node):
            amount = amounts.of(pod, shortage)
            usage = amounts.usage(pod, shortage.resource)
            if amount is not None and amount > 0 and usage is not None:
                use = _use_of_request(usage, request_of(pod, shortage.resource, shortage.extended_resource) or 0)
                able.append(Candidate(pod, amount, use, amounts.lost_work_s(pod)))
    return tuple(sorted(able, key=lambda each: (each.pod.key, each.pod.uid)))


def parts_of(
    victims: Iterable[Candidate],
    need: int,
    order: Iterable[OrderKey] = (),
    taken: Mapping[Owner, int] = MappingProxyType({}),
    floor: int = 0,
) -> Iterator[tuple[Candidate, int]]:
    """Yields victims in their order, each with its part and none below ``floor``, until ``need`` is covered.

    ``taken``: how many pods of each owner have gone already.
    """
    left, owners, keys = list(victims), Counter(taken), tuple(order)
    while left and need > 0:
        chosen = min(left, key=lambda each: _rank(each, keys, need, owners))
        left.remove(chosen)
        part = min(chosen.amount - floor, need)
        if part > 0:
            yield chosen, part
            need -= part
            owners[owner_of(chosen.pod)] += 1


def owner_of(pod: PodView) -> Owner:
    return pod.controller or pod.uid


def _may_be_chosen(pod: PodView, shortage: Shortage, node: NodeSnapshot) -> bool:
    """May the pod be chosen now? Not while it is about to go, nor before its back-off is over.

    In an emergency a pod whose eviction was refused, and a replacement, need not wait for the back-off. While there is
    time, a pod that is deleted already is not chosen: another request would change nothing.
    """
    is_waited_for = is_pending(pod, node) if shortage.left_s is None else gives_soon(pod, node, shortage.left_s)
    if not pod.cgroup or not live(pod) or is_waited_for:
        return False
    eviction = node.evictions.get(pod.uid)
    if eviction is None:
        return True
    if shortage.left_s is not None and not eviction.waits_in_emergency:
        return True
    return eviction.phase is not EvictionPhase.STOPPED and node.monotonic_ns >= eviction.retry_ns


def is_victim(pod: PodView, shortage: Shortage, node: NodeSnapshot) -> bool:
    """May the pod be made to give at all, now or after its back-off?

    SYSTEM pods are limited but guaranteed: they never give, whatever their priority.
    """
    victims, annotations = shortage.victims, pod.context.annotations
    is_confirmed = pod.priority is not None and (node.knows_priorities or victims.classes is not None)
    if shortage.counts_priority and not is_confirmed:
        return False
    if is_kata(pod, node.policy.node) or pod.qos is QoSClass.SYSTEM:
        return False
    if not victims.with_static and not is_of_api(pod.context.request.annotations):
        return False
    is_alive = pod.phase in _ALIVE or (not pod.phase and victims.priority_at_most is None)
    is_willing = annotations.may_be_evicted_by(victims.gate)
    is_labelled = annotations.eviction_enabled or not victims.is_opt_in
    return is_alive and is_willing and is_labelled and belongs_to(pod, victims)


def belongs_to(pod: PodView, victims: Victims) -> bool:
    """Does the pod's request count in a sum over ``victims``, whether it may be evicted or not?"""
    if victims.classes is not None and pod.context.raw_qos not in victims.classes:
        return False
    if victims.bands is not None and pod.priority_class not in victims.bands:
        return False
    at_most = victims.priority_at_most
    return at_most is None or (pod.priority is not None and priority_number(pod) <= at_most)


def pending_amount(pod: PodView, shortage: Shortage, amounts: Amounts) -> int:
    """Returns what a pod that goes gives: its usage in any case, its request only to its extended resource."""
    if shortage.measure is Measure.REQUEST and not belongs_to(pod, shortage.victims):
        return 0
    return amounts.of(pod, shortage) or 0


def priority_number(pod: PodView) -> int:
    """Returns the priority that evictions compare."""
    return priority.value(pod.priority, pod.priority_class)


def _sub_priority(pod: PodView) -> int:
    label = pod.context.annotations.priority
    return priority_number(pod) if label is None else label


def _use_of_request(usage: int, request: int) -> float:
    """Returns usage by request; infinity for usage without a request, which comes before all others."""
    if request > 0:
        return usage / request
    return math.inf if usage else 0.0


_KEYS: Mapping[OrderKey, Callable[[Candidate, int, Mapping[Owner, int]], float]] = {
    OrderKey.EVICTION_PRIORITY: lambda each, *_: each.pod.context.annotations.eviction_priority,
    OrderKey.PRIORITY: lambda each, *_: priority_number(each.pod),
    OrderKey.SUB_PRIORITY: lambda each, *_: _sub_priority(each.pod),
    OrderKey.AMOUNT: lambda each, need, _: -min(each.amount, need),
    OrderKey.USE_OF_REQUEST: lambda each, *_: -each.use_of_request,
    OrderKey.OWNER: lambda each, _, taken: taken.get(owner_of(each.pod), 0),
    OrderKey.LOST_WORK: lambda each, *_: each.lost_work_s,
}
"""What each key compares: the lowest goes first."""


def _rank(
    candidate: Candidate, order: tuple[OrderKey, ...], need: int, taken: Mapping[Owner, int]
) -> tuple[tuple[float, ...], int, str, str]:
    """Returns the rank by the keys; of equal pods the largest goes first, so that as few as possible go."""
    keys = tuple([_KEYS[key](candidate, need, taken) for key in order])
    return keys, -candidate.amount if OrderKey.AMOUNT in order else 0, candidate.pod.key, candidate.pod.uid
