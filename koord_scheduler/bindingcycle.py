"""What follows a decision: plugins reserve and permit, volumes are bound, then the pod; and what is done about the end.

A pod counts on its node from the decision on. Invariant: each pod that is begun ends bound, which its own object
confirms, or forgotten and, for as long as the cache has it without a node, back in the queue, whatever was answered;
one that is under way when leadership ends is taken back, here and by the view.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from koord.kube.client import Client
from koord.kube.errors import NotLeader
from koord.kube.lease import Timing
from koord.kube.recorder import EventType
from koord.scheduling.gangplacement import Holder
from koord.scheduling.plugin import Event, EventKind, PluginError
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.queuedpod import QueuedPod
from koord.scheduling.volumes import VolumeDecision
from koord_scheduler.binding import Binder, Bound, Outcome
from koord_scheduler.extenders import NO_EXTENDERS, Extenders
from koord_scheduler.heldpods import HeldPods
from koord_scheduler.metrics import Result
from koord_scheduler.podstatus import FAILED, UNSCHEDULABLE, PodReporter
from koord_scheduler.view import ClusterView
from koord_scheduler.volumewriter import VolumeWriter
from koord_scheduler.window import RequestWindow

_TIMING = Timing()
_BIND_TIMEOUT_S = _TIMING.lease_s - _TIMING.renew_s
"""What a leader sends, which it may until ``renew_s``, it has an answer to or gives up before another may lead."""


class _Holder:
    def __init__(self, view: ClusterView, held: HeldPods) -> None:
        self._view, self._held = view, held

    def hold(self, pod: PodInfo, node: str) -> None:
        self._held.reserve(pod, node, self._view.profile_of(pod))

    def release(self, uid: str) -> None:
        self._held.unreserve(uid)


class BindingCycle:
    """``client``: the leader's. ``ended``: called with what each attempt came to; ``came_back``: called when a pod is
    tried again, or its room is free.
    """

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        reporter: PodReporter,
        ended: Callable[[QueuedPod, Result], None],
        came_back: Callable[[], None],
        monotonic_s: Callable[[], float],
        extenders: Extenders = NO_EXTENDERS,
    ) -> None:
        self._view, self._reporter, self._ended, self._came_back = view, reporter, ended, came_back
        self.window = RequestWindow()
        self._binder = Binder(client, self.window, _BIND_TIMEOUT_S, extenders=extenders)
        self.volumes = VolumeWriter(client, view.state.volumes)
        self.held = HeldPods(view.state, monotonic_s)

    def begin(self, queued: QueuedPod, volumes: VolumeDecision) -> Coroutine[Any, Any, None]:
        """The pod has got the node of ``volumes``; returns what has it bound there."""
        pod, node = queued.pod, volumes.node
        self._view.state.assume(pod, node, volumes)
        try:
            self.held.reserve(pod, node, self._view.profile_of(pod))
        except PluginError as error:
            self._forget(pod, node)
            return self.fail(queued, FAILED, str(error))
        return self.carry_out(queued, volumes)

    def fail(self, queued: QueuedPod, reason: str, message: str) -> Coroutine[Any, Any, None]:
        """The pod has no node and is tried again after its backoff; returns what says why."""
        self._ended(queued, Result.UNSCHEDULABLE if reason == UNSCHEDULABLE else Result.ERROR)
        self._view.came_back(queued)
        return self._reporter.tell(queued.pod, reason, message)

    def holder(self) -> Holder:
        """Returns what has plugins hold something for the members of a gang while they are placed."""
        return _Holder(self._view, self.held)

    async def over(self) -> None:
        """Returns once nothing that was sent can be carried out any more."""
        await self._binder.over()

    def take_back(self) -> None:
        """Nothing is carried out any more."""
        self.held.take_back()

    async def carry_out(self, queued: QueuedPod, volumes: VolumeDecision) -> None:
        """Has the pod bound to the node of ``volumes``, on which it counts."""
        pod, node, reason = queued.pod, volumes.node, FAILED
        try:
            rejection = await self.held.permitted(pod, node, self._view.profile_of(pod))
            if rejection:
                reason, bound = UNSCHEDULABLE, Bound(Outcome.REFUSED, rejection)
            else:
                bound = await self._bound(pod, volumes)
        except NotLeader:
            return  # who leads now decides about it, and all assumptions of ours are taken back
        except PluginError as error:
            bound = Bound(Outcome.REFUSED, str(error))
        if bound.outcome is Outcome.BOUND:
            self._ended(queued, Result.SCHEDULED)
            self.held.bound(pod.uid)
            name = f"{pod.namespace}/{pod.name}"
            self._reporter.record(pod, EventType.NORMAL, "Scheduled", f"Successfully assigned {name} to {node}")
            return
        if bound.outcome is Outcome.BY_ANOTHER:
            self._ended(queued, Result.ERROR)
            self.held.unreserve(pod.uid)
            return
        self._forget(pod, node)
        if bound.outcome is Outcome.REFUSED:
            told = self.fail(queued, reason, bound.error)
            self._keep_room(pod, node)
            await told
        else:
            self._ended(queued, Result.ERROR)
            self._view.came_back(queued)
        self._came_back()

    async def _bound(self, pod: PodInfo, volumes: VolumeDecision) -> Bound:
        """Has the pod bound, after all that has to be so before. Raises NotLeader and PluginError."""
        node, profile = volumes.node, self._view.profile_of(pod)

        def is_wanted() -> bool:
            return node in self._view.state.table

        if volumes.claims:
            error = await self.volumes.prepare(volumes, profile.volume_binding.bind_timeout_s)
            if error:
                return Bound(Outcome.REFUSED, f"binding rejected: {error}")
        patch = self.held.patch(pod, node, profile) if profile.pre_bind else None
        bound = await self._binder.patch(pod, patch, node, is_wanted) if patch else None
        if bound is None:
            bound = await self._binder.bind(pod, node, is_wanted)
        return bound if bound.outcome is Outcome.BOUND else bound._replace(error=f"binding rejected: {bound.error}")

    def _keep_room(self, pod: PodInfo, node: str) -> None:
        """The rest of a gang is on its nodes, and waits for the pod: no lesser pod gets the room that it had."""
        gangs = self._view.gangs
        key = gangs.of(pod.uid)
        gang = None if key is None else gangs.get(key)
        is_there = pod.uid in self._view.queue and node in self._view.state.table
        if is_there and gang is not None and gangs.placed_count(gang):
            self._view.state.nominations.put(pod, node)

    def _forget(self, pod: PodInfo, node: str) -> None:
        """The pod is not on the node after all, and others may have its room."""
        row = self._view.state.table.row(node)
        self.held.unreserve(pod.uid)
        self._view.state.forget(pod.uid)
        if row is not None:
            self._view.queue.note(Event(EventKind.POD_LEFT, row, pod))
