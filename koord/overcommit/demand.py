"""What the pods that batch pods must make room for request and use: every pod on the node that is not koord-batch.

Free pods count too, though upstream leaves them out: they run on native resources, so what they use would be sold
twice. So do the mid resources that a mid pod requests instead of native ones, and the overhead of a batch pod, which
stays native: as it is requested, since what is used is measured of the pod as a whole.

A pod that the report does not have yet counts with its request. What the report has of pods that are not, or no longer,
Running or Pending on the node counts as *dangling*: it is still being used. An LSE pod's CPUs are its own, so their
number counts instead of their use.

What pods *hold* of batch and mid resources is what kubelet adds up when it restarts and admits them again: the requests
of every pod that it has admitted and that has not finished, whatever its class, under the resources' present names.
Other names it leaves out. A pod that is bound to the node and that kubelet has not admitted holds nothing.

Where a strategy does not cover running pods, allocatable may shrink below what is allocated (``overallocation``), which
Kubernetes itself does not notice: nothing new is placed then, but nothing leaves either, and a kubelet that restarts
ends pods until the rest fits.

Invariant: the order of the pods does not matter, and a pod whose request of a resource cannot be read changes nothing
but its own part of that: it requests nothing, and what it uses counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

import msgspec

from koord.model import podrequests, priority, qos, quantity
from koord.model.core import Pod, PodSpec, ResourceRequirements
from koord.model.nodemetric import PodUsage
from koord.model.podrequests import kube_qos
from koord.model.priority import RENAMED, PriorityClass
from koord.model.problem import Bad
from koord.model.qos import KubeQoS, QoSClass
from koord.model.quantity import QuantityError
from koord.overcommit import amounts
from koord.overcommit.amounts import BATCH, MID, NATIVE, ZERO, CPUMemory, Names, ParsedAmounts, cpu_text, memory_text
from koord.overcommit.ratios import NOT_AMPLIFIED, Amplification

_ON_NODE = ("Running", "Pending")
_RUNNING = "Running"
_FINISHED = ("Succeeded", "Failed")
_NO_REQUEST = ParsedAmounts(0, 0)
_OFFERED = frozenset((*BATCH, *MID))
_MOST = CPUMemory(quantity.MAX_INT64, quantity.MAX_INT64)
_DEPRECATED_BATCH = Names(*(old for name in BATCH for old, new in RENAMED.items() if new == name))


class PodDemand(msgspec.Struct, frozen=True, gc=False):
    """One pod as it counts. It depends on the pod alone, so it may be kept as long as the pod does not change."""

    namespace: str
    name: str
    is_on_node: bool
    """Running or Pending: it has resources, or will have them."""
    priority_class: PriorityClass
    qos: QoSClass
    request: ParsedAmounts = _NO_REQUEST
    """Native resources, in the units of the node's allocatable; of a batch pod its overhead alone."""
    mid_request: ParsedAmounts = _NO_REQUEST
    """Mid resources, which are real ones on any node."""
    batch_held: ParsedAmounts = _NO_REQUEST
    mid_held: ParsedAmounts = _NO_REQUEST


class Held(msgspec.Struct, frozen=True, gc=False):
    """The requests of admitted pods for the resources that a node offers again."""

    batch: CPUMemory = ZERO
    mid: CPUMemory = ZERO


class Demand(msgspec.Struct, frozen=True, gc=False):
    """Totals, in the units of the node's capacity."""

    request: CPUMemory = ZERO
    used: CPUMemory = ZERO
    """Of pods on the node."""
    maximum: CPUMemory = ZERO
    """Of each pod's request and use, the larger one."""
    dangling: CPUMemory = ZERO
    prod_request: CPUMemory = ZERO


@dataclass(frozen=True, slots=True)
class OverAllocation:
    allocated: CPUMemory
    excess: CPUMemory
    """The part of it that is not offered."""
    sentence: str


def of_pod(pod: Pod) -> PodDemand:
    """Returns how the pod counts."""
    metadata, spec = pod.metadata, pod.spec
    labelled = qos.labelled(metadata.labels)
    derived = labelled or qos.derive(None, _kube_qos(pod)).qos
    cls = priority.effective(metadata.labels, spec.priority, derived)
    is_on_node = pod.status.phase in _ON_NODE
    native = batch = mid = _NO_REQUEST
    mentioned = frozenset[str]() if is_finished(pod) else _mentioned(spec)
    if not mentioned.isdisjoint(_OFFERED):
        batch, mid = _request(spec, mentioned, BATCH), _request(spec, mentioned, MID)
    batch_held, mid_held = (batch, mid) if _is_admitted(pod) else (_NO_REQUEST, _NO_REQUEST)
    is_batch = cls is PriorityClass.BATCH
    if is_on_node and not is_batch:
        native = _request(spec, mentioned, NATIVE)
    elif is_on_node and spec.overhead:
        native = _request(PodSpec(overhead=spec.overhead), mentioned, NATIVE)
    mid = mid if is_on_node and not is_batch else _NO_REQUEST
    return PodDemand(metadata.namespace, metadata.name, is_on_node, cls, derived, native, mid, batch_held, mid_held)


def _is_admitted(pod: Pod) -> bool:
    """Returns whether kubelet has taken the pod in: from then on its status has a start time."""
    return pod.status.phase == _RUNNING or (pod.status.start_time is not None and not is_finished(pod))


def is_finished(pod: Pod) -> bool:
    """Returns whether the pod has given back what it held on its node."""
    return pod.status.phase in _FINISHED


