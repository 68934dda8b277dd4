"""What the best set of CPUs is, in words, and the search for it among all sets that there are.

Allowed is every set of exactly as many of the available CPUs as are wanted.

Where whole cores are wanted (``FULL_PCPUS``, or one thread a core), a set is better, the first difference deciding,

1. if it lies on wholly free cores of one NUMA node that no pod of NUMA exclusiveness has, if this one is exclusive so;
   then of any one NUMA node; then of one socket; then any other;
2. of NUMA nodes: by the CPUs that it has on wholly free cores, then by all that are free on its socket, the most first
   (or the fewest, where full places are preferred), then by number; of sockets: by the former, then by number;
3. by its cores: those that fewest pods have first, then the lowest numbers.

Of other sets, with the sockets in the order of their wholly free cores, the largest first: the better set has the
first of them with all of these; then the next, and so on. Of sockets that it has not so, the smallest first: the more
whole cores, the better; of equally many the first by 3. The rest is best

4. with the fewest CPUs that the exclusive policy avoids; then each of its CPUs, the others before these, is to be early
   in this order: first CPUs of all cores before second ones; the cores by how many CPUs of the set are on the socket
   already (most first), by what is free on the socket, then on the NUMA node (most or fewest first, as above), by the
   free threads of the core (fewest first), by socket, by the pods that have it, by number.

Where one of each core is wanted (``SPREAD_BY_PCPUS``), a set is better if it lies on one NUMA node, with none that the
exclusive policy avoids and the first CPU of as many cores; then on one NUMA node; then on one socket with none that a
policy about cores avoids, and the first CPU of as many cores; then on one socket; then any other, by 4. Places come by
what is free on them (without those avoided, in the first and third case; of a socket in the third by cores), CPUs in
turn around the cores, those that fewest pods have first, then the lowest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from koord.model.scheduling.numa import CPUBindPolicy, CPUExclusivePolicy
from koord.model.topologyannotations import LogicalCPU
from koord.scheduling.numa.accumulator import Binding, HeldCPUs

CPUs = frozenset[int]
_Key = tuple[Any, ...]


@dataclass
class Oracle:
    """``cpus``: the node's; ``available``: those that may be taken."""

    cpus: Sequence[LogicalCPU]
    available: CPUs
    binding: Binding
    held: HeldCPUs

    def __post_init__(self) -> None:
        self.of = {cpu.id: cpu for cpu in self.cpus}
        self.core = {cpu.id: cpu.socket << 16 | cpu.core for cpu in self.cpus}
        self.threads = max(sum(self.core[each] == core for each in self.core) for core in self.core.values())
        self.sign = 1 if self.binding.prefers_full else -1
        self.sockets = sorted({cpu.socket for cpu in self.cpus})
        policy = self.binding.exclusive
        self.avoids_cores = policy is CPUExclusivePolicy.PCPU_LEVEL
        self.avoids_numa_nodes = policy is CPUExclusivePolicy.NUMA_NODE_LEVEL
        self.whole = self.on_whole_cores(self.available)

    def best(self, count: int) -> CPUs:
        """Returns the best of all sets of ``count`` CPUs."""
        key = self.of_cores if self.binding.policy is CPUBindPolicy.FULL_PCPUS or self.threads == 1 else self.of_spread
        return min(map(frozenset, combinations(sorted(self.available), count)), key=key)

    # words

    def on_whole_cores(self, cpus: CPUs) -> CPUs:
        return frozenset(
            [cpu for cpu in cpus if sum(self.core[each] == self.core[cpu] for each in cpus) == self.threads]
        )

    def is_avoided(self, cpu: int) -> bool:
        if self.avoids_cores:
            return self.core[cpu] in self.held.exclusive_cores
        return self.avoids_numa_nodes and self.of[cpu].node in self.held.exclusive_numa_nodes

    def uses(self, cpu: int) -> int:
        """How many pods have the CPU."""
        return self.held.counts.get(cpu, 0)

    def uses_of_core(self, cpu: int) -> int:
        return sum(self.uses(each) for each in self.core if self.core[each] == self.core[cpu])

    def by_cores(self, cpus: Iterable[int]) -> _Key:
        return tuple(sorted((self.uses_of_core(cpu), self.core[cpu], cpu) for cpu in cpus))

    def in_socket(self, cpus: CPUs, socket: int) -> CPUs:
        return frozenset([cpu for cpu in cpus if self.of[cpu].socket == socket])

    def in_numa_node(self, cpus: CPUs, numa_node: int) -> CPUs:
        return frozenset([cpu for cpu in cpus if self.of[cpu].node == numa_node])

    def places(self, chosen: CPUs) -> tuple[set[int], set[int]]:
        """The NUMA nodes and the sockets of a set."""
        return {self.of[cpu].node for cpu in chosen}, {self.of[cpu].socket for cpu in chosen}

    # whole cores

    def of_cores(self, chosen: CPUs) -> _Key:
        numa_nodes, sockets = self.places(chosen)
        if not chosen <= self.whole or len(sockets) > 1:
            return self.of_several_sockets(chosen)
        (socket,) = sockets
        if len(numa_nodes) > 1:
            return 2, self.sign * len(self.in_socket(self.whole, socket)), socket, self.by_cores(chosen)
        (numa_node,) = numa_nodes
        minds = self.avoids_numa_nodes and numa_node in self.held.exclusive_numa_nodes
        free = self.in_socket(self.available, socket)
        if self.avoids_numa_nodes and not minds:
            free -= {cpu for cpu in free if self.is_avoided(cpu)}
        size = len(self.in_numa_node(self.whole, numa_node))
        return int(minds), self.sign * size, self.sign * len(free), numa_node, self.by_cores(chosen)

    def of_several_sockets(self, chosen: CPUs) -> _Key:
        size = {socket: len(self.in_socket(self.whole, socket)) for socket in self.sockets}
        largest_first = sorted(self.sockets, key=lambda socket: (-size[socket], socket))
        lacking = [not self.in_socket(self.whole, socket) <= chosen for socket in largest_first]
        complete = frozenset(
            [
                cpu
                for socket, lacks in zip(largest_first, lacking, strict=True)
                if not lacks
                for cpu in self.in_socket(self.whole, socket)
            ]
        )
        others = [socket for socket, lacks in zip(largest_first, lacking, strict=True) if lacks]
        others.sort(key=lambda socket: size[socket])
        cores = [self.in_socket(self.on_whole_cores(chosen & self.whole), socket) for socket in others]
        taken = complete.union(*cores)
        counts = tuple([-len(each) for each in cores])
        return 3, tuple(lacking), counts, tuple(map(self.by_cores, cores)), self.of_rest(chosen - taken, taken)

    # one of each core

    def of_spread(self, chosen: CPUs) -> _Key:
        numa_nodes, sockets = self.places(chosen)
        free = frozenset([cpu for cpu in self.available if not self.is_avoided(cpu)])
        if len(sockets) > 1:
            return 4, self.of_rest(chosen, frozenset())
        (socket,) = sockets
        if len(numa_nodes) == 1:
            (numa_node,) = numa_nodes
            is_first = chosen <= self.firsts(free)
            left = free if is_first else self.available
            listed = self.in_numa_node(left, numa_node)
            order = self.sign * len(listed), self.sign * len(self.in_socket(left, socket)), numa_node
            return 0 if is_first else 1, *order, self.around(chosen, listed)
        free = free if self.avoids_cores else self.available
        if chosen <= self.firsts(free):
            listed = self.in_socket(self.firsts(free), socket)
            return 2, self.sign * len(listed), socket, self.around(chosen, listed)
        listed = self.in_socket(self.available, socket)
        return 3, self.sign * len(listed), socket, self.around(chosen, listed)

    def firsts(self, cpus: CPUs) -> CPUs:
        """The first of ``cpus`` on each core."""
        return frozenset(
            [
                min([each for each in cpus if self.core[each] == core], key=lambda each: (self.uses(each), each))
                for core in {self.core[cpu] for cpu in cpus}
            ]
        )

    def around(self, chosen: CPUs, listed: CPUs) -> _Key:
        """When ``chosen`` come, of those that are listed, in turn around the cores."""
        return tuple(sorted((self.round(cpu, listed), self.uses(cpu), cpu) for cpu in chosen))

    def round(self, cpu: int, listed: CPUs) -> int:
        mine = self.uses(cpu), cpu
        return sum(self.core[each] == self.core[cpu] and (self.uses(each), each) < mine for each in listed)

    # the rest

    def of_rest(self, rest: CPUs, taken: CPUs) -> _Key:
        avoided = frozenset([cpu for cpu in rest if self.is_avoided(cpu)])
        left = self.available - taken
        first = self.order(rest - avoided, left - {cpu for cpu in left if self.is_avoided(cpu)}, taken)
        taken |= rest - avoided
        return len(avoided), first, self.order(avoided, self.available - taken, taken)

    def order(self, chosen: CPUs, free: CPUs, taken: CPUs) -> _Key:
        def place(cpu: int) -> _Key:
            socket, numa_node = self.of[cpu].socket, self.of[cpu].node
            return (
                self.round(cpu, free),
                -len(self.in_socket(taken, socket)),
                self.sign * len(self.in_socket(free, socket)),
                self.sign * len(self.in_numa_node(free, numa_node)),
                sum(self.core[each] == self.core[cpu] for each in free),
                socket,
                self.uses_of_core(cpu),
                self.core[cpu],
                self.uses(cpu),
                cpu,
            )

        return tuple(sorted(map(place, chosen)))
