"""PodTopologySpread: pods of one kind in equal numbers in all domains of a label of nodes.

Which nodes count for a constraint is the pod's to say: those that its node affinity allows, those whose taints it
tolerates. Pods that are being deleted do not count. A pod without constraints that belongs to a Service or to a
controller has the cluster's default constraints, which are preferences.

Source: pkg/scheduler/framework/plugins/podtopologyspread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np

from koord.model.scheduling.pods import TopologySpreadConstraint
from koord.model.selector import LabelSelector
from koord.scheduling import domains, nodeselector
from koord.scheduling.labels import HOSTNAME, ZONE
from koord.scheduling.plugin import MOST_SCORE, Event, LabelPair, Plugin, Rejection
from koord.scheduling.plugins.nodes import untolerated_rows
from koord.scheduling.podcounts import PodQuery, PodSelection
from koord.scheduling.podinfo import PodInfo, pairs_of, selector_json, with_label_keys
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Floats, Int32s, Int64s

_REQUIRED, _PREFERRED = "DoNotSchedule", "ScheduleAnyway"
_HONOR = "Honor"
DEFAULT_CONSTRAINTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=_PREFERRED),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=_PREFERRED),
)


@dataclass(frozen=True)
class PodTopologySpread(Plugin):
    """``defaults``: of pods that have no constraints. ``are_defaults_built_in``: they are Kubernetes' own, for which a
    node need not have all of their labels.
    """

    name: ClassVar[str] = "PodTopologySpread"
    skew_reason: ClassVar[str] = "node(s) didn't match pod topology spread constraints"
    label_reason: ClassVar[str] = "node(s) didn't match pod topology spread constraints (missing required label)"
    defaults: tuple[TopologySpreadConstraint, ...] = DEFAULT_CONSTRAINTS
    are_defaults_built_in: bool = True

    def goes_by_pods(self, state: ClusterState, pod: PodInfo) -> bool:
        return bool(self._constraints(state, pod, _REQUIRED))

    def goes_by_owners(self, pod: PodInfo) -> bool:
        return not pod.spec.topology_spread_constraints and self._has_default(_REQUIRED)

    def helped_by(self, state: ClusterState, pod: PodInfo) -> Sequence[LabelPair] | None:
        found: list[LabelPair] = []
        for each in self._constraints(state, pod, _REQUIRED):
            pairs = pairs_of(each.label_selector)
            if pairs is None:
                return None
            found += pairs
        return found

    def is_helped_by(self, state: ClusterState, pod: PodInfo, event: Event) -> bool:
        if event.pod is None:
            return True
        if event.pod.namespace != pod.namespace:
            return False
        return any(_matches_itself(each, event.pod) for each in self._constraints(state, pod, _REQUIRED))

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        constraints = self._constraints(state, pod, _REQUIRED)
        if not constraints:
            return ()
        labelled = _has_all_labels(state, constraints)
        lacks = np.zeros(state.length, np.bool_)
        skewed = np.zeros(state.length, np.bool_)
        for each in constraints:
            counts = domains.summed(
                state, each.topology_key, _matching(state, pod, each), labelled & _counted(state, pod, each)
            )
            lacks |= ~counts.has_domain & ~skewed
            least = int(counts.totals[counts.exists].min(initial=2**62))
            if counts.size < (each.min_domains or 1):
                least = 0
            skew = counts.at_nodes + _matches_itself(each, pod) - least
            skewed |= (skew > each.max_skew) & counts.has_domain & ~lacks
        return (Rejection(self.label_reason, lacks, False), Rejection(self.skew_reason, skewed))

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s | None:
        constraints = self._constraints(state, pod, _PREFERRED)
        if not constraints:
            return None
        needs_all = bool(pod.spec.topology_spread_constraints) or not self.are_defaults_built_in
        labelled = _has_all_labels(state, constraints) if needs_all else np.ones(state.length, np.bool_)
        scored = feasible & labelled
        total = np.zeros(state.length, np.float64)
        for each in constraints:
            total += _spread(state, pod, each, scored, labelled)
        scores = np.floor(total + 0.5).astype(np.int64)
        least, most = int(scores[scored].min(initial=2**62)), int(scores[scored].max(initial=0))
        if most == 0:
            return np.where(labelled, MOST_SCORE, 0)
        return np.where(labelled, np.floor(MOST_SCORE * (most + least - scores) / most), 0).astype(np.int64)

    def _has_default(self, kind: str) -> bool:
        return any(each.when_unsatisfiable == kind for each in self.defaults)

    def _constraints(self, state: ClusterState, pod: PodInfo, kind: str) -> tuple[TopologySpreadConstraint, ...]:
        own = pod.spec.topology_spread_constraints
        if own:
            return tuple([each for each in _with_label_keys(pod, own) if each.when_unsatisfiable == kind])
        if not self._has_default(kind):
            return ()
        selector = state.owners.selector_of(pod)
        if selector is None:
            return ()
        return tuple(
            [
                msgspec.structs.replace(each, label_selector=selector, match_label_keys=())
                for each in self.defaults
                if each.when_unsatisfiable == kind
            ]
        )


def _spread(
    state: ClusterState, pod: PodInfo, each: TopologySpreadConstraint, scored: Bools, labelled: Bools
) -> Floats:
    """float64[N]: how many pods there are in each node's domain, the more weighty the more domains there are."""
    counts = _matching(state, pod, each)
    domain = state.nodes.labels.domains(each.topology_key)
    has_domain = state.nodes.labels.has(each.topology_key)
    if each.topology_key == HOSTNAME:
        at_nodes: Int64s | Int32s = counts
        size = int(np.count_nonzero(scored))
    else:
        at_nodes = domains.summed(state, each.topology_key, counts, labelled & _counted(state, pod, each)).at_nodes
        size = len(np.unique(domain[scored & has_domain]))
        if not has_domain[scored].all():
            size += 1  # the domain of nodes without the label, which upstream counts as that of ""
    weighted = at_nodes * float(np.log(size + 2)) + (each.max_skew - 1)
    return np.where(has_domain, weighted, 0.0)


