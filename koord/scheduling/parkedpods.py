"""The pods that no node would take, and whom of them an event may help.

Pods of one signature are one group, and all groups' amounts are columns, so that an event on a node is compared with
all of them at once: a pod wakes only for an event on a node that would do now, or for one that a plugin of the whole
cluster cannot rule out; one that an extender rejected wakes for any.

Invariant: no pod stays that a node would take now, by what was noted.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from koord.scheduling.framework import Framework
from koord.scheduling.nodecolumns import Amounts
from koord.scheduling.plugin import EXTENDER, Event, EventKind, PluginError, Scope
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.queuedpod import PodOrder, QueuedPod
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Table
from koord.scheduling.wakingindex import WakingIndex

_ON_A_NODE = (EventKind.NODE, EventKind.POD_LEFT, EventKind.USAGE)


class WokenPod(NamedTuple):
    """A pod that an event of ``kind`` may help."""

    queued: QueuedPod
    kind: EventKind


@dataclass(eq=False)
class _Group:
    """Parked pods of one signature. ``rejected_by``: the plugins that rejected nodes for any of them."""

    pods: dict[str, QueuedPod] = field(default_factory=dict)
    rejected_by: frozenset[str] = frozenset()

    @property
    def pod(self) -> PodInfo:
        return next(iter(self.pods.values())).pod


class ParkedPods:
    """``framework_of``: whose decision about the pod failed, and which is asked whether a node would do now.

    ``rejected``: how many pods each plugin rejects nodes for, by plugin and profile.
    """

    def __init__(self, state: ClusterState, framework_of: Callable[[PodInfo], Framework]) -> None:
        self._state, self._framework_of = state, framework_of
        self.rejected = Counter[tuple[str, str]]()
        self._since = PodOrder()
        self._rejected_by_extender: dict[str, QueuedPod] = {}
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[str, str] = {}
        self._table = Table()
        self._needs = Amounts(self._table)
        self._go_by_room, self._go_by_objects = self._table.column(np.bool_), self._table.column(np.bool_)
        self._index = WakingIndex(state)
        self._spared: dict[int, EventKind] = {}
        """The rows of nodes that pods woke for and did not take."""
        self._events: dict[tuple[EventKind, int, object], Event] = {}

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, uid: str) -> bool:
        return uid in self._since

    def add(self, queued: QueuedPod, now_s: float) -> None:
        if EXTENDER in queued.rejected_by:
            self._rejected_by_extender[queued.pod.uid] = queued
        self._since.push(queued, now_s)
        for plugin in queued.rejected_by:
            self.rejected[plugin, queued.pod.spec.scheduler_name] += 1
        name = self._group_of[queued.pod.uid] = hashlib.sha256(queued.pod.signature).hexdigest()
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group()
            self._needs.put(self._table.add(name), self._framework_of(queued.pod).needed(queued.pod))
        is_new = not group.pods
        group.pods[queued.pod.uid] = queued
        if is_new:
            group.rejected_by = queued.rejected_by
            self._index.add(name, queued.pod, self._framework_of(queued.pod).cluster_filters, group.rejected_by)
        else:
            self._note_rejection(name, group, queued.rejected_by)
        self._note_what_they_go_by(name, queued)

    def discard(self, uid: str) -> None:
        """The pod is parked no longer."""
        if uid not in self._since:
            return
        self._since.discard(uid)
        self._rejected_by_extender.pop(uid, None)
        pods = self._groups[name := self._group_of.pop(uid)].pods
        queued = pods.pop(uid)
        for plugin in queued.rejected_by:
            self.rejected[plugin, queued.pod.spec.scheduler_name] -= 1
        if not pods:
            del self._groups[name]
            self._table.remove(name)
            self._index.remove(name)

    def oldest(self) -> tuple[float, QueuedPod] | None:
        """Returns the pod that is parked for the longest time, and since when."""
        found = self._since.first()
        return None if found is None else (found[0][0], found[1])

    def note(self, event: Event) -> None:
        """Something happened, of which ``wake`` makes use."""
        if len(self):
            self._events[event.kind, event.row, event.pod.uid if event.pod else event.owner] = event

    def leave_room(self, queued: QueuedPod) -> None:
        """The pod does not take the node that it woke for, if it did for one: others are to try that one."""
        if queued.woken_by_row >= 0:
            self._spared[queued.woken_by_row] = EventKind.POD_LEFT

    def wake(self) -> Iterator[WokenPod]:
        """Takes out whom the events since the last time may help."""
        events, self._events = self._events, {}
        for queued in tuple(self._rejected_by_extender.values()) if events else ():
            self.discard(queued.pod.uid)
            yield WokenPod(queued, next(iter(events.values())).kind)
        spared, self._spared = self._spared, {}
        on_nodes = {event.row: event.kind for event in events.values() if event.kind in _ON_A_NODE and event.row >= 0}
        changed = {event.row for event in events.values() if event.kind in (EventKind.NODE, EventKind.USAGE)}
        if any(event.kind is EventKind.NODE for event in events.values()):
            self._go_by_room.values |= self._go_by_objects.values
        for row, kind in (spared | on_nodes).items():
            for group in self._groups_that_fit(row, row in changed or row in spared):
                if self._may_fit(group.pod, row):
                    yield from self._woken(group, kind, row)
                else:
                    self._note_rejection(self._group_of[group.pod.uid], group, self._quotas_against(group.pod))
        for event in events.values():
            for name in self._index.candidates(event):
                helped = self._groups.get(name)
                if helped is not None and self._may_help(event, helped):
                    yield from self._woken(helped, event.kind)

    def _woken(self, group: _Group, kind: EventKind, row: int = -1) -> Iterator[WokenPod]:
        """Takes out all of the group for which there is room, on the node of ``row`` if that is known."""
        for uid in self._within_quota(group) if row < 0 else self._first(group, row):
            queued = group.pods[uid]
            self.discard(uid)
            queued.woken_by_row = row
            yield WokenPod(queued, kind)

    def _within_quota(self, group: _Group) -> list[str]:
        """Returns for whom the group's quota has room, if that rejected it: first those to which a node is promised."""
        rooms = [
            room
            for each in self._framework_of(group.pod).cluster_filters
            if each.goes_by_quotas and each.name in group.rejected_by
            if (room := each.room(self._state, group.pod)) is not None
        ]
        if not rooms:
            return list(group.pods)
        node_of = self._state.nominations.node_of
        return sorted(group.pods, key=lambda uid: node_of(uid) is None)[: min(rooms)]

    def _first(self, group: _Group, row: int) -> list[str]:
        """Returns whom the node has room for: first those to which it is promised, then those that wait longest."""
        promised = [uid for uid in self._state.nominations.on(self._state.table.name(row)) if uid in group.pods]
        others = (uid for uid in group.pods if uid not in promised)
        return list(islice(chain(promised, others), self._room(group.pod, row)))

    def _room(self, pod: PodInfo, row: int) -> int | None:
        """Returns for how many such pods the node has enough of everything; None: for any number."""
        state = self._state
        rooms = [
            (state.nodes.allocatable.at(row, resource) - state.requested.at(row, resource)) // need
            for resource, need in self._framework_of(pod).needed(pod).items()
            if need
        ]
        return min(rooms, default=None)

    def _quotas_against(self, pod: PodInfo) -> frozenset[str]:
        """Returns the plugins that keep the pod out for its quota, so that it is for that alone that it waits."""
        filters = self._framework_of(pod).cluster_filters
        return frozenset([each.name for each in filters if each.goes_by_quotas and each.goes_by_pods(self._state, pod)])

    def _note_rejection(self, name: str, group: _Group, rejected_by: frozenset[str]) -> None:
        """Further plugins reject nodes for the group: it may be helped by more than before."""
        if not rejected_by <= group.rejected_by:
            group.rejected_by |= rejected_by
            self._index.remove(name)
            self._index.add(name, group.pod, self._framework_of(group.pod).cluster_filters, group.rejected_by)

    def _note_what_they_go_by(self, name: str, queued: QueuedPod) -> None:
        """A pod that leaves a node may let the group on that node, whatever the labels of either, if one of the plugins
        that rejected nodes goes by that. Of a node whose object has changed it is not known any more which plugin
        rejects it; a group that is rejected for other pods' labels is tried again then, and finds out.
        """
        row = self._table.row(name)
        assert row is not None
        if any(True for _ in self._state.nominations.before(queued.pod)):
            self._go_by_room.values[row] = True
        filters = {each.name: each for each in self._framework_of(queued.pod).filters}
        for plugin in [filters.get(each) for each in queued.rejected_by] or [None]:
            if plugin is not None and plugin.filter_scope is Scope.OBJECT:
                self._go_by_objects.values[row] = True
            elif plugin is None or plugin.filter_scope is Scope.PODS or not plugin.helped_by(self._state, queued.pod):
                self._go_by_room.values[row] = True

    def _may_fit(self, pod: PodInfo, row: int) -> bool:
        """Returns whether the node would do now. Where a plugin fails, the pod is tried, and that is told then."""
        try:
            return self._framework_of(pod).fits(pod, row)
        except PluginError:
            return True

    def _may_help(self, event: Event, group: _Group) -> bool:
        """Returns whether a plugin that goes by more than one node may let the group pass now."""
        if event.kind in (EventKind.OWNER, EventKind.OTHER):
            return True
        if event.kind is EventKind.VOLUME:
            return group.pod.has_volumes
        for each in self._framework_of(group.pod).cluster_filters:
            is_asked = each.name in group.rejected_by if each.goes_by_quotas else event.kind is not EventKind.QUOTA
            if is_asked and each.is_helped_by(self._state, group.pod, event):
                return True
        return False

    def _groups_that_fit(self, row: int, of_all: bool) -> list[_Group]:
        """Returns the groups for one pod of which the node has enough of everything: of all, or of those that go by
        room.
        """
        state = self._state
        fits = self._table.exists.copy()
        if not of_all:
            fits &= self._go_by_room.values[: self._table.length]
        for resource in self._needs.names:
            need = self._needs.of(resource)
            free = state.nodes.allocatable.at(row, resource) - state.requested.at(row, resource)
            if need is not None:
                fits &= (need <= free) | (need == 0)
        return [self._groups[self._table.name(int(each))] for each in np.flatnonzero(fits)]
