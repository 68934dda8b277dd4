"""Batch and mid resources of a node: the formula of ``koord.model.overcommit``, and what of its result is written.

Invariant: a node whose report is too old loses its batch and mid resources without anything else having to happen: the
controller looks again at the instant at which the report expires. What cannot be computed for one node is an Event on
it and stops nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from koord.kube.client import Client
from koord.kube.kind import NODE, Key
from koord.kube.recorder import EventType, Recorder, Subject
from koord.model.core import Node
from koord.model.nodemetric import NodeMetric
from koord.model.overcommit import amplification, difference, fresh, growth, normalization, publish
from koord.model.overcommit.amplification import AmplificationError
from koord.model.overcommit.batch import required
from koord.model.overcommit.growth import Averaged, GrowthState
from koord.model.overcommit.normalization import NormalizationError
from koord.model.overcommit.offer import Offer, offer_by_demands
from koord.model.overcommit.publish import Desired, Writes
from koord.model.overcommit.strategy import ColocationStrategy
from koord.model.topologyannotations import CPU_BASIC_INFO
from koord_manager.freshusage import FreshFigures
from koord_manager.view import ClusterView

_log = logging.getLogger(__name__)
_AFTER_EXPIRY_S = 1.0
_NEVER_HELD = GrowthState()


@dataclass(frozen=True, slots=True)
class NodeState:
    """What is remembered of a node from one look to the next."""

    uid: str = ""
    growth: GrowthState = _NEVER_HELD
    synced_s: float | None = None
    """When its status was written last, or was found to need nothing although that was due, by the manager's clock."""
    normalization_ratio: float | None = None
    """The last that could be told."""
    degraded: str | None = None
    """None: not looked at yet."""


