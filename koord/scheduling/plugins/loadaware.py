"""Places pods by what nodes use, and not by what is requested alone.

A node is rejected if what it uses, with what the pod is going to use, is above a threshold in percent of what the node
has; a node scores by what is left. Which figures these are, `koord.scheduling.nodeload` says. A node that nobody
measures passes, and scores nothing: it is the last choice, and no pod waits for want of an agent.

Source: Koordinator, pkg/scheduler/plugins/loadaware/load_aware.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from koord.model import readable
from koord.scheduling.loadcolumns import Figure, LoadColumns, RowFigures, RowLoad
from koord.scheduling.loadsettings import LoadSettings
from koord.scheduling.plugin import MOST_SCORE, Explanation, Plugin, Reason, Rejection, Scope
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int64s

EXPIRED = "node(s) nodeMetric expired"
_DAEMON_SET = "DaemonSet"


@dataclass(frozen=True)
class LoadAwareScheduling(Plugin):
    name: ClassVar[str] = "LoadAwareScheduling"
    filter_scope: ClassVar[Scope] = Scope.PODS
    score_scope: ClassVar[Scope] = Scope.PODS
    settings: LoadSettings = field(default_factory=LoadSettings)

    def filter(self, state: ClusterState, pod: PodInfo) -> Bools | None:
        if _is_of_daemon_set(pod):
            return None
        load = state.loads.of(self.settings)
        found = np.ones(state.length, np.bool_)
        for index, amount in enumerate(load.for_placing(pod)):
            found &= load.used(index, pod.is_prod) + amount <= load.limit(index, pod.is_prod)
        return found

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        """Each node for the first resource that is above its threshold."""
        if _is_of_daemon_set(pod):
            return ()
        load = state.loads.of(self.settings)
        by_window, left = load.by_window(pod.is_prod), ~load.expired(pod.is_prod)
        found = [Rejection(EXPIRED, ~left)]
        for index, (resource, amount) in enumerate(zip(load.resources, load.for_placing(pod), strict=True)):
            above = left & (load.used(index, pod.is_prod) + amount > load.limit(index, pod.is_prod))
            left &= ~above
            found += [Rejection(_above(resource, each), above & (by_window == each)) for each in (False, True)]
        return found

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s | int:
        load = state.loads.of(self.settings)
        amounts = load.for_placing(pod)
        weights, dominant = dict(self.settings.weights), self.settings.dominant_weight
        if not weights and not dominant:
            return 0
        total, least = np.zeros(state.length), np.full(state.length, float(MOST_SCORE))
        for index, resource in self._scored(load):
            left = load.capacity(index) - load.scored(index, pod.is_prod) - amounts[index]
            scored = np.floor(np.maximum(left, 0) * MOST_SCORE / load.capacity(index))
            total += scored * weights.get(resource, 0)
            if dominant:
                least = np.minimum(least, scored)
        found: Int64s = ((total + least * dominant) / (sum(weights.values()) + dominant)).astype(np.int64)
        return found

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        load = state.loads.of(self.settings)
        found = load.at(row, pod.is_prod)
        if not _is_of_daemon_set(pod) and (reason := _reason(state, load, found, pod, row)) is not None:
            return Explanation((reason,))
        return Explanation((), self._score_at(load, found, pod))

    def _scored(self, load: LoadColumns) -> Iterator[tuple[int, str]]:
        """The resources that scores go by, with their places: those with a weight, or, without any, with a factor."""
        names = {name for name, _ in self.settings.weights or self.settings.factors}
        return ((index, name) for index, name in enumerate(load.resources) if name in names)

    def _score_at(self, load: LoadColumns, found: RowFigures, pod: PodInfo) -> int:
        """``score`` of one node."""
        weights, dominant = dict(self.settings.weights), self.settings.dominant_weight
        if not weights and not dominant:
            return 0
        amounts, total, least = load.for_placing(pod), 0, MOST_SCORE
        for index, resource in self._scored(load):
            capacity, used = found.capacity[index], found.scored[index] + amounts[index]
            scored = max(0, capacity - used) * MOST_SCORE // capacity
            total += scored * weights.get(resource, 0)
            least = min(least, scored)
        return (total + least * dominant) // (sum(weights.values()) + dominant)


def _reason(state: ClusterState, load: LoadColumns, found: RowFigures, pod: PodInfo, row: int) -> Reason | None:
    """Why the node is rejected, by the first resource that is above its threshold."""
    if found.is_expired:
        return Reason(EXPIRED, True, _age(state, load, row, pod.is_prod))
    for index, (resource, amount) in enumerate(zip(load.resources, load.for_placing(pod), strict=True)):
        if found.used[index] + amount > found.limit[index]:
            return Reason(_above(resource, found.is_by_window), True, _arithmetic(state, load, pod, row, index))
    return None


def _is_of_daemon_set(pod: PodInfo) -> bool:
    return any(each.kind == _DAEMON_SET for each in pod.pod.metadata.owner_references)


def _above(resource: str, is_by_window: bool) -> str:
    return f"node(s) {resource} {'aggregated ' if is_by_window else ''}usage exceed threshold"


def _is_by_prod(load: RowLoad, is_prod: bool) -> bool:
    """Returns whether the node judges the pod by what pods of koord-prod use."""
    return is_prod and bool(load.thresholds.prod)


# words


def _arithmetic(state: ClusterState, load: LoadColumns, pod: PodInfo, row: int, index: int) -> str:
    """The percentage with the pod, its threshold, and what it is made of."""
    found, resource, is_prod = load.rows[row], load.resources[index], pod.is_prod
    by_prod = _is_by_prod(found, is_prod)
    figure = found.of_prod if by_prod else found.filtered
    thresholds = found.thresholds.prod if by_prod else found.thresholds.usage
    assert figure is not None
    figures, own = load.at(row, is_prod), load.for_placing(pod)[index]
    capacity, used = figures.capacity[index], figures.used[index]
    percent = (200 * (used + own) + capacity) // (2 * capacity)
    measured = (figure.measured or {}).get(resource, 0)
    place = index + (len(load.resources) if by_prod else 0)
    placed = [parts[place] for parts in found.parts.values() if parts[place]]
    terms = [f"{readable.amount(resource, own)} for this pod"]
    if placed:
        kind = "pods of koord-prod, measured or estimated" if by_prod else "pods, estimated beyond what was measured"
        terms.append(f"{readable.amount(resource, sum(placed))} of {len(placed)} {kind}")
    window = None if by_prod else found.thresholds.window
    if figure.measured is None:
        terms.append("nothing measured over the window that the thresholds are for")
    else:
        over = f" ({window.aggregation})" if window is not None else " of the system" if by_prod else ""
        terms.append(f"{readable.amount(resource, measured)} measured{over} {_seconds_ago(state, figure)}")
    limit = f"{percent} % of {readable.amount(resource, capacity)} {resource}, above {dict(thresholds)[resource]} %"
    return f"{limit}: {' + '.join(terms)}"


def _age(state: ClusterState, load: LoadColumns, row: int, is_prod: bool) -> str:
    found = load.rows[row]
    figure = found.of_prod if _is_by_prod(found, is_prod) else found.filtered
    assert figure is not None
    return f"measured {_seconds_ago(state, figure)}, which counts for {load.settings.expires_after_s:g}s"


def _seconds_ago(state: ClusterState, figure: Figure) -> str:
    measured_s = figure.usage.measured_s
    if measured_s < 0:
        return f"at no time that its {figure.usage.source} says"
    return f"{max(0, round(state.loads.now_s - measured_s))}s ago by {figure.usage.source}"
