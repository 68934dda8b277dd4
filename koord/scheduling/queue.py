"""The pods that wait to be placed: which one is next, and which one an event may help.

A pod is *active*, next by priority and then by time; *backing off* for some seconds after a failure; *parked*, where no
node will do until something changes (`parkedpods`); *gated*; or *aside*, where extenders have a say in it: it waits for
its turn with them, or they are asked.

Invariants: each pod that was added and neither taken nor deleted is in exactly one of the five. Of those aside, no
extender is asked about a pod while one that came before it in the order of active pods waits for the same extender. No
pod is parked that a node would take now, by what the queue was told. And nothing starves: whatever happens, a pod that
is not gated is active ``PARKED_S``, or the longest backoff and a second where that is longer, after it was parked or
failed at the latest, and then none goes before it but those of a higher priority and those that were active earlier.
No clock: every call that needs the time is told it, in seconds that never go back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from koord.scheduling.framework import Framework
from koord.scheduling.parkedpods import ParkedPods
from koord.scheduling.plugin import EXTENDER, GANG, Event, EventKind
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.queuedpod import BackoffTimes, PodOrder, QueuedPod
from koord.scheduling.state import ClusterState

PARKED_S = 300.0
_CAME, _CHANGED, _FAILED, _BACKED_OFF, _SWEPT, _RELEASED = (
    "PodAdd", "PodUpdate", "ScheduleAttemptFailure", "BackoffComplete", "UnschedulableTimeout", "PodGroupUpdate"
)  # fmt: skip
_EVENTS = {
    EventKind.NODE: "NodeUpdate",
    EventKind.POD_LEFT: "AssignedPodDelete",
    EventKind.POD_CAME: "AssignedPodAdd",
    EventKind.USAGE: "NodeMetricUpdate",
    EventKind.VOLUME: "PersistentVolumeUpdate",
    EventKind.QUOTA: "ElasticQuotaUpdate",
    EventKind.OWNER: "ServiceUpdate",
    EventKind.OTHER: "NamespaceUpdate",
}
"""Upstream's names of what brings a pod to a part of the queue."""
_DEFAULT_BACKOFF = BackoffTimes()


