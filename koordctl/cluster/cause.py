"""Explains why a pod is as it is, in one sentence with its cause: pending, evicted, not as its profile says.

The causes are looked for in the order in which a pod meets them: admission, scheduler, node, eviction. The first one
that holds is the answer; what follows from it is left out. A scheduler's or kubelet's own message is repeated where
nothing better is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from koord.admission import AdmissionContext, missing_mutations
from koord.model import eventreasons
from koord.model.core import Node
from koord.model.readable import shorten_list
from koord.overcommit import amounts, demand
from koord.overcommit.amounts import BATCH, ZERO, CPUMemory
from koordctl.cluster import crashes, evictions
from koordctl.cluster.nodes import absence_of_batch, is_ready
from koordctl.cluster.objects import DetailedContainerStatus, DetailedPod, Event
from koordctl.cluster.state import ClusterState

_WAITING_QUIETLY = ("ContainerCreating", "PodInitializing", "")
_MOST_NODES = 3
_NO_ROOM = "OutOf"
"""How kubelet's reason begins where it admits a pod no more; the resource follows."""
_ADMISSION = (
    "kubelet admits pods when they come and when it restarts, against what the Node offers then: "
    "koordctl explain node {} --overcommit"
)


class _Resource(NamedTuple):
    name: str
    pick: Callable[[CPUMemory], int]
    unit: Callable[[int], str]


_RESOURCES = (
    _Resource(BATCH.cpu, lambda amount: amount.cpu_milli, amounts.cpu_text),
    _Resource(BATCH.memory, lambda amount: amount.memory_bytes, amounts.memory_text),
)


@dataclass(frozen=True, slots=True)
class Cause:
    """A sentence, and ``remedies``: what may be done about it."""

    sentence: str
    remedies: tuple[str, ...] = ()


def of_pod(pod: DetailedPod, state: ClusterState, context: AdmissionContext, events: Sequence[Event]) -> Cause:
    """Explains a pod that exists. ``events``: of the pod, in any order."""
    steps = (
        _of_admission(pod, context),
        _of_end(pod, events, state.now_s),
        _of_scheduling(pod, state),
        _of_node(pod, events, state.now_s),
    )
    return next((cause for cause in steps if cause is not None), _of_running(pod))


def of_absent(namespace: str, name: str, events: Sequence[Event], now_s: float) -> Cause | None:
    """Explains a pod that is gone; None if no Event tells of it."""
    eviction = evictions.newest(evictions.among(events))
    return None if eviction is None else _evicted(f"pod {namespace}/{name} is gone: it", eviction, now_s)


# admission


def _of_admission(pod: DetailedPod, context: AdmissionContext) -> Cause | None:
    sentence = missing_mutations(pod, context)
    return None if sentence is None else Cause(sentence, ("see that koord-manager's webhooks answer",))


# the end


def _of_end(pod: DetailedPod, events: Sequence[Event], now_s: float) -> Cause | None:
    has_failed = pod.status.phase == "Failed"
    eviction = evictions.of_pod(pod, events)
    if eviction is not None and (has_failed or pod.metadata.deletion_timestamp):
        return _evicted(_name(pod), eviction, now_s)
    if has_failed:
        return _of_failure(pod)
    if pod.status.phase == "Succeeded":
        return Cause(f"{_name(pod)} has done its work and ended")
    return None


def _of_failure(pod: DetailedPod) -> Cause:
    status = pod.status
    why = ": ".join(part for part in (status.reason, status.message) if part) or "; ".join(crashes.failures(pod))
    by_kubelet = status.reason == eventreasons.EVICTED_BY_KUBELET
    sentence = f"{_name(pod)} has failed: {why or 'a container of it failed'}"
    if by_kubelet:
        return Cause(sentence, evictions.remedies(status.reason))
    if (status.reason or "").startswith(_NO_ROOM):
        return Cause(sentence, (_ADMISSION.format(pod.spec.node_name),))
    failed = [each for each in crashes.statuses(pod) if (end := crashes.last_end(each)) and end.exit_code]
    return Cause(sentence, crashes.remedies(pod, failed[0]) if failed else ())


# the scheduler


def _of_scheduling(pod: DetailedPod, state: ClusterState) -> Cause | None:
    if pod.spec.node_name:
        return None
    scheduled = pod.status.condition("PodScheduled")
    if cause := _of_batch(pod, state) or _of_selector(pod, state):
        return cause
    if scheduled is None:
        scheduler = pod.spec.scheduler_name or "default-scheduler"
        return Cause(
            f"{_name(pod)} is pending because no scheduler has looked at it: does one named {scheduler} run?",
            (f"set schedulerName to a scheduler that runs, or start {scheduler}",),
        )
    why = scheduled.message or scheduled.reason or "the scheduler has not said why"
    return Cause(f"{_name(pod)} is pending: {why}")


def _of_batch(pod: DetailedPod, state: ClusterState) -> Cause | None:
    """Explains a pod by too little batch resources on every node; None if that is not it."""
    wanted = demand.batch_request(pod).filled()
    if wanted == ZERO:
        return None
    offering = {name: offered for name, node in state.nodes.items() if (offered := _offered(node)) is not None}
    if not offering:
        return Cause(f"{_name(pod)} is pending because no node offers batch resources: {_absences(state)}")
    pending = f"{_name(pod)} is pending because it requests {_text(wanted)}"
    if why := shortage(wanted, offering, "offers"):
        return Cause(f"{pending}: {why}", ("request less",))
    free = {name: (offered - state.held(name)).max(ZERO) for name, offered in offering.items()}
    if why := shortage(wanted, free, "has", "free"):
        return Cause(f"{pending}: {why}", ("wait until other batch pods have ended", "request less"))
    return None


