"""The wanted NodeResourceTopology of this node: its CPUs, their owners, and the resources of each NUMA node.

    zone cpu        its online CPUs
    zone memory     MemTotal - all huge pages
    allocatable     capacity; with the Node's label enable-numa-reservation, less the zone's part of what kubelet
                    keeps: CPU from zones with CPUs, memory from those with memory, rounded up

Pure. Invariants: a NUMA node without CPUs or without memory is a zone like others; capacity is the hardware's, reserved
parts included; a value that is not known yet (kubelet's configuration) is written only where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from koord.host.cpumodel import CPUModel
from koord.host.numamemory import NUMAMemory
from koord.host.topology import Topology
from koord.model import cpuset, noderesourcetopology, quantity
from koord.model import topologyannotations as documents
from koord.model.annotations import decode
from koord.model.core import Amount
from koord.model.cpuset import EMPTY
from koord.model.kubeletconfig import STATIC, KubeletConfig
from koord.model.noderesourcetopology import NUMA_ZONE, Zone, ZoneResource
from koord.model.priority import CPU, MEMORY
from koord.model.quantity import Format, Quantity, QuantityError
from koord.overcommit import amounts
from koord.overcommit.amounts import ZERO, CPUMemory
from qosd.model.policy import EffectivePolicy, NodeSettings, Pool
from qosd.model.snapshot import PodView
from qosd.pods.cpumanager import CPUManagerState
from qosd.policy import packing, pools
from qosd.policy.nodeobject import NodeFacts

HUGE_PAGES: Mapping[str, int] = {"hugepages-1Gi": 1 << 30, "hugepages-2Mi": 2 << 20}
"""The resources for which pods can ask, with the size of their pages in bytes."""

_HUGE_PAGES_PREFIX = "hugepages-"
HUGE_PAGE_REPORT = "HugePageReport"
"""The feature gate without which there are 0 huge pages."""

NO_POLICY = "None"
_POLICIES = {"single-numa-node": "SingleNUMANode", "restricted": "Restricted", "best-effort": "BestEffort"}
_SCOPES = {"container": "ContainerLevel", "pod": "PodLevel"}
_ACROSS_CORES = "distribute-cpus-across-cores"


@dataclass(frozen=True, slots=True)
class Hardware:
    """The facts of the hardware, which change seldom and are read seldom."""

    cpu_model: CPUModel
    memory: tuple[NUMAMemory, ...]


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that the object is made of. ``kubelet``: None while it has not told its configuration. The pods are known,
    and so is the policy: the pools of ``policy`` are in force."""

    topology: Topology
    hardware: Hardware
    policy: EffectivePolicy
    kubelet: KubeletConfig | None
    cpu_manager: CPUManagerState
    pods: tuple[PodView, ...]
    node: NodeFacts


@dataclass(frozen=True, slots=True)
class DesiredTopology:
    """``annotations_if_absent`` and ``policies`` () are not known: the stored values stay.

    ``labels``: None takes one away. ``zones`` hold our resources alone, in the order of their names.
    """

    annotations: Mapping[str, str]
    labels: Mapping[str, str | None]
    owner_uid: str
    policies: tuple[str, ...]
    zones: tuple[Zone, ...]
    annotations_if_absent: Mapping[str, str] = field(default_factory=dict)


def desired(inputs: Inputs) -> DesiredTopology:
    node, policy = inputs.node, inputs.policy.node
    manager = _cpu_manager_policy(inputs)
    is_told = inputs.kubelet is not None
    return DesiredTopology(
        annotations={
            documents.CPU_TOPOLOGY: _json(_cpu_topology(inputs.topology)),
            documents.CPU_BASIC_INFO: _json(_cpu_basic_info(inputs.topology, inputs.hardware.cpu_model)),
            documents.POD_CPU_ALLOCS: _json(_pod_cpu_allocs(inputs) or None),
            documents.CPU_SHARED_POOLS: _json(_shared_pools(policy.ls_pools)),
            documents.BE_CPU_SHARED_POOLS: _json(_shared_pools(policy.be_pools)),
            documents.RESERVATION: _json(_reservation(inputs.topology, policy, node.annotations)),
            documents.SYSTEM_QOS_RESOURCE: _json(_system_qos(policy)),
            **({documents.CPU_MANAGER_POLICY: manager} if is_told else {}),
        },
        annotations_if_absent={} if is_told else {documents.CPU_MANAGER_POLICY: manager},
        labels={
            documents.LABEL_MANAGED_BY: documents.MANAGED_BY,
            documents.LABEL_NUMA_RESERVATION: node.labels.get(documents.LABEL_NUMA_RESERVATION),
        },
        owner_uid=node.uid,
        policies=(_topology_policy(inputs.kubelet),) if inputs.kubelet is not None else (),
        zones=_zones(inputs),
    )