def _with_label_keys(
    pod: PodInfo, constraints: Sequence[TopologySpreadConstraint]
) -> Iterator[TopologySpreadConstraint]:
    """Yields the constraints with ``matchLabelKeys`` in their selectors."""
    for each in constraints:
        if each.label_selector is None or not each.match_label_keys:
            yield each
            continue
        selector = with_label_keys(each.label_selector, pod.labels, each.match_label_keys)
        yield TopologySpreadConstraint(
            max_skew=each.max_skew,
            topology_key=each.topology_key,
            when_unsatisfiable=each.when_unsatisfiable,
            label_selector=selector,
            min_domains=each.min_domains,
            node_affinity_policy=each.node_affinity_policy,
            node_taints_policy=each.node_taints_policy,
        )


def _has_all_labels(state: ClusterState, constraints: Sequence[TopologySpreadConstraint]) -> Bools:
    """bool[N]: whether the node is in a domain of each constraint."""
    found = np.ones(state.length, np.bool_)
    for each in constraints:
        found &= state.nodes.labels.has(each.topology_key)
    return found


def _counted(state: ClusterState, pod: PodInfo, each: TopologySpreadConstraint) -> Bools:
    """bool[N]: whether the node counts for the constraint."""
    counted = np.ones(state.length, np.bool_)
    if each.node_affinity_policy == _HONOR:
        allowed = nodeselector.required(state, pod.spec)
        if allowed is not None:
            counted &= allowed
    if each.node_taints_policy == _HONOR:
        untolerated = untolerated_rows(state, pod.spec.tolerations)
        if untolerated is not None:
            counted &= ~untolerated
    return counted


def _matching(state: ClusterState, pod: PodInfo, each: TopologySpreadConstraint) -> Int32s:
    """int32[N]: how many pods of the constraint's kind are on each node. An empty selector counts none."""
    selector = each.label_selector
    if selector is not None and selector.is_empty:
        return np.zeros(state.length, np.int32)
    selection = PodSelection(frozenset((pod.namespace,)), selector_json(selector))
    return state.pod_counts.matching(PodQuery((selection,), with_terminating=False))


def _matches_itself(each: TopologySpreadConstraint, pod: PodInfo) -> int:
    selector: LabelSelector | None = each.label_selector
    return int(selector is not None and selector.matches(pod.labels))
