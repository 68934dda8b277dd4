"""Which groups of parked pods an event of the whole cluster may help: by the labels that a pod needs to matter to them.

A plugin that goes by other pods says the labels of which one must be on a pod whose coming or leaving helps; a group is
found by these; so is one that a Service selects, if its constraints follow from that. Without the index each event
would be compared with each group.

Invariant: what is returned has every group that a plugin would say is helped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from koord.scheduling.owners import ControllerKey, ServicePods
from koord.scheduling.plugin import Event, EventKind, LabelPair, Plugin
from koord.scheduling.podinfo import PodInfo, pairs_of
from koord.scheduling.state import ClusterState

_Names = dict[str, None]
"""In the order in which they came, so that equal histories wake equal pods in one order."""


class _Place(NamedTuple):
    """Where a group is listed. ``pairs`` None: by any pod; (): by none. ``owned``: by what may select it."""

    namespace: str
    pairs: tuple[LabelPair, ...] | None
    own: tuple[LabelPair, ...]
    owned: tuple[LabelPair | ControllerKey, ...]


class WakingIndex:
    """``add``ed and ``remove``d: the names of groups, each with a pod of it."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._places: dict[str, _Place] = {}
        self._by_any, self._by_others, self._with_volumes = _Names(), _Names(), _Names()
        self._by_pair: dict[LabelPair, _Names] = {}
        self._by_own: dict[LabelPair, _Names] = {}
        self._by_owned: dict[LabelPair | ControllerKey, _Names] = {}

    def add(self, name: str, pod: PodInfo, filters: Iterable[Plugin], rejected_by: Collection[str] = ()) -> None:
        """``filters``: those of the whole cluster; ``rejected_by``: the names of those that rejected nodes for any of
        the group, which says of a quota's whether they matter.
        """
        filters = tuple(filters)
        asked = [
            each.helped_by(self._state, pod)
            for each in filters
            if (each.name in rejected_by if each.goes_by_quotas else each.goes_by_pods(self._state, pod))
        ]
        pairs = None if None in asked else tuple(dict.fromkeys(pair for each in asked for pair in each or ()))
        own = tuple(pod.labels.items())
        owned = _owned(pod) if any(each.goes_by_owners(pod) for each in filters) else ()
        place = self._places[name] = _Place(pod.namespace, pairs, own, owned)
        if place.pairs is None:
            self._by_any[name] = None
        if asked:
            self._by_others[name] = None
        for listed, keys in ((self._by_pair, place.pairs or ()), (self._by_own, place.own)):
            for pair in keys:
                listed.setdefault(pair, {})[name] = None
        for key in place.owned:
            self._by_owned.setdefault(key, {})[name] = None
        if pod.has_volumes:
            self._with_volumes[name] = None

    def remove(self, name: str) -> None:
        place = self._places.pop(name)
        self._by_any.pop(name, None)
        self._by_others.pop(name, None)
        self._with_volumes.pop(name, None)
        for listed, keys in ((self._by_pair, place.pairs or ()), (self._by_own, place.own)):
            for pair in keys:
                del listed[pair][name]
                if not listed[pair]:
                    del listed[pair]
        for key in place.owned:
            del self._by_owned[key][name]
            if not self._by_owned[key]:
                del self._by_owned[key]

    def candidates(self, event: Event) -> Iterable[str]:
        """Returns the names of the groups that may be helped, beside those that the event's node would take now."""
        if event.kind is EventKind.VOLUME:
            return tuple(self._with_volumes)
        if event.kind is EventKind.QUOTA:
            return tuple(self._by_any)
        if event.kind is EventKind.OTHER:
            return tuple(self._places)
        if event.owner is not None:
            return tuple(self._of_owner(event.owner))
        if event.pod is not None:
            return tuple(dict.fromkeys(self._helped_by_pod(event.kind, event.pod)))
        if event.kind is EventKind.NODE:
            return tuple(self._by_others)
        return ()  # nothing has happened beyond the node

    def _of_owner(self, owner: ServicePods | ControllerKey) -> Iterator[str]:
        if isinstance(owner, ControllerKey):
            yield from self._by_owned.get(owner, ())
            return
        for name in self._by_owned.get(min(owner.labels), ()) if owner.labels else ():
            place = self._places[name]
            if place.namespace == owner.namespace and owner.labels.issubset(place.own):
                yield name

    def _helped_by_pod(self, kind: EventKind, pod: PodInfo) -> Iterator[str]:
        yield from self._by_any
        for pair in pod.labels.items():
            yield from self._by_pair.get(pair, ())
        if kind is not EventKind.POD_LEFT:
            return
        for term in pod.anti_affinity:
            pairs = pairs_of(term.selector)
            if pairs is None:
                yield from self._places
            else:
                for pair in pairs:
                    yield from self._by_own.get(pair, ())


def _owned(pod: PodInfo) -> tuple[LabelPair | ControllerKey, ...]:
    """Returns what a Service's selector or the pod's controller has in common with it."""
    owner = pod.pod.metadata.controller
    controller = () if owner is None else (ControllerKey(owner.kind, pod.namespace, owner.name),)
    return (*pod.labels.items(), *controller)
