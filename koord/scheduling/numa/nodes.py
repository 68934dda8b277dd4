"""The CPUs and NUMA nodes of all nodes of a cluster, and what pods have of them: a part of the cluster's state.

What a node is follows from its object and from its NodeResourceTopology, of which either may come first, or never. What
a pod has is what was decided for it here, until its own object is on a node: then it is what that says, in the
annotation that whoever placed the pod has written. So a scheduler that starts anew knows what the last one knew. It
holds for as long as the pod is on the node, whatever is known of the node's CPUs.

Invariant: what is said of a node follows from the objects and from what is held, whatever the order in which they came.
A CPU that several pods say that they have is free when none has it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from koord.model.problem import Problem
from koord.model.scheduling.numa import CPUExclusivePolicy, NodeCPUBindPolicy, NUMATopologyPolicy
from koord.model.scheduling.pods import Node
from koord.scheduling.numa import nodesettings
from koord.scheduling.numa.allocation import PLAIN, NodeSettings, NodeView, Use
from koord.scheduling.numa.nodesettings import ReportedTopology
from koord.scheduling.numa.podrequest import RESOURCE_STATUS, Allocation, allocation_of
from koord.scheduling.numa.topology import CPUTopology, members
from koord.scheduling.numa.topologymanager import Keeping
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.table import Bools, Int64s, Table

BIND_POLICIES = tuple(NodeCPUBindPolicy)
TOPOLOGY_POLICIES = tuple(NUMATopologyPolicy)
"""Columns have the places of policies in these."""
_NOTHING = NodeView(NodeSettings(), Use())
_NO_PODS: Mapping[str, Held] = {}


class Held(NamedTuple):
    """What a pod has on its node."""

    pod: PodInfo
    allocation: Allocation


class Columns:
    """Figures of every node, by row. int64[N] but for ``has_topology``, bool[N].

    ``free``, ``whole``, ``cores``: CPUs that no pod has, those of them on whole cores, and the cores that have any.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._bind_policy, self._topology_policy = table.column(np.int64), table.column(np.int64)
        self._has_topology, self._ratio_percent = table.column(np.bool_, False), table.column(np.int64, PLAIN)
        self._free, self._whole, self._cores = (table.column(np.int64) for _ in range(3))
        self._held, self._threads = table.column(np.int64), table.column(np.int64, 1)

    @property
    def bind_policy(self) -> Int64s:
        return self._bind_policy.values[: self._table.length]

    @property
    def topology_policy(self) -> Int64s:
        return self._topology_policy.values[: self._table.length]

    @property
    def has_topology(self) -> Bools:
        return self._has_topology.values[: self._table.length]

    @property
    def ratio_percent(self) -> Int64s:
        return self._ratio_percent.values[: self._table.length]

    @property
    def free(self) -> Int64s:
        return self._free.values[: self._table.length]

    @property
    def whole(self) -> Int64s:
        return self._whole.values[: self._table.length]

    @property
    def cores(self) -> Int64s:
        return self._cores.values[: self._table.length]

    @property
    def held(self) -> Int64s:
        """The CPUs that some pod has."""
        return self._held.values[: self._table.length]

    @property
    def threads(self) -> Int64s:
        """Of a whole core."""
        return self._threads.values[: self._table.length]

    def put(self, row: int, view: NodeView) -> None:
        settings, topology = view.settings, view.settings.topology
        self._bind_policy.values[row] = BIND_POLICIES.index(settings.bind_policy)
        self._topology_policy.values[row] = TOPOLOGY_POLICIES.index(settings.topology_policy)
        self._ratio_percent.values[row] = settings.ratio_percent
        self._has_topology.values[row] = topology is not None
        self._held.values[row] = view.use.held.bit_count()
        self._free.values[row] = view.free.bit_count()
        self._threads.values[row] = 1 if topology is None else topology.threads
        self._whole.values[row] = 0 if topology is None else topology.whole_cores(view.free).bit_count()
        self._cores.values[row] = 0 if topology is None else topology.one_of_each_core(view.free).bit_count()


