"""What the scheduler knows of the cluster: informers of one event stream, which feed one state and one queue.

Every replica keeps both up to date, so a new leader begins with what the API server says of pods and nominations.
Invariant: a pod is in the state if it is on a node, or in the queue if it waits and is this scheduler's; a pod between
a decision and the end of its binding is in the state alone. A node is there until its watch says otherwise, which it
does within ten seconds even if its connection hangs: only so long may a pod still be sent to a node that is gone, and
Kubernetes deletes such a pod.
An object that cannot be used costs itself only: the log and ``problems`` say why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from koord.kube.client import Client
from koord.kube.informer import ABSENT_PACE, Followed, Informer, Pace, as_read, lacks_kind
from koord.kube.interner import Interner
from koord.kube.kind import NAMESPACE, Key, Kind, Object, PartialObject
from koord.kube.schedulingkinds import (
    NODE,
    POD,
    POD_DISRUPTION_BUDGET,
    POD_GROUP,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SERVICE,
    STATEFUL_SET,
)
from koord.kube.stream import EventStream, ObjectEvent
from koord.model.gang import GangDefaults, GangKey
from koord.model.quantity import QuantityError
from koord.model.scheduling.koordinator import PodGroup
from koord.model.scheduling.owners import ReplicaSet, ReplicationController, Service, StatefulSet
from koord.model.scheduling.pods import Node, Pod
from koord.model.scheduling.policies import PodDisruptionBudget
from koord.model.selector import LabelSelector
from koord.scheduling.defaults import at_minor
from koord.scheduling.framework import Framework, WeightedPlugin
from koord.scheduling.gangs import Gangs
from koord.scheduling.owners import ControllerKey, ServicePods
from koord.scheduling.plugin import Event, EventKind
from koord.scheduling.plugins.loadaware import LoadAwareScheduling
from koord.scheduling.plugins.nodenumaresource import NodeNUMAResource
from koord.scheduling.plugins.unsupported import UNSUPPORTED
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import Preemptor
from koord.scheduling.queue import SchedulingQueue
from koord.scheduling.queuedpod import BackoffTimes, QueuedPod
from koord.scheduling.state import ClusterState, counts_alike
from koord_scheduler import nodedocuments
from koord_scheduler.nodedocuments import NodeDocuments
from koord_scheduler.nodereports import TopologyView, UsageView
from koord_scheduler.profiles import Profile
from koord_scheduler.quotafeed import QuotaFeed, settings_of
from koord_scheduler.storageview import storage_informers

_log = logging.getLogger(__name__)
_BATCH = 512
_PACE = Pace(stall_s=10.0, most_silent_watches=60)
"""Of nodes and pods: a watch whose connection hangs is begun anew within ten seconds, from where it was, so that no pod
is placed for longer by what is not so any more. Where nothing happens, that is a request each ten seconds.
"""
_DEFAULT_BACKOFF = BackoffTimes()
_UNSUPPORTED = tuple([WeightedPlugin(each, 0) for each in UNSUPPORTED])


SCHEDULER_NAME = "scheduling.koordinator.sh/scheduler-name"
"""A label that says whose the pod is, before its spec, which cannot be changed."""


class PodSharing:
    """Makes the pods that are cached: equal parts of replicas are one, and each says whose it is."""

    def __init__(self) -> None:
        self._interner = Interner()

    def __call__(self, pod: Pod) -> Pod:
        named = pod.metadata.labels.get(SCHEDULER_NAME)
        if named is not None and named != pod.spec.scheduler_name:
            pod = replace(pod, spec=replace(pod.spec, scheduler_name=named))
        return self._interner.intern_like(pod.metadata.template, pod)


class ClusterView:
    """``profiles``: by their names this scheduler has its pods; ``seed``: decides among equally good nodes, of which a
    placement names ``best_count``. ``has_documents``: nodes are followed whole, too, as ``node_documents``.
    ``changed``, ``storage_changed``: called after each batch of events, and after each that volumes go by; the leader's
    to set. ``wall_s``: seconds since 1970.
    """

    def __init__(
        self,
        client: Client,
        profiles: Iterable[Profile],
        monotonic_s: Callable[[], float],
        seed: int = 0,
        backoff: BackoffTimes = _DEFAULT_BACKOFF,
        has_documents: bool = False,
        best_count: int = 0,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.state = ClusterState()
        self._profiles = {profile.name: profile for profile in profiles}
        self._seed, self._best_count = seed, best_count
        self._frameworks = {
            name: Framework(self.state, (*_UNSUPPORTED, *profile.plugins), seed, best_count)
            for name, profile in self._profiles.items()
        }
        coscheduling = [each.coscheduling for each in self._profiles.values() if each.coscheduling is not None]
        self.gangs = Gangs(self.state, coscheduling[0].defaults if coscheduling else GangDefaults())
        self.queue = SchedulingQueue(self.state, self.framework_of, backoff, self.gangs.holds)
        self.problems: dict[str, str] = {}
        """Of pods that cannot be placed as they are, by uid."""
        self.state.nominations.ended = self._nomination_ended
        self.changed: Callable[[], None] = _unheard
        self._monotonic_s, self._wall_s = monotonic_s, wall_s
        self._stream, self._delivered = EventStream(), asyncio.Event()
        stream, now = self._stream, monotonic_s
        self.nodes = Informer(client, NODE, now, stream=stream, pace=_PACE, transform=as_read, handle=self._take_node)
        self.pods = Informer(client, POD, now, stream=stream, pace=_PACE, transform=PodSharing(), handle=self._take_pod)
        namespaces = Informer(
            client,
            NAMESPACE.decoded_as(PartialObject),
            now,
            stream=stream,
            transform=as_read,
            handle=self._take_namespace,
        )
        self.budgets = Informer(client, POD_DISRUPTION_BUDGET, now, stream=stream, transform=as_read)
        self.storage_changed: Callable[[], None] = _unheard
        storage = storage_informers(client, self.state.volumes, stream, now, self._storage_has_changed)
        self.quotas = QuotaFeed(client, self.state, settings_of(self._profiles.values()), stream, now, self.queue.note)
        self.pod_groups = Informer(
            client,
            POD_GROUP,
            now,
            stream=stream,
            pace=ABSENT_PACE,
            transform=as_read,
            handle=self._take_pod_group,
            does_without=lacks_kind,
        )
        self.node_documents: NodeDocuments | None = nodedocuments.follow(client, now) if has_documents else None
        services = Informer(client, SERVICE, now, stream=stream, transform=as_read, handle=self._take_service)
        old = Informer(client, REPLICATION_CONTROLLER, now, stream=stream, transform=as_read, handle=self._take_old)
        sets = Informer(client, REPLICA_SET, now, stream=stream, transform=as_read, handle=self._take_controller)
        stateful = Informer(client, STATEFUL_SET, now, stream=stream, transform=as_read, handle=self._take_controller)
        self.state.loads.helped = self._usage_fell
        by_load = [each.plugin.settings for each in self._plugins() if isinstance(each.plugin, LoadAwareScheduling)]
        for settings in by_load:
            self.state.loads.of(settings)  # from the beginning, rather than of all nodes with the first pod
        self.usage = UsageView(client, self.state.loads, stream, now) if by_load else None
        gives_cpus = any(isinstance(each.plugin, NodeNUMAResource) for each in self._plugins())
        self.topologies = TopologyView(client, self.state, stream, now, self._topology_changed) if gives_cpus else None
        self.informers: tuple[Followed, ...] = (
            *(self.nodes, self.pods, namespaces, self.budgets),
            *(services, old, sets, stateful),
            *((self.pod_groups,) if coscheduling else ()),
            *storage,
            *self.quotas.informers,
            *((self.node_documents,) if self.node_documents else ()),
        )

    def score_as(self, minor: int) -> None:
        """Scores from now on are those of the release 1.``minor``."""
        for name, framework in self._frameworks.items():
            plugins = at_minor(framework.plugins, minor)
            self._frameworks[name] = Framework(self.state, plugins, self._seed, self._best_count)

    def tell_time(self) -> None:
        """Has what goes by time be as of now: to be called before a pod is decided about or explained."""
        self.state.loads.advance(self._wall_s())

    def usage_changed(self) -> None:
        """Somebody has told ``state.loads`` something."""
        self.changed()

    def is_ours(self, pod: Pod) -> bool:
        """Returns whether a profile has the pod's name of a scheduler."""
        return pod.spec.scheduler_name in self._profiles

    def framework_of(self, pod: PodInfo) -> Framework:
        """Returns what decides about the pod, which is this scheduler's."""
        return self._frameworks[pod.spec.scheduler_name]

    def profile_of(self, pod: PodInfo) -> Profile:
        return self._profiles[pod.spec.scheduler_name]

    def makes_room(self, pod: PodInfo) -> bool:
        """Returns whether any pods may have to leave for this one."""
        profile = self.profile_of(pod)
        return profile.preemption is not None or profile.preempts_in_quota

    def preemptors(self, pod: PodInfo) -> list[Preemptor]:
        """Returns what may make room for the pod, in the order in which it is tried."""
        framework, profile = self.framework_of(pod), self.profile_of(pod)
        return self.quotas.preemptors(pod, framework, profile, self.current_budgets())

    def current_budgets(self) -> list[PodDisruptionBudget]:
        return list(self.budgets.objects.values())

    async def run(self) -> None:
        """Follows the API server, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run())
            if self.usage is not None:
                group.create_task(self.usage.informer.run())
            if self.topologies is not None:
                group.create_task(self.topologies.informer.run())
            group.create_task(self._deliver())

    async def synced(self) -> None:
        """Returns once the state has all that there was."""
        for informer in self.informers:
            await informer.synced.wait()
        if self.usage is not None:
            await self.usage.synced()
        if self.topologies is not None:
            await self.topologies.synced()
        while len(self._stream):
            self._delivered.clear()
            await self._delivered.wait()

    async def _deliver(self) -> None:
        while True:
            await self._stream.deliver(_BATCH)
            self._delivered.set()
            self.changed()

    def _take_node(self, event: ObjectEvent[Node]) -> None:
        name = event.key.name
        if event.after is None:
            self.state.remove_node(name)
            self.queue.note(Event(EventKind.NODE))
            return
        version = self.state.objects_version
        for problem in self.state.put_node(event.after):
            _log.warning("node %s: %s", name, problem)
        row = self.state.table.row(name)
        if row is not None and self.state.objects_version != version:
            self.queue.note(Event(EventKind.NODE, row))

    def _topology_changed(self, node: str) -> None:
        row = self.state.table.row(node)
        if row is not None:
            self.queue.note(Event(EventKind.NODE, row))

    def _take_namespace(self, event: ObjectEvent[PartialObject]) -> None:
        version = self.state.objects_version
        if event.after is None:
            self.state.remove_namespace(event.key.name)
        else:
            self.state.put_namespace(event.key.name, event.after.metadata.labels)
        if self.state.objects_version != version:
            self.queue.note(Event(EventKind.OTHER))

    def _storage_has_changed(self) -> None:
        self.queue.note(Event(EventKind.VOLUME))
        self.storage_changed()

    def _take_service(self, event: ObjectEvent[Service]) -> None:
        before, after = (None if each is None else each.spec.selector for each in (event.before, event.after))
        self.state.owners.put_service(event.key.namespace, event.key.name, after)
        for selector in (before, after):
            if selector and before != after:
                pods = ServicePods(event.key.namespace, frozenset(selector.items()))
                self.queue.note(Event(EventKind.OWNER, owner=pods))

    def _take_old(self, event: ObjectEvent[ReplicationController]) -> None:
        selector = None if event.after is None else LabelSelector(match_labels=event.after.spec.selector)
        self._put_controller(event.kind, event.key, selector)

    def _take_controller(self, event: ObjectEvent[ReplicaSet | StatefulSet]) -> None:
        self._put_controller(event.kind, event.key, None if event.after is None else event.after.spec.selector)

    def _put_controller(self, kind: Kind[Object], key: Key, selector: LabelSelector | None) -> None:
        controller = ControllerKey(kind.name, key.namespace, key.name)
        if selector != self.state.owners.selector_of_controller(controller):
            self.queue.note(Event(EventKind.OWNER, owner=controller))
        if selector is None:
            self.state.owners.remove_controller(controller)
        else:
            self.state.owners.put_controller(controller, selector)

    def _take_pod_group(self, event: ObjectEvent[PodGroup]) -> None:
        key = GangKey(event.key.namespace, event.key.name)
        if event.after is None:
            self.gangs.remove_pod_group(key)
        else:
            self.gangs.put_pod_group(event.after)
            self._try_gang(key, of_all=event.before is not None and event.before.spec != event.after.spec)

    def _put_member(self, info: PodInfo) -> None:
        """The pod may be one of a gang, which may be tried now."""
        profile = self._profiles.get(info.spec.scheduler_name)
        is_placed = bool(info.spec.node_name) or info.is_finished
        if not is_placed and (profile is None or profile.coscheduling is None):
            self.gangs.remove(info.uid)
            return
        was_waiting = self.state.is_assumed(info.uid)
        self.gangs.put(info)
        key = self.gangs.of(info.uid)
        if key is not None:
            self._try_gang(key, of_all=is_placed and not was_waiting)

    def _try_gang(self, key: GangKey, *, of_all: bool) -> None:
        """Has the gang's group tried, if that may be: those of it that were held, or all that wait."""
        held = self.gangs.released(key)
        if held:
            self.queue.release(held, self._monotonic_s())
        elif of_all and not self.gangs.why_not(key):
            self.queue.release([each.uid for each in self.gangs.candidates(key)], self._monotonic_s())

    def _take_pod(self, event: ObjectEvent[Pod]) -> None:
        if event.before is not None and (event.after is None or event.is_replaced):
            self._remove(event.before.metadata.uid)
            self.quotas.remove_pod(event.before.metadata.uid)
        if event.after is not None:
            self._put(event.after)

    def _nomination_ended(self, node: str) -> None:
        row = self.state.table.row(node)
        if row is not None:
            self.queue.note(Event(EventKind.POD_LEFT, row))

    def _usage_fell(self, row: int) -> None:
        self.queue.note(Event(EventKind.USAGE, row))

    def _plugins(self) -> Iterable[WeightedPlugin]:
        return (each for profile in self._profiles.values() for each in profile.plugins)

    def _remove(self, uid: str) -> None:
        self.problems.pop(uid, None)
        self.queue.delete(uid)
        self.gangs.remove(uid)
        node, info = self.state.node_of(uid), self.state.pod(uid)
        self.state.remove_pod(uid)
        row = None if node is None else self.state.table.row(node)
        if row is not None:
            self.queue.note(Event(EventKind.POD_LEFT, row, info))

    def _put(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        try:
            info = PodInfo.of(pod)
        except QuantityError as error:
            if self.problems.get(uid) != str(error):
                _log.warning("pod %s/%s cannot be placed: %s", pod.metadata.namespace, pod.metadata.name, error)
            self.problems[uid] = str(error)
            self.queue.delete(uid)
            self.quotas.remove_pod(uid)
            self.gangs.remove(uid)
            return
        self.problems.pop(uid, None)
        if info.is_finished:
            self._remove(uid)
            self.quotas.remove_pod(uid)
            self._put_member(info)
            return
        self.quotas.put_pod(info)
        if pod.spec.node_name or self.state.is_assumed(uid):
            self._put_placed(info)
        elif self.state.node_of(uid) is not None:  # the server's database was put back
            self._remove(uid)
            self._put(pod)
        elif info.is_terminating or pod.spec.scheduler_name not in self._profiles:
            self._remove(uid)
        else:
            self._put_waiting(info)

    def _put_placed(self, info: PodInfo) -> None:
        before, was_assumed = self.state.pod(info.uid), self.state.is_assumed(info.uid)
        self.queue.delete(info.uid)
        self._put_member(info)
        self.state.put_pod(info)
        node = self.state.node_of(info.uid)
        row = None if node is None else self.state.table.row(node)
        is_alike = before is not None and counts_alike(before, info)
        if row is None or (is_alike and was_assumed is self.state.is_assumed(info.uid)):
            return
        self.queue.note(Event(EventKind.POD_CAME, row, info))
        if before is not None and not is_alike:
            self.queue.note(Event(EventKind.POD_LEFT, row, before))

    def _put_waiting(self, info: PodInfo) -> None:
        self._put_member(info)
        self.queue.put(info, self._monotonic_s())
        nominated = info.pod.status.nominated_node_name
        gang = self.gangs.of(info.uid)
        if nominated and (gang is None or not self.gangs.why_not(gang)):
            self.state.nominations.put(info, nominated)

    def came_back(self, queued: QueuedPod) -> None:
        """A decision for the pod could not be carried out: it waits again, as its object is now."""
        pod = self.pods.objects.get(Key(queued.pod.namespace, queued.pod.name))
        if pod is None or pod.metadata.uid != queued.pod.uid or pod.spec.node_name or queued.pod.uid in self.problems:
            return
        self.queue.fail(queued, self._monotonic_s())
        self._put(pod)

    def take_back(self) -> None:
        """Forgets all assumptions, of which this replica will not learn what became, and what extenders are asked."""
        self.queue.take_back(self._monotonic_s())
        for uid in self.state.assumed:
            info, row = self.state.pod(uid), self.state.table.row(self.state.node_of(uid) or "")
            self.state.forget(uid)
            pod = None if info is None else self.pods.objects.get(Key(info.namespace, info.name))
            if row is not None:
                self.queue.note(Event(EventKind.POD_LEFT, row, info))
            if pod is not None and pod.metadata.uid == uid:
                self._put(pod)


def _unheard() -> None:
    pass