class NodeResourceController:
    """``wall_s``: seconds since 1970."""

    def __init__(
        self, client: Client, view: ClusterView, figures: FreshFigures, recorder: Recorder, wall_s: Callable[[], float]
    ) -> None:
        self._client, self._view, self._figures = client, view, figures
        self._recorder, self._wall_s = recorder, wall_s
        self._states: dict[str, NodeState] = {}

    async def reconcile(self, name: str) -> float | None:
        """Writes what differs; returns the seconds after which to look again. Raises KubeError."""
        node = self._view.nodes.get(Key("", name))
        if node is None:
            self._states.pop(name, None)
            self._figures.forget(name)
            return None
        state = self._states.get(name, NodeState())
        if state.uid != node.metadata.uid:
            state = NodeState(uid=node.metadata.uid)
        metadata, now_s = node.metadata, self._wall_s()
        strategy, _ = self._view.config.strategy(metadata.labels, metadata.annotations)
        idle_s = None if state.synced_s is None else now_s - state.synced_s
        if not strategy.enable:
            desired, state, offer = publish.RESET, replace(state, growth=_NEVER_HELD), None
            self._figures.wake_above(name, fresh.UNBOUNDED)
        else:
            desired, state, offer = self._desired(node, strategy, state, idle_s, now_s)
        writes = publish.decide(node, desired, strategy, idle_s)
        await self._write(name, writes)
        if writes.status is not None or _is_due(idle_s, strategy):
            state = replace(state, synced_s=now_s)
        self._states[name] = state
        return self._next_s(offer, strategy, self._states[name], now_s)

    def _desired(
        self, node: Node, strategy: ColocationStrategy, state: NodeState, idle_s: float | None, now_s: float
    ) -> tuple[Desired, NodeState, Offer]:
        state = replace(state, normalization_ratio=self._normalization(node, state))
        name, seen_s = node.metadata.name, self._view.seen_s(node.metadata.name)
        metric, usage = self._view.metrics.get(Key("", name)), self._figures.usage(name)
        offer = self._offer(node, metric, strategy, state, now_s)
        by_this_second = None
        if usage is not None and metric is not None:
            by_this_second = self._offer(node, fresh.metric(metric, usage), strategy, state, now_s).batch
        share = required(strategy.resource_diff_threshold)
        batch, grown = growth.step(
            publish.observed_batch(node),
            Averaged(offer.batch, now_s if seen_s is None else seen_s),
            by_this_second,
            state.growth,
            now_s,
            difference.threshold(share),
            _is_due(idle_s, strategy),
        )
        if usage is not None and by_this_second is not None:
            percent = offer.normalization_percent
            self._figures.wake_above(name, fresh.ceiling(usage.high_priority, batch, by_this_second, share, percent))
        self._say(node, state.degraded, offer)
        for problem in offer.problems:
            _log.debug("node %s: %s", name, problem)
        desired = Desired(
            batch=batch,
            mid=offer.mid,
            third_party=offer.third_party,
            normalization_ratio=state.normalization_ratio,
            amplification=self._amplification(node, state),
        )
        return desired, replace(state, growth=grown, degraded=offer.degraded), offer

    def _offer(
        self, node: Node, metric: NodeMetric | None, strategy: ColocationStrategy, state: NodeState, now_s: float
    ) -> Offer:
        name = node.metadata.name
        return offer_by_demands(
            node,
            self._view.demands_of(name),
            metric,
            strategy,
            now_s,
            self._view.seen_s(name),
            state.normalization_ratio or 1.0,
        )

    def _normalization(self, node: Node, state: NodeState) -> float | None:
        """This pass's ratio, else the last that could be told, else what the node shows."""
        topology = self._view.topologies.get(Key("", node.metadata.name))
        basic_info = None if topology is None else topology.metadata.annotations.get(CPU_BASIC_INFO)
        labels = node.metadata.labels
        try:
            return normalization.ratio(labels, self._view.config.normalization(labels), basic_info)
        except NormalizationError as error:
            self._warn(node, "CPUNormalizationUnknown", str(error))
            return state.normalization_ratio or normalization.current(node.metadata.annotations)

    def _amplification(self, node: Node, state: NodeState) -> dict[str, float] | None:
        """None: the annotation stays as it is."""
        configured = self._view.config.amplification(node.metadata.labels)
        try:
            return amplification.ratios(configured, state.normalization_ratio or 1.0)
        except AmplificationError as error:
            self._warn(node, "ResourceAmplificationUnknown", str(error))
            return None

    async def _write(self, name: str, writes: Writes) -> None:
        key = Key("", name)
        if writes.metadata is not None:
            await self._client.patch(NODE, key, writes.metadata)
        if writes.status is not None:
            await self._client.patch(NODE, key, writes.status, subresource="status")

    def _next_s(
        self, offer: Offer | None, strategy: ColocationStrategy, state: NodeState, now_s: float
    ) -> float | None:
        """Until the report expires, or small differences count again."""
        if offer is None or offer.degraded or offer.age_s is None:
            return None
        expires_s = 60 * required(strategy.degrade_time_minutes) - offer.age_s + _AFTER_EXPIRY_S
        due_s = required(strategy.update_time_threshold_seconds) - (now_s - (state.synced_s or now_s))
        return max(_AFTER_EXPIRY_S, min(expires_s, due_s))

    def _say(self, node: Node, before: str | None, offer: Offer) -> None:
        """An Event when the node loses its batch and mid resources, and when it has them again."""
        if offer.degraded and not before:
            self._warn(node, "OvercommitDegraded", f"no batch and mid resources: {offer.degraded}")
        elif before and not offer.degraded:
            self._recorder.record(
                _subject(node), EventType.NORMAL, "OvercommitRecovered", "batch and mid resources are offered again"
            )

    def _warn(self, node: Node, reason: str, message: str) -> None:
        self._recorder.record(_subject(node), EventType.WARNING, reason, message)


def _is_due(idle_s: float | None, strategy: ColocationStrategy) -> bool:
    """Do small differences count, too?"""
    return idle_s is None or idle_s >= required(strategy.update_time_threshold_seconds)


def _subject(node: Node) -> Subject:
    return Subject(NODE, Key("", node.metadata.name), node.metadata.uid)
