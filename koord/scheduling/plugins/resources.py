"""Plugins that go by amounts: whether a pod fits on a node, and how full and how evenly filled that makes the node.

Scores count what is requested of CPU and memory with an assumed amount for containers that request none, filters what
is requested and no more. Divisions are those of Go on integers: the quotient of two float64 below 2**53, rounded down,
is exact.

Sources: pkg/scheduler/framework/plugins/noderesources: fit.go, least_allocated.go, most_allocated.go,
requested_to_capacity_ratio.go, balanced_allocation.go, resource_allocation.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from koord.model.priority import CPU, MEMORY
from koord.scheduling.amounts import PODS
from koord.scheduling.plugin import MOST_SCORE, Explanation, Plugin, Reason, Rejection, Scope
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Floats, Int64s

TOO_MANY_PODS = "Too many pods"
NATIVE = (CPU, MEMORY, "ephemeral-storage")
Score = Callable[[Int64s, Int64s], Int64s]
"""Of what is requested with the pod, and of what is allocatable, which is above 0: 0 to 100."""


def least_allocated(requested: Int64s, allocatable: Int64s) -> Int64s:
    """(allocatable - requested) * 100 / allocatable, 0 where more is requested than there is."""
    return np.where(requested > allocatable, 0, _divided((allocatable - requested) * MOST_SCORE, allocatable))


def most_allocated(requested: Int64s, allocatable: Int64s) -> Int64s:
    """requested * 100 / allocatable, 100 where more is requested than there is."""
    return _divided(np.minimum(requested, allocatable) * MOST_SCORE, allocatable)


@dataclass(frozen=True)
class RequestedToCapacityRatio:
    """Scores by a function of the utilization in percent, linear between ``shape``'s points (utilization, score)."""

    shape: tuple[tuple[int, int], ...]
    """Ascending by utilization; scores 0 to 100."""

    def __call__(self, requested: Int64s, allocatable: Int64s) -> Int64s:
        utilization = np.where(requested > allocatable, MOST_SCORE, _divided(requested * MOST_SCORE, allocatable))
        first, last = self.shape[0], self.shape[-1]
        score = np.where(utilization <= first[0], first[1], last[1])
        for (from_x, from_y), (to_x, to_y) in zip(self.shape, self.shape[1:], strict=False):
            between = (utilization > from_x) & (utilization <= to_x)
            # Go's division rounds towards zero, also where the line falls
            rise = np.trunc((to_y - from_y) * (utilization - from_x) / (to_x - from_x)).astype(np.int64)
            score = np.where(between, from_y + rise, score)
        return score