def shortage(wanted: CPUMemory, nodes: Mapping[str, CPUMemory], verb: str, suffix: str = "") -> str:
    """Returns the resource that no node has enough of, with the most that there is; "" if a node has all of ``wanted``.

    ``verb`` and ``suffix`` are the words about a node: it "offers" an amount, or "has" it "free". Needs a node.
    """
    if any(wanted.min(each) == wanted for each in nodes.values()):
        return ""
    most = {resource: max(nodes, key=lambda name: resource.pick(nodes[name])) for resource in _RESOURCES}
    figures = {each: f"{each.unit(each.pick(nodes[name]))} on {name}" for each, name in most.items()}
    end = f" {suffix}" if suffix else ""
    scarce = [each for each, name in most.items() if each.pick(nodes[name]) < each.pick(wanted)]
    if scarce:
        return "; ".join(f"no node {verb} as much {each.name}{end}, the most is {figures[each]}" for each in scarce)
    maxima = ", ".join(f"the most {each.name} is {figure}" for each, figure in figures.items())
    return f"no single node {verb} both{end}: {maxima}"


def _of_selector(pod: DetailedPod, state: ClusterState) -> Cause | None:
    wanted = pod.spec.node_selector
    if not wanted or any(wanted.items() <= node.metadata.labels.items() for node in state.nodes.values()):
        return None
    text = ", ".join(f"{key}={value}" for key, value in wanted.items())
    return Cause(f"{_name(pod)} is pending because no node has the labels of its nodeSelector: {text}")


def _offered(node: Node) -> CPUMemory | None:
    """Returns the batch resources of a node; None if it offers none, or takes no pods."""
    reading = amounts.read(node.status.allocatable, BATCH)
    if reading.cpu_milli is None or node.spec.unschedulable or not is_ready(node):
        return None
    return reading.filled()


def _absences(state: ClusterState) -> str:
    if not state.nodes:
        return "there are no nodes"
    reasons = [f"{name}: {_absence(state, node)}" for name, node in sorted(state.nodes.items())]
    return "; ".join(shorten_list(reasons, _MOST_NODES, "more nodes"))


def _absence(state: ClusterState, node: Node) -> str:
    if not is_ready(node):
        return "it is not Ready"
    return "it is cordoned" if node.spec.unschedulable else absence_of_batch(state, node)


# the node


def _of_node(pod: DetailedPod, events: Sequence[Event], now_s: float) -> Cause | None:
    for container in crashes.statuses(pod):
        if cause := _of_container(pod, container):
            return cause
    if pod.status.phase == "Pending":
        preparing = f"{_name(pod)} is on {pod.spec.node_name}, which prepares its containers"
        return Cause(f"{preparing}{_warning(events, now_s)}")
    return None


def _of_container(pod: DetailedPod, container: DetailedContainerStatus) -> Cause | None:
    """Explains why a container that is to run does not; None for one that runs, is being made, or is done."""
    waiting, end = container.state.get("waiting"), crashes.last_end(container)
    subject = f"container {container.name} of {_name(pod)} does not run on {pod.spec.node_name}"
    if waiting is not None and waiting.reason not in _WAITING_QUIETLY:
        why = f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
        how = "" if end is None else f"it {crashes.ended(end)}{crashes.restarts(container)}; "
        return Cause(f"{subject}: {how}{why}", crashes.remedies(pod, container))
    if "terminated" in container.state and end is not None and end.exit_code:
        how = f"it {crashes.ended(end)}{crashes.restarts(container)}"
        return Cause(f"{subject}: {how}", crashes.remedies(pod, container))
    return None


def _warning(events: Sequence[Event], now_s: float) -> str:
    """Returns the newest Warning about a pod that has its node; "" if there is none."""
    warnings = [each for each in events if each.type == "Warning" and each.reason != eventreasons.FAILED_SCHEDULING]
    newest = evictions.newest(warnings)
    return "" if newest is None else f"; {evictions.since(newest, now_s)} {newest.reason}: {newest.message}"


def _of_running(pod: DetailedPod) -> Cause:
    counted = demand.of_pod(pod)
    sentence = f"{_name(pod)} runs on {pod.spec.node_name} as {counted.qos}, {counted.priority_class}"
    held = demand.batch_request(pod).filled()
    amounts_held = "" if held == ZERO else f", with {_text(held)}"
    again = [each for each in crashes.statuses(pod) if each.restart_count and crashes.last_end(each) is not None]
    if not again:
        unready = [each.name for each in pod.status.container_statuses if not each.ready]
        remark = f"; not ready: {', '.join(unready)}" if unready else ""
        return Cause(f"{sentence}{amounts_held}{remark}")
    worst = max(again, key=lambda each: each.restart_count)
    end = crashes.last_end(worst)
    assert end is not None
    remark = f"container {worst.name} {crashes.ended(end)}{crashes.restarts(worst)}"
    return Cause(f"{sentence}{amounts_held}; {remark}", crashes.remedies(pod, worst))


# words


def _name(pod: DetailedPod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"


def _text(amount: CPUMemory) -> str:
    cpu, memory = amounts.cpu_text(amount.cpu_milli), amounts.memory_text(amount.memory_bytes)
    return f"{cpu} {BATCH.cpu} and {memory} {BATCH.memory}"


def _evicted(subject: str, eviction: Event, now_s: float) -> Cause:
    return Cause(evictions.sentence(subject, eviction, now_s), evictions.remedies(eviction.reason))
