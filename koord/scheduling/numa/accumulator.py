"""Which of a node's free CPUs a pod gets: near each other, whole cores or one of each, as its policies say.

The choice is upstream's, step by step. First of all the CPUs of one NUMA node are taken, else of one socket, else of as
few sockets as the steps below find. A pod's exclusive policy decides between equal places only: it is dropped before a
NUMA node is. Of equal places the lowest numbers win, so equal inputs have equal results.

A request that there are enough free CPUs for is always met, with exactly as many CPUs. What a required policy allows is
for the caller to leave in ``available``, see `allowed`.
Source: Koordinator, pkg/scheduler/plugins/nodenumaresource/cpu_accumulator.go. Differs where that gives a pod more CPUs
than it requests: an odd number, in cores of three sockets; and a core with a thread that is offline is no whole one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from koord.model.scheduling.numa import CPUBindPolicy, CPUExclusivePolicy
from koord.scheduling.numa.topology import Core, CPUTopology, members

_NO_COUNTS: Mapping[int, int] = {}


class Binding(NamedTuple):
    """``policy``: ``FULL_PCPUS`` or ``SPREAD_BY_PCPUS``. ``is_required``: the policy is more than a wish.

    ``prefers_full``: of NUMA nodes and sockets with enough, those come first that have the least left.
    """

    policy: CPUBindPolicy
    is_required: bool = False
    exclusive: CPUExclusivePolicy = CPUExclusivePolicy.NONE
    prefers_full: bool = False


class HeldCPUs(NamedTuple):
    """What pods have. ``exclusive_cores``, ``exclusive_numa_nodes``: the numbers of those that pods of the exclusive
    policies have CPUs of. ``counts``: how many pods have a CPU, where one may have several; {} where one may not.
    """

    exclusive_cores: frozenset[int] = frozenset()
    exclusive_numa_nodes: frozenset[int] = frozenset()
    counts: Mapping[int, int] = _NO_COUNTS


_NOTHING_HELD = HeldCPUs()


def allowed(topology: CPUTopology, available: int, binding: Binding) -> int:
    """Returns those of ``available`` that the policy allows: of a required one whole cores, or one CPU of each core."""
    if not binding.is_required:
        return available
    if binding.policy is CPUBindPolicy.FULL_PCPUS:
        return topology.whole_cores(available)
    return topology.one_of_each_core(available)


def take(topology: CPUTopology, available: int, count: int, binding: Binding, held: HeldCPUs = _NOTHING_HELD) -> int:
    """Returns ``count`` of the CPUs ``available``. Raises ValueError where there are not enough."""
    if available.bit_count() < count:
        raise ValueError(f"{count} CPUs of {available.bit_count()}")
    return _Accumulator(topology, available, binding, held).take(count) if count > 0 else 0


class _Accumulator:
    def __init__(self, topology: CPUTopology, available: int, binding: Binding, held: HeldCPUs) -> None:
        self._topology, self._available, self._binding, self._held = topology, available, binding, held
        self._sign = 1 if binding.prefers_full else -1

    def take(self, count: int) -> int:
        is_full, topology = self._binding.policy is CPUBindPolicy.FULL_PCPUS, self._topology
        taken = 0
        if is_full or topology.threads == 1:
            for places in self._places_of_whole_cores(count):
                for cpus in places:
                    if len(cpus) >= count:
                        return _mask(cpus[:count])
            taken = self._whole_cores_across_sockets(count)
        else:
            for places in self._places_of_spread_cpus(count):
                for cpus in places:
                    if len(cpus) >= count:
                        return _mask(self._around_cores(cpus)[:count])
        for avoids in (True, False):
            missing = count - taken.bit_count()
            taken |= _mask(self._around_cores(self._near(taken, avoids))[:missing])
        return taken

    # whole cores

    def _places_of_whole_cores(self, count: int) -> Iterator[Iterable[Sequence[int]]]:
        """Yields the CPUs of each place, best first, on its whole cores: NUMA nodes, then sockets."""
        if count <= self._topology.most_in_numa_node:
            for avoids in (True, False):
                free = self._available
                if avoids and self._binding.exclusive is CPUExclusivePolicy.NUMA_NODE_LEVEL:
                    free &= ~self._in_exclusive_numa_nodes()
                yield self._whole_cores_of_numa_nodes(free)
        if count <= self._topology.most_in_socket:
            yield self._sorted_by_length(self._whole_cores_of_sockets().items())

    def _whole_cores_of_numa_nodes(self, free: int) -> list[list[int]]:
        whole = self._topology.whole_cores(free)
        sizes = {socket: (cpus & free).bit_count() for socket, cpus in self._topology.sockets.items()}
        found = []
        for numa_node, cpus in self._topology.numa_nodes.items():
            listed = self._core_by_core(cpus & whole)
            size = sizes[self._topology.socket_of[numa_node]]
            found.append(((self._sign * len(listed), self._sign * size, numa_node), listed))
        return [listed for _, listed in sorted(found)]

    def _whole_cores_of_sockets(self) -> dict[int, list[int]]:
        whole = self._topology.whole_cores(self._available)
        return {socket: self._core_by_core(cpus & whole) for socket, cpus in self._topology.sockets.items()}

    def _whole_cores_across_sockets(self, count: int) -> int:
        """Returns up to ``count`` CPUs: sockets that are needed with all that they have, the largest first; then cores
        of the others, the smallest first.
        """
        taken, others = 0, []
        by_size = sorted(self._whole_cores_of_sockets().items(), key=lambda each: (-len(each[1]), each[0]))
        for _, cpus in by_size:
            if len(cpus) <= count - taken.bit_count():
                taken |= _mask(cpus)
            else:
                others.append(cpus)
        for cpus in sorted(others, key=len):
            cores = (count - taken.bit_count()) // self._topology.threads
            taken |= _mask(cpus[: cores * self._topology.threads])
        return taken

    def _core_by_core(self, cpus: int) -> list[int]:
        """Lists CPUs that are whole cores, those first that fewest pods have, then the lowest."""
        cores = [core for core in self._topology.cores if core.cpus & cpus]
        if self._held.counts:
            cores.sort(key=lambda core: (self._uses(core), core.number))
        return [cpu for core in cores for cpu in members(core.cpus)]

    # one of each core

    def _places_of_spread_cpus(self, count: int) -> Iterator[Iterable[Sequence[int]]]:
        """Yields the CPUs of each place, best first: NUMA nodes, then sockets. Each of them first without the CPUs that
        the exclusive policy avoids, and with no more than one of each core.
        """
        topology = self._topology
        if count <= topology.most_in_numa_node:
            for avoids in (True, False):
                free = self._available & ~self._avoided() if avoids else self._available
                sizes = {socket: (cpus & free).bit_count() for socket, cpus in topology.sockets.items()}
                found = []
                for numa_node, cpus in topology.numa_nodes.items():
                    order = self._sign * (cpus & free).bit_count(), self._sign * sizes[topology.socket_of[numa_node]]
                    found.append(((*order, numa_node), self._listed(cpus & free, avoids)))
                yield [listed for _, listed in sorted(found)]
        if count <= topology.most_in_socket:
            for avoids in (True, False):
                free = self._available
                if avoids and self._binding.exclusive is CPUExclusivePolicy.PCPU_LEVEL:
                    free &= ~self._avoided()
                yield self._sorted_by_length(
                    [(socket, self._listed(cpus & free, avoids)) for socket, cpus in topology.sockets.items()]
                )

    def _listed(self, cpus: int, one_of_each_core: bool) -> list[int]:
        """Lists CPUs, those first that fewest pods have, then the lowest."""
        found = list(members(cpus))
        if counts := self._held.counts:
            found.sort(key=lambda cpu: (counts.get(cpu, 0), cpu))
        if one_of_each_core:
            first: dict[int, int] = {}
            for cpu in found:
                first.setdefault(self._topology.core_of[cpu].number, cpu)
            found = list(first.values())
        return found

    def _around_cores(self, cpus: Sequence[int]) -> list[int]:
        """Lists the first CPU of each core, then the second of each, and so on."""
        rounds: dict[int, int] = {}
        order = []
        for place, cpu in enumerate(cpus):
            core = self._topology.core_of[cpu].number
            rounds[core] = rounds.get(core, 0) + 1
            order.append((rounds[core], place, cpu))
        return [cpu for _, _, cpu in sorted(order)]

    # what is left

    def _near(self, taken: int, avoids: bool) -> list[int]:
        """Lists the CPUs that are free beside ``taken``: those on sockets that most of them are on first."""
        free = self._available & ~taken
        if avoids:
            free &= ~self._avoided()
        topology, sign = self._topology, self._sign
        on_socket = {socket: (cpus & free).bit_count() for socket, cpus in topology.sockets.items()}
        on_numa_node = {numa_node: (cpus & free).bit_count() for numa_node, cpus in topology.numa_nodes.items()}
        taken_on = {socket: (cpus & taken).bit_count() for socket, cpus in topology.sockets.items()}

        def rank(core: Core) -> tuple[int, ...]:
            return (
                -taken_on[core.socket],
                sign * on_socket[core.socket],
                sign * on_numa_node[core.numa_node],
                (core.cpus & free).bit_count(),
                core.socket,
                self._uses(core),
                core.number,
            )

        cores = sorted([core for core in topology.cores if core.cpus & free], key=rank)
        return [cpu for core in cores for cpu in self._listed(core.cpus & free, False)]

    def _uses(self, core: Core) -> int:
        counts = self._held.counts
        return sum([counts.get(cpu, 0) for cpu in members(core.cpus)]) if counts else 0

    # exclusive policies

    def _avoided(self) -> int:
        """The CPUs that the pod's exclusive policy would rather not have."""
        if self._binding.exclusive is CPUExclusivePolicy.PCPU_LEVEL:
            cores = self._held.exclusive_cores
            return _union([core.cpus for core in self._topology.cores if core.number in cores])
        if self._binding.exclusive is CPUExclusivePolicy.NUMA_NODE_LEVEL:
            return self._in_exclusive_numa_nodes()
        return 0

    def _in_exclusive_numa_nodes(self) -> int:
        numa_nodes = self._held.exclusive_numa_nodes
        return _union([cpus for number, cpus in self._topology.numa_nodes.items() if number in numa_nodes])

    def _sorted_by_length(self, places: Iterable[tuple[int, list[int]]]) -> list[list[int]]:
        """``places``: of each its number, and its CPUs."""
        return [cpus for _, cpus in sorted(places, key=lambda each: (self._sign * len(each[1]), each[0]))]


def _mask(cpus: Iterable[int]) -> int:
    found = 0
    for cpu in cpus:
        found |= 1 << cpu
    return found


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found
