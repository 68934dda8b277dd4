"""Which resource nodes have too little of for a pod: CPU, memory, or both on one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from koord.overcommit import units
from koord.overcommit.amounts import BATCH, CPUMemory


class _Resource(NamedTuple):
    name: str
    pick: Callable[[CPUMemory], int]
    unit: Callable[[int], str]


_RESOURCES = (
    _Resource(BATCH.cpu, lambda amount: amount.cpu_milli, units.cpu),
    _Resource(BATCH.memory, lambda amount: amount.memory_bytes, units.memory),
)


def shortage(wanted: CPUMemory, nodes: Mapping[str, CPUMemory], verb: str, suffix: str = "") -> str:
    """The resource that no node has enough of, with the most that there is; "" if a node has all of ``wanted``.

    ``verb`` and ``suffix`` are the words about a node: it "offers" an amount, or "has" it "free". Needs a node.
    """
    if any(wanted.meet(each) == wanted for each in nodes.values()):
        return ""
    most = {resource: max(nodes, key=lambda name: resource.pick(nodes[name])) for resource in _RESOURCES}
    figures = {each: f"{each.unit(each.pick(nodes[name]))} on {name}" for each, name in most.items()}
    end = f" {suffix}" if suffix else ""
    scarce = [each for each, name in most.items() if each.pick(nodes[name]) < each.pick(wanted)]
    if scarce:
        return "; ".join(f"no node {verb} as much {each.name}{end}, the most is {figures[each]}" for each in scarce)
    maxima = ", ".join(f"the most {each.name} is {figure}" for each, figure in figures.items())
    return f"no single node {verb} both{end}: {maxima}"
