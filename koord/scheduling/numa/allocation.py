"""What a pod gets on one node: which CPUs, and how much of which NUMA node.

Everything here is a function of a `NodeView` and a `Request`, so that nodes that are alike have one answer.
Amounts of CPU that pods see may be more than there are (``ratio_percent``): one of a pod's own CPUs costs as much as it
stands for, and a pod without has what it requests.

Sources: Koordinator, pkg/scheduler/plugins/nodenumaresource: resource_manager.go, node_allocation.go, util.go. Differs
in that a NUMA node that has too few free CPUs for its part leaves the rest to the next; that NUMA nodes are sorted by
what they have, not by what others in their place have; and that a pod's own CPUs cost on a NUMA node what they cost on
the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from koord.model.priority import CPU
from koord.model.scheduling.numa import (
    CPUBindPolicy,
    NodeCPUBindPolicy,
    NUMAAllocateStrategy,
    NUMATopologyPolicy,
)
from koord.scheduling.numa import accumulator, topologymanager
from koord.scheduling.numa.accumulator import Binding, HeldCPUs
from koord.scheduling.numa.podrequest import MILLI, Allocation, Amounts, Request
from koord.scheduling.numa.topology import CPUTopology, members
from koord.scheduling.numa.topologymanager import Hint, Hints, Keeping, Refusal

NOT_ENOUGH_CPUS = "not enough cpus available to satisfy request"
NO_NUMA_NODES = "insufficient resources on NUMA Node"
PLAIN = 100
"""A ratio of one."""
Scorer = Callable[[Mapping[str, int], Mapping[str, int], Mapping[str, int]], int]
"""Of what is requested of each resource, the pod's part among it; of what there is; and of the pod's part: 0 to 100."""


class Reserved(NamedTuple):
    """CPUs that pods do not get, and by whose word."""

    by: str
    cpus: int


class NodeSettings(NamedTuple):
    """What a node is. ``topology`` None: its CPUs are not known. ``capacity``: by NUMA node, as pods see it."""

    topology: CPUTopology | None = None
    reserved: tuple[Reserved, ...] = ()
    bind_policy: NodeCPUBindPolicy = NodeCPUBindPolicy.NONE
    strategy: NUMAAllocateStrategy | None = None
    topology_policy: NUMATopologyPolicy = NUMATopologyPolicy.NONE
    ratio_percent: int = PLAIN
    capacity: tuple[tuple[int, Amounts], ...] = ()

    @property
    def unreserved(self) -> int:
        """The CPUs that pods may get."""
        found = self.topology.cpus if self.topology else 0
        for each in self.reserved:
            found &= ~each.cpus
        return found

    @property
    def is_special(self) -> bool:
        """Returns whether pods that wish for nothing have to do with it, too."""
        return (
            self.bind_policy is not NodeCPUBindPolicy.NONE
            or self.topology_policy is not NUMATopologyPolicy.NONE
            or self.ratio_percent > PLAIN
        )

    @property
    def numa_nodes(self) -> int:
        """All NUMA nodes, a bit for each."""
        return sum([1 << number for number, _ in self.capacity])


class Use(NamedTuple):
    """What pods have of a node. ``held``: CPUs of some pod. ``amounts``: by NUMA node, as pods request them."""

    held: int = 0
    exclusive_cores: frozenset[int] = frozenset()
    exclusive_numa_nodes: frozenset[int] = frozenset()
    keeping: Keeping = Keeping()
    amounts: tuple[tuple[int, Amounts], ...] = ()


class NodeView:
    """A node as decisions see it. Equal ones are decided alike; the hash is kept."""

    __slots__ = ("_hash", "free", "settings", "use")

    def __init__(self, settings: NodeSettings, use: Use) -> None:
        self.settings, self.use = settings, use
        self.free = settings.unreserved & ~use.held
        self._hash = hash((settings, use))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeView) and (self.settings, self.use) == (other.settings, other.use)


def amplified(amount: int, ratio_percent: int) -> int:
    """Returns what ``amount`` stands for."""
    return -(-amount * ratio_percent // PLAIN) if ratio_percent > PLAIN else amount


def required_policy(policy: NodeCPUBindPolicy, request: Request) -> CPUBindPolicy | None:
    """Returns the policy that has to hold on a node with this one: the node's before the pod's."""
    match policy:
        case NodeCPUBindPolicy.FULL_PCPUS_ONLY:
            return CPUBindPolicy.FULL_PCPUS
        case NodeCPUBindPolicy.SPREAD_BY_PCPUS:
            return CPUBindPolicy.SPREAD_BY_PCPUS
        case _:
            return request.required


def binding_of(settings: NodeSettings, request: Request, prefers_full: bool) -> Binding | None:
    """Returns how the pod's CPUs lie on the node; None: it gets none of its own there.

    ``prefers_full``: of nodes that say no strategy.
    """
    is_forced = settings.bind_policy is not NodeCPUBindPolicy.NONE and request.cpu_milli > 0
    if not request.binds and not is_forced:
        return None
    required = required_policy(settings.bind_policy, request)
    if settings.strategy is not None:
        prefers_full = settings.strategy is NUMAAllocateStrategy.MOST_ALLOCATED
    return Binding(required or request.policy, required is not None, request.exclusive, prefers_full)


class Trial:
    """What one pod could get on one node. ``binding`` None: no CPUs of its own."""

    def __init__(self, view: NodeView, request: Request, binding: Binding | None) -> None:
        self._view, self._request, self._binding = view, request, binding
        self._topology = view.settings.topology
        self._capacity = {number: dict(amounts) for number, amounts in view.settings.capacity}
        self._names = {name for amounts in self._capacity.values() for name in amounts}
        self._allowed = 0
        if binding is not None and self._topology is not None:
            self._allowed = accumulator.allowed(self._topology, view.free, binding)
        self._used = {number: self._used_of(number) for number in self._capacity}
        self._available = {number: self._available_of(number) for number in self._capacity}

    def admit(self, policy: NUMATopologyPolicy, score: Scorer) -> Allocation | str:
        """Returns what the pod gets by the policy, which is not ``NONE``, or why it gets nothing."""
        found = self.hints(policy is NUMATopologyPolicy.RESTRICTED, score)
        if isinstance(found, str):
            return found
        keeping = self._view.use.keeping if self._request.keeps_apart else None
        affinity = topologymanager.admit(policy, [found], self._view.settings.numa_nodes, keeping)
        return affinity.reason if isinstance(affinity, Refusal) else self.allocate(affinity.numa_nodes)

    def allocate(self, numa_nodes: int | None = None) -> Allocation | str:
        """Returns what the pod gets of these NUMA nodes, or why it gets nothing. None: of the node, of none of them."""
        parts: dict[int, dict[str, int]] | str = {} if numa_nodes is None else self._split(list(members(numa_nodes)))
        if isinstance(parts, str):
            return parts
        cpus = 0
        if self._binding is not None:
            count = self._request.cpu_milli // MILLI
            if self._topology is None or self._allowed.bit_count() < count:
                return NOT_ENOUGH_CPUS
            for number, amounts in parts.items():
                cpus |= self._take(self._cpus_of(number), amounts.get(CPU, 0) // MILLI)
            cpus |= self._take(self._allowed & ~cpus, count - cpus.bit_count())
        by_number = [(number, tuple(sorted(amounts.items()))) for number, amounts in sorted(parts.items())]
        return Allocation(cpus, tuple(by_number), self._request.exclusive)

    def hints(self, restricted: bool, score: Scorer) -> Hints | str:
        """Returns from which NUMA nodes the pod could have each resource that any has, or why there are none.

        ``restricted``: each of them is as good as those with fewer NUMA nodes.
        """
        if not self._capacity:
            return NO_NUMA_NODES
        found: dict[str, list[tuple[int, int]]] = {name: [] for name, _ in self._request.amounts if name in self._names}
        for size in range(1, len(self._capacity) + 1):
            for numbers in combinations(self._capacity, size):
                if isinstance(self._split(numbers), str):
                    continue
                numa_nodes, scored = sum([1 << number for number in numbers]), self.score(numbers, score)
                for name, masks in found.items():
                    if all(self._available[number].get(name) for number in numbers):
                        masks.append((numa_nodes, scored))
        least = {name: min((mask.bit_count() for mask, _ in masks), default=0) for name, masks in found.items()}
        return {
            name: tuple([Hint(mask, restricted or mask.bit_count() == least[name], scored) for mask, scored in masks])
            for name, masks in found.items()
        }

    def score(self, numbers: Iterable[int], score: Scorer) -> int:
        """Returns the score of these NUMA nodes with the pod on them."""
        own = dict(self._request.amounts)
        if self._binding is not None:
            own[CPU] = amplified(own[CPU], self._view.settings.ratio_percent)
        requested, capacity = dict(own), dict[str, int]()
        for number in numbers:
            for name, amount in self._capacity[number].items():
                capacity[name] = capacity.get(name, 0) + amount
                requested[name] = requested.get(name, 0) + min(self._used[number].get(name, 0), amount)
        return score(requested, capacity, own)

    def _used_of(self, number: int) -> dict[str, int]:
        """What pods have of the NUMA node, as it costs: their own CPUs by what they stand for."""
        use, ratio_percent = self._view.use, self._view.settings.ratio_percent
        used = dict(next((amounts for each, amounts in use.amounts if each == number), ()))
        if ratio_percent > PLAIN and self._topology is not None:
            held = MILLI * (use.held & self._topology.numa_nodes.get(number, 0)).bit_count()
            used[CPU] = max(used.get(CPU, 0) - held, 0) + amplified(held, ratio_percent)
        return used

    def _available_of(self, number: int) -> dict[str, int]:
        """What the NUMA node has left for the pod."""
        used = self._used[number]
        left = {name: max(amount - used.get(name, 0), 0) for name, amount in self._capacity[number].items()}
        if self._binding is not None and CPU in left:
            left[CPU] = left[CPU] * PLAIN // max(self._view.settings.ratio_percent, PLAIN)
            if self._binding.is_required:
                left[CPU] = min(left[CPU], MILLI * self._cpus_of(number).bit_count())
        return left

    def _cpus_of(self, number: int) -> int:
        """The CPUs of the NUMA node that the pod may have."""
        return 0 if self._topology is None else self._allowed & self._topology.numa_nodes.get(number, 0)

    def _split(self, numbers: Sequence[int]) -> dict[int, dict[str, int]] | str:
        """Returns the parts of the request by NUMA node, or why these do not have it together.

        Each resource is divided evenly, from the one with least of it on: what that lacks is left to the others.
        """
        parts: dict[int, dict[str, int]] = {}
        lacking = []
        for name, amount in self._request.amounts:
            if name not in self._names:
                continue
            unit, left = self._unit(name), amount
            ascending = sorted(numbers, key=lambda number: (self._available[number].get(name, 0), number))
            for place, number in enumerate(ascending):
                most = self._available[number].get(name, 0)
                if unit > 1:
                    most = min(most, MILLI * self._cpus_of(number).bit_count())
                part = min(left // unit // (len(ascending) - place), most // unit) * unit
                if part:
                    parts.setdefault(number, {})[name] = part
                    left -= part
            if left:
                lacking.append(f"Insufficient NUMA {name}")
        return ", ".join(lacking) or parts

    def _unit(self, name: str) -> int:
        """Parts of the resource are multiples of this."""
        if name != CPU or self._binding is None:
            return 1
        is_by_cores = self._binding.is_required and self._binding.policy is CPUBindPolicy.FULL_PCPUS
        return MILLI * self._topology.threads if is_by_cores and self._topology is not None else MILLI

    def _take(self, cpus: int, count: int) -> int:
        assert self._topology is not None
        assert self._binding is not None
        held = HeldCPUs(self._view.use.exclusive_cores, self._view.use.exclusive_numa_nodes)
        return accumulator.take(self._topology, cpus, count, self._binding, held)
