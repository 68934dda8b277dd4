"""The leader's work: takes the pods that wait, one after the other, decides, and has it carried out.

Decisions are made one at a time, on a state that has all events so far; what they lead to is written beside them. A pod
counts on its node from the decision on, until its object confirms it or its binding fails. Between some milliseconds of
decisions the event loop comes to other work.

A pod that no node takes waits in the queue for an event that helps it; if it may, it makes room by preemption first.
Invariant: what is under way when leadership ends is taken back or confirmed by the pod's own object, not by us.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from koord.kube.client import CallLimits, Client, Preconditions
from koord.kube.errors import KubeError, NotLeader
from koord.kube.kind import Key
from koord.kube.recorder import EventRecorder, EventType, Subject
from koord.kube.schedulingkinds import POD
from koord.scheduling.framework import Diagnosis
from koord.scheduling.plugin import Event, EventKind
from koord.scheduling.plugins.volumebinding import binding
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import Preemption, Preemptor
from koord.scheduling.queue import QueuedPod
from koord.scheduling.volumes import VolumeDecision
from koord_scheduler.binding import Binder, Bound, Outcome
from koord_scheduler.podstatus import FAILED, UNSCHEDULABLE, PodStatusWriter
from koord_scheduler.view import ClusterView
from koord_scheduler.volumewriter import VolumeWriter
from koord_scheduler.window import RequestWindow

_log = logging.getLogger(__name__)
_SLICE_S = 0.005
_BIND_TIMEOUT_S = 10.0
"""Less than a Lease lasts: what a leader sent is carried out or lost before the next one decides."""


class Scheduler:
    """``client``: the leader's. ``monotonic_s``, ``wall_s``: the clocks."""

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        recorder: EventRecorder,
        monotonic_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._view, self._recorder = client, view, recorder
        self._monotonic_s = monotonic_s
        self.window = RequestWindow()
        self._binder = Binder(client.with_limits(CallLimits(tries=1, timeout_s=_BIND_TIMEOUT_S)), self.window)
        self._statuses = PodStatusWriter(client, wall_s)
        self._volumes = VolumeWriter(client, view.state.volumes)
        self._wake = asyncio.Event()
        self.attempts = {"scheduled": 0, "unschedulable": 0, "error": 0}
        """Decisions by their results, with upstream's names."""

    async def run(self) -> None:
        """Places pods, until it is cancelled."""
        self._view.changed, self._view.storage_changed = self._wake.set, self._volumes.changed
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._decide_for_a_while(group)
                    await self._next_work()
        finally:
            self._view.take_back()

    def _decide_for_a_while(self, group: asyncio.TaskGroup) -> None:
        until_s = self._monotonic_s() + _SLICE_S
        self._wake.clear()
        while (now_s := self._monotonic_s()) < until_s:
            queued = self._view.queue.pop(now_s)
            if queued is None:
                return
            group.create_task(self._decided(queued))
        self._wake.set()

    async def _next_work(self) -> None:
        """Returns when there may be a pod to place."""
        await asyncio.sleep(0)
        due_s = self._view.queue.due_s()
        timeout_s = None if due_s is None else max(0.0, due_s - self._monotonic_s())
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return

    def _decided(self, queued: QueuedPod) -> Coroutine[Any, Any, None]:
        """Decides about the pod; returns what carries the decision out."""
        state, pod = self._view.state, queued.pod
        framework = self._view.framework_of(pod)
        placement = framework.place(pod)
        if placement is None:
            self.attempts["unschedulable"] += 1
            return self._rejected(queued, framework.diagnose(pod))
        self.attempts["scheduled"] += 1
        volumes = binding(state, pod, placement.node)
        state.assume(pod, placement.node, volumes)
        row = state.table.row(placement.node)
        assert row is not None
        self._view.queue.placed(queued, row)
        return self._bind(queued, volumes)

    def _rejected(self, queued: QueuedPod, diagnosis: Diagnosis) -> Coroutine[Any, Any, None]:
        """No node will do: the pod waits, and others make room for it if they must."""
        pod, nominations = queued.pod, self._view.state.nominations
        candidates = self._view.profile_of(pod).preemption
        if candidates is None:
            self._view.queue.park(queued, diagnosis.plugins, self._monotonic_s())
            return self._tell(pod, diagnosis.message)
        preemptor = Preemptor(self._view.framework_of(pod), self._view.current_budgets(), candidates)
        why_not = preemptor.why_not(pod, diagnosis)
        preemption = None if why_not else preemptor.choose(pod, diagnosis)
        self._view.queue.park(queued, diagnosis.plugins, self._monotonic_s())
        if preemption is not None:
            nominations.put(pod, preemption.node)
            return self._preempt(pod, preemption, diagnosis.message)
        if why_not:
            return self._tell(pod, f"{diagnosis.message} preemption: {why_not}")
        nominations.remove(pod.uid)
        return self._tell(pod, f"{diagnosis.message} preemption: {_no_victims(diagnosis)}", "")

    async def _tell(self, pod: PodInfo, message: str, nominated: str | None = None) -> None:
        """Says why the pod waits."""
        self._record(pod, EventType.WARNING, "FailedScheduling", message)
        await self._statuses.unscheduled(pod, UNSCHEDULABLE, message, nominated)

    async def _bind(self, queued: QueuedPod, volumes: VolumeDecision) -> None:
        """Has the pod bound to the node of ``volumes``, which come first."""
        pod, node, state = queued.pod, volumes.node, self._view.state
        try:
            error = await self._prepared(pod, volumes)
            if error:
                bound = Bound(Outcome.REFUSED, error)
            else:
                bound = await self._binder.bind(pod, node, lambda: node in state.table)
        except NotLeader:
            return  # who leads now decides about it, and all assumptions of ours are taken back
        if bound.outcome is Outcome.BOUND:
            name = f"{pod.namespace}/{pod.name}"
            self._record(pod, EventType.NORMAL, "Scheduled", f"Successfully assigned {name} to {node}")
            return
        row = state.table.row(node)
        state.forget(pod.uid)
        if row is not None:
            self._view.queue.note(Event(EventKind.POD_LEFT, row, pod))
        if bound.outcome is Outcome.REFUSED:
            self.attempts["error"] += 1
            message = f"binding rejected: {bound.error}"
            self._view.came_back(queued)
            self._record(pod, EventType.WARNING, "FailedScheduling", message)
            await self._statuses.unscheduled(pod, FAILED, message)
        self._wake.set()

    async def _prepared(self, pod: PodInfo, volumes: VolumeDecision) -> str:
        """Returns "" once the pod's claims are bound, or why they will not be."""
        if not volumes.claims:
            return ""
        return await self._volumes.prepare(volumes, self._view.profile_of(pod).volume_binding.bind_timeout_s)

    async def _preempt(self, pod: PodInfo, preemption: Preemption, message: str) -> None:
        """Has the victims deleted; the pod is tried again when they have left."""
        node = preemption.node
        await self._tell(pod, message, node)
        for other in self._view.state.nominations.below(pod.priority, node):
            self._view.state.nominations.remove(other.uid)
            await self._statuses.unscheduled(other, UNSCHEDULABLE, f"node {node} is for a more important pod", "")
        for victim in preemption.victims:
            if not victim.is_terminating:
                await self._delete(pod, victim, node)

    async def _delete(self, pod: PodInfo, victim: PodInfo, node: str) -> None:
        reason = f"preempting to accommodate a higher priority pod {pod.namespace}/{pod.name}"
        await self._statuses.disrupted(victim, reason)
        try:
            await self._client.delete(POD, Key(victim.namespace, victim.name), Preconditions(victim.uid))
        except KubeError as error:
            _log.warning("pod %s/%s cannot be preempted: %s", victim.namespace, victim.name, error)
            return
        self._record(victim, EventType.NORMAL, "Preempted", f"Preempted by pod {pod.uid} on node {node}")

    def _record(self, pod: PodInfo, type: EventType, reason: str, message: str) -> None:
        self._recorder.record(Subject.of(POD, pod.pod.metadata), type, reason, message)


def _no_victims(diagnosis: Diagnosis) -> str:
    """Says why preemption does not help, as Kubernetes' scheduler says it."""
    resolvable = int(diagnosis.is_resolvable.sum())
    counts = (
        (resolvable, "No preemption victims found for incoming pod"),
        (diagnosis.node_count - resolvable, "Preemption is not helpful for scheduling"),
    )
    reasons = ", ".join(f"{count} {reason}" for count, reason in counts if count)
    return f"0/{diagnosis.node_count} nodes are available: {reasons}."