@dataclass(frozen=True)
class NodeResourcesFit(Plugin):
    """Rejects nodes without room for the pod.

    ``weights``: by the resources that are scored. ``ignored``: names, and prefixes that end in ``/``, of extended
    resources that are not looked at.
    """

    name: ClassVar[str] = "NodeResourcesFit"
    filter_scope: ClassVar[Scope] = Scope.PODS
    score_scope: ClassVar[Scope] = Scope.PODS
    weights: Mapping[str, int] = field(default_factory=lambda: {CPU: 1, MEMORY: 1})
    strategy: Score = least_allocated
    ignored: frozenset[str] = frozenset()

    def filter(self, state: ClusterState, pod: PodInfo) -> Bools:
        found = self._has_place(state)
        for resource, amount in self._looked_at(pod):
            allocatable, requested = state.nodes.allocatable.of(resource), state.requested.of(resource)
            if allocatable is None:
                return np.zeros(state.length, np.bool_)
            found &= amount <= (allocatable if requested is None else allocatable - requested)
        return found

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        found = [Rejection(TOO_MANY_PODS, ~self._has_place(state))]
        for resource, amount in self._looked_at(pod):
            allocatable, requested = state.nodes.allocatable.of(resource), state.requested.of(resource)
            if allocatable is None:
                allocatable = np.zeros(state.length, np.int64)
            lacking = amount > (allocatable if requested is None else allocatable - requested)
            found.append(Rejection(f"Insufficient {resource}", lacking, amount <= allocatable))
        return found

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s:
        total, weights = np.zeros(state.length, np.int64), np.zeros(state.length, np.int64)
        for resource, weight in self.weights.items():
            allocatable = state.nodes.allocatable.of(resource)
            if allocatable is None or not _is_scored(resource, pod):
                continue
            scored = self.strategy(requested_with(state, pod, resource), np.maximum(allocatable, 1))
            counts = allocatable > 0
            if isinstance(self.strategy, RequestedToCapacityRatio):
                counts &= scored > 0
            total += np.where(counts, scored * weight, 0)
            weights += np.where(counts, weight, 0)
        if isinstance(self.strategy, RequestedToCapacityRatio):
            return np.where(weights > 0, np.floor(total / np.maximum(weights, 1) + 0.5), 0).astype(np.int64)
        return np.where(weights > 0, _divided(total, np.maximum(weights, 1)), 0)

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        reasons = []
        count, most = state.requested.at(row, PODS), state.nodes.allocatable.at(row, PODS)
        if count + 1 > most:
            reasons.append(Reason(TOO_MANY_PODS, True, f"{count} of {most}"))
        for resource, amount in self._looked_at(pod):
            allocatable = state.nodes.allocatable.at(row, resource)
            free = allocatable - state.requested.at(row, resource)
            if amount > free:
                detail = f"requests {amount}, {free} of {allocatable} are free"
                reasons.append(Reason(f"Insufficient {resource}", amount <= allocatable, detail))
        return Explanation(tuple(reasons), None if reasons else self._score_of(state, pod, row))

    def _score_of(self, state: ClusterState, pod: PodInfo, row: int) -> int:
        """``score`` of one node."""
        total = weights = 0
        for resource, weight in self.weights.items():
            allocatable = state.nodes.allocatable.at(row, resource)
            if allocatable <= 0 or not _is_scored(resource, pod):
                continue
            requested = requested_at(state, pod, resource, row)
            scored = score_at(self.strategy, requested, allocatable)
            if scored or not isinstance(self.strategy, RequestedToCapacityRatio):
                total, weights = total + scored * weight, weights + weight
        if not weights:
            return 0
        if isinstance(self.strategy, RequestedToCapacityRatio):
            return int(total / weights + 0.5)
        return total // weights

    def _has_place(self, state: ClusterState) -> Bools:
        """bool[N]: whether the node takes one more pod."""
        most, count = state.nodes.allocatable.of(PODS), state.requested.of(PODS)
        if most is None:
            return np.zeros(state.length, np.bool_)
        return most > 0 if count is None else np.less(count, most)

    def needed(self, pod: PodInfo) -> dict[str, int]:
        """Returns what a node needs to have free, a place for the pod among it."""
        return {PODS: 1, **dict(self._looked_at(pod))}

    def _looked_at(self, pod: PodInfo) -> Iterator[tuple[str, int]]:
        for resource, amount in pod.requests.items():
            if resource in NATIVE or not self._is_ignored(resource):
                yield resource, amount

    def _is_ignored(self, resource: str) -> bool:
        return resource in self.ignored or resource.partition("/")[0] + "/" in self.ignored


