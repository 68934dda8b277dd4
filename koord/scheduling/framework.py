"""One decision of all plugins: the node for a pod, or why there is none.

All nodes are filtered and scored. Of the best ones a hash of pod, node and seed takes one, so that the same history
gives the same decisions. Pods of one signature share an evaluation: the next one asks anew only what may have changed.

Invariant: a shared evaluation equals one that is made from the beginning.
Fails with PluginError, of a plugin that fails so: no evaluation is half made then, and the state is as it was.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koord.scheduling.plugin import EXTENDER, Explanation, Plugin, Rejection, Scope
from koord.scheduling.plugins.resources import NodeResourcesFit
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int16s, Int64s

_MOST_EVALUATIONS = 512
_MOST_ROWS = 16
"""Of more changed nodes all are evaluated anew, which costs less."""
_Scores = Mapping[str, Int64s | Int16s | int]
_ODD = np.uint64(0x9E3779B97F4A7C15)
_LEAST = np.iinfo(np.int64).min


class WeightedPlugin(NamedTuple):
    """``weight``: of its score; 0: it does not score. ``filters`` False: it rejects no node and prefers none."""

    plugin: Plugin
    weight: int = 1
    filters: bool = True


class ScoredNode(NamedTuple):
    """A feasible node, the weighted sum of its scores with what extenders add, and a score for each of
    `Framework.scoring`.
    """

    node: str
    total: int
    scores: tuple[int, ...]


class Placement(NamedTuple):
    """The node that suits the pod best, and how many are feasible. ``best``: that one and those next to it, as many as
    the framework keeps; none where no scores were needed.
    """

    node: str
    feasible_count: int
    best: tuple[ScoredNode, ...] = ()


class Diagnosis(NamedTuple):
    """Why no node will do.

    ``reasons``: how many nodes each has rejected, a node counted for the first plugin that rejects it. ``plugins``:
    those that did. ``is_resolvable``: bool[N], the nodes that may do without some of their pods. ``own_reason``: why
    the pod can be on none, whatever the nodes; "": it is for the nodes.
    """

    node_count: int
    reasons: dict[str, int]
    plugins: frozenset[str]
    is_resolvable: Bools
    own_reason: str = ""

    @property
    def message(self) -> str:
        """The sentence that Kubernetes' scheduler writes into the pod's condition, which tools read."""
        if not self.node_count:
            return "no nodes available to schedule pods"
        reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in self.reasons.items()))
        said = self.own_reason or reasons
        return f"0/{self.node_count} nodes are available:{f' {said}.' if said else ''}"


class NodeExplanation(NamedTuple):
    """What each plugin says of one node. ``total``: the weighted sum of the scores; None where the node is rejected."""

    node: str
    by_plugin: dict[str, Explanation]
    total: int | None


class _Evaluation:
    """``by_objects``, ``by_pods``: bool[N], what the filters of those scopes let pass. ``object_scores``,
    ``pod_scores``: int64[N], the weighted sums of their scores. ``by_plugin``: int16[N], these scores themselves, by
    the plugin's name, where they are kept.
    """

    __slots__ = (
        "by_objects", "by_plugin", "by_pods", "length", "object_scores", "objects_version", "pod_scores", "version"
    )  # fmt: skip

    def __init__(
        self, by_objects: Bools, by_pods: Bools, object_scores: Int64s, pod_scores: Int64s, by_plugin: dict[str, Int16s]
    ) -> None:
        self.by_objects, self.by_pods, self.by_plugin = by_objects, by_pods, by_plugin
        self.object_scores, self.pod_scores = object_scores, pod_scores
        self.version = self.objects_version = self.length = 0


class Framework:
    """``plugins``: in the order in which they filter, with the weights of their scores. ``best_count``: how many of the
    best nodes a placement names with their scores. ``scoring``: those that score.
    """

    def __init__(
        self, state: ClusterState, plugins: Sequence[WeightedPlugin], seed: int = 0, best_count: int = 0
    ) -> None:
        self.state, self._best_count = state, best_count
        self.plugins = tuple(plugins)
        self.filters = tuple([each.plugin for each in plugins if each.filters and can_filter(each.plugin)])
        self.cluster_filters = tuple([each for each in self.filters if each.filter_scope is Scope.CLUSTER])
        self._by_quotas = tuple([each for each in self.cluster_filters if each.goes_by_quotas])
        self._preferring = tuple([each.plugin for each in plugins if each.filters and can_prefer(each.plugin)])
        self.scoring = tuple([each for each in plugins if each.weight and can_score(each.plugin)])
        self._weights = tuple([each.weight for each in self.scoring])
        self._evaluations: OrderedDict[bytes, _Evaluation] = OrderedDict()
        self._seed = seed
        self._node_hashes = state.table.column(np.uint64)
        self._hashed_version = -1

    def place(self, pod: PodInfo, among: Bools | None = None, added: Int64s | None = None) -> Placement | None:
        """Returns where the pod goes; None where no node will do. Changes nothing.

        ``among``: bool[N], the nodes that others leave; ``added``: int64[N], what others add to the scores.
        """
        for plugin in self._by_quotas:  # who is kept out so costs no evaluation
            passed = plugin.filter(self.state, pod)
            if passed is not None and not passed.any():
                return None
        evaluation = self._evaluated(pod)
        feasible = self._feasible(pod, evaluation)
        if among is not None:
            feasible &= among
        count = int(np.count_nonzero(feasible))
        if not count:
            return None
        if count == 1:
            return Placement(self.state.table.name(int(feasible.argmax())), 1)
        preferred = self._preferred(pod, feasible) if self._preferring else None
        if preferred is not None:
            return Placement(preferred, 1)
        total, by_plugin = self._total(pod, evaluation, feasible)
        scores = np.where(feasible, total if added is None else total + added, _LEAST)
        best = np.flatnonzero(scores == scores.max())
        row = int(best[0]) if len(best) == 1 else self._drawn(pod, best)
        return Placement(self.state.table.name(row), count, self._best(scores, row, best, by_plugin, added))

    def feasible(self, pod: PodInfo) -> Bools:
        """bool[N]: the nodes that will do."""
        return self._feasible(pod, self._evaluated(pod))

    def fits(self, pod: PodInfo, row: int) -> bool:
        """Returns whether all filters let the node pass, by what the state is now."""
        for plugin in self.filters:
            if plugin.filter_scope is Scope.CLUSTER:
                passed = plugin.filter(self.state, pod)
                if passed is not None and not passed[row]:
                    return False
            elif plugin.explain(self.state, pod, row, self.state.table.exists).reasons:
                return False
        return True

    def fits_beside(self, pod: PodInfo, row: int, others: Sequence[PodInfo]) -> bool:
        """Returns whether the node would do with ``others`` on it, too, which are on none yet."""
        with self.state.transaction() as transaction:
            for other in others:
                transaction.assume(other, self.state.table.name(row))
            return self.fits(pod, row)

    def diagnose(self, pod: PodInfo, by_extenders: Sequence[Rejection] = ()) -> Diagnosis:
        """Says why no node will do. ``by_extenders``: of nodes that all filters let pass; "" is no reason to tell."""
        state = self.state
        left, is_resolvable = state.table.exists.copy(), state.table.exists.copy()
        reasons: dict[str, int] = {}
        plugins = set()
        by_plugin = []
        for plugin in self.filters:
            rejections = plugin.rejections(state, pod)
            by_plugin.append((plugin.name, rejections))
            for rejection in rejections:
                if rejection.is_of_pod:
                    is_resolvable &= rejection.is_resolvable
                    reasons = {rejection.reason: len(state.table)}
                    by = frozenset((plugin.name,))
                    return Diagnosis(len(state.table), reasons, by, is_resolvable, rejection.reason)
        for name, rejections in (*by_plugin, (EXTENDER, by_extenders)):
            rejected = np.zeros(state.length, np.bool_)
            for rejection in rejections:
                rows = rejection.rows & left
                count = int(np.count_nonzero(rows))
                if count:
                    if rejection.reason:
                        reasons[rejection.reason] = reasons.get(rejection.reason, 0) + count
                    plugins.add(name)
                    is_resolvable &= ~(rows & np.logical_not(rejection.is_resolvable))
                    rejected |= rows
            left &= ~rejected
        return Diagnosis(len(state.table), reasons, frozenset(plugins), is_resolvable & ~left)

    def explain(self, pod: PodInfo, node: str) -> NodeExplanation:
        """Says what each plugin makes of one node. Raises KeyError for one that there is not."""
        row = self.state.table.row(node)
        if row is None:
            raise KeyError(node)
        feasible = self.feasible(pod)
        said = {each.plugin.name: self._explained(each, pod, row, feasible) for each in self.plugins}
        if any(each.reasons for each in said.values()):
            return NodeExplanation(node, said, None)
        total = sum((said[plugin.name].score or 0) * weight for plugin, weight, _ in self.plugins)
        return NodeExplanation(node, said, total)

    def needed(self, pod: PodInfo) -> Mapping[str, int]:
        """Returns what a node must have free for the pod; what no filter looks at is not among it."""
        return next((each.needed(pod) for each in self.filters if isinstance(each, NodeResourcesFit)), {})

    def drawn_number(self, pod: PodInfo) -> int:
        """Returns a number that pod and seed decide, from 0 to 2**64 - 1."""
        return _hash(self._seed, pod.uid)

    def _explained(self, weighted: WeightedPlugin, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        """What the plugin says of one node, by what it takes part in here."""
        plugin, weight, filters = weighted
        said = plugin.explain(self.state, pod, row, feasible)
        if said.reasons and not filters:
            scores = plugin.score(self.state, pod, feasible)
            said = Explanation((), scores if scores is None or isinstance(scores, int) else int(scores[row]))
        return said if weight else said._replace(score=None)

    def _evaluated(self, pod: PodInfo) -> _Evaluation:
        """Returns the evaluation of pods like this one, as of now."""
        state = self.state
        evaluation = self._evaluations.get(pod.signature)
        rows = None
        if (
            evaluation is not None
            and evaluation.objects_version == state.objects_version
            and evaluation.length == state.length
        ):
            rows = state.changed_rows(evaluation.version)
        if evaluation is None or rows is None or len(rows) > _MOST_ROWS:
            evaluation = self._evaluated_anew(pod)
            self._evaluations[pod.signature] = evaluation
            if len(self._evaluations) > _MOST_EVALUATIONS:
                self._evaluations.popitem(last=False)
        else:
            for row in rows:
                self._evaluate_row(evaluation, pod, row)
        self._evaluations.move_to_end(pod.signature)
        evaluation.version, evaluation.objects_version = state.version, state.objects_version
        evaluation.length = state.length
        return evaluation

    def _evaluated_anew(self, pod: PodInfo) -> _Evaluation:
        state = self.state
        masks = {scope: np.ones(state.length, np.bool_) for scope in (Scope.OBJECT, Scope.PODS)}
        scores = {scope: np.zeros(state.length, np.int64) for scope in (Scope.OBJECT, Scope.PODS)}
        by_plugin: dict[str, Int16s] = {}
        for plugin in self.filters:
            if plugin.filter_scope is not Scope.CLUSTER and (passed := plugin.filter(state, pod)) is not None:
                masks[plugin.filter_scope] &= passed
        for plugin, weight, _ in self.scoring:
            if plugin.score_scope is not Scope.CLUSTER:
                scored = plugin.score(state, pod, state.table.exists)
                if scored is not None:
                    scores[plugin.score_scope] += weight * scored
                    if self._best_count:
                        by_plugin[plugin.name] = np.full(state.length, scored, np.int16)
        return _Evaluation(masks[Scope.OBJECT], masks[Scope.PODS], scores[Scope.OBJECT], scores[Scope.PODS], by_plugin)

    def _evaluate_row(self, evaluation: _Evaluation, pod: PodInfo, row: int) -> None:
        """The node's pods have changed."""
        passes, total = True, 0
        for weighted in self.plugins:
            plugin, weight, _ = weighted
            filters, scores = plugin.filter_scope is Scope.PODS, plugin.score_scope is Scope.PODS
            if filters or scores:
                said = self._explained(weighted, pod, row, self.state.table.exists)
                passes &= not (filters and said.reasons)
                total += weight * (said.score or 0) if scores else 0
                if scores and plugin.name in evaluation.by_plugin:
                    evaluation.by_plugin[plugin.name][row] = said.score or 0
        evaluation.by_pods[row], evaluation.pod_scores[row] = passes, total

    def _feasible(self, pod: PodInfo, evaluation: _Evaluation) -> Bools:
        feasible = self.state.table.exists & evaluation.by_objects & evaluation.by_pods
        for plugin in self.cluster_filters:
            passed = plugin.filter(self.state, pod)
            if passed is not None:
                feasible &= passed
                if not passed.any():
                    return feasible
        for node, nominated in self.state.nominations.before(pod):
            row = self.state.table.row(node)
            if row is not None and feasible[row]:
                feasible[row] = self.fits_beside(pod, row, nominated)
        return feasible

    def _preferred(self, pod: PodInfo, feasible: Bools) -> str | None:
        """Returns the first feasible node that a plugin names for the pod."""
        for plugin in self._preferring:
            for node in plugin.preferred_nodes(self.state, pod):
                row = self.state.table.row(node)
                if row is not None and feasible[row]:
                    return node
        return None

    def _total(self, pod: PodInfo, evaluation: _Evaluation, feasible: Bools) -> tuple[Int64s, _Scores]:
        """int64[N]: the weighted sum of all scores that differ between nodes; and the scores, by the plugin's name."""
        total = evaluation.object_scores + evaluation.pod_scores
        by_plugin: dict[str, Int64s | Int16s | int] = {**evaluation.by_plugin}
        for plugin, weight, _ in self.scoring:
            if plugin.score_scope is Scope.CLUSTER:
                scored = plugin.score(self.state, pod, feasible)
                if scored is None:
                    continue
                by_plugin[plugin.name] = scored
                if not isinstance(scored, int):
                    total += weight * scored
        return total, by_plugin

    def _best(
        self, scores: Int64s, row: int, equal: npt.NDArray[np.intp], by_plugin: _Scores, added: Int64s | None
    ) -> tuple[ScoredNode, ...]:
        """The node of ``row``, and those next to it. ``scores``: ``_LEAST`` of one that will not do; they are used up.
        ``equal``: the rows with the same score as ``row``.
        """
        if not self._best_count:
            return ()
        rows = [row, *[each for each in equal[: self._best_count].tolist() if each != row][: self._best_count - 1]]
        if len(rows) < self._best_count:
            scores[rows] = _LEAST
            while len(rows) < self._best_count and scores[each := int(scores.argmax())] > _LEAST:
                rows.append(each)
                scores[each] = _LEAST
        columns = [by_plugin.get(plugin.name, 0) for plugin, _, _ in self.scoring]
        return tuple([self._scored(each, columns, added) for each in rows])

    def _scored(self, row: int, columns: Sequence[Int64s | Int16s | int], added: Int64s | None) -> ScoredNode:
        each = tuple([column if isinstance(column, int) else int(column[row]) for column in columns])
        total = sum([score * weight for score, weight in zip(each, self._weights, strict=True)])
        return ScoredNode(self.state.table.name(row), total if added is None else total + int(added[row]), each)

    def _drawn(self, pod: PodInfo, rows: npt.NDArray[np.intp]) -> int:
        """Returns one of the rows, by pod, names of nodes and seed."""
        if self._hashed_version != self.state.objects_version:
            self._hash_nodes()
        with np.errstate(over="ignore"):
            drawn = (self._node_hashes.values[rows] ^ np.uint64(self.drawn_number(pod))) * _ODD
        return int(rows[int(drawn.argmax())])

    def _hash_nodes(self) -> None:
        table = self.state.table
        for row in range(table.length):
            self._node_hashes.values[row] = _hash(self._seed, table.name(row))
        self._hashed_version = self.state.objects_version


def can_filter(plugin: Plugin) -> bool:
    return plugin.overrides("filter", "rejections")


def can_prefer(plugin: Plugin) -> bool:
    return plugin.overrides("preferred_nodes")


def can_score(plugin: Plugin) -> bool:
    return plugin.overrides("score")


def _hash(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8, key=seed.to_bytes(8, "big")).digest(), "big")
