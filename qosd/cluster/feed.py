"""Follows this node's Node, NodeSLO and NodeMetric at the API server, and no other node's.

Node and NodeSLO are handed to the cluster's policy as they come; the NodeMetric says how to report. Each is one watch
with a field selector, so a node costs the server three idle connections. Invariants: an object counts as absent only
after the server has said so; an outage of the server is told once, and the policy keeps what was handed over before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from koord.kube.client import Selection
from koord.kube.informer import Informer, Lister, as_read
from koord.kube.kind import NODE, NODE_METRIC, NODE_SLO, Key, Kind, T, Unstructured
from koord.kube.stream import EventStream
from koord.model import nodestate
from koord.model.core import Node
from koord.model.nodemetric import NodeMetric
from qosd.clusterstatus import ClusterPart, PartState
from qosd.policy.clusterpolicy import ClusterPolicy

_BATCH = 16


class ClusterFeed:
    """``clock``: monotonic seconds."""

    def __init__(self, client: Lister, node_name: str, policy: ClusterPolicy, clock: Callable[[], float]) -> None:
        self._key, self._policy, self._clock = Key("", node_name), policy, clock
        self._stream = EventStream()
        selection = Selection(fields=f"metadata.name={node_name}")

        def follow(kind: Kind[T], stream: EventStream | None) -> Informer[T, T]:
            observe = partial(self._observe, kind)
            return Informer(client, kind, clock, selection, stream=stream, observe=observe, transform=as_read)

        self.nodes = follow(NODE, self._stream)
        self.slos = follow(NODE_SLO, self._stream)
        self.node_metrics = follow(NODE_METRIC, None)
        self._problems: dict[Kind[Any], str] = dict.fromkeys((NODE, NODE_SLO), "has not answered yet")
        self._lost = ""
        self._taken: dict[Kind[Any], object] = {}

    @property
    def informers(self) -> tuple[Informer[Any, Any], ...]:
        return self.nodes, self.slos, self.node_metrics

    @property
    def is_reachable(self) -> bool:
        """Returns whether the server, as far as is known, says now what the policy is."""
        return not any(self._problems.values())

    @property
    def silent_s(self) -> float | None:
        """Returns the seconds since the server last said anything; None: it never did."""
        heard = [informer.last_contact_s for informer in self.informers if informer.last_contact_s is not None]
        return self._clock() - max(heard) if heard else None

    @property
    def is_uninstalled(self) -> bool:
        """Returns whether the uninstaller has marked the NodeSLO, which it does after this node has given everything
        back."""
        slo = self.slos.get(self._key)
        return slo is not None and nodestate.UNINSTALLED in slo.metadata.annotations

    def node_metric(self) -> NodeMetric | None:
        """Returns this node's NodeMetric, as the server has it."""
        return self.node_metrics.get(self._key)

    def status(self) -> tuple[ClusterPart, ...]:
        return tuple(self._status_of(informer) for informer in self.informers)

    async def run(self) -> None:
        """Hands over until it is cancelled, beginning with all that is known: an error may have swallowed an event."""
        self._taken.clear()
        async with asyncio.TaskGroup() as group:
            for informer in (self.nodes, self.slos):
                group.create_task(self._take_first(informer))
            while True:
                for event in await self._stream.take(_BATCH):
                    self._take(event.kind)

    async def _take_first(self, informer: Informer[Any, Any]) -> None:
        """Takes the object as it is once the server has been listed: no event tells that there is none."""
        await informer.synced.wait()
        self._take(informer.kind)

    def _take(self, kind: Kind[Any]) -> None:
        """Hands over what is there now of ``kind``, unless it was handed over already."""
        informer: Informer[Any, Any] = self.nodes if kind is NODE else self.slos
        now = informer.get(self._key) or informer.unreadable.get(self._key)
        if kind in self._taken and self._taken[kind] is now:
            return
        if kind is NODE:
            self._take_node(now)
        else:
            self._take_slo(now)
        self._taken[kind] = now

    def _take_node(self, now: Node | str | None) -> None:
        if isinstance(now, str):
            self._policy.refuse_node(now)
        else:
            self._policy.take_node(now)

    def _take_slo(self, now: Unstructured | str | None) -> None:
        if isinstance(now, str):
            self._policy.refuse_slo(now)
        elif now is None:
            self._policy.take_slo(None, 0)
        else:
            self._policy.take_slo(now.content.get("spec") or {}, _generation(now))

    def _observe(self, kind: Kind[Any], problem: str) -> None:
        if kind not in self._problems:
            return
        self._problems[kind] = problem
        lost = next((f"{each.plural}: {why}" for each, why in self._problems.items() if why), "")
        if not lost:
            self._policy.reached()
        elif problem and lost != self._lost:
            self._policy.lost(lost)
        self._lost = lost
        if isinstance(self._taken.get(kind), str):
            self._take(kind)  # no event tells that an object goes that was never readable

    def _status_of(self, informer: Informer[Any, Any]) -> ClusterPart:
        age_s = None if informer.last_contact_s is None else self._clock() - informer.last_contact_s
        says = informer.error or informer.unreadable.get(self._key, "")
        if says:
            state = PartState.FAILING
        elif not informer.synced.is_set():
            state, says = PartState.WAITING, "the API server has not answered yet"
        else:
            state = PartState.OK
            says = "followed" if informer.get(self._key) is not None else "there is none of this node"
        return ClusterPart(informer.kind.name, state, age_s, informer.counts.failures, says)


def _generation(slo: Unstructured) -> int:
    generation = slo.content.get("metadata", {}).get("generation")
    return generation if isinstance(generation, int) else 0
