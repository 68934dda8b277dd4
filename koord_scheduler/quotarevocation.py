"""Has pods leave quotas that use more than they may for long, as the leader, through the eviction API.

A quota is over its limit from when that is first seen until it is not; after ``overuse_s`` pods are evicted, and the
time begins anew. Nothing is asked in a rhythm: it looks when something has changed, no more often than each
``revoke_interval_s``, and when a quota's time is over. Whose leaving would break a disruption budget is not chosen; who
is refused all the same is chosen again after the next ``overuse_s``. Of a gang all pods are chosen, or none.

Invariant: only pods leave that their quota's own use, as the state has it then, makes leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.kube.kind import Key
from koord.kube.recorder import EventRecorder, EventType, Subject
from koord.kube.schedulingkinds import POD
from koord.model.scheduling.policies import PodDisruptionBudget
from koord.quota.forest import Forest, Quota
from koord.scheduling.overuse import GangOf, leaving, no_gangs, overused
from koord.scheduling.plugins.elasticquota import ElasticQuota
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState

_log = logging.getLogger(__name__)
REASON = "ElasticQuotaOverused"


class QuotaRevocation:
    """``client``: the leader's. ``gang_of``: who leaves together. ``evictions``: how many there were."""

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        settings: ElasticQuota,
        recorder: EventRecorder,
        monotonic_s: Callable[[], float],
        budgets: Callable[[], Sequence[PodDisruptionBudget]],
        gang_of: GangOf = no_gangs,
    ) -> None:
        self._client, self._state, self._settings = client, state, settings
        self._recorder, self._monotonic_s, self._gang_of = recorder, monotonic_s, gang_of
        self._budgets, self._changed = budgets, asyncio.Event()
        self._since_s: dict[str, float] = {}
        """By quota: since when it uses more than it may."""
        self.evictions = 0

    def changed(self) -> None:
        """What quotas come to may have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Looks and evicts until it is cancelled."""
        self._changed.set()
        while True:
            due_s = min(self._since_s.values(), default=None)
            timeout_s = None if due_s is None else max(0.0, due_s + self._settings.overuse_s - self._monotonic_s())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            self._changed.clear()
            for pod, quota in self.chosen(self._monotonic_s()):
                await self._evict(pod, quota)
            await asyncio.sleep(self._settings.revoke_interval_s)

    def chosen(self, now_s: float) -> list[tuple[PodInfo, str]]:
        """Returns who has to leave now, with the quota's name."""
        forest = self._state.quotas.up_to_date()
        found: list[tuple[PodInfo, str]] = []
        over = dict[str, float]()
        for quota in forest or ():
            if forest is None or quota.children or quota.is_outside or quota.problem:
                continue
            if not overused(forest, quota):
                continue
            since_s = self._since_s.get(quota.name, now_s)
            if now_s - since_s >= self._settings.overuse_s:
                found += [(pod, quota.name) for pod in self._leaving(forest, quota)]
                since_s = now_s
            over[quota.name] = since_s
        self._since_s = over
        return found

    def _leaving(self, forest: Forest, quota: Quota) -> list[PodInfo]:
        pods = self._state.quotas.placed_in(quota.name).values()
        staying = [each for each in pods if not each.is_terminating]
        going = [each for each in pods if each.is_terminating]
        used = {
            resource: quota.counted.used.get(resource, 0) - sum([each.requests.get(resource, 0) for each in going])
            for resource in quota.spec.maximum
        }
        return leaving(staying, used, forest.runtimes(quota), self._gang_of, self._budgets())

    async def _evict(self, pod: PodInfo, quota: str) -> None:
        if self._state.node_of(pod.uid) is None:
            return
        try:
            await self._client.evict(Key(pod.namespace, pod.name), pod.uid)
        except KubeError as error:
            _log.info("pod %s/%s cannot leave quota %s: %s", pod.namespace, pod.name, quota, error)
            return
        self.evictions += 1
        text = f"Evicted: its ElasticQuota {quota} has used more than its runtime for {self._settings.overuse_s:g} s"
        self._recorder.record(Subject.of(POD, pod.pod.metadata), EventType.WARNING, REASON, text)


def revokes(settings: ElasticQuota) -> bool:
    """Returns whether anybody gives back what is used too much."""
    return settings.monitors and settings.limits_by_runtime
