"""InterPodAffinity: pods near pods, and apart from pods, within domains of a label of nodes.

What a new pod wants of those that run is counted per node and summed over domains; what those that run want of the new
pod is found by the terms that they hold. Pods that are being deleted count until they are gone.

Source: pkg/scheduler/framework/plugins/interpodaffinity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from koord.scheduling import domains
from koord.scheduling.domains import Domains
from koord.scheduling.plugin import MOST_SCORE, Event, EventKind, LabelPair, Plugin, Rejection
from koord.scheduling.podcounts import PodQuery
from koord.scheduling.podinfo import AffinityTerm, PodInfo, pairs_of
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int64s
from koord.scheduling.termholders import selection_of


@dataclass(frozen=True)
class InterPodAffinity(Plugin):
    """``hard_weight``: of the required affinity of a pod that runs, for a new pod that it is about.
    ``with_preferences_of_running``: what pods that run prefer counts for new pods that prefer nothing, too.
    """

    name: ClassVar[str] = "InterPodAffinity"
    affinity_reason: ClassVar[str] = "node(s) didn't match pod affinity rules"
    anti_affinity_reason: ClassVar[str] = "node(s) didn't match pod anti-affinity rules"
    others_reason: ClassVar[str] = "node(s) didn't satisfy existing pods anti-affinity rules"
    hard_weight: int = 1
    with_preferences_of_running: bool = True

    def goes_by_pods(self, state: ClusterState, pod: PodInfo) -> bool:
        return bool(pod.affinity or pod.anti_affinity) or any(state.held_anti_affinity.about(pod.pod_labels))

    def helped_by(self, state: ClusterState, pod: PodInfo) -> Sequence[LabelPair] | None:
        """Those that its own terms ask for. A pod that leaves and kept this one away is found by its own terms."""
        found: list[LabelPair] = []
        for term in (*pod.affinity, *pod.anti_affinity):
            pairs = pairs_of(term.selector)
            if pairs is None:
                return None
            found += pairs
        return found

    def is_helped_by(self, state: ClusterState, pod: PodInfo, event: Event) -> bool:
        if event.pod is None:
            return True
        other = event.pod
        if any(state.namespaces.matches(selection_of(term), other.pod_labels) for term in pod.affinity):
            return True  # also if it left: where it was the last one, the pod may be the first of its kind
        if event.kind is EventKind.POD_CAME:
            return False
        return any(
            state.namespaces.matches(selection_of(term), about.pod_labels)
            for holder, about in ((pod, other), (other, pod))
            for term in holder.anti_affinity
        )

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        found = []
        left = np.ones(state.length, np.bool_)  # a node has the first of these reasons
        for reason, rows, is_resolvable, _ in self._rejected(state, pod):
            found.append(Rejection(reason, rows & left, is_resolvable))
            left &= ~rows
        return found

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s | None:
        if not pod.preferred_affinity and not self.with_preferences_of_running:
            return None
        total = np.zeros(state.length, np.int64)
        is_scored = False
        for part, is_anywhere in self._parts(state, pod):
            total += part
            is_scored |= is_anywhere
        if not is_scored:
            return None
        least, most = int(total[feasible].min(initial=2**62)), int(total[feasible].max(initial=-(2**62)))
        if most <= least:
            return np.zeros(state.length, np.int64)
        return (MOST_SCORE * ((total - least) / (most - least))).astype(np.int64)

    def _rejected(self, state: ClusterState, pod: PodInfo) -> Iterator[Rejection]:
        """Yields what each kind of term rejects, whatever the others do."""
        if pod.affinity:
            yield Rejection(self.affinity_reason, ~_near(state, pod), False)
        if pod.anti_affinity:
            rows = np.zeros(state.length, np.bool_)
            for term in pod.anti_affinity:
                rows |= _around(state, (term,), term.topology_key).at_nodes > 0
            yield Rejection(self.anti_affinity_reason, rows)
        held = list(state.held_anti_affinity.about(pod.pod_labels))
        if held:
            rows = np.zeros(state.length, np.bool_)
            for each in held:
                rows |= domains.summed_rows(state, each.term.topology_key, each.rows) > 0
            yield Rejection(self.others_reason, rows)

    def _parts(self, state: ClusterState, pod: PodInfo) -> Iterator[tuple[Int64s, bool]]:
        """Yields what each term adds to each node, and whether any domain counts for it."""
        for term, weight in pod.preferred_affinity:
            around = _around(state, (term,), term.topology_key)
            yield weight * around.at_nodes, bool(around.totals.any())
        held = [(each, each.weight) for each in state.held_preferences.about(pod.pod_labels)]
        if self.hard_weight:
            held += [(each, self.hard_weight) for each in state.held_affinity.about(pod.pod_labels)]
        for each, weight in held:
            counts = domains.summed_rows(state, each.term.topology_key, each.rows)
            yield weight * counts, bool(counts.any())


def _near(state: ClusterState, pod: PodInfo) -> Bools:
    """bool[N]: the nodes in whose domains there are pods that match all terms of the pod's required affinity.

    Where no domain has any and the pod matches its own terms, it is the first of its kind and goes anywhere.
    """
    found = np.ones(state.length, np.bool_)
    keyed = np.ones(state.length, np.bool_)
    are_there = False
    for term in pod.affinity:
        around = _around(state, pod.affinity, term.topology_key)
        are_there |= bool(around.totals.any())
        keyed &= around.has_domain
        found &= around.at_nodes > 0
    if not are_there and all(state.namespaces.matches(selection_of(term), pod.pod_labels) for term in pod.affinity):
        return keyed
    return found & keyed


def _around(state: ClusterState, terms: tuple[AffinityTerm, ...], topology_key: str) -> Domains:
    """Counts the pods that match all ``terms`` in each domain."""
    query = PodQuery(tuple([selection_of(term) for term in terms]))
    return domains.summed(state, topology_key, state.pod_counts.matching(query))
