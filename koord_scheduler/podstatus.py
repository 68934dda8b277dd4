"""What a pod's status says of its placement: the condition ``PodScheduled``, and the node that is cleared for it.

kubectl, cluster-autoscaler and people go by these. A pod gets a patch only where one says something else than what the
API server has, or what the last patch said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from koord.kube.client import Client, PatchType
from koord.kube.errors import KubeError
from koord.kube.kind import Key
from koord.kube.recent import Recent
from koord.kube.recorder import EventRecorder, EventType, Subject
from koord.kube.schedulingkinds import POD
from koord.model.core import api_time
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import BY_PREEMPTION, DISRUPTED

_log = logging.getLogger(__name__)
POD_SCHEDULED, UNSCHEDULABLE, FAILED = "PodScheduled", "Unschedulable", "SchedulerError"
_MOST = 8192


class PodStatusWriter:
    """``wall_s``: seconds since 1970."""

    def __init__(self, client: Client, wall_s: Callable[[], float]) -> None:
        self._client, self._wall_s = client, wall_s
        self._last = Recent[str, tuple[str, str, str]](_MOST)

    async def unscheduled(self, pod: PodInfo, reason: str, message: str, nominated: str | None = None) -> None:
        """Says that the pod has no node, and why. ``nominated``: None leaves what it says of that. Raises nothing."""
        said = reason, message, pod.pod.status.nominated_node_name if nominated is None else nominated
        if said == (self._last.get(pod.uid) or _said_by(pod)):
            return
        status: dict[str, Any] = {"conditions": [self._condition(POD_SCHEDULED, "False", reason, message)]}
        if nominated is not None:
            status["nominatedNodeName"] = nominated or None
        if await self._patch(pod, status):
            self._last.put(pod.uid, said)

    async def disrupted(self, pod: PodInfo, message: str) -> None:
        """Says that the pod is deleted for another one. Raises nothing."""
        await self._patch(pod, {"conditions": [self._condition(DISRUPTED, "True", BY_PREEMPTION, message)]})

    def _condition(self, type: str, status: str, reason: str, message: str) -> dict[str, Any]:
        now = api_time(self._wall_s())
        return {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}

    async def _patch(self, pod: PodInfo, status: dict[str, Any]) -> bool:
        key, body = Key(pod.namespace, pod.name), {"metadata": {"uid": pod.uid}, "status": status}
        try:
            await self._client.patch(POD, key, body, PatchType.STRATEGIC, "status")
        except KubeError as error:
            _log.info("the status of pod %s cannot be written: %s", key, error)
            return False
        return True


class PodReporter:
    """Says what becomes of pods by Events, and by their conditions."""

    def __init__(self, statuses: PodStatusWriter, recorder: EventRecorder) -> None:
        self._statuses, self._recorder = statuses, recorder

    async def tell(self, pod: PodInfo, reason: str, message: str, nominated: str | None = None) -> None:
        """Says why the pod has no node, as `PodStatusWriter.unscheduled` does. Raises nothing."""
        self.record(pod, EventType.WARNING, "FailedScheduling", message)
        await self._statuses.unscheduled(pod, reason, message, nominated)

    async def condition(self, pod: PodInfo, reason: str, message: str, nominated: str | None = None) -> None:
        """Says the same without an Event."""
        await self._statuses.unscheduled(pod, reason, message, nominated)

    def record(self, pod: PodInfo, type: EventType, reason: str, message: str) -> None:
        self._recorder.record(Subject.of(POD, pod.pod.metadata), type, reason, message)


def _said_by(pod: PodInfo) -> tuple[str, str, str] | None:
    condition = pod.pod.status.condition(POD_SCHEDULED)
    if condition is None or condition.status != "False":
        return None
    return condition.reason, condition.message, pod.pod.status.nominated_node_name
