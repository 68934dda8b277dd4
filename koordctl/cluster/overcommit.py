"""What a node offers again, term by term, beside what its Node object shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from koord.model.core import Node
from koord.model.overcommit import amounts, difference, explain, units
from koord.model.overcommit.amounts import BATCH, MID, Names, Reading
from koord.model.overcommit.batch import required
from koord.model.overcommit.overallocation import overallocation
from koordctl.cluster.state import ClusterState


def page(state: ClusterState, node: Node) -> str:
    """Without a final line break."""
    return "\n".join(_lines(state, node))


def document(state: ClusterState, node: Node) -> dict[str, Any]:
    """For programs: what the Node shows, and the lines that explain it."""
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
    for problem in state.policy.problems:
        yield f"problem of slo-controller-config: {problem.message}; {problem.consequence}"
    if not strategy.enable:
        yield f"colocation is not enabled for it, by {source} in slo-controller-config: it offers nothing"
        return
    yield f"by the formula, now, with {source}:"
    offer = state.offer(node)
    yield from (f"  {line}" for line in explain.lines(offer))
    published = offer.published_batch
    if published is not None and shown.cpu_milli is not None:
        share = difference.threshold(required(strategy.resource_diff_threshold))
        if not difference.is_significant(shown.cpu_milli, published.cpu_milli, share):
            yield f"{BATCH.cpu} differs by less than {float(share):.0%}, so what the Node shows may stay for a while"
    if excess := overallocation(state.held(name), None if shown.cpu_milli is None else shown.filled()):
        yield excess.sentence


def _shown(reading: Reading, names: Names) -> str:
    cpu = "no" if reading.cpu_milli is None else units.cpu(reading.cpu_milli)
    memory = "no" if reading.memory_bytes is None else units.memory(reading.memory_bytes)
    return f"{cpu} {names.cpu} and {memory} {names.memory}"