class SchedulingQueue:
    """``framework_of``: whose decision about the pod failed, and which is asked whether a node would do now.

    ``holds``: whether a pod is not to be tried yet, for it needs others of its gang: it is gated then, as by a gate of
    its own, until it is released. ``incoming``: how many pods came to which part of the queue, by upstream's name of
    what brought them there.
    """

    def __init__(
        self,
        state: ClusterState,
        framework_of: Callable[[PodInfo], Framework],
        backoff: BackoffTimes = _DEFAULT_BACKOFF,
        holds: Callable[[PodInfo], bool] = lambda pod: False,
    ) -> None:
        self._backoff, self._holds = backoff, holds
        self.incoming = Counter[tuple[str, str]]()
        self._queued: dict[str, QueuedPod] = {}
        self._active, self._backing_off, self._failed = PodOrder(), PodOrder(), PodOrder()
        self._parked = ParkedPods(state, framework_of)
        self._gated: set[str] = set()
        self._aside: dict[frozenset[str], PodOrder] = {}
        self._asked: dict[str, QueuedPod] = {}
        self.event_count = 0
        """How many events were noted so far."""

    @property
    def rejected(self) -> Counter[tuple[str, str]]:
        """How many parked pods each plugin rejects nodes for, by plugin and profile."""
        return self._parked.rejected

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
            self._parked.leave_room(queued)

    def placed(self, queued: QueuedPod, row: int) -> None:
        """A pod that was taken has got a node. If it woke for another one, others are to try that one now."""
        if queued.woken_by_row != row:
            self._parked.leave_room(queued)

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

    def take(self, uid: str, now_s: float) -> QueuedPod | None:
        """Takes a pod with one that was popped, of the same gang, wherever it is; None: it is not there, has gates of
        its own, or waits for extenders.
        """
        queued = self._queued.get(uid)
        if queued is None or queued.pod.spec.scheduling_gates or uid in self._asked:
            return None
        if any(uid in order for order in self._aside.values()):
            return None
        self._take_out(uid)
        del self._queued[uid]
        queued.tries, queued.entered_s = queued.tries + 1, now_s
        if queued.tried_from_s < 0:
            queued.tried_from_s = now_s
        return queued

    def put_back(self, queued: QueuedPod, since_s: float) -> None:
        """A pod that was taken, and that nothing was decided about, is active again, since it was so before."""
        queued.tries -= 1
        self._queued[queued.pod.uid] = queued
        self._activate(queued, since_s, _CHANGED)

    def release(self, uids: Iterable[str], now_s: float) -> None:
        """Pods that were held are so no longer, and parked ones may be helped: they are active, in their order."""
        for uid in uids:
            queued = self._queued.get(uid)
            if queued is None:
                continue
            if uid in self._gated:
                self._gated.discard(uid)
                self._activate(queued, now_s, _RELEASED)
            elif uid in self._parked:
                self._parked.discard(uid)
                self._back_off(queued, now_s, _RELEASED, self._failed)

    def set_aside(self, queued: QueuedPod, extenders: frozenset[str], now_s: float) -> None:
        """A pod that was taken waits for its turn with the extenders of these names."""
        self._queued[queued.pod.uid] = queued
        self._aside.setdefault(extenders, PodOrder()).push(queued, -queued.pod.priority, now_s)

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
        self._parked.add(queued, now_s)
        self.incoming["unschedulable", _FAILED] += 1

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
        due: nobody who came meanwhile goes before it. Who is held then gives up a promise, which may help others.
        """
        event_count = -1
        while event_count != self.event_count:
            event_count = self.event_count
            self._advance(now_s)

    def due_s(self) -> float | None:
        """When ``advance`` has something to do for the mere passing of time; None: never."""
        times = [found[0][0] for order in (self._backing_off, self._failed) if (found := order.first())]
        if (oldest := self._parked.oldest()) is not None:
            times.append(oldest[0] + PARKED_S)
        return min(times, default=None)

    def note(self, event: Event) -> None:
        """Something happened. Pods that it may help wake with the next ``advance`` or ``pop``."""
        self.event_count += 1
        self._parked.note(event)

    def _advance(self, now_s: float) -> None:
        for queued, kind in self._parked.wake():
            waits_out = not queued.rejected_by.isdisjoint((EXTENDER, GANG))
            self._back_off(queued, now_s, _EVENTS[kind], self._failed if waits_out else None)
        for order in (self._backing_off, self._failed):
            while (found := order.first()) is not None and found[0][0] <= now_s:
                self._activate(order.pop(), found[0][0], _BACKED_OFF)
        while (oldest := self._parked.oldest()) is not None and oldest[0] + PARKED_S <= now_s:
            since_s, queued = oldest
            self._parked.discard(queued.pod.uid)
            self._activate(queued, since_s + PARKED_S, _SWEPT)

    def _activate(self, queued: QueuedPod, now_s: float, event: str) -> None:
        queued.entered_s = now_s
        if queued.pod.spec.scheduling_gates or self._holds(queued.pod):
            self._gated.add(queued.pod.uid)
            self.incoming["gated", event] += 1
            return
        if queued.tried_from_s < 0:
            queued.tried_from_s = now_s
        self._active.push(queued, -queued.pod.priority, now_s)
        self.incoming["active", event] += 1

    def _back_off(self, queued: QueuedPod, now_s: float, event: str, order: PodOrder | None = None) -> None:
        """Makes the pod active once its backoff has ended; in ``_failed``, not before. (An extender is a program of
        others: it is not asked again as fast as it answers. A try of a gang costs one of each member.)
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
        self._parked.discard(uid)