@dataclass(frozen=True)
class NodeResourcesBalancedAllocation(Plugin):
    """Prefers nodes whose resources the pod leaves equally full.

    ``minor``: of the Kubernetes whose formula holds: from 1.36 on the score says what the pod changes.
    """

    name: ClassVar[str] = "NodeResourcesBalancedAllocation"
    score_scope: ClassVar[Scope] = Scope.PODS
    resources: tuple[str, ...] = (CPU, MEMORY)
    minor: int = 34

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s | None:
        if not any(resource in pod.requests for resource in self.resources):
            return None
        columns = []
        for resource in self.resources:
            allocatable = state.nodes.allocatable.of(resource)
            if allocatable is None or not _is_scored(resource, pod):
                continue
            requested = state.requested.of(resource)
            columns.append((allocatable, 0 if requested is None else requested, pod.requests.get(resource, 0)))
        if self.minor < 36:
            return _balance(columns, state.length, with_pod=True)
        with_pod, without = (_balance(columns, state.length, each) for each in (True, False))
        return 50 + (50 + with_pod - without) // 2

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        if not any(resource in pod.requests for resource in self.resources):
            return Explanation()
        before, after = [], []
        for resource in self.resources:
            allocatable = state.nodes.allocatable.at(row, resource)
            if allocatable > 0 and _is_scored(resource, pod):
                requested = state.requested.at(row, resource)
                before.append(min(requested / allocatable, 1.0))
                after.append(min((requested + pod.requests.get(resource, 0)) / allocatable, 1.0))
        if self.minor < 36:
            return Explanation((), _balance_of(after))
        return Explanation((), 50 + (50 + _balance_of(after) - _balance_of(before)) // 2)


def score_at(score: Score, requested: int, allocatable: int) -> int:
    """``score`` of one node."""
    return int(score(np.array([requested], np.int64), np.array([allocatable], np.int64))[0])


def _is_scored(resource: str, pod: PodInfo) -> bool:
    """Extended resources count only for pods that request them."""
    return resource in NATIVE or resource in pod.requests


def requested_with(state: ClusterState, pod: PodInfo, resource: str) -> Int64s:
    """int64[N]: what is requested with the pod, as scores count it."""
    if resource == CPU:
        return state.assumed_cpu_milli + pod.assumed_cpu_milli
    if resource == MEMORY:
        return state.assumed_memory_bytes + pod.assumed_memory_bytes
    requested, amount = state.requested.of(resource), pod.requests.get(resource, 0)
    return np.full(state.length, amount, np.int64) if requested is None else requested + amount


def requested_at(state: ClusterState, pod: PodInfo, resource: str, row: int) -> int:
    """``requested_with`` of one node."""
    if resource == CPU:
        return int(state.assumed_cpu_milli[row]) + pod.assumed_cpu_milli
    if resource == MEMORY:
        return int(state.assumed_memory_bytes[row]) + pod.assumed_memory_bytes
    return state.requested.at(row, resource) + pod.requests.get(resource, 0)


def _divided(dividend: Int64s, divisor: Int64s) -> Int64s:
    """Whole quotients of numbers that are not negative; ``divisor`` is above 0."""
    return (dividend / divisor).astype(np.int64)


def _balance(columns: Sequence[tuple[Int64s, Int64s | int, int]], length: int, with_pod: bool) -> Int64s:
    """int64[length]: 100 minus a hundred times the standard deviation of the resources' utilization.

    ``columns``: what is allocatable, what is requested, and what the pod adds. A node is judged by what it has.
    """
    fractions: list[Floats] = []
    has: list[Bools] = []
    for allocatable, requested, added in columns:
        total = requested + added if with_pod else requested + np.zeros(length, np.int64)
        fractions.append(np.minimum(total / np.maximum(allocatable, 1), 1.0))
        has.append(allocatable > 0)
    count = np.sum(has, axis=0) if has else np.zeros(length, np.int64)
    if not fractions:
        return np.full(length, MOST_SCORE, np.int64)
    if len(fractions) == 2:
        deviation = np.where(count == 2, np.abs(fractions[0] - fractions[1]) / 2, 0.0)
    else:
        deviation = _deviation(fractions, has, count)
    return ((1 - deviation) * MOST_SCORE).astype(np.int64)


def _deviation(fractions: Sequence[Floats], has: Sequence[Bools], count: Int64s) -> Floats:
    """The standard deviation over the resources that a node has; of two, half of their difference."""
    parts, present = np.array(fractions), np.array(has)
    total = np.zeros(parts.shape[1])
    for part, is_present in zip(parts, present, strict=True):
        total = total + np.where(is_present, part, 0.0)
    mean = total / np.maximum(count, 1)
    squares = np.zeros(parts.shape[1])
    for part, is_present in zip(parts, present, strict=True):
        squares = squares + np.where(is_present, (part - mean) * (part - mean), 0.0)
    deviation = np.sqrt(squares / np.maximum(count, 1))
    low = np.where(present, parts, np.inf).min(axis=0)
    high = np.where(present, parts, -np.inf).max(axis=0)
    return np.where(count > 2, deviation, np.where(count == 2, np.abs(high - low) / 2, 0.0))


def _balance_of(fractions: Sequence[float]) -> int:
    """``_balance`` of one node, of the fractions of what it has."""
    if len(fractions) < 2:
        deviation = 0.0
    elif len(fractions) == 2:
        deviation = abs(fractions[0] - fractions[1]) / 2
    else:
        mean = sum(fractions) / len(fractions)
        deviation = float(np.sqrt(sum([(each - mean) * (each - mean) for each in fractions]) / len(fractions)))
    return int((1 - deviation) * MOST_SCORE)
