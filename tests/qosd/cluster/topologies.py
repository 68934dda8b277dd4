"""Short ways to say a machine's NUMA nodes and all that a NodeResourceTopology is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from koord.host.cpumodel import CPUModel
from koord.host.numamemory import NUMAMemory
from koord.host.topology import CPU, MemoryNode, Topology
from koord.model import cpuset
from koord.model.cpuset import CPUSet
from koord.model.kubeletconfig import KubeletConfig
from qosd.cluster.nodetopology import Hardware, Inputs
from qosd.model.snapshot import PodView
from qosd.pods.cpumanager import CPUManagerState
from qosd.policy.nodeobject import NodeFacts
from qosd.policy.pools import compute_pools
from tests.qosd.contexts import policy, with_pools
from tests.qosd.podviews import machine

GIB, MIB = 1 << 30, 1 << 20
XEON = CPUModel("Intel(R) Xeon(R) Platinum 8269CY", "GenuineIntel", has_turbo=True, l3_mask=0x7FF)
NODE = NodeFacts(name="n1", uid="uid-1")
KUBELET = KubeletConfig()


def numa(topology: Topology, memory_only: tuple[int, ...] = ()) -> Topology:
    """``topology`` with its NUMA nodes, and with more of them that have no CPUs."""
    cpus: dict[int, list[CPU]] = {}
    for cpu in topology.cpus:
        cpus.setdefault(cpu.node, []).append(cpu)
    nodes = [MemoryNode(node, CPUSet.of(cpu.id for cpu in its), True) for node, its in cpus.items()]
    nodes += [MemoryNode(node, CPUSet(), True) for node in memory_only]
    return replace(topology, nodes=tuple(sorted(nodes, key=lambda node: node.id)))


ONE_CPU = numa(machine(1))
ONE_SOCKET = numa(machine(4))
TWO_SOCKETS = numa(machine(16, nodes=2, smt=True))
"""CPU n's sibling is n + 8."""


def memory(*total_bytes: int, huge: Mapping[int, Mapping[int, int]] | None = None) -> tuple[NUMAMemory, ...]:
    """``huge``: of a node, the bytes in huge pages by the size of these."""
    return tuple(NUMAMemory(node, total, (huge or {}).get(node, {})) for node, total in enumerate(total_bytes))


def inputs(
    *pods: PodView,
    topology: Topology = ONE_SOCKET,
    memory: tuple[NUMAMemory, ...] = memory(16 * GIB),
    model: CPUModel = XEON,
    kubelet: KubeletConfig | None = KUBELET,
    exclusive: Mapping[str, str] | None = None,
    node: NodeFacts = NODE,
    **section: Any,
) -> Inputs:
    """``exclusive``: what a static CPU manager gave, by pod UID; ``section``: ``node`` of the rules file."""
    taken = [cpuset.parse(text) for text in (exclusive or {}).values()]
    shared = str(CPUSet.of(cpu for cpu in topology.online if not any(cpu in cpus for cpus in taken)))
    manager = CPUManagerState("none") if exclusive is None else CPUManagerState("static", shared, exclusive)
    in_force = policy(**section)
    pools = compute_pools(topology, pods, in_force.node, manager.exclusive)
    with_them = with_pools(in_force, pools)
    return Inputs(topology, Hardware(model, memory), with_them, kubelet, manager, pods, node)