# annotations


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _cpu_topology(topology: Topology) -> documents.CPUTopology:
    cpus = sorted(topology.cpus, key=lambda cpu: cpu.id)
    return documents.CPUTopology(tuple(documents.LogicalCPU(cpu.id, cpu.core, cpu.socket, cpu.node) for cpu in cpus))


def _cpu_basic_info(topology: Topology, model: CPUModel) -> documents.CPUBasicInfo:
    return documents.CPUBasicInfo(
        cpu_model=model.name,
        hyper_thread_enabled=topology.smt,
        turbo_enabled=model.has_turbo,
        cat_l3_cbm_mask=f"{model.l3_mask:x}" if model.l3_mask else "",
        vendor_id=model.vendor,
    )


def _pod_cpu_allocs(inputs: Inputs) -> list[documents.PodCPUAlloc]:
    """Returns the pods that stay on the CPUs that kubelet's CPU manager gave them: the policy's ``kubelet_cpus``.

    kubelet gives a CPU to one pod only, so a pod's set is among these CPUs, or none of it is.
    """
    if not inputs.cpu_manager.gives_cpus:
        return []
    known = {pod.uid: pod for pod in inputs.pods}
    kubelets = inputs.policy.node.kubelet_cpus
    found = []
    for uid, text in sorted(inputs.cpu_manager.exclusive_on(inputs.topology.online).items()):
        cpus, pod = cpuset.parse(text), known.get(uid)
        if cpus and cpus & inputs.topology.online <= kubelets:
            namespace, name = ("", "") if pod is None else (pod.namespace, pod.name)
            found.append(
                documents.PodCPUAlloc(
                    namespace=namespace, name=name, uid=uid, cpuset=str(cpus), managed_by_kubelet=True
                )
            )
    return found


def _shared_pools(of_node: Iterable[Pool]) -> list[documents.CPUSharedPool]:
    return [documents.CPUSharedPool(pool.socket, pool.node, pool.cpuset) for pool in sorted(of_node)]


def _cpu_manager_policy(inputs: Inputs) -> str:
    """Returns the policy as far as it is known; the state file has its name alone."""
    kubelet = inputs.kubelet
    if kubelet is None:
        return _json(documents.KubeletCPUManagerPolicy(inputs.cpu_manager.policy))
    reserved = EMPTY
    if kubelet.cpu_manager_policy == STATIC:
        across_cores = kubelet.cpu_manager_policy_options.get(_ACROSS_CORES) == "true"
        packed = packing.take(inputs.topology, kubelet.reserved_cpu_count, across_cores)
        reserved = kubelet.reserved_system_cpus or packed
    options = dict(sorted(kubelet.cpu_manager_policy_options.items()))
    return _json(documents.KubeletCPUManagerPolicy(kubelet.cpu_manager_policy, options, str(reserved)))


def _reservation(
    topology: Topology, policy: NodeSettings, annotations: Mapping[str, str]
) -> documents.ReservationAnnotation:
    """Returns the Node's own reservation, with the CPUs that are reserved by it or by the policy."""
    try:
        stated = decode.read(_StatedReservation, annotations.get(documents.RESERVATION, "{}"), lambda _: None)
    except decode.BadValue:
        stated = _StatedReservation()
    resources = {name: value for name, value in stated.resources.items() if isinstance(value, Amount)}
    return documents.ReservationAnnotation(resources, str(pools.reserved(topology, policy)), stated.apply_policy)


