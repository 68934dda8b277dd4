"""What the manager knows of the cluster: caches that follow the API server, and what is derived of them once.

Derived are when this manager first saw a NodeMetric's ``updateTime``, the policy in force and the view that admission
takes. Invariant: a first sight is that of the object that the cache holds now, also where its event has not been taken
yet; after that event the node is looked at again. Policy and admission change with their events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from koord.admission import AdmissionContext, PriorityClassObject
from koord.admission import profiles as admission_profiles
from koord.admission.schedulerkeys import scheduler_users as default_scheduler_users
from koord.kube.client import EVERYTHING, Client, Selection
from koord.kube.informer import Followed, Informer, Wire, as_read
from koord.kube.kind import (
    CLUSTER_COLOCATION_PROFILE,
    CONFIG_MAP,
    ELASTIC_QUOTA,
    ELASTIC_QUOTA_PROFILE,
    NAMESPACE,
    NODE,
    NODE_METRIC,
    NODE_RESOURCE_TOPOLOGY,
    NODE_SLO,
    POD,
    PRIORITY_CLASS,
    Key,
    Kind,
    Unstructured,
)
from koord.kube.reading import Kept
from koord.kube.store import Index
from koord.kube.stream import EventStream, Handler, ObjectEvent
from koord.model.core import Node, Pod
from koord.model.elasticquota import ElasticQuota
from koord.model.featuregates import Settings
from koord.model.nodemetric import NodeMetric
from koord.model.profile import ClusterColocationProfile
from koord.model.profile import read as read_profile
from koord.model.quotaprofile import ElasticQuotaProfile
from koord.model.schema import SchemaError
from koord.model.selector import LabelSelector
from koord.overcommit.demand import PodDemand
from koord.quota import names, pool
from koord.sloconfig.config import SLOConfig
from koord.sloconfig.loading import LoadedConfig, load, texts
from koord.sloconfig.rows import ROWS
from koord_manager import cache
from koord_manager.cache import CachedTopology, CountedPod, PackedMetric, PodSharing, SpecSharing
from koord_manager.quotaview import MOST_PODS, QuotaPods, QuotaView

_log = logging.getLogger(__name__)
_BY_NODE, _BY_QUOTA = "node", "quota"
_BATCH = 256
_LAST_READ = "what it said last stays in force"
_NEVER_READ = "what Nodes and NodeSLOs say stays as it is, and Nodes that come offer nothing"
_END = 'to end overcommit, make one that has colocation-config: {"enable": false}'


_ENDED = ("Succeeded", "Failed")


class ViewListener:
    """Takes what changes; as it is, it does nothing. The leader's controllers are one."""

    def node_changed(self, name: str) -> None:
        """Takes that something has changed on which a node's offer depends."""

    def pool_changed(self, name: str, before: Node | None, after: Node | None) -> None:
        """Takes a node by which what a quota tree has may be another."""

    def quota_changed(self, key: Key) -> None:
        """Takes that an ElasticQuota is new, gone or another."""

    def quota_profile_changed(self, key: Key) -> None:
        """Takes that an ElasticQuotaProfile is new, gone or another."""

    def policy_changed(self, loaded: LoadedConfig) -> None:
        """The ConfigMap was read; what it means may be as before."""

    def pod_created(self, pod: Pod) -> None:
        """Takes a pod that is new."""

    def pod_changed(self, pod: Pod) -> None:
        """Takes a pod that is new or has changed."""

    def profile_changed(self, profile: Unstructured) -> None:
        """Takes a profile that is new or has changed."""

    def profiles_changed(self) -> None:
        """A ClusterColocationProfile, or a namespace that they go by, is another."""


NO_LISTENER = ViewListener()


