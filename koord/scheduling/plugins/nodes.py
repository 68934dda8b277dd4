"""Plugins that go by what a node's object says: its name, taints, labels and images.

Sources: pkg/scheduler/framework/plugins/{nodename,nodeunschedulable,tainttoleration,nodeaffinity,imagelocality}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from koord.model.core import Taint
from koord.model.scheduling import pods
from koord.model.scheduling.pods import PodSpec, Toleration
from koord.scheduling import nodeselector
from koord.scheduling.plugin import MOST_SCORE, Explanation, Plugin, Reason, Rejection, Scope, scaled_to_largest
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int64s

NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE = "NoSchedule", "NoExecute", "PreferNoSchedule"
_LEAST_BYTES, _MOST_BYTES = 23 << 20, 1000 << 20
"""Images smaller than the one score nothing; beyond the other, for each container, they score no more."""
_NOTHING_ADDED = pods.NodeAffinity()
_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)


class NodeName(Plugin):
    """Rejects all nodes but the one that ``spec.nodeName`` names."""

    name: ClassVar[str] = "NodeName"
    filter_scope: ClassVar[Scope] = Scope.OBJECT
    reason: ClassVar[str] = "node(s) didn't match the requested node name"

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        if not pod.spec.node_name:
            return ()
        rows = np.ones(state.length, np.bool_)
        row = state.table.row(pod.spec.node_name)
        if row is not None:
            rows[row] = False
        return (Rejection(self.reason, rows, False),)

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        if pod.spec.node_name in ("", state.table.name(row)):
            return Explanation()
        return Explanation((Reason(self.reason, False, f"wants {pod.spec.node_name}"),))


class NodeUnschedulable(Plugin):
    """Rejects cordoned nodes, unless the pod tolerates the taint that cordoned nodes get."""

    name: ClassVar[str] = "NodeUnschedulable"
    filter_scope: ClassVar[Scope] = Scope.OBJECT
    reason: ClassVar[str] = "node(s) were unschedulable"

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        if _is_tolerated(_UNSCHEDULABLE, pod.spec.tolerations):
            return ()
        return (Rejection(self.reason, state.nodes.unschedulable, False),)

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        if not state.nodes.unschedulable[row] or _is_tolerated(_UNSCHEDULABLE, pod.spec.tolerations):
            return Explanation()
        return Explanation((Reason(self.reason, False, "the node is cordoned"),))


class TaintToleration(Plugin):
    """Rejects nodes with a taint that the pod does not tolerate, and prefers those with fewer that it should avoid."""

    name: ClassVar[str] = "TaintToleration"
    filter_scope: ClassVar[Scope] = Scope.OBJECT
    reason: ClassVar[str] = "node(s) had untolerated taint(s)"

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        rows = untolerated_rows(state, pod.spec.tolerations)
        return () if rows is None else (Rejection(self.reason, rows, False),)

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s | int:
        tolerations = tuple([each for each in pod.spec.tolerations if each.effect in ("", PREFER_NO_SCHEDULE)])
        by_class = [
            sum(taint.effect == PREFER_NO_SCHEDULE and not _is_tolerated(taint, tolerations) for taint in taints)
            for taints in state.nodes.taint_sets
        ]
        if not any(by_class):
            return MOST_SCORE
        counts = np.array(by_class, np.int64)
        return scaled_to_largest(counts[state.nodes.taint_classes], feasible, is_reversed=True)

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        taint = untolerated(state.nodes.nodes[row].spec.taints, pod.spec.tolerations)
        if taint is None:
            return super().explain(state, pod, row, feasible)
        value = f"={taint.value}" if taint.value else ""
        return Explanation((Reason(self.reason, False, f"{taint.key}{value}:{taint.effect}"),))


@dataclass(frozen=True)
class NodeAffinity(Plugin):
    """Rejects nodes that ``nodeSelector`` or the required node affinity rules out, and prefers what is preferred.

    ``added``: an affinity that each pod has beside its own.
    """

    name: ClassVar[str] = "NodeAffinity"
    filter_scope: ClassVar[Scope] = Scope.OBJECT
    reason: ClassVar[str] = "node(s) didn't match Pod's node affinity/selector"
    added_reason: ClassVar[str] = "node(s) didn't match scheduler-enforced node affinity"
    added: pods.NodeAffinity = _NOTHING_ADDED

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        found = []
        left = np.ones(state.length, np.bool_)  # a node has the first of these reasons
        if self.added.required is not None:
            left = nodeselector.any_of(state, self.added.required.node_selector_terms)
            found.append(Rejection(self.added_reason, ~left, False))
        allowed = nodeselector.required(state, pod.spec)
        if allowed is not None:
            found.append(Rejection(self.reason, left & ~allowed, False))
        return found

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s | int | None:
        preferred = self._preferred(pod)
        if not preferred:
            return None
        weights = np.zeros(state.length, np.int64)
        for each in preferred:
            weights += each.weight * nodeselector.term(state, each.preference)
        return scaled_to_largest(weights, feasible)

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        node, added = state.nodes.nodes[row], self.added.required
        name, labels = node.metadata.name, node.metadata.labels
        if added is not None and not any(
            nodeselector.term_holds(each, name, labels) for each in added.node_selector_terms
        ):
            return Explanation((Reason(self.added_reason, False),))
        if not nodeselector.holds(pod.spec, name, labels):
            return Explanation((Reason(self.reason, False, _mismatch(pod.spec, labels)),))
        if not self._preferred(pod):
            return Explanation()
        return super().explain(state, pod, row, feasible)

    def _preferred(self, pod: PodInfo) -> tuple[pods.PreferredSchedulingTerm, ...]:
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        return (*self.added.preferred, *(affinity.preferred if affinity else ()))


class ImageLocality(Plugin):
    """Prefers nodes that have the pod's images, the more bytes the better, and the more nodes have one the more it
    counts, so that pods do not all go where an image happens to be.
    """

    name: ClassVar[str] = "ImageLocality"
    score_scope: ClassVar[Scope] = Scope.OBJECT

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s:
        total = np.zeros(state.length, np.int64)
        for sizes in _images(state, pod):
            rows = np.fromiter(sizes, np.int64, len(sizes))
            spread = len(sizes) / len(state.table)
            total[rows] += (np.fromiter(sizes.values(), np.float64, len(sizes)) * spread).astype(np.int64)
        most = _MOST_BYTES * max(1, _image_count(pod))
        counted = np.clip(total, _LEAST_BYTES, most)
        return (MOST_SCORE * (counted - _LEAST_BYTES) / (most - _LEAST_BYTES)).astype(np.int64)


def untolerated_rows(state: ClusterState, tolerations: Sequence[Toleration]) -> Bools | None:
    """bool[N]: the nodes that a taint keeps a pod of these tolerations from; None: there are none."""
    by_class = [untolerated(taints, tolerations) is not None for taints in state.nodes.taint_sets]
    return np.array(by_class, np.bool_)[state.nodes.taint_classes] if any(by_class) else None


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Returns the first taint that keeps a pod of these tolerations from the node; None if there is none."""
    return next(
        (
            taint
            for taint in taints
            if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not _is_tolerated(taint, tolerations)
        ),
        None,
    )


def _is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
    return False


def _images(state: ClusterState, pod: PodInfo) -> Iterator[Mapping[int, int]]:
    """Yields, of each container whose image some node has, the image's bytes by row."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        if sizes := state.nodes.image_sizes(_normalized(container.image)):
            yield sizes


def _image_count(pod: PodInfo) -> int:
    return len(pod.spec.init_containers) + len(pod.spec.containers)


def _normalized(image: str) -> str:
    """The name as kubelet reports it: with a tag."""
    return image if image.rfind(":") > image.rfind("/") else image + ":latest"


def _mismatch(spec: PodSpec, labels: Mapping[str, str]) -> str:
    wrong = [f"{key}={value}" for key, value in spec.node_selector.items() if labels.get(key) != value]
    return f"lacks {', '.join(wrong)}" if wrong else ""
