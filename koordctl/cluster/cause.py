"""Why a pod is as it is, in one sentence with its cause: pending, evicted, not as its profile says.

The causes are looked for in the order in which a pod meets them: admission, scheduler, node, eviction. The first one
that holds is the answer; what follows from it is not said. A scheduler's or kubelet's own message is repeated where
nothing better is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from koord.model import core, eventreasons
from koord.model.admission import omission
from koord.model.core import Node
from koord.model.overcommit import amounts, demand, units
from koord.model.overcommit.amounts import BATCH, NOTHING, CPUMemory
from koordctl.cluster.nodes import absence_of_batch, is_ready
from koordctl.cluster.objects import DetailedPod, Event
from koordctl.cluster.state import ClusterState
from koordctl.values import age

_WAITING_QUIETLY = ("ContainerCreating", "PodInitializing", "")
_MOST_NODES = 3
_AFTER_EVICTION = (
    "let its controller start it again, and keep what it has done (checkpoints)",
    "request what it uses: a pod that uses more memory than it requests is evicted first",
)


@dataclass(frozen=True, slots=True)
class Cause:
    """``remedies``: what may be done about it."""

    sentence: str
    remedies: tuple[str, ...] = ()


def of_pod(pod: DetailedPod, state: ClusterState, events: Sequence[Event]) -> Cause:
    """``events``: of the pod, in any order."""
    steps = (_of_admission(pod, state), _of_end(pod, events, state.now_s), _of_scheduling(pod, state), _of_node(pod))
    return next((cause for cause in steps if cause is not None), _of_running(pod))


def of_absent(namespace: str, name: str, events: Sequence[Event], now_s: float) -> Cause | None:
    """Of a pod that is gone; None if nothing tells of it."""
    eviction = _newest(_evictions(events))
    if eviction is None:
        return None
    return _evicted(f"pod {namespace}/{name} is gone: it", eviction, now_s)


def of_siblings(controller: str, events: Iterable[Event]) -> str:
    """How often pods of a controller have been evicted, as far as Events tell; "" if never, or for no controller."""
    mine = f"{controller}-"
    evictions = [event for event in _evictions(events) if event.involved_object.name.startswith(mine)]
    newest = _newest(evictions)
    if newest is None or not controller:
        return ""
    count = sum(event.count or 1 for event in evictions)
    return f"of {controller}'s pods, {count} were evicted as far as Events tell, last because: {newest.message}"


# admission


def _of_admission(pod: DetailedPod, state: ClusterState) -> Cause | None:
    sentence = omission(pod, state.admission)
    return None if sentence is None else Cause(sentence, ("see that koord-manager's webhooks answer",))


# the end


def _of_end(pod: DetailedPod, events: Sequence[Event], now_s: float) -> Cause | None:
    name, status = _name(pod), pod.status
    eviction = _newest(_evictions(events))
    if eviction is not None and (status.phase == "Failed" or pod.metadata.deletion_timestamp):
        return _evicted(name, eviction, now_s)
    if status.phase == "Failed":
        why = ": ".join(part for part in (status.reason, status.message) if part) or "a container of it failed"
        by_kubelet = status.reason == eventreasons.EVICTED_BY_KUBELET
        return Cause(f"{name} has failed: {why}", _AFTER_EVICTION if by_kubelet else ())
    if status.phase == "Succeeded":
        return Cause(f"{name} has done its work and ended")
    return None


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
    """Too little batch resources on every node."""
    wanted = demand.batch_request(pod).filled()
    if wanted == NOTHING:
        return None
    offering = {name: offered for name, node in state.nodes.items() if (offered := _offered(node)) is not None}
    if not offering:
        return Cause(f"{_name(pod)} is pending because no node offers batch resources: {_absences(state)}")
    free = {name: (offered - state.held(name)).join(NOTHING) for name, offered in offering.items()}
    if any(wanted.meet(each) == wanted for each in free.values()):
        return None
    if not any(wanted.meet(each) == wanted for each in offering.values()):
        why = f"no node offers as much, the most is {_most(offering)}"
        return Cause(f"{_name(pod)} is pending because it requests {_text(wanted)}: {why}", ("request less",))
    why = f"the most that a node has free of its batch resources is {_most(free)}"
    return Cause(
        f"{_name(pod)} is pending because it requests {_text(wanted)}: {why}",
        ("wait until other batch pods have ended", "request less"),
    )


def _of_selector(pod: DetailedPod, state: ClusterState) -> Cause | None:
    wanted = pod.spec.node_selector
    if not wanted or any(wanted.items() <= node.metadata.labels.items() for node in state.nodes.values()):
        return None
    text = ", ".join(f"{key}={value}" for key, value in wanted.items())
    return Cause(f"{_name(pod)} is pending because no node has the labels of its nodeSelector: {text}")


def _offered(node: Node) -> CPUMemory | None:
    """None for a node that offers none, or takes no pods."""
    reading = amounts.read(node.status.allocatable, BATCH)
    if reading.cpu_milli is None or node.spec.unschedulable or not is_ready(node):
        return None
    return reading.filled()


def _most(by_node: dict[str, CPUMemory]) -> str:
    name = max(by_node, key=lambda each: (by_node[each].cpu_milli, by_node[each].memory_bytes))
    return f"{_text(by_node[name])} on {name}"


def _absences(state: ClusterState) -> str:
    if not state.nodes:
        return "there are no nodes"
    reasons = [f"{name}: {_absence(state, node)}" for name, node in sorted(state.nodes.items())]
    more = len(reasons) - _MOST_NODES
    return "; ".join([*reasons[:_MOST_NODES], *([f"and {more} more nodes"] if more > 0 else [])])


def _absence(state: ClusterState, node: Node) -> str:
    if not is_ready(node):
        return "it is not Ready"
    return "it is cordoned" if node.spec.unschedulable else absence_of_batch(state, node)


# the node


def _of_node(pod: DetailedPod) -> Cause | None:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    for container in statuses:
        waiting = container.state.get("waiting")
        if waiting is not None and waiting.reason not in _WAITING_QUIETLY:
            why = f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
            return Cause(f"container {container.name} of {_name(pod)} does not run on {pod.spec.node_name}: {why}")
    if pod.status.phase == "Pending":
        return Cause(f"{_name(pod)} is on {pod.spec.node_name}, which prepares its containers")
    return None


def _of_running(pod: DetailedPod) -> Cause:
    counted = demand.of_pod(pod)
    sentence = f"{_name(pod)} runs on {pod.spec.node_name} as {counted.qos}, {counted.priority_class}"
    held = demand.batch_request(pod).filled()
    return Cause(sentence if held == NOTHING else f"{sentence}, with {_text(held)}")


# words


def _name(pod: DetailedPod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"


def _text(amount: CPUMemory) -> str:
    return f"{units.cpu(amount.cpu_milli)} {BATCH.cpu} and {units.memory(amount.memory_bytes)} {BATCH.memory}"


def _evicted(subject: str, eviction: Event, now_s: float) -> Cause:
    return Cause(f"{subject} was evicted {_ago(eviction, now_s)}: {eviction.message}", _AFTER_EVICTION)


def _evictions(events: Iterable[Event]) -> Iterator[Event]:
    return (event for event in events if event.reason in eventreasons.EVICTIONS)


def _newest(events: Iterable[Event]) -> Event | None:
    return max(events, key=lambda event: core.unix_s(event.last_time) or 0.0, default=None)


def _ago(event: Event, now_s: float) -> str:
    happened_s = core.unix_s(event.last_time)
    return "at an unknown time" if happened_s is None else f"{age(max(0.0, now_s - happened_s))} ago"
