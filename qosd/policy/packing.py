"""Which CPUs kubelet takes where it needs some: as many as it may from one place, the lowest numbers first.

kubelet's static CPU manager chooses its reserved CPUs in this way (cpu_assignment.go, the packed algorithm, on a node
where all CPUs are free): whole NUMA nodes and sockets, then whole cores, then single CPUs; places with fewer CPUs come
first, then lower numbers. Where a node reserves a number of CPUs without saying which, the same ones are meant. Pure.
Invariant: exactly ``count`` CPUs, or all of them if there are not so many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from koord.host.topology import CPU, Topology
from koord.model.cpuset import CPUSet

Level = Callable[[CPU], int]
"""The place of a CPU, by number: its NUMA node, socket or core."""


def take(topology: Topology, count: int, across_cores: bool = False) -> CPUSet:
    """Returns ``count`` CPUs as kubelet takes them.

    ``across_cores``: kubelet's option ``distribute-cpus-across-cores``, by which a core's CPUs may be parted.
    """
    if count >= len(topology.cpus):
        return topology.online
    packing = _Packing(topology, count)
    outer, inner = packing.levels
    packing.take_places([outer])
    packing.take_places([outer, inner])
    if not across_cores:
        packing.take_places([outer, inner, _core])
    packing.take_single([outer, inner, _core] if not across_cores else packing.across)
    return CPUSet.of(packing.taken)


def _core(cpu: CPU) -> int:
    return cpu.core


def _socket(cpu: CPU) -> int:
    return cpu.socket


def _node(cpu: CPU) -> int:
    return cpu.node


class _Packing:
    """``count``: how many CPUs are still to be taken."""

    def __init__(self, topology: Topology, count: int) -> None:
        self._all = topology.cpus
        self._free = {cpu.id: cpu for cpu in topology.cpus}
        self._count = count
        self.taken: list[int] = []

    @property
    def levels(self) -> tuple[Level, Level]:
        """Returns the two outer levels, the outermost first: NUMA nodes, unless sockets have several."""
        has_many = len(_places(self._all, _node)) > len(_places(self._all, _socket))
        return (_socket, _node) if has_many else (_node, _socket)

    @property
    def across(self) -> Sequence[Level]:
        return (_node, _socket) if self.levels[0] is _node else (_socket,)

    def take_places(self, levels: Sequence[Level]) -> None:
        """Takes whole places of the last of ``levels``, as long as one fits."""
        for place in self._in_order(levels):
            if len(place) <= self._count and self._is_whole(place, levels[-1]):
                self._take(place)

    def take_single(self, levels: Sequence[Level]) -> None:
        for place in self._in_order(levels):
            self._take(place[: self._count])

    def _is_whole(self, place: Sequence[CPU], level: Level) -> bool:
        """Returns whether kubelet takes the place as whole: of cores and sockets, only those of the usual size."""
        if level is _node:
            return True
        return len(place) == len(self._all) // len(_places(self._all, level))

    def _take(self, cpus: Iterable[CPU]) -> None:
        for cpu in cpus:
            del self._free[cpu.id]
            self.taken.append(cpu.id)
            self._count -= 1

    def _in_order(self, levels: Sequence[Level]) -> list[list[CPU]]:
        """Returns the places of the last level, grouped by the levels before it; smaller ones first in each group."""
        found = [list(self._free.values())]
        for level in levels:
            found = [place for above in found for place in sorted(_places(above, level), key=_size_and_number(level))]
        return [sorted(place, key=lambda cpu: cpu.id) for place in found]


def _size_and_number(level: Level) -> Callable[[list[CPU]], tuple[int, int]]:
    return lambda place: (len(place), level(place[0]))


def _places(cpus: Iterable[CPU], level: Level) -> list[list[CPU]]:
    found: dict[int, list[CPU]] = {}
    for cpu in cpus:
        found.setdefault(level(cpu), []).append(cpu)
    return list(found.values())
