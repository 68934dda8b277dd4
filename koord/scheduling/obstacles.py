"""Why a pod waits, by the state as it is now, with figures, and what would help it.

A node counts for the first plugin that rejects it, as in `Diagnosis`, so the counts are those of the pod's condition.
What would help is said of nodes that one plugin alone keeps from the pod: whatever else is changed, they stay as near.
Costs what a diagnosis costs, and some explanations of single nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from koord.model.readable import amount as text
from koord.scheduling.framework import Framework
from koord.scheduling.plugin import Plugin, Rejection
from koord.scheduling.plugins.elasticquota import ElasticQuota
from koord.scheduling.plugins.nodes import NodeAffinity, NodeUnschedulable, TaintToleration
from koord.scheduling.plugins.resources import NodeResourcesFit
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.table import Bools, Int64s

_MOST_EXAMPLES = 3


class Obstacle(NamedTuple):
    """``node_count``: nodes that ``plugin`` rejects for ``reason`` and none before it. ``examples``: some of them, with
    figures. ``is_of_pod``: it is the pod's own, whatever the nodes; ``examples`` are then its quotas, if it is for one.
    """

    plugin: str
    reason: str
    node_count: int
    examples: tuple[tuple[str, str], ...] = ()
    is_of_pod: bool = False


class Obstacles(NamedTuple):
    """``node_count``: all nodes; ``feasible_count``: those that would do now. ``helps``: sentences, best first."""

    node_count: int
    feasible_count: int
    found: tuple[Obstacle, ...]
    helps: tuple[str, ...]


class _Rejected(NamedTuple):
    """What one plugin rejects. ``rows``: bool[N], whatever others do."""

    plugin: Plugin
    rejections: Sequence[Rejection]
    rows: Bools


def of(framework: Framework, pod: PodInfo) -> Obstacles:
    """Says what keeps the pod from which nodes."""
    state = framework.state
    exists, count = state.table.exists, len(state.table)
    rejected = []
    for plugin in framework.filters:
        rejections = plugin.rejections(state, pod)
        for each in rejections:
            if each.is_of_pod:
                if isinstance(plugin, ElasticQuota):
                    figures = tuple(plugin.figures(state, pod))
                    found = Obstacle(plugin.name, each.reason, count, figures, True)
                    return Obstacles(count, 0, (found,), tuple(plugin.helps(state, pod)))
                return Obstacles(count, 0, (Obstacle(plugin.name, each.reason, count, (), True),), (each.reason,))
        rows = np.zeros(state.length, np.bool_)
        for each in rejections:
            rows |= each.rows & exists
        if rows.any():
            rejected.append(_Rejected(plugin, rejections, rows))
    feasible = framework.feasible(pod)
    helps = () if feasible.any() else tuple(_helps(framework, pod, rejected))
    return Obstacles(count, int(np.count_nonzero(feasible)), tuple(_found(framework, pod, rejected)), helps)


def _found(framework: Framework, pod: PodInfo, rejected: Sequence[_Rejected]) -> Iterator[Obstacle]:
    left = framework.state.table.exists.copy()
    for plugin, rejections, rows in rejected:
        for each in rejections:
            of_reason = np.flatnonzero(each.rows & left)
            if len(of_reason):
                examples = _examples(framework, pod, plugin, each.reason, of_reason)
                yield Obstacle(plugin.name, each.reason, len(of_reason), examples)
        left &= ~rows


def _examples(
    framework: Framework, pod: PodInfo, plugin: Plugin, reason: str, rows: Int64s
) -> tuple[tuple[str, str], ...]:
    state = framework.state
    if isinstance(plugin, NodeResourcesFit):
        rows = rows[np.argsort(_lacks(framework, pod, plugin, rows), kind="stable")]
    found = []
    for row in rows[:_MOST_EXAMPLES].tolist():
        if isinstance(plugin, NodeResourcesFit):
            detail = ", ".join(_fit_details(framework, pod, plugin, row))
        else:
            said = plugin.explain(state, pod, row, state.table.exists)
            detail = next((each.detail for each in said.reasons if each.text == reason), "")
        found.append((state.table.name(row), detail))
    return tuple(found)


# what helps


def _helps(framework: Framework, pod: PodInfo, rejected: Sequence[_Rejected]) -> Iterator[str]:
    """Sentences of the nodes that one plugin alone rejects, the plugin with most of them first."""
    if not len(framework.state.table):
        yield "a node: there is none"
        return
    count = np.zeros(framework.state.length, np.int64)
    for each in rejected:
        count += each.rows
    promised = np.flatnonzero(framework.state.table.exists & (count == 0))
    if len(promised):
        names = _names(framework, promised)
        yield f"{_nodes(len(promised))} would do but for pods that have room promised there ({names})"
    alone = [(each.plugin, np.flatnonzero(each.rows & (count == 1))) for each in rejected]
    for plugin, rows in sorted(alone, key=lambda each: -len(each[1])):
        if isinstance(plugin, NodeResourcesFit):
            yield from _room(framework, pod, plugin, rows)
        elif len(rows):
            yield _without(framework, pod, plugin, rows)
    if not len(promised) and all(len(rows) == 0 for _, rows in alone):
        names = ", ".join(each.plugin.name for each in rejected)
        yield f"more than one change: every node is rejected by several of {names}"


def _without(framework: Framework, pod: PodInfo, plugin: Plugin, rows: Int64s) -> str:
    """A sentence about nodes that would do but for ``plugin``."""
    state, names = framework.state, _names(framework, rows)
    details = dict.fromkeys(
        each.detail or each.text
        for row in rows[:_MOST_EXAMPLES].tolist()
        for each in plugin.explain(state, pod, row, state.table.exists).reasons
    )
    nodes, said = _nodes(len(rows)), "; ".join(details)
    if isinstance(plugin, NodeUnschedulable):
        return f"{nodes} would do but for being cordoned: kubectl uncordon {state.table.name(int(rows[0]))} ({names})"
    if isinstance(plugin, TaintToleration):
        return f"{nodes} would do but for a taint, which the pod may tolerate: {said} ({names})"
    if isinstance(plugin, NodeAffinity):
        return f"{nodes} would do but for the pod's node selector or affinity: {said} ({names})"
    return f"{nodes} would do but for {plugin.name}: {said} ({names})"


def _room(framework: Framework, pod: PodInfo, plugin: NodeResourcesFit, alone: Int64s) -> Iterator[str]:
    """Sentences about amounts. ``alone``: the nodes that lack nothing else."""
    state, needed = framework.state, plugin.needed(pod)
    largest = {each: int(np.max(_column(framework, each, state.length))) for each in needed}
    for resource, amount in needed.items():
        if amount > largest[resource]:
            most = (
                "no node has any" if not largest[resource] else f"the largest has {text(resource, largest[resource])}"
            )
            yield f"larger nodes, or a smaller request: the pod asks for {text(resource, amount)} {resource}, {most}"
    if not len(alone) or any(amount > largest[each] for each, amount in needed.items()):
        return
    asked = " and ".join(f"{text(each, amount)} {each}" for each, amount in pod.requests.items())
    wanted = f"a node with {asked} free" if asked else "a node that takes one more pod"
    nearest = int(alone[int(np.argmin(_lacks(framework, pod, plugin, alone)))])
    lacking = " and ".join(
        f"{text(each, amount - _free(framework, each, nearest))} {each}"
        for each, amount in needed.items()
        if amount > _free(framework, each, nearest)
    )
    yield f"{wanted}: of {_nodes(len(alone))} that would do else, {state.table.name(nearest)} lacks least: {lacking}"


def _lacks(framework: Framework, pod: PodInfo, plugin: NodeResourcesFit, rows: Int64s) -> Int64s:
    """int64[len(rows)]: how much of what the pod needs each node lacks, in thousandths, all resources together."""
    state = framework.state
    total = np.zeros(len(rows), np.int64)
    for resource, amount in plugin.needed(pod).items():
        requested = state.requested.of(resource)
        free = _column(framework, resource, state.length)[rows] - (0 if requested is None else requested[rows])
        total += np.clip(amount - free, 0, None) * 1000 // max(amount, 1)
    return total


def _fit_details(framework: Framework, pod: PodInfo, plugin: NodeResourcesFit, row: int) -> Iterator[str]:
    for resource, amount in plugin.needed(pod).items():
        free, most = _free(framework, resource, row), framework.state.nodes.allocatable.at(row, resource)
        if amount > free:
            lacks = text(resource, amount - free)
            yield f"{text(resource, free)} of {text(resource, most)} {resource} free, lacks {lacks}"


def _column(framework: Framework, resource: str, length: int) -> Int64s:
    found = framework.state.nodes.allocatable.of(resource)
    return np.zeros(length, np.int64) if found is None else found


def _free(framework: Framework, resource: str, row: int) -> int:
    state = framework.state
    return state.nodes.allocatable.at(row, resource) - state.requested.at(row, resource)


# words


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _names(framework: Framework, rows: Int64s) -> str:
    names = [framework.state.table.name(row) for row in rows[: _MOST_EXAMPLES + 1].tolist()]
    more = len(rows) - _MOST_EXAMPLES
    return ", ".join(names[:_MOST_EXAMPLES]) + (f" and {more} more" if more > 0 else "")
