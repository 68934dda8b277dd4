"""The one authoritative state of a cluster, as a scheduler sees it: nodes and pods, with what follows from both.

Events of the API server put and remove nodes and pods, in the order in which they come. A scheduler's own decision is
an assumed pod: it counts from then on, and the pod's own event confirms it, moves it, or an explicit ``forget`` takes
it back. A pod whose node is not known counts as soon as the node comes.

``version`` grows with each change, and ``changed_rows`` says which nodes a version differs in from an older one;
``objects_version`` grows when the object of a node or a namespace changes.
``Transaction`` undoes what was assumed in it unless it is committed.

Invariant: the state equals one that is made anew of the same nodes, pods and assumptions, in any order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from koord.model.problem import Problem
from koord.model.scheduling.numa import RESOURCE_SPEC
from koord.model.scheduling.pods import Node
from koord.scheduling.nodecolumns import Amounts, NodeColumns, is_alike
from koord.scheduling.nodeload import NodeLoads
from koord.scheduling.nominations import Nominations
from koord.scheduling.numa.nodes import NUMANodes
from koord.scheduling.numa.nodesettings import ReportedTopology
from koord.scheduling.numa.podrequest import RESOURCE_STATUS, Allocation
from koord.scheduling.owners import Owners
from koord.scheduling.podcounts import Namespaces, PodCounts
from koord.scheduling.podinfo import HostPort, PodInfo, WeightedTerm
from koord.scheduling.quotas import Quotas
from koord.scheduling.table import Int64s, Table
from koord.scheduling.termholders import TermHolders
from koord.scheduling.volumes import VolumeDecision, Volumes

_MOST_CHANGES = 8192


class ClusterState:
    """``nodes``: what nodes say of themselves. ``requested``: the sum over each node's pods, ``pods`` among the
    resources. ``pod_counts``, ``held_*``: for terms of affinity and constraints of spread. ``volumes``: claims, what
    they are bound to and what pods use of them; ``quotas``: what teams request and use. No change of these is one of
    ``version``. ``loads``: what nodes use. ``numa``: their CPUs and NUMA nodes, and what pods have of them.
    """

    def __init__(self) -> None:
        self.table = Table()
        self.nodes = NodeColumns(self.table)
        self.requested = Amounts(self.table)
        self.namespaces = Namespaces()
        self.owners = Owners()
        self.pod_counts = PodCounts(self.table, self.namespaces)
        self.held_anti_affinity = TermHolders(self.namespaces)
        self.held_affinity = TermHolders(self.namespaces)
        self.held_preferences = TermHolders(self.namespaces)
        self.volumes = Volumes(self.table)
        self.quotas = Quotas(self.nodes)
        self.numa = NUMANodes(self.table)
        self.version = self.objects_version = 0
        self._assumed_cpu_milli = self.table.column(np.int64)
        self._assumed_memory_bytes = self.table.column(np.int64)
        self._pods: dict[str, tuple[PodInfo, str]] = {}
        self.nominations = Nominations(self._pods)
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._assumed: set[str] = set()
        self.loads = NodeLoads(self.table, self.nodes, self.pods_on, self._changed)
        self._ports: dict[tuple[str, int], dict[str, dict[int, int]]] = {}
        self._changes: deque[int] = deque(maxlen=_MOST_CHANGES)

    # what plugins read

    @property
    def length(self) -> int:
        """N: the length of every column, rows of no node among them."""
        return self.table.length

    @property
    def assumed_cpu_milli(self) -> Int64s:
        """int64[N]: requested CPU as scores count it, see `koord.scheduling.amounts`."""
        return self._assumed_cpu_milli.values[: self.table.length]

    @property
    def assumed_memory_bytes(self) -> Int64s:
        """int64[N]: requested memory as scores count it."""
        return self._assumed_memory_bytes.values[: self.table.length]

    def host_ports_of(self, ports: Iterable[tuple[str, int]]) -> Iterator[tuple[HostPort, Mapping[int, int]]]:
        """Yields what is taken of these (protocol, port), on any address, and how many pods take it, by row."""
        for port in ports:
            for ip, rows in self._ports.get(port, {}).items():
                yield HostPort(*port, ip), rows

    def pods_on(self, node: str) -> Iterable[PodInfo]:
        return self._by_node.get(node, {}).values()

    def pod(self, uid: str) -> PodInfo | None:
        """Returns the pod; None of one that is on no node."""
        found = self._pods.get(uid)
        return None if found is None else found[0]

    def node_of(self, uid: str) -> str | None:
        """Returns the node that the pod is on, or is assumed to be on; None of one that is on none."""
        found = self._pods.get(uid)
        return None if found is None else found[1]

    @property
    def assumed(self) -> frozenset[str]:
        """The uids of the pods that are on a node by assumption."""
        return frozenset(self._assumed)

    def counts(self) -> dict[str, int]:
        """How many there are, by upstream's names."""
        return {"nodes": len(self.table), "pods": len(self._pods), "assumed_pods": len(self._assumed)}

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def changed_rows(self, version: int) -> frozenset[int] | None:
        """Returns the rows that have changed since ``version``; None where that is not known any more."""
        count = self.version - version
        if count > len(self._changes):
            return None
        return frozenset(self._changes[index] for index in range(-count, 0)) if count else frozenset()

    # events

    def put_node(self, node: Node) -> tuple[Problem, ...]:
        """Returns what could not be read of it, which counts as absent."""
        name = node.metadata.name
        row = self.table.row(name)
        if row is not None and is_alike(self.nodes.nodes[row], node):
            self.nodes.nodes[row] = node
            return ()
        self.objects_version += 1
        is_new = row is None
        row = self.table.add(name)
        problems = [*self.nodes.put(row, node), *self.numa.put_node(node)]
        self.quotas.nodes_changed()
        self._changed(row)
        if is_new:
            self.volumes.limits.node_came(row, name)
            self.volumes.attached.node_came(row, name)
            for pod in self._by_node.get(name, {}).values():
                self._count(row, pod)
        self.loads.put_node(row, node.metadata.annotations, problems.append)
        return tuple(problems)

    def remove_node(self, name: str) -> None:
        """Its pods count again when the node comes back, until their own events say that they are gone."""
        row = self.table.row(name)
        if row is None:
            return
        for pod in self._by_node.get(name, {}).values():
            self._count(row, pod, -1)
        self.objects_version += 1
        self.nodes.remove(row)
        self.loads.remove_node(row)
        self.numa.remove_node(row, name)
        self.table.remove(name)
        self.quotas.nodes_changed()
        self._changed(row)

    def put_topology(self, node: str, reported: ReportedTopology | None) -> bool:
        """What is reported of the node's CPUs, None: nothing any more. Returns whether it is other than before."""
        row = self.table.row(node)
        if not self.numa.put_topology(node, reported):
            return False
        if row is not None:
            self._changed(row)
        return True

    def put_pod(self, pod: PodInfo) -> None:
        """The pod is as its object says: on its node, on none, or finished. An assumed pod whose object names no node
        yet stays where it is assumed to be.
        """
        node = pod.spec.node_name
        if pod.is_finished:
            self.remove_pod(pod.uid)
        elif node:
            self._assumed.discard(pod.uid)
            self.nominations.remove(pod.uid)
            decision = self.volumes.decision(pod.uid)
            if decision is not None and decision.node != node:
                self.volumes.forget(pod.uid)
            if self.numa.forget(pod.uid):
                self._displace(pod.uid)
            self._place(pod, node)
        elif pod.uid in self._assumed:
            self._place(pod, self._pods[pod.uid][1])

    def remove_pod(self, uid: str) -> None:
        self._assumed.discard(uid)
        self.nominations.remove(uid)
        self.volumes.forget(uid)
        self.loads.forget_pod(uid)
        self.numa.forget(uid)
        self._displace(uid)

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        if self.namespaces.put(name, labels):
            self._namespaces_changed()

    def remove_namespace(self, name: str) -> None:
        if self.namespaces.remove(name):
            self._namespaces_changed()

    # decisions

    def assume(self, pod: PodInfo, node: str, volumes: VolumeDecision | None = None) -> None:
        """The pod counts on ``node``, with ``volumes``, which its claims get. Raises ValueError if it is on one
        already.
        """
        if pod.uid in self._pods:
            raise ValueError(f"pod {pod.namespace}/{pod.name} is on {self._pods[pod.uid][1]} already")
        self._assumed.add(pod.uid)
        self.loads.assumed(pod.uid)
        if volumes is not None:
            self.volumes.assume(pod.uid, volumes)
        self._place(pod, node)

    def forget(self, uid: str) -> None:
        """Takes an assumption back; without effect where the pod's object has confirmed it."""
        if uid in self._assumed:
            self._assumed.discard(uid)
            self.volumes.forget(uid)
            self.loads.forget_pod(uid)
            self.numa.forget(uid)
            self._displace(uid)

    def hold_cpus(self, uid: str, allocation: Allocation) -> None:
        """The assumed pod has this of its node. Raises KeyError for one that is not assumed."""
        if uid not in self._assumed:
            raise KeyError(uid)
        self.numa.assume(uid, allocation)
        self._replace(uid)

    def release_cpus(self, uid: str) -> None:
        """Takes back what an assumed pod has of its node; without effect where the pod's object says what it has."""
        if self.numa.forget(uid):
            self._replace(uid)

    @contextmanager
    def removed(self, uids: Iterable[str]) -> Iterator[None]:
        """For the block the state is as if these pods were gone; their claims keep the volumes that they have."""
        found = [self._pods[uid] for uid in uids if uid in self._pods]
        assumed = self._assumed & {pod.uid for pod, _ in found}
        for pod, _ in found:
            self._displace(pod.uid)
        try:
            uids = [pod.uid for pod, _ in found]
            with self.volumes.holding(uids), self.numa.holding(uids):
                yield
        finally:
            for pod, node in found:
                self._place(pod, node)
            self._assumed |= assumed

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """For several pods that are placed together or not at all: what was assumed in it is forgotten at its end
        unless it was committed.
        """
        transaction = Transaction(self)
        try:
            yield transaction
        finally:
            transaction.roll_back()

    # the counting

    def _place(self, pod: PodInfo, node: str) -> None:
        before = self._pods.get(pod.uid)
        if before is not None and before[1] == node and counts_alike(before[0], pod):
            self._pods[pod.uid] = pod, node
            self._by_node[node][pod.uid] = pod
            if (row := self.table.row(node)) is not None:
                self.loads.renew_pod(row, pod)
            return
        self._displace(pod.uid)
        self._pods[pod.uid] = pod, node
        self.quotas.place(pod)
        self._by_node.setdefault(node, {})[pod.uid] = pod
        self.numa.pod_came(pod, node)
        row = self.table.row(node)
        if row is not None:
            self._count(row, pod)

    def _replace(self, uid: str) -> None:
        """What the pod has of its node is other than it was."""
        found = self._pods.get(uid)
        if found is not None:
            self._displace(uid)
            self._place(*found)

    def _displace(self, uid: str) -> None:
        found = self._pods.pop(uid, None)
        if found is None:
            return
        pod, node = found
        self.quotas.displace(uid)
        del self._by_node[node][uid]
        if not self._by_node[node]:
            del self._by_node[node]
        self.numa.pod_left(uid, node)
        row = self.table.row(node)
        if row is not None:
            self._count(row, pod, -1)

    def _count(self, row: int, pod: PodInfo, sign: int = 1) -> None:
        """Counts the pod on the node, or, of ``sign`` -1, no longer."""
        self.requested.add(row, pod.counted, sign)
        self._assumed_cpu_milli.values[row] += sign * pod.assumed_cpu_milli
        self._assumed_memory_bytes.values[row] += sign * pod.assumed_memory_bytes
        if pod.has_volumes:
            self.volumes.users.count(row, pod, sign)
        (self.loads.put_pod if sign > 0 else self.loads.remove_pod)(row, pod)
        for port in pod.host_ports:
            self._count_port(row, port, sign)
        (self.pod_counts.add if sign > 0 else self.pod_counts.remove)(row, pod.pod_labels)
        if pod.spec.affinity is not None:
            for holders, terms in self._held(pod):
                (holders.add if sign > 0 else holders.remove)(row, terms)
        self._changed(row)

    def _held(self, pod: PodInfo) -> tuple[tuple[TermHolders, tuple[WeightedTerm, ...]], ...]:
        return (
            (self.held_anti_affinity, tuple([WeightedTerm(term, 1) for term in pod.anti_affinity])),
            (self.held_affinity, tuple([WeightedTerm(term, 1) for term in pod.affinity])),
            (self.held_preferences, pod.preferred_affinity),
        )

    def _count_port(self, row: int, port: HostPort, sign: int) -> None:
        addresses = self._ports.setdefault((port.protocol, port.port), {})
        rows = addresses.setdefault(port.ip, {})
        rows[row] = rows.get(row, 0) + sign
        if not rows[row]:
            del rows[row]
            if not rows:
                del addresses[port.ip]
                if not addresses:
                    del self._ports[port.protocol, port.port]

    def _changed(self, row: int) -> None:
        self.version += 1
        self._changes.append(row)

    def _namespaces_changed(self) -> None:
        self.pod_counts.forget_namespaces()
        self.objects_version += 1


