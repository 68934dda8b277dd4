"""Profiles that changed, for pods that wait for a node: their labels and annotations follow (gate
``ColocationProfileController``).

A pod is looked at when it, a profile or its namespace changes; none is without that. Invariant: only what
``koord.admission.pending`` says is written, to the very pod that was looked at, and no faster than the limit.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

from koord.admission import pending
from koord.kube.client import Client
from koord.kube.errors import APIError
from koord.kube.kind import POD, Key
from koord.kube.ratelimit import RateLimit
from koord.kube.workqueue import WorkQueue
from koord.model.core import Pod
from koord_manager.view import ClusterView

WORKERS = 4
_log = logging.getLogger(__name__)


class ProfileController:
    """For the running event loop. ``all_are_managed``: profiles without the label, too."""

    def __init__(self, client: Client, view: ClusterView, all_are_managed: bool, qps: float, burst: int) -> None:
        self._client, self._view, self._all_are_managed = client, view, all_are_managed
        self._rate = RateLimit(qps, burst, asyncio.get_running_loop().time)
        self.queue: WorkQueue[Key] = WorkQueue("colocationprofile")

    def pod_changed(self, pod: Pod) -> None:
        if pending.is_open(pod, self._view.admission()):
            self.queue.add(Key(pod.metadata.namespace, pod.metadata.name))

    def profiles_changed(self) -> None:
        """Or what they go by: all pods that wait are looked at."""
        for pod in self._view.pods.objects.values():
            self.pod_changed(pod)

    async def reconcile(self, key: Key) -> float | None:
        """Raises KubeError."""
        pod, context = self._view.pods.get(key), self._view.admission()
        if pod is None or not pending.is_open(pod, context):
            return None
        update = pending.update(pod, context, self._all_are_managed)
        for problem in update.problems:
            _log.warning("pod %s: %s", key, problem)
        if update.patch:
            await self._rate.take()
            try:
                await self._client.patch(POD, key, {"metadata": {**update.patch, "uid": pod.metadata.uid}})
            except APIError as error:  # a pod that is gone, or another by now, is looked at when its event comes
                if not (error.is_not_found or error.is_conflict or _is_another(error)):
                    raise
        return None


def _is_another(error: APIError) -> bool:
    """Returns whether the pod of that name has another UID than the patch: to API servers an immutable field."""
    is_invalid = error.status == HTTPStatus.UNPROCESSABLE_ENTITY
    return is_invalid and any(cause.field == "metadata.uid" for cause in error.causes)