class _StatedReservation(msgspec.Struct, frozen=True, rename="camel"):
    resources: Mapping[str, Any] = {}
    apply_policy: str = ""


def _system_qos(policy: NodeSettings) -> documents.SystemQOSAnnotation:
    if not policy.system_cpuset:
        return documents.SystemQOSAnnotation()
    return documents.SystemQOSAnnotation(policy.system_cpuset, policy.system_exclusive)


def _topology_policy(kubelet: KubeletConfig) -> str:
    policy, scope = _POLICIES.get(kubelet.topology_manager_policy), _SCOPES.get(kubelet.topology_manager_scope)
    return policy + scope if policy and scope else NO_POLICY


# zones


def _zones(inputs: Inputs) -> tuple[Zone, ...]:
    """Returns the zones by the numbers of their NUMA nodes: a zone's place is its number if there are no gaps."""
    topology, memory = inputs.topology, {one.node: one for one in inputs.hardware.memory}
    cpus = {node.id: 0 for node in topology.nodes}
    for cpu in topology.cpus:
        cpus[cpu.node] = cpus.get(cpu.node, 0) + 1
    numbers = sorted({*cpus, *memory})
    capacities = {
        number: CPUMemory(1000 * cpus.get(number, 0), memory[number].plain_bytes if number in memory else 0)
        for number in numbers
    }
    kept = _kept_of_each(inputs.node, list(capacities.values()))
    has_huge_pages = inputs.policy.gate(HUGE_PAGE_REPORT).is_on
    return tuple(
        _zone(number, capacities[number], kept, memory.get(number) if has_huge_pages else None) for number in numbers
    )


def _kept_of_each(node: NodeFacts, capacities: Sequence[CPUMemory]) -> CPUMemory:
    """Returns what kubelet reserves of the node, divided among the zones that have any of it."""
    if node.labels.get(documents.LABEL_NUMA_RESERVATION) != "true":
        return ZERO
    total = amounts.read(node.capacity).filled()
    plain = total - CPUMemory(0, sum(map(_huge_bytes, node.capacity.items())))
    kept = (plain - node.kubelets_allocatable().filled(plain)).max(ZERO)
    with_cpus = sum(capacity.cpu_milli > 0 for capacity in capacities)
    with_memory = sum(capacity.memory_bytes > 0 for capacity in capacities)
    return CPUMemory(-(-kept.cpu_milli // max(1, with_cpus)), -(-kept.memory_bytes // max(1, with_memory)))


def _huge_bytes(capacity: tuple[str, Amount]) -> int:
    """Returns the huge pages of a node's capacity: kubelet counts them as memory, but not as allocatable."""
    name, amount = capacity
    try:
        return quantity.memory_bytes(quantity.from_json(amount)) if name.startswith(_HUGE_PAGES_PREFIX) else 0
    except QuantityError:
        return 0


def _zone(number: int, capacity: CPUMemory, kept: CPUMemory, memory: NUMAMemory | None) -> Zone:
    """Returns the zone of ``numa``. ``memory``: the node's memory with its huge pages; None: none are told."""
    allocatable = (capacity - kept).max(ZERO)
    huge = {} if memory is None else memory.huge_bytes
    resources = [
        _resource(CPU, quantity.of_milli(capacity.cpu_milli), quantity.of_milli(allocatable.cpu_milli)),
        _resource(MEMORY, _bytes(capacity.memory_bytes), _bytes(allocatable.memory_bytes)),
    ]
    for name, page_bytes in HUGE_PAGES.items():
        amount = _bytes(huge.get(page_bytes, 0))
        resources.append(_resource(name, amount, amount))
    return Zone(noderesourcetopology.zone_name(number), NUMA_ZONE, resources=by_name(resources))


def _resource(name: str, capacity: Quantity, allocatable: Quantity) -> ZoneResource:
    return ZoneResource(name, str(capacity), str(allocatable), str(allocatable))


def _bytes(number: int) -> Quantity:
    return quantity.of(number, Format.BINARY_SI)


def by_name(resources: Iterable[ZoneResource]) -> tuple[ZoneResource, ...]:
    """Returns the resources in the order in which a zone has them."""
    return tuple(sorted(resources, key=lambda resource: resource.name))
