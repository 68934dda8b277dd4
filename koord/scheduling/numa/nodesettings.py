"""What a node says of its CPUs and NUMA nodes: in its NodeResourceTopology, which its agent writes, and in its object.

Koord's agent and Koordinator's write the same. What cannot be read counts as not said and is a problem, but for CPUs:
where it cannot be told which there are, no pod gets one of its own.
Sources: Koordinator, pkg/scheduler/plugins/nodenumaresource: topology_options.go, util.go; apis/extension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import msgspec

from koord.model import cpuset, topologyannotations
from koord.model.annotations import decode
from koord.model.cpuset import CPUSetError
from koord.model.noderesourcetopology import NodeResourceTopology
from koord.model.priority import CPU
from koord.model.problem import Bad, Problem
from koord.model.quantity import QuantityError
from koord.model.scheduling.numa import (
    AMPLIFICATION_RATIO,
    LABEL_CPU_BIND_POLICY,
    LABEL_NUMA_ALLOCATE_STRATEGY,
    LABEL_NUMA_TOPOLOGY_POLICY,
    NodeCPUBindPolicy,
    NUMAAllocateStrategy,
    NUMATopologyPolicy,
)
from koord.model.scheduling.pods import Node
from koord.model.topologyannotations import (
    CPUTopology,
    KubeletCPUManagerPolicy,
    PodCPUAlloc,
    ReservationAnnotation,
    SystemQOSAnnotation,
)
from koord.scheduling import amounts
from koord.scheduling.numa.allocation import PLAIN, NodeSettings, Reserved, amplified
from koord.scheduling.numa.podrequest import MILLI, Amounts
from koord.scheduling.numa.topology import CPUTopology as Topology
from koord.scheduling.numa.topology import topology_of

_STATIC, _FULL_PCPUS_ONLY = "static", "full-pcpus-only"
_RESERVATION = "the node's reservation"
_BY_KUBELET = {
    "BestEffort": NUMATopologyPolicy.BEST_EFFORT,
    "Restricted": NUMATopologyPolicy.RESTRICTED,
    "SingleNUMANodePodLevel": NUMATopologyPolicy.SINGLE_NUMA_NODE,
}
E = TypeVar("E", bound=StrEnum)
S = TypeVar("S", bound=msgspec.Struct)


class ReportedTopology(NamedTuple):
    """What is kept of a NodeResourceTopology. ``zones``: what each NUMA node has for pods, with reserved CPUs;
    ``is_amplified``: as pods see it.
    """

    topology: Topology | None = None
    reserved: tuple[Reserved, ...] = ()
    gives_whole_cores: bool = False
    topology_policy: NUMATopologyPolicy = NUMATopologyPolicy.NONE
    zones: tuple[tuple[int, Amounts], ...] = ()
    is_amplified: bool = False


def reported(stored: NodeResourceTopology, bad: Bad) -> ReportedTopology:
    """Returns what the object says; ``bad`` is told what cannot be read."""
    annotations = stored.metadata.annotations
    cpus = _document(annotations, topologyannotations.CPU_TOPOLOGY, CPUTopology, bad)
    kubelet = _document(annotations, topologyannotations.CPU_MANAGER_POLICY, KubeletCPUManagerPolicy, bad)
    policies = [_BY_KUBELET[policy] for policy in stored.topology_policies if policy in _BY_KUBELET]
    return ReportedTopology(
        topology_of(cpus.detail),
        tuple([each for each in _reserved(annotations, kubelet, bad) if each.cpus]),
        kubelet.policy == _STATIC and kubelet.options.get(_FULL_PCPUS_ONLY) == "true",
        policies[0] if policies else NUMATopologyPolicy.NONE,
        tuple(sorted(_zones(stored, bad).items())),
        AMPLIFICATION_RATIO in annotations,
    )


def settings_of(node: Node, reported: ReportedTopology | None, bad: Bad) -> NodeSettings:
    """Returns what the node is, by its object and by what is reported of it; ``bad`` is told what cannot be read."""
    labels, annotations = node.metadata.labels, node.metadata.annotations
    bind_policy = _choice(labels, LABEL_CPU_BIND_POLICY, NodeCPUBindPolicy, bad)
    strategy = _choice(labels, LABEL_NUMA_ALLOCATE_STRATEGY, NUMAAllocateStrategy, bad)
    topology_policy = _choice(labels, LABEL_NUMA_TOPOLOGY_POLICY, NUMATopologyPolicy, bad)
    ratio_percent = _ratio_percent(annotations, bad)
    said = reported or ReportedTopology()
    if said.gives_whole_cores:
        bind_policy = NodeCPUBindPolicy.FULL_PCPUS_ONLY
    reserved = {each.by: each.cpus for each in said.reserved}
    own = _document(annotations, topologyannotations.RESERVATION, ReservationAnnotation, _said_elsewhere)
    cpus = _cpus(own.reserved_cpus, topologyannotations.RESERVATION, _said_elsewhere)
    if cpus:
        reserved[_RESERVATION] = reserved.get(_RESERVATION, 0) | cpus
    kept = tuple([Reserved(by, cpus) for by, cpus in reserved.items()])
    return NodeSettings(
        said.topology,
        kept,
        bind_policy or NodeCPUBindPolicy.NONE,
        strategy,
        topology_policy or said.topology_policy,
        ratio_percent,
        _capacity(said, kept, ratio_percent),
    )


def _capacity(
    said: ReportedTopology, reserved: tuple[Reserved, ...], ratio_percent: int
) -> tuple[tuple[int, Amounts], ...]:
    """Returns what NUMA nodes have for pods, without reserved CPUs, as pods see it."""
    kept = 0
    for each in reserved:
        kept |= each.cpus
    found = []
    for number, of_zone in said.zones:
        left = dict(of_zone)
        if CPU in left:
            cpus = 0 if said.topology is None else said.topology.numa_nodes.get(number, 0)
            ratio = PLAIN if said.is_amplified else ratio_percent
            left[CPU] = amplified(max(left[CPU] - MILLI * (cpus & kept).bit_count(), 0), ratio)
        found.append((number, tuple(sorted(left.items()))))
    return tuple(found)


def _reserved(annotations: Mapping[str, str], kubelet: KubeletCPUManagerPolicy, bad: Bad) -> list[Reserved]:
    found = []
    of_pods = 0
    for each in _allocs(annotations, bad):
        if each.managed_by_kubelet and each.uid:
            of_pods |= _cpus(each.cpuset, topologyannotations.POD_CPU_ALLOCS, bad)
    found.append(Reserved("kubelet, for pods of its own", of_pods))
    found.append(Reserved("kubelet", _cpus(kubelet.reserved_cpus, topologyannotations.CPU_MANAGER_POLICY, bad)))
    reservation = _document(annotations, topologyannotations.RESERVATION, ReservationAnnotation, bad)
    cpus = _cpus(reservation.reserved_cpus, topologyannotations.RESERVATION, bad)
    found.append(Reserved(_RESERVATION, cpus))
    system = _document(annotations, topologyannotations.SYSTEM_QOS_RESOURCE, SystemQOSAnnotation, bad)
    if system.cpuset_exclusive is not False:
        found.append(Reserved("the class SYSTEM", _cpus(system.cpuset, topologyannotations.SYSTEM_QOS_RESOURCE, bad)))
    return found


class _Allocs(msgspec.Struct, frozen=True):
    items: tuple[PodCPUAlloc, ...] = ()


def _allocs(annotations: Mapping[str, str], bad: Bad) -> tuple[PodCPUAlloc, ...]:
    text = annotations.get(topologyannotations.POD_CPU_ALLOCS)
    wrapped = {"items": f'{{"items":{text or "null"}}}'}
    return _document(wrapped, "items", _Allocs, bad).items


def _zones(stored: NodeResourceTopology, bad: Bad) -> dict[int, Amounts]:
    found: dict[int, Amounts] = {}
    for zone in stored.zones:
        number = zone.numa_node
        if number is None or number > cpuset.MAX_CPU:
            continue
        read: dict[str, int] = {}
        for resource in zone.resources:
            try:
                read |= amounts.allocatable({resource.name: resource.allocatable})
            except QuantityError as error:
                bad(Problem(f"zones[{zone.name}].resources[{resource.name}].allocatable", str(error)))
        found[number] = tuple(sorted(read.items()))
    return found


def _ratio_percent(annotations: Mapping[str, str], bad: Bad) -> int:
    text = annotations.get(AMPLIFICATION_RATIO)
    if text is None:
        return PLAIN
    document: Any = None
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        bad(Problem(f"annotation {AMPLIFICATION_RATIO}", str(error)))
    ratio = document.get(CPU, 1) if isinstance(document, Mapping) else 1
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not math.isfinite(ratio):
        bad(Problem(f"annotation {AMPLIFICATION_RATIO}: {CPU}", f"{ratio!r} is not a number"))
        return PLAIN
    return max(PLAIN, round(ratio * PLAIN))


def _choice(labels: Mapping[str, str], key: str, kind: type[E], bad: Bad) -> E | None:
    """Returns the choice; None where there is none, or one that there is not."""
    text = labels.get(key)
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        bad(Problem(f"label {key}", f"{text!r} is not one of {', '.join(each for each in kind if each)}"))
        return None


def _document(annotations: Mapping[str, str], key: str, kind: type[S], bad: Bad) -> S:
    """Returns the document; an empty one where there is none, or where it cannot be read."""
    try:
        return decode.read(kind, annotations.get(key) or "null", lambda problem: bad(_at(key, problem)))
    except decode.BadValue as error:
        bad(Problem(f"annotation {key}", str(error)))
        return kind()


def _said_elsewhere(problem: Problem) -> None:
    """What the node reserves is read for its amounts, too, which tells of it."""


def _at(key: str, problem: Problem) -> Problem:
    return Problem(f"annotation {key}", str(problem))


def _cpus(text: str, key: str, bad: Bad) -> int:
    try:
        return cpuset.parse(text).mask
    except CPUSetError as error:
        bad(Problem(f"annotation {key}", str(error)))
        return 0