class NUMANodes:
    def __init__(self, table: Table) -> None:
        self._table = table
        self.columns = Columns(table)
        self._reported: dict[str, ReportedTopology] = {}
        self._nodes: dict[str, Node] = {}
        self._settings: dict[str, NodeSettings] = {}
        self._views: dict[int, NodeView] = {}
        self._held: dict[str, dict[str, Held]] = {}
        self._assumed: dict[str, Allocation] = {}
        self._kept: frozenset[str] = frozenset()
        self._special: set[int] = set()

    # what plugins read

    @property
    def has_special_nodes(self) -> bool:
        """Returns whether any node has a policy or a ratio of its own, which pods without wishes go by, too."""
        return bool(self._special)

    def view(self, row: int) -> NodeView:
        return self._views.get(row, _NOTHING)

    def held_on(self, node: str) -> Iterable[Held]:
        return self._held.get(node, _NO_PODS).values()

    def assumed(self, uid: str) -> Allocation | None:
        """Returns what was decided for a pod whose object is on no node yet."""
        return self._assumed.get(uid)

    # events

    def put_node(self, node: Node) -> tuple[Problem, ...]:
        """Returns what could not be read, which counts as not said."""
        problems: list[Problem] = []
        self._nodes[node.metadata.name] = node
        self._settle(node, problems)
        return tuple(problems)

    def remove_node(self, row: int, name: str) -> None:
        del self._nodes[name], self._settings[name], self._views[row]
        self._special.discard(row)

    def put_topology(self, name: str, reported: ReportedTopology | None) -> bool:
        """Returns whether anything has changed. ``reported`` None: there is none any more."""
        if reported == self._reported.get(name):
            return False
        if reported is None:
            del self._reported[name]
        else:
            self._reported[name] = reported
        node = self._nodes.get(name)
        if node is not None:
            self._settle(node, [])
        return True

    def pod_came(self, pod: PodInfo, node: str) -> None:
        allocation = self._assumed.get(pod.uid)
        if allocation is None and pod.spec.node_name and RESOURCE_STATUS in pod.pod.metadata.annotations:
            allocation = allocation_of(pod)
        if allocation is not None:
            self._held.setdefault(node, {})[pod.uid] = Held(pod, allocation)
            self._update(node)

    def pod_left(self, uid: str, node: str) -> None:
        pods = self._held.get(node)
        if pods is not None and pods.pop(uid, None) is not None:
            if not pods:
                del self._held[node]
            self._update(node)

    # decisions

    def assume(self, uid: str, allocation: Allocation) -> None:
        """The pod has this as soon as it comes to its node, whatever its object says while that is on none."""
        self._assumed[uid] = allocation

    def forget(self, uid: str) -> bool:
        """Returns whether anything was assumed for the pod. Without effect on what it has on a node already."""
        return uid not in self._kept and self._assumed.pop(uid, None) is not None

    @contextmanager
    def holding(self, uids: Iterable[str]) -> Iterator[None]:
        """For the block what is assumed for these pods stays, even if they are forgotten in it."""
        before, self._kept = self._kept, self._kept | frozenset(uids)
        try:
            yield
        finally:
            self._kept = before

    # the rest

    def _settle(self, node: Node, problems: list[Problem]) -> None:
        """What is said of the node may have changed."""
        name = node.metadata.name
        self._settings[name] = nodesettings.settings_of(node, self._reported.get(name), problems.append)
        self._update(name)

    def _update(self, name: str) -> None:
        """What the node is, or what pods have of it, has changed."""
        row, settings = self._table.row(name), self._settings.get(name)
        if row is None or settings is None:
            return
        view = NodeView(settings, _use(settings.topology, self._held.get(name, _NO_PODS).values()))
        self._views[row] = view
        self.columns.put(row, view)
        (self._special.add if settings.is_special else self._special.discard)(row)


def _use(topology: CPUTopology | None, pods: Iterable[Held]) -> Use:
    held = single = shared = 0
    cores: set[int] = set()
    numa_nodes: set[int] = set()
    amounts: dict[int, dict[str, int]] = {}
    for _, allocation in pods:
        held |= allocation.cpus
        if topology is not None and allocation.cpus:
            on = [topology.core_of[cpu] for cpu in members(allocation.cpus & topology.cpus)]
            mask = 0
            for core in on:
                mask |= 1 << core.numa_node
            if mask.bit_count() > 1:
                shared |= mask
            else:
                single |= mask
            if allocation.exclusive is CPUExclusivePolicy.PCPU_LEVEL:
                cores.update([core.number for core in on])
            elif allocation.exclusive is CPUExclusivePolicy.NUMA_NODE_LEVEL:
                numa_nodes.update([core.numa_node for core in on])
        for number, each in allocation.numa_nodes:
            of_node = amounts.setdefault(number, {})
            for name, amount in each:
                of_node[name] = of_node.get(name, 0) + amount
    by_number = [(number, tuple(sorted(each.items()))) for number, each in sorted(amounts.items())]
    return Use(held, frozenset(cores), frozenset(numa_nodes), Keeping(single, shared), tuple(by_number))
