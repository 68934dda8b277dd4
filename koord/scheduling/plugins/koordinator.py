"""Small scores that Koordinator adds to the default ones; a configuration has to enable them.

Sources: Koordinator, pkg/scheduler/plugins/{noderesourcefitplus,scarceresourceavoidance}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from koord.scheduling.amounts import PODS
from koord.scheduling.plugin import MOST_SCORE, Explanation, Plugin, Scope
from koord.scheduling.plugins.resources import Score, least_allocated, requested_at, requested_with, score_at
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int64s


class ResourceScore(NamedTuple):
    score: Score = least_allocated
    weight: int = 1


@dataclass(frozen=True)
class NodeResourcesFitPlus(Plugin):
    """Scores each resource that the pod requests by a strategy of its own: spreads by CPU while it packs GPUs, say.

    The overhead of a pod counts in thousandths of a CPU, as its requests do; upstream counts it in whole CPUs.
    """

    name: ClassVar[str] = "NodeResourcesFitPlus"
    score_scope: ClassVar[Scope] = Scope.PODS
    resources: Mapping[str, ResourceScore] = field(default_factory=dict)

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s | int:
        scored = self._scored(pod)
        if not scored:
            return MOST_SCORE
        total = np.zeros(state.length, np.int64)
        for resource, (score, weight) in scored.items():
            allocatable = state.nodes.allocatable.of(resource)
            if allocatable is not None:
                of_resource = score(requested_with(state, pod, resource), np.maximum(allocatable, 1))
                total += np.where(allocatable > 0, of_resource * weight, 0)
        return total // sum(each.weight for each in scored.values())

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        scored = self._scored(pod)
        if not scored:
            return Explanation((), MOST_SCORE)
        total = 0
        for resource, (score, weight) in scored.items():
            allocatable = state.nodes.allocatable.at(row, resource)
            if allocatable > 0:
                requested = requested_at(state, pod, resource, row)
                total += weight * score_at(score, requested, allocatable)
        return Explanation((), total // sum(each.weight for each in scored.values()))

    def _scored(self, pod: PodInfo) -> dict[str, ResourceScore]:
        """Returns what counts for the pod."""
        return {name: each for name, each in self.resources.items() if each.weight and name in pod.requests}


@dataclass(frozen=True)
class ScarceResourceAvoidance(Plugin):
    """Keeps pods off nodes with scarce resources that they do not request.

    Of the resources that a node has and the pod does not request, the score is the percentage that are not scarce.
    """

    name: ClassVar[str] = "ScarceResourceAvoidance"
    score_scope: ClassVar[Scope] = Scope.OBJECT
    scarce: frozenset[str] = frozenset()

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s:
        unused, unused_scarce = np.zeros(state.length, np.int64), np.zeros(state.length, np.int64)
        for resource in state.nodes.allocatable.names:
            allocatable = state.nodes.allocatable.of(resource)
            if allocatable is None or resource == PODS or resource in pod.requests:
                continue
            unused += allocatable > 0
            if resource in self.scarce:
                unused_scarce += allocatable > 0
        return (unused - unused_scarce) * MOST_SCORE // np.maximum(unused, 1) + np.where(unused > 0, 0, MOST_SCORE)