class ClusterView:
    """``wall_s``: seconds since 1970. ``scheduler_users``: () is those of an installation in ``own_namespace``."""

    def __init__(
        self,
        client: Client,
        config_map: Key,
        own_namespace: str,
        gates: Settings,
        clock: Callable[[], float],
        wall_s: Callable[[], float],
        scheduler_users: Collection[str] = (),
    ) -> None:
        self._stream, self._wall_s, self.config_map_key = EventStream(), wall_s, config_map
        self._own_namespace, self._gates = own_namespace, gates
        self._scheduler_users = frozenset(scheduler_users or default_scheduler_users(own_namespace))

        def follow(
            kind: Kind[Wire],
            transform: Callable[[Wire], Kept | None],
            handle: Handler[Kept],
            selection: Selection = EVERYTHING,
            indexes: Mapping[str, Index[Kept]] = {},
        ) -> Informer[Wire, Kept]:
            return Informer(client, kind, clock, selection, indexes, self._stream, handle=handle, transform=transform)

        self.nodes = follow(NODE, as_read, self._take_node)
        by = {_BY_NODE: _node_of, _BY_QUOTA: _quota_of}
        self.pods = follow(POD, PodSharing(), self._take_pod, indexes=by)
        self.metrics = follow(NODE_METRIC, cache.packed, self._take_metric)
        self.slos = follow(NODE_SLO, SpecSharing(), self._take_slo)
        self.topologies = follow(NODE_RESOURCE_TOPOLOGY, cache.cached_topology, self._take_topology)
        self.quotas = QuotaView(clock)
        self.elastic_quotas = follow(ELASTIC_QUOTA, as_read, self._take_quota)
        self.quota_profiles = follow(ELASTIC_QUOTA_PROFILE, as_read, self._take_quota_profile)
        self._profiles = follow(CLUSTER_COLOCATION_PROFILE, as_read, self._take_profile)
        self._namespaces = follow(NAMESPACE, as_read, self._take_namespace)
        self._classes = follow(PRIORITY_CLASS, as_read, self._take_class)
        one_map = Selection(config_map.namespace, fields=f"metadata.name={config_map.name}")
        self._config = follow(CONFIG_MAP, as_read, self._take_config_map, one_map)
        self._seen: dict[str, tuple[str | None, float]] = {}
        self._read_profiles: dict[Key, ClusterColocationProfile] = {}
        self._unread_profiles: dict[Key, str] = {}
        """A sentence each."""
        self._context: AdmissionContext | None = None
        self.policy = load(None)
        self._unread_sections = {row.section for row in ROWS}
        self.listener = NO_LISTENER
        self._idle = asyncio.Event()

    @property
    def needed(self) -> tuple[Followed, ...]:
        """The caches that are needed for any answer. Topologies are not: their CRD is another project's. Nor are
        quotas, without which a cluster may do: who needs them waits for them.
        """
        return (
            *(self.nodes, self.pods, self.metrics, self.slos),
            *(self._profiles, self._namespaces, self._classes, self._config),
        )

    @property
    def config(self) -> SLOConfig:
        return self.policy.config

    @property
    def config_map(self) -> Unstructured | None:
        """The ConfigMap ``slo-controller-config`` as it is now."""
        return self._config.get(self.config_map_key)

    @property
    def absence_of_policy(self) -> str:
        """The policy in force while there is no ConfigMap, in a sentence; "" where there is one, or that is not known
        yet.
        """
        if not self._config.synced.is_set() or not self.policy.is_absent:
            return ""
        was_read = len(self._unread_sections) < len(ROWS)
        return f"there is no ConfigMap {self.config_map_key}: {_LAST_READ if was_read else _NEVER_READ}; {_END}"

    def is_unread(self, section: str) -> bool:
        """Returns whether the ConfigMap's key of ``SLOConfig.section`` was bad, or absent with it, ever since this
        process started.

        What is in force for it is what the objects say then: ``config`` has the defaults, which no policy asked for.
        """
        return section in self._unread_sections

    async def run(self) -> None:
        """Follows the API server until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in (*self.needed, self.topologies, self.elastic_quotas, self.quota_profiles):
                group.create_task(informer.run())
            group.create_task(self._follow())

    async def synced(self) -> None:
        """Returns once every cache was complete and all its events are taken."""
        for informer in self.needed:
            await informer.synced.wait()
        while len(self._stream):
            self._idle.clear()
            await self._idle.wait()
        if self.absence_of_policy:
            _log.warning("%s", self.absence_of_policy)

    def demands_of(self, node: str) -> Iterable[PodDemand]:
        """Returns the demands of the pods that are bound to the node."""
        return [pod.demand for pod in self.pods.indexed(_BY_NODE, node)]

    def pods_in(self, quota: str, namespaces: Collection[str]) -> tuple[str, ...]:
        """Returns some of the pods that carry the quota's name, or are in one of the namespaces, and have not ended."""
        labelled = self.pods.indexed(_BY_QUOTA, quota)
        others = (pod for pod in self.pods.objects.values() if namespaces and pod.metadata.namespace in namespaces)
        found = (pod for pods in (labelled, others) for pod in pods if pod.status.phase not in _ENDED)
        names_of = dict.fromkeys(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in islice(found, MOST_PODS))
        return tuple(names_of)

    def pods_now(self) -> QuotaPods:
        """Returns as many of all pods as ``pods_in`` may return of each quota and namespace."""
        by_quota: dict[str, list[str]] = {}
        by_namespace: dict[str, list[str]] = {}
        for key, pod in self.pods.objects.items():
            if pod.status.phase in _ENDED:
                continue
            for found in (
                *(by_quota.setdefault(name, []) for name in _quota_of(pod)),
                by_namespace.setdefault(key.namespace, []),
            ):
                if len(found) < MOST_PODS:
                    found.append(str(key))
        return QuotaPods(*({place: tuple(pods) for place, pods in each.items()} for each in (by_quota, by_namespace)))

    def cpu_info_of(self, node: str) -> str | None:
        """The annotation of its topology; None if there is none."""
        return _text(self.topologies.get(Key("", node)))

    def metric_of(self, node: str) -> NodeMetric | None:
        metric = self.metrics.get(Key("", node))
        return None if metric is None else metric.unpacked()

    def unread_metric_of(self, node: str) -> str:
        """Why its NodeMetric cannot be read as it is now; "" if it can be."""
        return self.metrics.unreadable.get(Key("", node), "")

    def seen_s(self, node: str) -> float | None:
        """Returns when this manager first saw the newest ``updateTime`` of the node; None without a NodeMetric."""
        metric = self.metrics.get(Key("", node))
        if metric is None:
            return None
        update_time, seen_s = self._seen.get(node, ("", 0.0))
        if update_time != metric.update_time:
            seen_s = self._wall_s()
            self._seen[node] = (metric.update_time, seen_s)
        return seen_s

    @property
    def profiles(self) -> Iterable[Unstructured]:
        return self._profiles.objects.values()

    def admission(self) -> AdmissionContext:
        quotas = self.quotas.tree()
        if self._context is None or self._context.quotas is not quotas:
            self._context = AdmissionContext(
                profiles=tuple(self._read_profiles.values()),
                unread_profiles=tuple(self._unread_profiles.values()),
                namespaces={key.name: item.metadata.labels for key, item in self._namespaces.objects.items()},
                priority_classes={key.name: _priority(item) for key, item in self._classes.objects.items()},
                own_namespace=self._own_namespace,
                feature_gates=self._gates,
                scheduler_users=self._scheduler_users,
                quotas=quotas,
                pools=self._pools(),
            )
        return self._context

    def _pools(self) -> Mapping[str, LabelSelector]:
        """Returns which nodes each quota tree has: by the first profile that names it."""
        pools: dict[str, LabelSelector] = {}
        for _, profile in sorted(self.quota_profiles.objects.items()):
            pools.setdefault(pool.tree_id(profile.metadata), profile.spec.node_selector)
        return pools

    async def _follow(self) -> None:
        while True:
            await self._stream.deliver(_BATCH)
            if not len(self._stream):
                self._idle.set()
            await asyncio.sleep(0)

    def _take_node(self, event: ObjectEvent[Node]) -> None:
        if _differs(event.before, event.after):
            self.listener.node_changed(event.key.name)
        if _pooled(event.before) != _pooled(event.after):
            self.listener.pool_changed(event.key.name, event.before, event.after)

    def _take_quota(self, event: ObjectEvent[ElasticQuota]) -> None:
        self.quotas.take(event.key, event.after)
        self.listener.quota_changed(event.key)

    def _take_quota_profile(self, event: ObjectEvent[ElasticQuotaProfile]) -> None:
        self._context = None
        self.listener.quota_profile_changed(event.key)

    def _take_topology(self, event: ObjectEvent[CachedTopology]) -> None:
        if _text(event.before) != _text(event.after):
            self.listener.node_changed(event.key.name)

    def _take_slo(self, event: ObjectEvent[Unstructured]) -> None:
        self.listener.node_changed(event.key.name)

    def _take_class(self, event: ObjectEvent[Unstructured]) -> None:
        self._context = None

    def _take_namespace(self, event: ObjectEvent[Unstructured]) -> None:
        self._context = None
        self.listener.profiles_changed()

    def _take_pod(self, event: ObjectEvent[CountedPod]) -> None:
        if event.after is not None:
            if event.before is None:
                self.listener.pod_created(event.after)
            self.listener.pod_changed(event.after)
        if _changes_demand(event):
            pods = [pod for pod in (event.before, event.after) if pod is not None]
            for node in sorted({node for pod in pods for node in _node_of(pod)}):
                self.listener.node_changed(node)

    def _take_metric(self, event: ObjectEvent[PackedMetric]) -> None:
        name = event.key.name
        if self.seen_s(name) is None:
            self._seen.pop(name, None)
        self.listener.node_changed(name)

    def _take_profile(self, event: ObjectEvent[Unstructured]) -> None:
        self._context = None
        self._read_profile(event.key, event.after)
        if event.after is not None:
            self.listener.profile_changed(event.after)
        self.listener.profiles_changed()

    def _read_profile(self, key: Key, profile: Unstructured | None) -> None:
        self._read_profiles.pop(key, None)
        self._unread_profiles.pop(key, None)
        if profile is None:
            return
        try:
            self._read_profiles[key] = read_profile(profile.content)
        except SchemaError as error:
            self._unread_profiles[key] = f"ClusterColocationProfile {key.name} is not applied: {error}"
        for fault in self.profile_faults(key):
            _log.warning("%s", fault)

    def profile_faults(self, key: Key) -> tuple[str, ...]:
        """Why it is not applied, or not as it says: a sentence each."""
        profile = self._read_profiles.get(key)
        unread = self._unread_profiles.get(key)
        return tuple(filter(None, (unread, *(() if profile is None else admission_profiles.faults(profile)))))

    def _take_config_map(self, event: ObjectEvent[Unstructured]) -> None:
        config_map = event.after
        data = None if config_map is None else texts(config_map.content.get("data"))
        self.policy = load(data, self.policy.config)
        kept_keys = self.policy.kept_keys
        self._unread_sections &= {row.section for row in ROWS if row.key in kept_keys}
        for each in self.policy.rejected:
            _log.warning("ConfigMap %s: %s; %s", self.config_map_key, each.problem, each.consequence)
        if config_map is None:
            _log.warning("%s", self.absence_of_policy)
        self.listener.policy_changed(self.policy)


