"""What follows a decision: the pod's volumes, then its binding, then what is said and done about what came of it.

A pod counts on its node from the decision on. Invariant: each pod that is begun ends bound, which its own object
confirms, or forgotten and, for as long as the cache has it without a node, back in the queue, whatever was answered;
one that is under way when leadership ends is taken back by the view.
"""

from __future__ import annotations

from collections.abc import Callable

from koord.kube.client import CallLimits, Client
from koord.kube.errors import NotLeader
from koord.kube.lease import Timing
from koord.kube.recorder import EventType
from koord.scheduling.plugin import Event, EventKind
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.queue import QueuedPod
from koord.scheduling.volumes import VolumeDecision
from koord_scheduler.binding import Binder, Bound, Outcome
from koord_scheduler.extenders import NO_EXTENDERS, Extenders
from koord_scheduler.podstatus import FAILED, PodReporter
from koord_scheduler.view import ClusterView
from koord_scheduler.volumewriter import VolumeWriter
from koord_scheduler.window import RequestWindow

_TIMING = Timing()
_BIND_TIMEOUT_S = _TIMING.lease_s - _TIMING.renew_s
"""What a leader sends, which it may until ``renew_s``, it has an answer to or gives up before another may lead."""


class BindingCycle:
    """``client``: the leader's. ``ended``: called with what became of each pod; ``came_back``: called when a pod is
    tried again, or its room is free.
    """

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        reporter: PodReporter,
        ended: Callable[[QueuedPod, Outcome], None],
        came_back: Callable[[], None],
        extenders: Extenders = NO_EXTENDERS,
    ) -> None:
        self._view, self._reporter, self._ended, self._came_back = view, reporter, ended, came_back
        self.window = RequestWindow()
        once = CallLimits(tries=1, timeout_s=_BIND_TIMEOUT_S)
        self._binder = Binder(client.with_limits(once), self.window, extenders=extenders)
        self.volumes = VolumeWriter(client, view.state.volumes)

    async def run(self, queued: QueuedPod, volumes: VolumeDecision) -> None:
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
        self._ended(queued, bound.outcome)
        if bound.outcome is Outcome.BOUND:
            name = f"{pod.namespace}/{pod.name}"
            self._reporter.record(pod, EventType.NORMAL, "Scheduled", f"Successfully assigned {name} to {node}")
            return
        if bound.outcome is Outcome.BY_ANOTHER:
            return
        row = state.table.row(node)
        state.forget(pod.uid)
        if row is not None:
            self._view.queue.note(Event(EventKind.POD_LEFT, row, pod))
        self._view.came_back(queued)
        if bound.outcome is Outcome.REFUSED:
            await self._reporter.tell(pod, FAILED, f"binding rejected: {bound.error}")
        self._came_back()

    async def _prepared(self, pod: PodInfo, volumes: VolumeDecision) -> str:
        """Returns "" once the pod's claims are bound, or why they will not be."""
        if not volumes.claims:
            return ""
        return await self.volumes.prepare(volumes, self._view.profile_of(pod).volume_binding.bind_timeout_s)
