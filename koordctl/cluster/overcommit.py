"""Explains the offer of a node, term by term, beside what its Node object shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from koord.model.core import Node
from koord.overcommit import amounts, explain, publish
from koord.overcommit.amounts import BATCH, MID, CPUMemory, Names, ParsedAmounts
from koord.overcommit.demand import overallocation
from koord.overcommit.strategy import ColocationStrategy, required
from koordctl.cluster.nodes import WITHOUT_POLICY, absence_of_batch
from koordctl.cluster.state import ClusterState


def page(state: ClusterState, node: Node) -> str:
    """Renders the explanation, without a final line break."""
    return "\n".join(_lines(state, node))


def document(state: ClusterState, node: Node) -> dict[str, Any]:
    """Returns, for programs, what the Node shows, and the lines that explain it."""
    return {
        "node": node.metadata.name,
        "shown": {name: node.status.allocatable[name] for name in (*BATCH, *MID) if name in node.status.allocatable},
        "lines": list(_lines(state, node)),
    }


def _lines(state: ClusterState, node: Node) -> Iterator[str]:
    name, strategy = node.metadata.name, state.strategy(node)
    shown = amounts.read(node.status.allocatable, BATCH)
    yield f"Node {name} shows {_shown(shown, BATCH)}, {_shown(amounts.read(node.status.allocatable, MID), MID)}"
    entry = state.policy.config.colocation.entry(node.metadata.labels)
    source = "the cluster's strategy" if entry is None else f"the entry {entry.name or 'without a name'} of nodeConfigs"
    for each in state.policy.rejected:
        yield f"problem of slo-controller-config: {each.problem}; {each.consequence}"
    for problem in state.problems(node):
        yield f"problem of the Node: {problem}"
    absent = f"{state.absence_of_policy}: {WITHOUT_POLICY}" if state.absence_of_policy else ""
    covered = " but what running pods request" if strategy.covers_running_pods else ""
    disabled = f"colocation is not enabled for it, by {source} in slo-controller-config: it offers nothing{covered}"
    if why := absent or ("" if strategy.enable else disabled):
        yield why
        yield from _over_allocated(state, name, shown)
        return
    yield f"by the formula, now, with {source}:"
    offer = state.offer(node)
    yield from (f"  {line}" for line in explain.lines(offer))
    if not offer.degraded and shown.cpu_milli is None and (why := absence_of_batch(state, node)):
        yield why
    if offer.published_batch is not None:
        yield from _small_differences(shown, offer.published_batch, strategy)
    yield from _over_allocated(state, name, shown)


def _over_allocated(state: ClusterState, name: str, shown: ParsedAmounts) -> Iterator[str]:
    if excess := overallocation(state.held(name), None if shown.cpu_milli is None else shown.filled()):
        yield excess.sentence


def _small_differences(shown: ParsedAmounts, published: CPUMemory, strategy: ColocationStrategy) -> Iterator[str]:
    """Yields what koord-manager leaves as it is: no resource differs enough for both to be written again."""
    share = publish.threshold(required(strategy.resource_diff_threshold))
    figures = (
        (BATCH.cpu, shown.cpu_milli, published.cpu_milli),
        (BATCH.memory, shown.memory_bytes, published.memory_bytes),
    )
    names = [name for name, observed, desired in figures if observed != desired]
    if names and not any(publish.differs(observed, desired, share) for _, observed, desired in figures):
        differ = f"{' and '.join(names)} {'differs' if len(names) == 1 else 'differ'}"
        yield f"{differ} by less than {float(share):.0%}, so what the Node shows may stay for a while"


def _shown(reading: ParsedAmounts, names: Names) -> str:
    cpu = "no" if reading.cpu_milli is None else amounts.cpu_text(reading.cpu_milli)
    memory = "no" if reading.memory_bytes is None else amounts.memory_text(reading.memory_bytes)
    return f"{cpu} {names.cpu} and {memory} {names.memory}"
