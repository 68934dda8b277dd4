"""The pods that wait to be placed: which one is next, and which one an event may help.

A pod is *active*, next by priority and then by time; *backing off* for some seconds after a failure; *parked*, where no
node will do until something changes; *gated*; or *aside*, where extenders have a say in it: it waits for its turn with
them, or they are asked. Parked pods of one signature are one group, and all groups' amounts are columns, so that an
event on a node is compared with all of them at once: a pod wakes only for an event on a node that would do now, or for
one that a plugin of the whole cluster cannot rule out; one that an extender rejected wakes for any.

Invariants: each pod that was added and neither taken nor deleted is in exactly one of the five. Of those aside, no
extender is asked about a pod while one that came before it in the order of active pods waits for the same extender. No
pod is parked that a node would take now, by what the queue was told. And nothing starves: whatever happens, a pod that
is not gated is active ``PARKED_S``, or the longest backoff and a second where that is longer, after it was parked or
failed at the latest, and then none goes before it but those of a higher priority and those that were active earlier.
No clock: every call that needs the time is told it, in seconds that never go back.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from math import ceil
from typing import NamedTuple

import numpy as np

from koord.scheduling.framework import Framework
from koord.scheduling.nodecolumns import Amounts
from koord.scheduling.plugin import EXTENDER, Event, EventKind, PluginError, Scope
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Table
from koord.scheduling.wakingindex import WakingIndex

PARKED_S = 300.0
_ON_A_NODE = (EventKind.NODE, EventKind.POD_LEFT)
_CAME, _CHANGED, _FAILED, _BACKED_OFF, _SWEPT = (
    "PodAdd", "PodUpdate", "ScheduleAttemptFailure", "BackoffComplete", "UnschedulableTimeout"
)  # fmt: skip
_EVENTS = {
    EventKind.NODE: "NodeUpdate",
    EventKind.POD_LEFT: "AssignedPodDelete",
    EventKind.POD_CAME: "AssignedPodAdd",
    EventKind.VOLUME: "PersistentVolumeUpdate",
    EventKind.OTHER: "NamespaceUpdate",
}
"""Upstream's names of what brings a pod to a part of the queue."""


class BackoffTimes(NamedTuple):
    """After the first failure, twice as long after each further one, and at most."""

    first_s: int = 1
    most_s: int = 10

    def after(self, failures: int) -> int:
        return min(self.first_s << min(failures - 1, 30), self.most_s)


@dataclass(eq=False)
class QueuedPod:
    """``added_s``: since when it waits; ``entered_s``: since when it is where it is, or was taken. ``tries``: how often
    it was taken, ``tried_from_s``: since when it could be. ``attempts``: decisions that found no node; ``errors``:
    failures of another kind in a row, such as a binding that the API server refused.
    """

    pod: PodInfo
    added_s: float
    entered_s: float
    tries: int = 0
    tried_from_s: float = -1.0
    """-1: it was gated until now."""
    attempts: int = 0
    errors: int = 0
    backoff_until_s: float = 0.0
    rejected_by: frozenset[str] = frozenset()
    """The plugins that left no node, of a parked pod."""
    woken_by_row: int = -1
    """The node that had room for it when it woke; -1: it woke for something else."""

    def begin_backoff(self, now_s: float, length_s: int) -> None:
        """Pods whose time is up in the same second are then in the order of their priorities."""
        self.backoff_until_s = ceil(now_s + length_s)


_DEFAULT_BACKOFF = BackoffTimes()


