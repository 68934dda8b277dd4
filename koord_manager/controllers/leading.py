"""What the leader does for as long as it leads: one queue per controller, fed by what the view tells."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from koord.admission import missing_mutations
from koord.kube.client import Client
from koord.kube.kind import CLUSTER_COLOCATION_PROFILE, CONFIG_MAP, POD, Key, Unstructured
from koord.kube.recorder import EventRecorder, EventType, Subject
from koord.kube.workqueue import WorkQueue
from koord.model.core import Node, Pod, unix_s
from koord.sloconfig.loading import LoadedConfig, unknown_messages
from koord_manager.controllers.nodemetric import NodeMetricController
from koord_manager.controllers.noderesource import NodeResourceController
from koord_manager.controllers.nodeslo import NodeSLOController
from koord_manager.controllers.profiles import WORKERS, ProfileController
from koord_manager.controllers.quotaprofiles import QuotaProfileController
from koord_manager.freshusage import FreshFigures
from koord_manager.view import NO_LISTENER, ClusterView, ViewListener

UNKNOWN_CONFIG, ABSENT_CONFIG = "UnknownConfig", "ConfigMapAbsent"
"""The reasons of the Events about members of the ConfigMap that nothing reads, and about one that is not there."""

_WORKERS = 8
_UNSEEN_S = 900.0
"""A pod that is older when a replica comes to lead was somebody else's to report."""


class Controllers(ViewListener):
    """Listens to ``view`` and to ``fresh``. ``profiles``: what brings changed profiles to pods that exist, if
    anything is to."""

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        fresh: FreshFigures,
        recorder: EventRecorder,
        wall_s: Callable[[], float],
        profiles: ProfileController | None = None,
    ) -> None:
        self._profiles = profiles
        self._view, self._recorder, self._wall_s = view, recorder, wall_s
        self._fresh = fresh
        self.resources = NodeResourceController(client, view, fresh, recorder, wall_s)
        reconcilers: dict[str, Callable[[str], Awaitable[float | None]]] = {
            "noderesource": self.resources.reconcile,
            "nodemetric": NodeMetricController(client, view).reconcile,
            "nodeslo": NodeSLOController(client, view, recorder).reconcile,
        }
        self._work = [(WorkQueue[str](name), reconcile) for name, reconcile in reconcilers.items()]
        self.quota_profiles = QuotaProfileController(client, view, recorder)
        self._policy: LoadedConfig | None = None
        """By which every node has been queued in this term; None: not yet."""

    @property
    def queues(self) -> tuple[WorkQueue[Any], ...]:
        """The queues of all controllers, those of nodes first."""
        found: list[WorkQueue[Any]] = [*(queue for queue, _ in self._work), self.quota_profiles.queue]
        return tuple(found if self._profiles is None else [*found, self._profiles.queue])

    async def run(self) -> None:
        """Looks at every node, and then at what changes, until it is cancelled."""
        self._policy, self._view.listener = None, self
        resources, *_ = self.queues
        self._fresh.listener = resources.add
        try:
            self.policy_changed(self._view.policy)
            for profile in self._view.profiles:
                self.profile_changed(profile)
            for pod in self._view.pods.objects.values():
                if (unix_s(pod.metadata.creation_timestamp) or 0.0) > self._wall_s() - _UNSEEN_S:
                    self.pod_created(pod)
            for key in (*self._view.metrics.objects, *self._view.slos.objects):
                self.node_changed(key.name)
            async with asyncio.TaskGroup() as group:
                for queue, reconcile in self._work:
                    group.create_task(queue.work(reconcile, _WORKERS))
                self.quota_profiles.begin()
                group.create_task(self.quota_profiles.queue.work(self.quota_profiles.reconcile))
                if self._profiles is not None:
                    self._profiles.profiles_changed()
                    group.create_task(self._profiles.queue.work(self._profiles.reconcile, WORKERS))
        finally:
            self._view.listener, self._fresh.listener = NO_LISTENER, None

    def node_changed(self, name: str) -> None:
        for queue, _ in self._work:
            queue.add(name)

    def pool_changed(self, name: str, before: Node | None, after: Node | None) -> None:
        self.quota_profiles.node_changed(name, before, after)

    def quota_changed(self, key: Key) -> None:
        self.quota_profiles.quota_changed(key)

    def quota_profile_changed(self, key: Key) -> None:
        self.quota_profiles.profile_changed(key)

    def policy_changed(self, loaded: LoadedConfig) -> None:
        """Queues every node, if the policy means something else for any, and records an Event for each problem."""
        if absence := self._view.absence_of_policy:
            subject = Subject(CONFIG_MAP, self._view.config_map_key, uid="")
            self._recorder.record(subject, EventType.WARNING, ABSENT_CONFIG, absence)
        for each in loaded.rejected:
            self._tell_of_config(each.event_reason, f"{each.problem}; {each.consequence}")
        if loaded.unknown:
            self._tell_of_config(UNKNOWN_CONFIG, "; ".join(unknown_messages(loaded.unknown)))
        if self._policy is None or loaded != self._policy:
            self._policy = loaded
            for key in self._view.nodes.objects:
                self.node_changed(key.name)

    def pod_changed(self, pod: Pod) -> None:
        if self._profiles is not None:
            self._profiles.pod_changed(pod)

    def profile_changed(self, profile: Unstructured) -> None:
        """An Event on one that is not applied, or not as it says."""
        for fault in self._view.profile_faults(Key("", profile.metadata.name)):
            subject = Subject.of(CLUSTER_COLOCATION_PROFILE, profile.metadata)
            self._recorder.record(subject, EventType.WARNING, "ProfileNotApplied", fault)

    def profiles_changed(self) -> None:
        if self._profiles is not None:
            self._profiles.profiles_changed()

    def pod_created(self, pod: Pod) -> None:
        """An Event on one that no webhook has seen."""
        if sentence := missing_mutations(pod, self._view.admission()):
            self._recorder.record(Subject.of(POD, pod.metadata), EventType.WARNING, "NotMutated", sentence)

    def _tell_of_config(self, reason: str, message: str) -> None:
        """An Event on the ConfigMap, unless that is gone by now."""
        config_map = self._view.config_map
        if config_map is not None:
            self._recorder.record(Subject.of(CONFIG_MAP, config_map.metadata), EventType.WARNING, reason, message)