def held(pods: Iterable[PodDemand], bad: Bad) -> Held:
    """Returns what all ``pods`` hold together, at most the largest amount that a Node can show."""
    batch = mid = ZERO
    for pod in pods:
        if pod.batch_held != _NO_REQUEST:
            batch += _counted(pod, pod.batch_held, bad)
        if pod.mid_held != _NO_REQUEST:
            mid += _counted(pod, pod.mid_held, bad)
    return Held(batch.min(_MOST), mid.min(_MOST))


def batch_request(pod: Pod) -> ParsedAmounts:
    """Returns the batch resources that a pod on the node holds, under their deprecated names as well."""
    if is_finished(pod):
        return _NO_REQUEST
    return _request(pod.spec, _mentioned(pod.spec), BATCH, _DEPRECATED_BATCH)


def allocated(pods: Iterable[Pod]) -> CPUMemory:
    """Returns the batch resources that pods on a node hold. A request that cannot be read counts as 0."""
    return sum((batch_request(pod).filled() for pod in pods), ZERO)


def overallocation(held: CPUMemory, offered: CPUMemory | None) -> OverAllocation | None:
    """Returns what pods hold beyond the offer; None: all that is held is offered. ``offered``: None if nothing is."""
    excess = (held - (offered or ZERO)).max(ZERO)
    if excess == ZERO:
        return None
    parts = []
    if excess.cpu_milli:
        parts.append(f"{cpu_text(excess.cpu_milli)} of the {cpu_text(held.cpu_milli)} batch-cpu")
    if excess.memory_bytes:
        parts.append(f"{memory_text(excess.memory_bytes)} of the {memory_text(held.memory_bytes)} batch-memory")
    return OverAllocation(
        held,
        excess,
        f"batch over-allocated: {' and '.join(parts)} that pods hold is not offered: a kubelet that restarts ends some",
    )


def _request(spec: PodSpec, mentioned: Set[str], *kinds: Names) -> ParsedAmounts:
    """Returns the request for all ``kinds`` together; those that ``spec`` does not mention are skipped."""
    problems = list[str]()
    cpu_milli = _sum(spec, [names.cpu for names in kinds if names.cpu in mentioned], problems)
    memory_bytes = _sum(spec, [names.memory for names in kinds if names.memory in mentioned], problems)
    return ParsedAmounts(cpu_milli, memory_bytes, tuple(problems))


def _sum(spec: PodSpec, resources: list[str], problems: list[str]) -> int | None:
    try:
        return sum(podrequests.request(spec, resource) for resource in resources)
    except QuantityError as error:
        problems.append(f"its request of {' or '.join(resources)} counts as 0: {error}")
        return None


def total(
    pods: Iterable[PodDemand], usages: Sequence[PodUsage], bad: Bad, ratios: Amplification = NOT_AMPLIFIED
) -> Demand:
    """Sums up the demand of all ``pods``. ``usages``: those of the report; of two for one pod the last one counts."""
    reported = {(usage.namespace, usage.name): usage for usage in usages}
    on_node = [pod for pod in pods if pod.is_on_node]
    request = used = maximum = prod_request = ZERO
    for pod in on_node:
        is_batch = pod.priority_class is PriorityClass.BATCH
        if is_batch and pod.request == _NO_REQUEST:
            continue
        native, mid = (_counted(pod, request, bad) for request in (pod.request, pod.mid_request))
        real = ratios.real(native, pod.qos) + mid
        measured = ParsedAmounts() if is_batch else _measured(reported.get((pod.namespace, pod.name)), bad)
        request += real
        used += _used(pod, real, measured)
        maximum += measured.filled().max(real)
        if pod.priority_class is PriorityClass.PROD:
            prod_request += real
    listed = {(pod.namespace, pod.name) for pod in on_node}
    dangling = _dangling([usage for key, usage in reported.items() if key not in listed], bad)
    return Demand(request, used, maximum, dangling, prod_request)


def _dangling(usages: Iterable[PodUsage], bad: Bad) -> CPUMemory:
    total = ZERO
    for usage in usages:
        if usage.priority != PriorityClass.BATCH:
            total += _measured(usage, bad).filled()
    return total


def _counted(pod: PodDemand, request: ParsedAmounts, bad: Bad) -> CPUMemory:
    if request.problems:
        request.noted(f"pod {pod.namespace}/{pod.name}", bad)
    return request.filled()


def _used(pod: PodDemand, request: CPUMemory, measured: ParsedAmounts) -> CPUMemory:
    """Returns the pod's use; a resource that is not measured counts as requested."""
    used = measured.filled(request)
    if pod.qos is QoSClass.LSE and pod.request.cpu_milli is not None:
        return CPUMemory(request.cpu_milli, used.memory_bytes)
    return used


def _measured(usage: PodUsage | None, bad: Bad) -> ParsedAmounts:
    if usage is None:
        return ParsedAmounts()
    reading = amounts.read(usage.pod_usage.resources)
    if reading.problems:
        reading.noted(f"the NodeMetric's pod {usage.namespace}/{usage.name}", bad)
    return reading


def _mentioned(spec: PodSpec) -> frozenset[str]:
    """Returns the names of the resources that the pod mentions."""
    names = set(spec.overhead)
    for resources in _lists(spec):
        names.update(resources.requests, resources.limits)
    return frozenset(names)


def _lists(spec: PodSpec) -> Iterator[ResourceRequirements]:
    yield spec.resources
    for container, _ in podrequests.in_order(spec):
        yield container.resources


def _kube_qos(pod: Pod) -> KubeQoS:
    """Returns kubelet's class of the pod; amounts that cannot be read count as some."""
    try:
        return kube_qos(pod)
    except QuantityError:
        return KubeQoS.BURSTABLE