def _node_of(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _quota_of(pod: Pod) -> Iterable[str]:
    name = pod.metadata.labels.get(names.LABEL_NAME)
    return (name,) if name else ()


def _pooled(node: Node | None) -> tuple[object, ...] | None:
    """All of a node that counts in a quota tree."""
    if node is None:
        return None
    return node.metadata.labels, node.status.allocatable, pool.is_schedulable(node)


def _text(info: CachedTopology | None) -> str | None:
    return None if info is None else info.text


def _differs(before: Node | None, after: Node | None) -> bool:
    """Returns whether anything of a Node differs but its heartbeat."""
    if before is None or after is None:
        return True
    old, new = before.metadata, after.metadata
    return (
        (old.uid, old.labels, old.annotations) != (new.uid, new.labels, new.annotations)
        or before.status.capacity != after.status.capacity
        or before.status.allocatable != after.status.allocatable
    )


def _changes_demand(event: ObjectEvent[CountedPod]) -> bool:
    """Returns whether the demand on a node may be another now: the pod is new, gone, on another node, or its demand
    differs.
    """
    before, after = event.before, event.after
    if before is None or after is None:
        return True
    return (before.demand, before.spec.node_name) != (after.demand, after.spec.node_name)


def _priority(item: Unstructured) -> PriorityClassObject:
    value, policy = item.content.get("value"), item.content.get("preemptionPolicy")
    number = value if isinstance(value, int) else 0
    return PriorityClassObject(number, policy) if isinstance(policy, str) else PriorityClassObject(number)
