"""ElasticQuotas as the scheduler follows them: an informer that feeds the state's quotas, and who may leave for whom.

An API server need not have the kind: without it there are no quotas. What of an object cannot be used is logged once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from koord.kube.client import Client
from koord.kube.informer import ABSENT_PACE, Informer, as_read, lacks_kind
from koord.kube.kind import ELASTIC_QUOTA
from koord.kube.stream import EventStream, ObjectEvent
from koord.model.elasticquota import ElasticQuota as QuotaObject
from koord.model.scheduling.policies import PodDisruptionBudget
from koord.quota import names
from koord.scheduling.framework import Framework
from koord.scheduling.plugin import Event, EventKind
from koord.scheduling.plugins.elasticquota import ElasticQuota
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import CandidateCount, Preemptor
from koord.scheduling.quotas import is_fixed
from koord.scheduling.state import ClusterState
from koord_scheduler.profiles import Profile

_log = logging.getLogger(__name__)
_EVERY_NODE = CandidateCount(100, 1)


def settings_of(profiles: Iterable[Profile]) -> ElasticQuota | None:
    """Returns the plugin that says how quotas are counted; None: no profile has any."""
    plugins = (each.plugin for profile in profiles for each in profile.plugins)
    return next((each for each in plugins if isinstance(each, ElasticQuota)), None)


class QuotaFeed:
    """``settings``: None: quotas are not followed. ``note``: takes what may help pods that wait."""

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        settings: ElasticQuota | None,
        stream: EventStream,
        monotonic_s: Callable[[], float],
        note: Callable[[Event], None],
    ) -> None:
        self._state, self.settings, self._note = state, settings, note
        self.informers: tuple[Informer[QuotaObject, QuotaObject], ...] = ()
        if settings is not None:
            state.quotas.follow(settings.rules)
            informer = Informer(
                client,
                ELASTIC_QUOTA,
                monotonic_s,
                stream=stream,
                pace=ABSENT_PACE,
                transform=as_read,
                handle=self._take,
                does_without=lacks_kind,
            )
            self.informers = (informer,)

    def put_pod(self, pod: PodInfo) -> None:
        """The pod has not ended."""
        self._counted(lambda: self._state.quotas.put_pod(pod))

    def remove_pod(self, uid: str) -> None:
        """The pod has ended, is gone, or cannot be read."""
        self._counted(lambda: self._state.quotas.remove_pod(uid))

    def preemptors(
        self, pod: PodInfo, framework: Framework, profile: Profile, budgets: Sequence[PodDisruptionBudget]
    ) -> list[Preemptor]:
        """Returns what may make room for the pod, in the order in which it is tried: first pods of its own quota
        leave, then any.
        """
        found, quota = [], self._state.quotas.of(pod)
        own_nodes = None if quota is None else self._nodes_of_lesser(quota.name, pod)
        is_spared = quota is None or (
            quota.name == names.DEFAULT and self.settings is not None and self.settings.spares_default
        )
        if profile.preempts_in_quota and not is_spared:
            found.append(Preemptor(framework, budgets, _EVERY_NODE, self._may_leave, own_nodes))
        if profile.preemption is not None:
            is_kept_out = any(
                each.obstacle(self._state, pod) is not None
                for each in framework.filters
                if isinstance(each, ElasticQuota)
            )
            nodes = own_nodes if is_kept_out else None
            found.append(Preemptor(framework, budgets, profile.preemption, nodes=nodes))
        return found

    def _nodes_of_lesser(self, quota: str, pod: PodInfo) -> frozenset[str]:
        """Returns where pods of the quota are that are less important: no others give it room."""
        lesser = [uid for uid, each in self._state.quotas.placed_in(quota).items() if each.priority < pod.priority]
        return frozenset([node for uid in lesser if (node := self._state.node_of(uid)) is not None])

    def _may_leave(self, pod: PodInfo, other: PodInfo) -> bool:
        name_for = self._state.quotas.name_for
        return not is_fixed(other) and name_for(pod) == name_for(other)

    def _take(self, event: ObjectEvent[QuotaObject]) -> None:
        quotas, key = self._state.quotas, event.key
        if event.after is None:
            self._counted(lambda: quotas.remove(key.namespace, key.name))
            return
        before = quotas.problems.get((key.namespace, key.name))
        quota = event.after
        self._counted(lambda: quotas.put(quota))
        after = quotas.problems.get((key.namespace, key.name))
        if after is not None and after != before:
            _log.warning("ElasticQuota %s: %s", key, after)

    def _counted(self, count: Callable[[], object]) -> None:
        forest = self._state.quotas.forest
        if forest is None:
            return
        version = forest.version
        count()
        if forest.version != version:
            self._note(Event(EventKind.QUOTA))
