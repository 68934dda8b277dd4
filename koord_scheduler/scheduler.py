"""The leader's work: takes the pods that wait, one after the other, decides, and has it carried out.

Decisions are made one at a time, on a state that has all events so far; what they lead to is written beside them. A pod
counts on its node from the decision on, until its object confirms it or its binding fails. Between some milliseconds of
decisions the event loop comes to other work.

A pod in which extenders have a say stays in the queue while they are asked, and others go on: each extender is asked
about one pod at a time, in the queue's order, as it is used to from kube-scheduler.

A gang is decided about at once (`gangcycle`). A pod that no node takes waits in the queue for an event that helps it;
if it may, it makes room by preemption first.
Invariant: what is under way when leadership ends is taken back or confirmed by the pod's own object, not by us.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.kube.recorder import EventRecorder
from koord.scheduling.framework import Diagnosis, Placement
from koord.scheduling.gangs import unheard
from koord.scheduling.plugin import PluginError
from koord.scheduling.plugins.volumebinding import binding
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import Preemption
from koord.scheduling.queuedpod import QueuedPod
from koord_scheduler.bindingcycle import BindingCycle
from koord_scheduler.consultation import Consultation, Unplaced
from koord_scheduler.decisions import Decisions
from koord_scheduler.extenders import NO_EXTENDERS, ExtenderError, Extenders
from koord_scheduler.gangcycle import GangCycle
from koord_scheduler.metrics import Result, SchedulingMetrics
from koord_scheduler.podgroupstatus import PodGroupStatusWriter
from koord_scheduler.podstatus import FAILED, UNSCHEDULABLE, PodReporter, PodStatusWriter
from koord_scheduler.quotawork import QuotaWork
from koord_scheduler.roommaking import RoomMaker
from koord_scheduler.view import ClusterView

_SLICE_S = 0.005


class Scheduler:
    """``client``: the leader's. ``monotonic_s``, ``wall_s``: the clocks. ``metrics``: what is counted;
    ``decisions``: the last ones.
    """

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        recorder: EventRecorder,
        monotonic_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
        metrics: SchedulingMetrics | None = None,
        extenders: Extenders = NO_EXTENDERS,
        decisions: Decisions | None = None,
    ) -> None:
        self._view = view
        self._monotonic_s = monotonic_s
        self.metrics, self.decisions = metrics or SchedulingMetrics(), decisions or Decisions()
        statuses = PodStatusWriter(client, wall_s)
        self._reporter = PodReporter(statuses, recorder)
        self._room_maker = RoomMaker(client, view, statuses, self._reporter)
        self._wake = asyncio.Event()
        self.binding = BindingCycle(client, view, self._reporter, self._ended, self._wake.set, monotonic_s, extenders)
        recorder.is_busy = lambda: self.binding.window.is_full
        self._extenders, self._consultation = extenders, Consultation(client, view, extenders)
        self.quotas = QuotaWork(client, view, recorder, monotonic_s)
        self._gangs = GangCycle(
            *(view, self.binding, self._reporter, self._room_maker),
            *(self.metrics, self.decisions, extenders, monotonic_s),
        )
        self._pod_groups = PodGroupStatusWriter(client, view.gangs, lambda pod: view.is_ours(pod.pod), wall_s)
        self._asked = frozenset[str]()
        """The extenders that are asked about a pod now."""

    async def run(self) -> None:
        """Places pods, until it is cancelled."""
        self._view.changed, self._view.storage_changed = self._wake.set, self.binding.volumes.changed
        self._view.gangs.changed = self._pod_groups.changed
        try:
            async with self._extenders.connected(), asyncio.TaskGroup() as group:
                group.create_task(self.quotas.run())
                group.create_task(self._pod_groups.run())
                while True:
                    self._decide_for_a_while(group)
                    self._consult(group)
                    self.quotas.happened()
                    self.binding.held.happened()
                    await self._next_work()
        finally:
            self._view.gangs.changed = unheard
            try:
                await self.binding.over()
            finally:
                self.binding.take_back()
                self._view.take_back()

    def _decide_for_a_while(self, group: asyncio.TaskGroup) -> None:
        until_s = self._monotonic_s() + _SLICE_S
        self._wake.clear()
        self._view.tell_time()
        while (now_s := self._monotonic_s()) < until_s:
            queued = self._view.queue.pop(now_s)
            if queued is None:
                return
            if (work := self._gangs.decide(queued)) is not None:
                for each in work:
                    group.create_task(each)
            elif self._extenders and (deciding := self._extenders.deciding_about(queued.pod)):
                self._view.queue.set_aside(queued, deciding, now_s)
            else:
                group.create_task(self._decided(queued))
        self._wake.set()

    def _consult(self, group: asyncio.TaskGroup) -> None:
        """Has extenders asked about the pods whose turn with them it is; others go on."""
        while (found := self._view.queue.next_aside(self._asked)) is not None:
            queued, names = found
            self._asked |= names
            group.create_task(self._consulted(queued, names))

    async def _consulted(self, queued: QueuedPod, names: frozenset[str]) -> None:
        """Decides about the pod with these extenders, and has the decision carried out."""
        begun_s = self._monotonic_s()
        try:
            decision: Placement | Unplaced | str | None = await self._consultation.decide(queued)
        except (ExtenderError, KubeError, PluginError) as error:
            decision = str(error)
        finally:
            self._asked -= names
            self._wake.set()
        if decision is None or not self._view.queue.answered(queued):
            return
        if isinstance(decision, Placement):
            await self._placed(queued, decision, begun_s)
        elif isinstance(decision, Unplaced):
            await self._waits(queued, decision)
        else:
            await self.binding.fail(queued, FAILED, decision)

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
        """Decides about the pod; returns what carries the decision out, or says that there is none."""
        framework, begun_s = self._view.framework_of(queued.pod), self._monotonic_s()
        try:
            self.decisions.looked_at(queued.pod, framework)
            placement = framework.place(queued.pod)
            if placement is None:
                return self._rejected(queued, framework.diagnose(queued.pod))
        except PluginError as error:
            return self.binding.fail(queued, FAILED, str(error))
        return self._placed(queued, placement, begun_s)

    def _placed(self, queued: QueuedPod, placement: Placement, begun_s: float) -> Coroutine[Any, Any, None]:
        """The pod has got a node."""
        state, pod, now_s = self._view.state, queued.pod, self._monotonic_s()
        self.metrics.decided(now_s - begun_s, len(state.table), placement.feasible_count)
        self.decisions.made(queued, placement, self._view.framework_of(pod), now_s)
        volumes = binding(state, pod, placement.node)
        row = state.table.row(placement.node)
        assert row is not None
        self._view.queue.placed(queued, row)
        return self.binding.begin(queued, volumes)

    def _rejected(self, queued: QueuedPod, diagnosis: Diagnosis) -> Coroutine[Any, Any, None]:
        """No node will do: the pod waits, and others make room for it if they must."""
        pod = queued.pod
        why_not, preemption = "", None
        for preemptor in self._view.preemptors(pod):
            why_not = preemptor.why_not(pod, diagnosis)
            preemption = None if why_not else preemptor.choose(pod, diagnosis)
            if preemption is not None:
                break
        return self._waits(queued, Unplaced(diagnosis, preemption, why_not))

    def _waits(self, queued: QueuedPod, unplaced: Unplaced) -> Coroutine[Any, Any, None]:
        """The pod is back in the queue; returns what tells why, and makes room."""
        pod, nominations, diagnosis = queued.pod, self._view.state.nominations, unplaced.diagnosis
        self._ended(queued, Result.UNSCHEDULABLE)
        if unplaced.is_failure:
            self._view.came_back(queued)
        else:
            self._view.queue.park(queued, diagnosis.plugins, self._monotonic_s(), unplaced.event_count)
        if not self._view.makes_room(pod):
            return self._reporter.tell(pod, UNSCHEDULABLE, diagnosis.message)
        if unplaced.preemption is not None:
            self.metrics.preempted(len(unplaced.preemption.victims))
            nominations.put(pod, unplaced.preemption.node)
            return self._preempt(pod, unplaced.preemption, diagnosis.message)
        if unplaced.why_not:
            return self._reporter.tell(pod, UNSCHEDULABLE, f"{diagnosis.message} preemption: {unplaced.why_not}")
        nominations.remove(pod.uid)
        return self._reporter.tell(pod, UNSCHEDULABLE, f"{diagnosis.message} preemption: {_no_victims(diagnosis)}", "")

    def _ended(self, queued: QueuedPod, result: Result) -> None:
        """An attempt for the pod has ended."""
        self.metrics.tried(queued, result, self._monotonic_s())

    async def _preempt(self, pod: PodInfo, preemption: Preemption, message: str) -> None:
        """Has the victims deleted, as long as the pod waits; it is tried again when they have left."""
        await self._reporter.tell(pod, UNSCHEDULABLE, message, preemption.node)
        await self._room_maker.make_room({preemption.node: pod}, preemption.victims)


def _no_victims(diagnosis: Diagnosis) -> str:
    """Says why preemption does not help, as Kubernetes' scheduler says it."""
    resolvable = int(diagnosis.is_resolvable.sum())
    counts = (
        (resolvable, "No preemption victims found for incoming pod"),
        (diagnosis.node_count - resolvable, "Preemption is not helpful for scheduling"),
    )
    reasons = ", ".join(sorted(f"{count} {reason}" for count, reason in counts if count))
    return f"0/{diagnosis.node_count} nodes are available: {reasons}."
