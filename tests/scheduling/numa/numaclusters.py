"""Nodes with CPUs and NUMA nodes, as their agents report them, and pods that want some of their own."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from koord.model import core
from koord.model.cpuset import CPUSet
from koord.model.noderesourcetopology import NodeResourceTopology
from koord.model.problem import Problem
from koord.model.scheduling.numa import (
    AMPLIFICATION_RATIO,
    LABEL_CPU_BIND_POLICY,
    LABEL_NUMA_ALLOCATE_STRATEGY,
    LABEL_NUMA_TOPOLOGY_POLICY,
    NUMA_TOPOLOGY_SPEC,
    RESOURCE_SPEC,
)
from koord.model.topologyannotations import CPU_MANAGER_POLICY, CPU_TOPOLOGY, POD_CPU_ALLOCS, LogicalCPU
from koord.model.topologyannotations import CPUTopology as ReportedCPUs
from koord.scheduling.numa import nodesettings
from koord.scheduling.numa.podrequest import RESOURCE_STATUS
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import node, pod


def machine(sockets: int, numa_nodes: int, cores: int, threads: int) -> list[LogicalCPU]:
    """NUMA nodes a socket, cores a NUMA node, threads a core, whose numbers follow each other."""
    per_socket = numa_nodes * cores
    return [
        LogicalCPU(core * threads + thread, core, core // per_socket, core // cores)
        for core in range(sockets * per_socket)
        for thread in range(threads)
    ]


def topology(
    cpus: Sequence[LogicalCPU],
    zones: Mapping[int, Mapping[str, str]] | None = None,
    policies: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
) -> NodeResourceTopology:
    """``zones``: allocatable amounts by NUMA node; None: the CPUs, and 8 GiB of memory each."""
    if zones is None:
        numbers = sorted({cpu.node for cpu in cpus})
        zones = {n: {"cpu": str(sum(cpu.node == n for cpu in cpus)), "memory": "8Gi"} for n in numbers}
    detail = msgspec.json.encode(ReportedCPUs(tuple(cpus))).decode()
    document = {
        "metadata": {"name": "n1", "annotations": {CPU_TOPOLOGY: detail, **(annotations or {})}},
        "topologyPolicies": policies,
        "zones": [
            {
                "name": f"node-{number}",
                "type": "Node",
                "resources": [
                    {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
                    for name, amount in amounts.items()
                ],
            }
            for number, amounts in zones.items()
        ],
    }
    return core.read(NodeResourceTopology, msgspec.json.encode(document))


def put(state: ClusterState, name: str, stored: NodeResourceTopology | None, **document: Any) -> None:
    """Puts a node, of which ``document`` is as in `node` with ``annotations``, and what is reported of it. Unless it is
    said otherwise it has as much CPU as there are CPUs.
    """
    problems: list[Problem] = []
    found = None if stored is None else nodesettings.reported(stored, problems.append)
    cpus = 4 if found is None or found.topology is None else found.topology.cpus.bit_count()
    annotations = document.pop("annotations", {})
    made = node(name, document.pop("cpu", str(cpus)), document.pop("memory", "64Gi"), "110", **document)
    metadata = msgspec.structs.replace(made.metadata, annotations=annotations)
    assert not state.put_node(msgspec.structs.replace(made, metadata=metadata))
    state.put_topology(name, found)
    assert not problems


def wanting(
    name: str,
    cpu: str,
    qos: str = "LSR",
    spec: Mapping[str, str] | None = None,
    numa: Mapping[str, str] | None = None,
    memory: str = "",
    status: Any = None,
    **document: Any,
) -> PodInfo:
    """A pod with CPUs of its own. ``spec``, ``numa``, ``status``: its annotations."""
    said = {RESOURCE_SPEC: spec, NUMA_TOPOLOGY_SPEC: numa, RESOURCE_STATUS: status}
    annotations = {key: msgspec.json.encode(value).decode() for key, value in said.items() if value is not None}
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    labels = {"koordinator.sh/qosClass": qos, **document.pop("labels", {})}
    metadata = {"annotations": {**annotations, **document.pop("annotations", {})}, "labels": labels}
    return pod(name, requests, metadata=metadata, **{"priority": 9500, **document})


def cpus_of(state: ClusterState, uid: str) -> str:
    """The CPUs that the pod has on its node."""
    found = state.node_of(uid)
    return next(
        (str(CPUSet(each.allocation.cpus)) for each in state.numa.held_on(found or "") if each.pod.uid == uid), ""
    )


class NUMAGenerator:
    """Draws nodes with CPUs, and pods; equal seeds draw equal ones."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self._pods = 0

    def put_node(self, state: ClusterState, name: str) -> tuple[NodeResourceTopology | None, dict[str, Any]]:
        """Puts a node; returns what it was put with."""
        draw = self.draw
        cpus = machine(draw.choice([1, 2]), draw.choice([1, 1, 2]), draw.choice([2, 3]), draw.choice([1, 2]))
        labels = {}
        if draw.random() < 0.3:
            labels[LABEL_CPU_BIND_POLICY] = draw.choice(["None", "FullPCPUsOnly", "SpreadByPCPUs"])
        if draw.random() < 0.4:
            labels[LABEL_NUMA_TOPOLOGY_POLICY] = draw.choice(["BestEffort", "Restricted", "SingleNUMANode"])
        if draw.random() < 0.3:
            labels[LABEL_NUMA_ALLOCATE_STRATEGY] = draw.choice(["MostAllocated", "LeastAllocated", "DistributeEvenly"])
        annotations = {}
        if draw.random() < 0.2:
            kubelets = [{"uid": "k", "cpuset": "0", "managedByKubelet": True}]
            annotations[POD_CPU_ALLOCS] = msgspec.json.encode(kubelets).decode()
        if draw.random() < 0.1:
            policy = {"policy": "static", "options": {"full-pcpus-only": "true"}, "reservedCPUs": "1"}
            annotations[CPU_MANAGER_POLICY] = msgspec.json.encode(policy).decode()
        stored = topology(cpus, annotations=annotations) if draw.random() < 0.9 else None
        document: dict[str, Any] = {"labels": labels}
        if draw.random() < 0.25:
            document["annotations"] = {AMPLIFICATION_RATIO: '{"cpu":1.5}'}
            document["cpu"] = str(len(cpus) * 3 // 2)
        put(state, name, stored, **document)
        return stored, document

    def pod(self, **document: Any) -> PodInfo:
        draw = self.draw
        self._pods += 1
        spec: dict[str, str] = {}
        bind_policies = ["Default", "FullPCPUs", "SpreadByPCPUs", "ConstrainedBurst"]
        if draw.random() < 0.2:
            spec["requiredCPUBindPolicy"] = draw.choice(bind_policies)
        if draw.random() < 0.6:
            spec["preferredCPUBindPolicy"] = draw.choice(bind_policies)
        if draw.random() < 0.5:
            spec["preferredCPUExclusivePolicy"] = draw.choice(["None", "PCPULevel", "NUMANodeLevel"])
        numa: dict[str, str] = {}
        if draw.random() < 0.3:
            numa["numaTopologyPolicy"] = draw.choice(["BestEffort", "Restricted", "SingleNUMANode"])
        if draw.random() < 0.2:
            numa["singleNUMANodeExclusive"] = draw.choice(["Preferred", "Required"])
        return wanting(
            f"p{self._pods}",
            draw.choice(["", "500m", "1", "1", "2", "2", "3", "4"]),
            draw.choice(["LSE", "LSR", "LSR", "LS", "BE", ""]),
            spec or None,
            numa or None,
            draw.choice(["", "1Gi", "6Gi", "12Gi"]),
            priority=draw.choice([9500, 9500, 9500, 5500]),
            **document,
        )
