"""Says of a pod why it waits or why it is where it is, and of the queue who waits: pages, by what is known now.

A pod costs what a diagnosis costs, some milliseconds at 5,000 nodes. The queue is looked through in slices, between
which the event loop comes to other work, and no more rows are made than were asked for.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from koord.kube.kind import Key
from koord.model.core import api_time
from koord.model.schedulerpages import (
    Example,
    Obstacle,
    Placed,
    PodPage,
    QueuePage,
    QueueRow,
    ScoredNode,
    Waiting,
)
from koord.model.scheduling.pods import Pod
from koord.scheduling import obstacles
from koord.scheduling.plugin import EXTENDER
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import NEVER
from koord.scheduling.queue import PARKED_S
from koord.scheduling.queuedpod import QueuedPod
from koord_scheduler import ganginfo
from koord_scheduler.decisions import Decisions
from koord_scheduler.podstatus import POD_SCHEDULED
from koord_scheduler.view import ClusterView

_SLICE = 500
"""Pods of the queue that are looked at before the event loop goes on: about a millisecond."""
_GroupKey = tuple[str, str, int, str, str, frozenset[str]]


class Explainer:
    """``monotonic_s``: the queue's clock; ``wall_s``: seconds since 1970."""

    def __init__(
        self, view: ClusterView, decisions: Decisions, monotonic_s: Callable[[], float], wall_s: Callable[[], float]
    ) -> None:
        self._view, self._decisions = view, decisions
        self._monotonic_s, self._wall_s = monotonic_s, wall_s

    def tell_time(self) -> None:
        """Has what goes by time be as of now."""
        self._view.tell_time()

    def pod(self, key: Key) -> PodPage | None:
        """Explains a pod; None: there is none of that name."""
        pod = self._view.pods.objects.get(key)
        if pod is None:
            return None
        self.tell_time()
        uid, spec = pod.metadata.uid, pod.spec
        page = PodPage(key.namespace, key.name, uid, spec.scheduler_name, spec.priority or 0)
        if not self._view.is_ours(pod):
            return _in(page, "other", f"it is a pod of {spec.scheduler_name}, which is not this scheduler")
        node = spec.node_name or self._view.state.node_of(uid)
        if pod.status.phase in ("Succeeded", "Failed"):
            return _in(page, "ended", f"it has ended: {pod.status.phase}")
        if node:
            return _in(page, "placed" if spec.node_name else "binding", placed=self._placed(uid, node))
        if pod.metadata.deletion_timestamp is not None:
            return _in(page, "ended", "it is being deleted")
        if (problem := self._view.problems.get(uid)) is not None:
            return _in(page, "unreadable", f"it cannot be placed as it is: {problem}")
        queued = self._view.queue.get(uid)
        if queued is None:
            return _in(page, "deciding", "it is being decided about")
        return _in(page, "waiting", waiting=self._waiting(queued))

    async def queue(self, limit: int) -> QueuePage:
        """Says who waits, in at most ``limit`` rows."""
        queue = self._view.queue
        groups: dict[_GroupKey, QueuedPod] = {}
        sizes: dict[_GroupKey, int] = {}
        for number, queued in enumerate(queue):
            if queue.get(queued.pod.uid) is queued:  # it may have left between two slices
                key = self._key(queued)
                sizes[key] = sizes.get(key, 0) + 1
                if _age(queued) < _age(groups.setdefault(key, queued)):
                    groups[key] = queued
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        chosen: list[tuple[_GroupKey, QueuedPod]] = []
        ungathered = iter(groups.items())
        while some := list(islice(ungathered, _SLICE)):
            chosen = heapq.nsmallest(limit, (*chosen, *some), key=_rank)
            await asyncio.sleep(0)
        rows = tuple([self._row(key, queued, sizes[key]) for key, queued in chosen])
        return QueuePage(queue.counts(), rows, sum(sizes.values()) - sum(row.pod_count for row in rows))

    # a pod

    def _placed(self, uid: str, node: str) -> Placed:
        decision = self._decisions.get(uid)
        if decision is None or decision.placement.node != node:
            return Placed(node)
        names = [each.plugin.name for each in decision.scoring]
        return Placed(
            node,
            self._time(decision.decided_s),
            decision.node_count,
            decision.placement.feasible_count,
            decision.tries,
            round(decision.waited_s, 3),
            tuple([
                ScoredNode(name, total, dict(zip(names, scores, strict=True)))
                for name, total, scores in decision.placement.best
            ]),
            {each.plugin.name: each.weight for each in decision.scoring},
        )  # fmt: skip

    def _waiting(self, queued: QueuedPod) -> Waiting:
        pod, queue = queued.pod, self._view.queue.part_of(queued.pod.uid)
        now = obstacles.of(self._view.framework_of(pod), pod)
        nominated = self._view.state.nominations.node_of(pod.uid) or ""
        return Waiting(
            queue,
            self._since(queued),
            queued.tries,
            self._time(self._again_s(queued, queue)),
            nominated,
            now.node_count,
            now.feasible_count,
            tuple([
                Obstacle(plugin, reason, count, tuple([Example(*each) for each in examples]))
                for plugin, reason, count, examples, _ in now.found
            ]),
            tuple(self._helps(queued, queue, nominated, now)),
            self._why_no_preemption(pod) if queue == "unschedulable" and not nominated else "",
            _said(pod.pod),
            *ganginfo.of(self._view, pod),
        )  # fmt: skip

    def _helps(self, queued: QueuedPod, queue: str, nominated: str, now: obstacles.Obstacles) -> Iterator[str]:
        pod = queued.pod
        key = self._view.gangs.of(pod.uid)
        if key is not None and any(self._view.gangs.needs(key).values()):
            yield "room for its gang as a whole, as above"
            return
        if pod.spec.scheduling_gates:
            yield f"that the scheduling gates {_gates(pod)} are removed, by whoever has set them"
        if nominated:
            yield f"that the pods leave which make room for it on {nominated}"
        if now.feasible_count and not pod.spec.scheduling_gates:
            nodes = "1 node" if now.feasible_count == 1 else f"{now.feasible_count} nodes"
            again = self._time(self._again_s(queued, queue)) if queue != "active" else ""
            if EXTENDER in queued.rejected_by:
                yield f"that an extender lets one of {nodes} pass, which would do for all plugins"
            else:
                when = f"at {again}" if again else "when its turn comes"
                yield f"only to wait: {nodes} would do now, it is tried {when}"
        yield from now.helps

    def _why_no_preemption(self, pod: PodInfo) -> str:
        if (key := self._view.gangs.of(pod.uid)) is not None and any(self._view.gangs.needs(key).values()):
            return ""  # the message says it of the gang
        if pod.spec.preemption_policy == NEVER:
            return "its preemptionPolicy is Never"
        if self._view.profile_of(pod).preemption is None:
            return f"the profile {pod.spec.scheduler_name} has none"
        return f"no pods of a priority below {pod.priority} would leave enough behind on any node"

    def _again_s(self, queued: QueuedPod, queue: str) -> float:
        """When it is tried again without an event; 0: that is not by time."""
        if queue == "backoff":
            return queued.backoff_until_s
        return queued.entered_s + PARKED_S if queue == "unschedulable" else 0.0

    # the queue

    def _key(self, queued: QueuedPod) -> _GroupKey:
        pod, owner = queued.pod, queued.pod.pod.metadata.controller
        name = f"{owner.kind}/{owner.name}" if owner is not None else ""
        return (
            pod.namespace, name or pod.name, pod.priority, self._view.queue.part_of(pod.uid), pod.spec.scheduler_name,
            queued.rejected_by,
        )  # fmt: skip

    def _row(self, key: _GroupKey, queued: QueuedPod, size: int) -> QueueRow:
        namespace, name, priority, queue, scheduler, rejected_by = key
        pod = queued.pod
        if queue == "gated":
            gang = self._view.gangs.of(pod.uid)
            waits_for = self._view.gangs.why_not(gang) if gang is not None else f"its gates: {_gates(pod)}"
        elif queue == "active" and not queued.tries:
            waits_for = "its turn"
        else:
            waits_for = _said(pod.pod) or ", ".join(sorted(rejected_by)) or "its turn"
        owner = name if name != pod.name else ""
        since = self._since(queued)
        return QueueRow(namespace, pod.name, queue, owner, size, priority, scheduler, since, queued.tries, waits_for)

    # times

    def _since(self, queued: QueuedPod) -> str:
        """Since it was made; who leads now may know it for less long."""
        return queued.pod.pod.metadata.creation_timestamp or self._time(queued.added_s)

    def _time(self, monotonic_s: float) -> str:
        if not monotonic_s:
            return ""
        return api_time(self._wall_s() - self._monotonic_s() + monotonic_s)


def _rank(group: tuple[_GroupKey, QueuedPod]) -> tuple[int, tuple[str, float]]:
    key, queued = group
    return -key[2], _age(queued)


def _age(queued: QueuedPod) -> tuple[str, float]:
    """Sorts the pod first that was made first."""
    return queued.pod.pod.metadata.creation_timestamp or "", queued.added_s


def _in(
    page: PodPage, state: str, remark: str = "", placed: Placed | None = None, waiting: Waiting | None = None
) -> PodPage:
    return msgspec.structs.replace(page, state=state, remark=remark, placed=placed, waiting=waiting)


def _said(pod: Pod) -> str:
    condition = pod.status.condition(POD_SCHEDULED)
    return "" if condition is None or condition.status != "False" else condition.message


def _gates(pod: PodInfo) -> str:
    return ", ".join(gate.name for gate in pod.spec.scheduling_gates)