class Transaction:
    """What was assumed since it began and is not committed."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._uids: list[str] = []

    def assume(self, pod: PodInfo, node: str, volumes: VolumeDecision | None = None) -> None:
        """Raises ValueError as `ClusterState.assume` does."""
        self._state.assume(pod, node, volumes)
        self._uids.append(pod.uid)

    def commit(self) -> None:
        """What was assumed so far stays."""
        self._uids.clear()

    def roll_back(self) -> None:
        while self._uids:
            self._state.forget(self._uids.pop())


def counts_alike(before: PodInfo, after: PodInfo) -> bool:
    """Returns whether both count the same on one node."""
    return before is after or (
        before.pod_labels == after.pod_labels
        and before.requests == after.requests
        and (before.assumed_cpu_milli, before.assumed_memory_bytes)
        == (after.assumed_cpu_milli, after.assumed_memory_bytes)
        and before.spec.affinity == after.spec.affinity
        and before.host_ports == after.host_ports
        and (before.claims, before.disks, before.inline_volumes) == (after.claims, after.disks, after.inline_volumes)
        and all(_annotation(before, key) == _annotation(after, key) for key in (RESOURCE_STATUS, RESOURCE_SPEC))
    )


def _annotation(pod: PodInfo, key: str) -> str | None:
    return pod.pod.metadata.annotations.get(key)
