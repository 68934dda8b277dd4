"""Batch and mid resources of a node: the formula of ``koord.overcommit``, and what of its result is written.

Invariant: a node whose report is too old loses its batch and mid resources, but for what its pods hold, without
anything else having to happen: the controller looks again at the instant at which the report expires. What cannot be
computed for one node is an Event on it and stops nothing. While the policy is not known, because its key was bad ever
since the process started, nothing that it decides is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from msgspec import structs

from koord.kube.client import Client
from koord.kube.kind import NODE, Key
from koord.kube.recorder import EventRecorder, EventType
from koord.model import devices
from koord.model.core import Node
from koord.model.nodemetric import NodeMetric
from koord.model.problem import Problem
from koord.overcommit import publish, ratios, report
from koord.overcommit.amounts import ZERO, CPUMemory
from koord.overcommit.demand import Held
from koord.overcommit.offer import Overcommit, held_by, offer_by_demands
from koord.overcommit.publish import Averaged, DesiredResources, GrowthState
from koord.overcommit.ratios import AmplificationError, NormalizationError
from koord.overcommit.report import FreshUsage
from koord.overcommit.strategy import ColocationStrategy, required
from koord_manager.controllers import complaints
from koord_manager.controllers.complaints import Complain, Complaint
from koord_manager.freshusage import FreshFigures
from koord_manager.view import ClusterView

_AFTER_EXPIRY_S = 1.0
_NEVER_HELD = GrowthState()


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What is remembered of a node from one look to the next."""

    uid: str = ""
    growth: GrowthState = _NEVER_HELD
    synced_s: float | None = None
    """When its status was written last, or was found to need nothing although that was due, by the manager's clock."""
    normalization_ratio: float | None = None
    """The last that could be told."""
    degraded: str | None = None
    """None: not looked at yet."""
    complaints: frozenset[Complaint] = frozenset()


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a node. ``state``: what is remembered of the look before."""

    node: Node
    strategy: ColocationStrategy
    state: NodeRecord
    now_s: float
    complain: Complain

    @property
    def idle_s(self) -> float | None:
        """Since the last write of the status; None if there was none since the manager started."""
        return None if self.state.synced_s is None else self.now_s - self.state.synced_s

    @property
    def is_due(self) -> bool:
        """Whether small differences count, too."""
        return publish.is_due(self.idle_s, self.strategy)


class NodeResourceController:
    """``wall_s``: seconds since 1970."""

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        figures: FreshFigures,
        recorder: EventRecorder,
        wall_s: Callable[[], float],
    ) -> None:
        self._client, self._view, self._figures = client, view, figures
        self._recorder, self._wall_s = recorder, wall_s
        self._states: dict[str, NodeRecord] = {}

    async def reconcile(self, name: str) -> float | None:
        """Writes what differs; returns the seconds after which to look again. Raises KubeError."""
        node = self._view.nodes.get(Key("", name))
        if node is None:
            self._states.pop(name, None)
            self._figures.forget(name)
            return None
        state = self._states.get(name, NodeRecord())
        if state.uid != node.metadata.uid:
            state = NodeRecord(uid=node.metadata.uid)
        if self._view.is_unread("colocation"):
            self._figures.set_wake_threshold(name, report.UNBOUNDED)
            return None
        return await self._follow(node, state, self._wall_s())

    async def _follow(self, node: Node, state: NodeRecord, now_s: float) -> float | None:
        """Raises KubeError."""
        name, metadata = node.metadata.name, node.metadata
        strategy, problems = self._view.config.strategy(metadata.labels, metadata.annotations)
        found = [Complaint("OvercommitProblem", str(each)) for each in problems]
        if kept_by_nobody := devices.among(node.status.allocatable):
            sentence = f"shows {', '.join(kept_by_nobody)}, which koord-manager does not keep up to date"
            found.append(Complaint("DeviceResourcesUnmanaged", f"{sentence}: see docs/migration.md"))
        look = _Look(node, strategy, state, now_s, found.append)
        if not strategy.enable:
            desired, state, offer = self._nothing(look), replace(state, growth=_NEVER_HELD), None
            self._figures.set_wake_threshold(name, report.UNBOUNDED)
        else:
            desired, state, offer = self._desired(look)
        told = complaints.tell(self._recorder, node, found, state.complaints)
        self._states[name] = state = replace(state, complaints=told)
        writes = publish.decide(node, desired, strategy, look.is_due)
        if writes.patch is not None:
            await self._client.patch(NODE, Key("", name), writes.patch, subresource="status")
        if writes.status is not None or look.is_due:
            self._states[name] = state = replace(state, synced_s=now_s)
        return self._next_s(offer, strategy, state, now_s)

    def _nothing(self, look: _Look) -> DesiredResources:
        """Returns what a node shows on which colocation is disabled: what its pods hold until they have finished."""
        problems = list[Problem]()
        held = held_by(self._view.demands_of(look.node.metadata.name), look.strategy, problems.append)
        for problem in problems:
            look.complain(Complaint("OvercommitProblem", str(problem)))
        return structs.replace(publish.RESET, held=held)

    def _desired(self, look: _Look) -> tuple[DesiredResources, NodeRecord, Overcommit]:
        look = replace(look, state=replace(look.state, normalization_ratio=self._normalization(look)))
        metric = self._view.metric_of(look.node.metadata.name)
        state, offer = look.state, self._offer(look, metric)
        batch, grown = self._batch(look, metric, offer)
        self._record_degradation(look.node, state.degraded, offer)
        for problem in offer.problems:
            look.complain(Complaint("OvercommitProblem", str(problem)))
        if unread := self._view.unread_metric_of(look.node.metadata.name):
            counts = "it counts as none" if metric is None else "the last one that could be read counts"
            look.complain(Complaint("OvercommitProblem", f"{unread}; {counts}"))
        desired = DesiredResources(
            batch=batch,
            mid=offer.mid,
            held=offer.held,
            third_party=offer.third_party,
            normalization_ratio=state.normalization_ratio,
            amplification=self._amplification(look),
        )
        return desired, replace(state, growth=grown, degraded=offer.degraded), offer

    def _batch(self, look: _Look, metric: NodeMetric | None, offer: Overcommit) -> tuple[CPUMemory | None, GrowthState]:
        """Returns the batch resources that the node is to show, by the averaged figures of ``offer`` and those of this
        second.
        """
        name, share = look.node.metadata.name, required(look.strategy.resource_diff_threshold)
        usage = self._figures.usage(name)
        seen_s, by_this_second = self._view.seen_s(name), None
        if usage is not None and metric is not None:
            by_this_second = self._offer(look, report.with_usage(metric, usage)).batch
        batch, grown = publish.grow(
            publish.observed_batch(look.node),
            Averaged(offer.batch, look.now_s if seen_s is None else seen_s),
            by_this_second,
            look.state.growth,
            look.now_s,
            publish.threshold(share),
            look.is_due,
        )
        percent = offer.normalization_percent
        self._figures.set_wake_threshold(name, _ceiling(usage, batch, by_this_second, share, percent))
        return batch, grown

    def _offer(self, look: _Look, metric: NodeMetric | None) -> Overcommit:
        name = look.node.metadata.name
        return offer_by_demands(
            look.node,
            self._view.demands_of(name),
            metric,
            look.strategy,
            look.now_s,
            self._view.seen_s(name),
            look.state.normalization_ratio or 1.0,
        )

    def _normalization(self, look: _Look) -> float | None:
        """This pass's ratio, else the last that could be told, else what the node shows."""
        metadata = look.node.metadata
        known = look.state.normalization_ratio or ratios.current_normalization(metadata.annotations)
        if self._view.is_unread("cpu_normalization"):
            return known
        labels, basic_info = metadata.labels, self._view.cpu_info_of(metadata.name)
        try:
            return ratios.normalization_ratio(labels, self._view.config.normalization(labels), basic_info)
        except NormalizationError as error:
            look.complain(Complaint("CPUNormalizationUnknown", str(error)))
            return known

    def _amplification(self, look: _Look) -> dict[str, float] | None:
        """Returns the ratios of this pass; None: the annotation stays as it is."""
        if self._view.is_unread("resource_amplification"):
            return None
        configured = self._view.config.amplification(look.node.metadata.labels)
        try:
            return ratios.amplification_ratios(configured, look.state.normalization_ratio or 1.0)
        except AmplificationError as error:
            look.complain(Complaint("ResourceAmplificationUnknown", str(error)))
            return None

    def _next_s(
        self, offer: Overcommit | None, strategy: ColocationStrategy, state: NodeRecord, now_s: float
    ) -> float | None:
        """Until the report expires, or small differences count again."""
        if offer is None or offer.degraded or offer.age_s is None:
            return None
        expires_s = 60 * required(strategy.degrade_time_minutes) - offer.age_s + _AFTER_EXPIRY_S
        due_s = required(strategy.update_time_threshold_seconds) - (now_s - (state.synced_s or now_s))
        return max(_AFTER_EXPIRY_S, min(expires_s, due_s))

    def _record_degradation(self, node: Node, before: str | None, offer: Overcommit) -> None:
        """An Event when the node loses its batch and mid resources, and when it has them again."""
        if offer.degraded and not before:
            beyond = "" if offer.held == Held() else " beyond what running pods request"
            message = f"no batch and mid resources{beyond}: {offer.degraded}"
            self._recorder.record(complaints.subject(node), EventType.WARNING, "OvercommitDegraded", message)
        elif before and not offer.degraded:
            message = "batch and mid resources are offered again"
            self._recorder.record(complaints.subject(node), EventType.NORMAL, "OvercommitRecovered", message)


def _ceiling(
    usage: FreshUsage | None, shown: CPUMemory | None, offered: CPUMemory | None, share: float, percent: int
) -> CPUMemory:
    """The use above which this second's figures are worth another look, for a node that is to show ``shown``."""
    if shown is None:
        return report.UNBOUNDED
    if usage is None or offered is None:
        return ZERO  # the offer came of averages alone: the first figures are news, whatever they say
    return report.ceiling(usage.high_priority, shown, offered, share, percent)
