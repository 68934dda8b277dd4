"""Has pods deleted that have to leave for others, as long as those wait, and says so on all of them.

The room that they leave is promised to those that wait by their nominations, which others have put before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from koord.kube.client import Client, Preconditions
from koord.kube.errors import KubeError
from koord.kube.kind import Key
from koord.kube.recorder import EventType
from koord.kube.schedulingkinds import POD
from koord.scheduling.podinfo import PodInfo
from koord_scheduler.podstatus import UNSCHEDULABLE, PodReporter, PodStatusWriter
from koord_scheduler.view import ClusterView

_log = logging.getLogger(__name__)


class RoomMaker:
    """``client``: the leader's."""

    def __init__(self, client: Client, view: ClusterView, statuses: PodStatusWriter, reporter: PodReporter) -> None:
        self._client, self._view, self._statuses, self._reporter = client, view, statuses, reporter

    async def make_room(self, pods: Mapping[str, PodInfo], victims: Sequence[PodInfo]) -> None:
        """Has ``victims`` deleted, until none of ``pods`` waits any more; ``pods``: by the node that is for them."""
        nominations = self._view.state.nominations
        for node, pod in pods.items():
            for other in nominations.below(pod.priority, node):
                nominations.remove(other.uid)
                await self._statuses.unscheduled(other, UNSCHEDULABLE, f"node {node} is for a more important pod", "")
        for victim in victims:
            waiting = [pod for pod in pods.values() if pod.uid in self._view.queue]
            if not waiting:
                return
            if not victim.is_terminating:
                node = self._view.state.node_of(victim.uid) or ""
                await self._delete(pods.get(node, waiting[0]), victim, node)

    async def _delete(self, pod: PodInfo, victim: PodInfo, node: str) -> None:
        reason = f"preempting to accommodate a higher priority pod {pod.namespace}/{pod.name}"
        await self._statuses.disrupted(victim, reason)
        if pod.uid not in self._view.queue:
            return
        try:
            await self._client.delete(POD, Key(victim.namespace, victim.name), Preconditions(victim.uid))
        except KubeError as error:
            _log.warning("pod %s/%s cannot be preempted: %s", victim.namespace, victim.name, error)
            return
        self._reporter.record(victim, EventType.NORMAL, "Preempted", f"Preempted by pod {pod.uid} on node {node}")
