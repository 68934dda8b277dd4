"""The CPUs of a node: which share a core, a NUMA node, a socket. Sets of CPUs are integers with a bit for each.

Invariant: every CPU is on one core, every core on one NUMA node and one socket. Nodes of equal machines have one
topology, so that it is compared by identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from koord.model.topologyannotations import LogicalCPU

_MOST_TOPOLOGIES = 256
_SOCKET_SHIFT = 16


class Core(NamedTuple):
    """``number``: no other core of the node has it."""

    number: int
    cpus: int
    numa_node: int
    socket: int


class CPUTopology:
    """``cpus``: all of them. ``threads``: the CPUs of the largest core: one with fewer is never a whole one.
    ``numa_nodes``, ``sockets``: the CPUs of each, by its number.
    """

    def __init__(self, cpus: Iterable[LogicalCPU]) -> None:
        """Of a CPU that is named twice the first counts; a core is where its first CPU is."""
        by_core: dict[int, Core] = {}
        self.core_of: dict[int, Core] = {}
        for cpu in sorted(cpus, key=lambda each: each.id):
            number = cpu.socket << _SOCKET_SHIFT | cpu.core
            core = by_core.get(number, Core(number, 0, cpu.node, cpu.socket))
            by_core[number] = core._replace(cpus=core.cpus | 1 << cpu.id)
        self.cores = tuple([by_core[number] for number in sorted(by_core)])
        self.cpus = 0
        numa_nodes: dict[int, int] = {}
        sockets: dict[int, int] = {}
        self.socket_of: dict[int, int] = {}
        """By NUMA node."""
        for core in self.cores:
            self.cpus |= core.cpus
            numa_nodes[core.numa_node] = numa_nodes.get(core.numa_node, 0) | core.cpus
            sockets[core.socket] = sockets.get(core.socket, 0) | core.cpus
            self.socket_of[core.numa_node] = core.socket
            self.core_of.update(dict.fromkeys(members(core.cpus), core))
        self.numa_nodes = dict(sorted(numa_nodes.items()))
        self.sockets = dict(sorted(sockets.items()))
        self.threads = max((core.cpus.bit_count() for core in self.cores), default=0)
        self.most_in_numa_node = max((cpus.bit_count() for cpus in self.numa_nodes.values()), default=0)
        self.most_in_socket = max((cpus.bit_count() for cpus in self.sockets.values()), default=0)

    def whole_cores(self, cpus: int) -> int:
        """Returns those of ``cpus`` whose core is among them with all of its threads."""
        found = 0
        for core in self.cores:
            if core.cpus & cpus == core.cpus and core.cpus.bit_count() == self.threads:
                found |= core.cpus
        return found

    def one_of_each_core(self, cpus: int) -> int:
        """Returns the lowest of ``cpus`` on each core."""
        found = 0
        for core in self.cores:
            on_core = core.cpus & cpus
            found |= on_core & -on_core
        return found


@lru_cache(_MOST_TOPOLOGIES)
def topology_of(cpus: tuple[LogicalCPU, ...]) -> CPUTopology | None:
    """Returns the topology; None where there is no CPU."""
    return CPUTopology(cpus) if cpus else None


def members(cpus: int) -> Iterator[int]:
    """Yields the numbers of the CPUs, ascending."""
    while cpus:
        lowest = cpus & -cpus
        yield lowest.bit_length() - 1
        cpus ^= lowest