class _Order:
    """Pods by a key, smallest first; one that was removed is passed over."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[float, ...], int, QueuedPod]] = []
        self._live: dict[str, int] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, uid: str) -> bool:
        return uid in self._live

    def push(self, queued: QueuedPod, *key: float) -> None:
        number = next(self._numbers)
        self._live[queued.pod.uid] = number
        heapq.heappush(self._heap, (key, number, queued))

    def discard(self, uid: str) -> None:
        self._live.pop(uid, None)

    def first(self) -> tuple[tuple[float, ...], QueuedPod] | None:
        while self._heap:
            key, number, queued = self._heap[0]
            if self._live.get(queued.pod.uid) == number:
                return key, queued
            heapq.heappop(self._heap)
        return None

    def pop(self) -> QueuedPod:
        found = self.first()
        assert found is not None
        heapq.heappop(self._heap)
        del self._live[found[1].pod.uid]
        return found[1]


@dataclass(eq=False)
class _Group:
    """Parked pods of one signature."""

    pods: dict[str, QueuedPod] = field(default_factory=dict)

    @property
    def pod(self) -> PodInfo:
        return next(iter(self.pods.values())).pod


class SchedulingQueue:
    """``framework_of``: whose decision about the pod failed, and which is asked whether a node would do now.

    ``incoming``: how many pods came to which part of the queue, by upstream's name of what brought them there.
    ``rejected``: how many parked pods each plugin rejects nodes for, by plugin and profile.
    """

    def __init__(
        self,
        state: ClusterState,
        framework_of: Callable[[PodInfo], Framework],
        backoff: BackoffTimes = _DEFAULT_BACKOFF,
    ) -> None:
        self._state, self._framework_of, self._backoff = state, framework_of, backoff
        self.incoming, self.rejected = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        self._queued: dict[str, QueuedPod] = {}
        self._active, self._backing_off, self._failed, self._parked = _Order(), _Order(), _Order(), _Order()
        self._gated: set[str] = set()
        self._aside: dict[frozenset[str], _Order] = {}
        self._asked: dict[str, QueuedPod] = {}
        self._rejected_by_extender: set[str] = set()
        self.event_count = 0
        """How many events were noted so far."""
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[str, str] = {}
        self._table = Table()
        self._needs = Amounts(self._table)
        self._go_by_room, self._go_by_objects = self._table.column(np.bool_), self._table.column(np.bool_)
        self._index = WakingIndex(state)
        self._spared: dict[int, EventKind] = {}
        """The rows of nodes that pods woke for and did not take."""
        self._events: dict[tuple[EventKind, int, str], Event] = {}

    def __len__(self) -> int:
        return len(self._queued)

    def __contains__(self, uid: str) -> bool:
        return uid in self._queued

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(tuple(self._queued.values()))

    def get(self, uid: str) -> QueuedPod | None:
        """Returns the pod if it waits."""
        return self._queued.get(uid)

    def part_of(self, uid: str) -> str:
        """Returns where a pod that waits is, by upstream's name."""
        if uid in self._parked:
            return "unschedulable"
        if uid in self._gated:
            return "gated"
        return "backoff" if uid in self._backing_off or uid in self._failed else "active"

    def counts(self) -> dict[str, int]:
        """How many pods are where, by upstream's names."""
        return {
            "active": len(self._active) + sum(len(each) for each in self._aside.values()) + len(self._asked),
            "backoff": len(self._backing_off) + len(self._failed),
            "unschedulable": len(self._parked),
            "gated": len(self._gated),
        }

    # pods

    def put(self, pod: PodInfo, now_s: float) -> None:
        """The pod waits, and is as its object says now. One that is parked wakes if what it asks for has changed."""
        queued = self._queued.get(pod.uid)
        if queued is None:
            queued = self._queued[pod.uid] = QueuedPod(pod, now_s, now_s)
            self._activate(queued, now_s, _CAME)
            return
        is_alike = queued.pod.signature == pod.signature and queued.pod.priority == pod.priority
        if is_alike:
            queued.pod = pod
            return
        is_backing_off = pod.uid in self._backing_off or pod.uid in self._failed
        if pod.uid in self._asked:
            queued = self._queued[pod.uid] = replace(queued)
        since_s = now_s  # or before: who changes for ever keeps its turn
        if pod.uid in self._active:
            since_s = queued.entered_s
        elif pod.uid in self._parked:
            since_s = min(now_s, queued.entered_s + PARKED_S)
        elif is_backing_off:
            since_s = min(now_s, queued.backoff_until_s)
        self._take_out(pod.uid)
        queued.pod = pod
        if is_backing_off:
            self._back_off(queued, since_s, _CHANGED)
        else:
            self._activate(queued, since_s, _CHANGED)

    def delete(self, uid: str) -> None:
        """The pod waits no longer. If it was to try a node, others are to try that node now."""
        queued = self._queued.pop(uid, None)
        if queued is not None:
            self._take_out(uid)
            self._leave_room(queued)

    def placed(self, queued: QueuedPod, row: int) -> None:
        """A pod that was taken has got a node. If it woke for another one, others are to try that one now."""
        if queued.woken_by_row != row:
            self._leave_room(queued)

    def pop(self, now_s: float) -> QueuedPod | None:
        """Takes the next pod; it comes back by ``park`` or ``fail``, or is forgotten. None: none is to be tried now.

        Where no pod is active, one whose backoff has not ended is tried before its time, unless an error sent it there.
        """
        self.advance(now_s)
        order = self._active if len(self._active) else self._backing_off
        if not len(order):
            return None
        queued = order.pop()
        del self._queued[queued.pod.uid]
        queued.tries, queued.entered_s = queued.tries + 1, now_s
        return queued

    def set_aside(self, queued: QueuedPod, extenders: frozenset[str], now_s: float) -> None:
        """A pod that was taken waits for its turn with the extenders of these names."""
        self._queued[queued.pod.uid] = queued
        self._aside.setdefault(extenders, _Order()).push(queued, -queued.pod.priority, now_s)

    def next_aside(self, busy: Iterable[str]) -> tuple[QueuedPod, frozenset[str]] | None:
        """Returns a pod that its extenders are to be asked about now, with their names; ``busy``: these are not free.
        It stays in the queue until it is ``answered``.
        """
        blocked = set(busy)
        heads = [(found[0], names) for names, order in self._aside.items() if (found := order.first())]
        for _, names in sorted(heads, key=lambda each: each[0]):
            if blocked.isdisjoint(names):
                queued = self._aside[names].pop()
                self._asked[queued.pod.uid] = queued
                return queued, names
            blocked |= names
        return None

    def is_asked(self, queued: QueuedPod) -> bool:
        """Returns whether the pod is still what its extenders were asked about: neither deleted nor changed."""
        return self._asked.get(queued.pod.uid) is queued

    def answered(self, queued: QueuedPod) -> bool:
        """Takes a pod that extenders were asked about, as ``pop`` does; False: it is not the same any more, and there
        is nothing to decide.
        """
        if not self.is_asked(queued):
            return False
        del self._asked[queued.pod.uid], self._queued[queued.pod.uid]
        return True

    def take_back(self, now_s: float) -> None:
        """Nobody waits for the answers of extenders any more: the pods that they were asked about are active."""
        for queued in tuple(self._asked.values()):
            self._take_out(queued.pod.uid)
            self._activate(queued, now_s, _FAILED)

    def park(
        self, queued: QueuedPod, rejected_by: frozenset[str], now_s: float, event_count: int | None = None
    ) -> None:
        """No node would do: the pod waits for an event that may help it.

        ``event_count``: that of the time when extenders were asked; what happened since then is not missed.
        """
        queued.attempts += 1
        queued.errors, queued.woken_by_row = 0, -1
        queued.rejected_by, queued.entered_s = rejected_by, now_s
        queued.begin_backoff(now_s, self._backoff.after(queued.attempts))
        self._queued[queued.pod.uid] = queued
        if event_count not in (None, self.event_count):
            self._back_off(queued, now_s, _FAILED, self._failed)
            return
        if EXTENDER in rejected_by:
            self._rejected_by_extender.add(queued.pod.uid)
        self._parked.push(queued, now_s)
        self.incoming["unschedulable", _FAILED] += 1
        for plugin in rejected_by:
            self.rejected[plugin, queued.pod.spec.scheduler_name] += 1
        name = self._group_of[queued.pod.uid] = hashlib.sha256(queued.pod.signature).hexdigest()
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group()
            self._index.add(name, queued.pod, self._framework_of(queued.pod).cluster_filters)
            self._needs.put(self._table.add(name), self._framework_of(queued.pod).needed(queued.pod))
        group.pods[queued.pod.uid] = queued
        self._note_what_they_go_by(name, queued)

    def fail(self, queued: QueuedPod, now_s: float) -> None:
        """Something went wrong that has nothing to do with the pod's node: it is tried again after a while."""
        queued.errors += 1
        queued.begin_backoff(now_s, self._backoff.after(queued.errors))
        self._queued[queued.pod.uid] = queued
        queued.entered_s = now_s
        self._failed.push(queued, queued.backoff_until_s, -queued.pod.priority)
        self.incoming["backoff", _FAILED] += 1

    # time and events

    def advance(self, now_s: float) -> None:
        """Makes active what an event helped, what has backed off, and what was parked for too long, each since it was
        due: nobody who came meanwhile goes before it.
        """
        self._wake(now_s)
        for order in (self._backing_off, self._failed):
            while (found := order.first()) is not None and found[0][0] <= now_s:
                self._activate(order.pop(), found[0][0], _BACKED_OFF)
        while (found := self._parked.first()) is not None and found[0][0] + PARKED_S <= now_s:
            queued = found[1]
            self._take_out(queued.pod.uid)
            self._activate(queued, found[0][0] + PARKED_S, _SWEPT)

    def due_s(self) -> float | None:
        """When ``advance`` has something to do for the mere passing of time; None: never."""
        times = [found[0][0] for order in (self._backing_off, self._failed) if (found := order.first())]
        if (found := self._parked.first()) is not None:
            times.append(found[0][0] + PARKED_S)
        return min(times, default=None)

    def note(self, event: Event) -> None:
        """Something happened. Pods that it may help wake with the next ``advance`` or ``pop``."""
        self.event_count += 1
        if len(self._parked):
            self._events[event.kind, event.row, event.pod.uid if event.pod else ""] = event

    def _wake(self, now_s: float) -> None:
        events, self._events = self._events, {}
        for uid in tuple(self._rejected_by_extender) if events else ():
            queued = self._queued[uid]
            self._take_out(uid)
            self._back_off(queued, now_s, _EVENTS[next(iter(events.values())).kind], self._failed)
        spared, self._spared = self._spared, {}
        on_nodes = {event.row: event.kind for event in events.values() if event.kind in _ON_A_NODE and event.row >= 0}
        changed = {event.row for event in events.values() if event.kind is EventKind.NODE}
        if changed:
            self._go_by_room.values |= self._go_by_objects.values
        for row, kind in (spared | on_nodes).items():
            for group in self._groups_that_fit(row, row in changed or row in spared):
                if self._may_fit(group.pod, row):
                    self._wake_group(group, now_s, kind, row)
        for event in events.values():
            for name in self._index.candidates(event):
                helped = self._groups.get(name)
                if helped is not None and self._may_help(event, helped):
                    self._wake_group(helped, now_s, event.kind)

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
        if event.kind is EventKind.OTHER:
            return True
        if event.kind is EventKind.VOLUME:
            return group.pod.has_volumes
        filters = self._framework_of(group.pod).cluster_filters
        return any(each.is_helped_by(self._state, group.pod, event) for each in filters)

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

    def _wake_group(self, group: _Group, now_s: float, kind: EventKind, row: int = -1) -> None:
        """Wakes all of the group; of a node's ``row`` no more than it has room for."""
        for uid in tuple(group.pods) if row < 0 else self._first(group, row):
            queued = group.pods[uid]
            self._take_out(queued.pod.uid)
            queued.woken_by_row = row
            self._back_off(queued, now_s, _EVENTS[kind])

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

    def _leave_room(self, queued: QueuedPod) -> None:
        if queued.woken_by_row >= 0:
            self._spared[queued.woken_by_row] = EventKind.POD_LEFT

    def _activate(self, queued: QueuedPod, now_s: float, event: str) -> None:
        queued.entered_s = now_s
        if queued.pod.spec.scheduling_gates:
            self._gated.add(queued.pod.uid)
            self.incoming["gated", event] += 1
            return
        if queued.tried_from_s < 0:
            queued.tried_from_s = now_s
        self._active.push(queued, -queued.pod.priority, now_s)
        self.incoming["active", event] += 1

    def _back_off(self, queued: QueuedPod, now_s: float, event: str, order: _Order | None = None) -> None:
        """Makes the pod active once its backoff has ended; in ``_failed``, not before. (An extender is a program of
        others: it is not asked again as fast as it answers.)
        """
        if queued.backoff_until_s <= now_s:
            self._activate(queued, now_s, event)
        else:
            queued.entered_s = now_s
            order = self._backing_off if order is None else order
            order.push(queued, queued.backoff_until_s, -queued.pod.priority)
            self.incoming["backoff", event] += 1

    def _take_out(self, uid: str) -> None:
        """Removes the pod from where it is."""
        for order in (self._active, self._backing_off, self._failed, *self._aside.values()):
            order.discard(uid)
        self._gated.discard(uid)
        self._asked.pop(uid, None)
        self._rejected_by_extender.discard(uid)
        if uid in self._parked:
            self._parked.discard(uid)
            pods = self._groups[name := self._group_of.pop(uid)].pods
            queued = pods.pop(uid)
            for plugin in queued.rejected_by:
                self.rejected[plugin, queued.pod.spec.scheduler_name] -= 1
            if not pods:
                del self._groups[name]
                self._table.remove(name)
                self._index.remove(name)
