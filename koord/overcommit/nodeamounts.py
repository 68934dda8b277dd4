"""What a node has, what of it is kept from pods, and what others than Kubernetes have taken of its batch resources.

Allocatable is what kubelet said: ``raw-allocatable`` where the node is amplified, as the status holds a multiple there.
A node without a ratio is not amplified, and a ``raw-allocatable`` that it still has is of the past: the webhook of the
status removes that, and may be switched off. Where neither states a resource, nothing of it is kept back, which is how
the API reads a node without allocatable.

Invariant: an annotation that cannot be read costs itself only, a bad member that member only, and a sentence names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koord.model.annotations import codecs
from koord.model.annotations.codecs import document
from koord.model.core import Amounts, Node
from koord.model.cpuset import CPUSet
from koord.model.priority import RENAMED, PriorityClass
from koord.model.problem import Bad
from koord.model.topologyannotations import RESERVATION
from koord.overcommit import amounts, ratios
from koord.overcommit.amounts import BATCH, ZERO, CPUMemory, ParsedAmounts
from koord.overcommit.ratios import Amplification

RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
THIRD_PARTY = "node.koordinator.sh/thirdPartyAllocations"


class NodeReservation(msgspec.Struct, frozen=True):
    resources: Mapping[str, Any] = {}
    reserved_cpus: CPUSet | None = msgspec.field(default=None, name="reservedCPUs")
    """Their number takes the place of ``resources.cpu``."""


class _Allocatable(msgspec.Struct, frozen=True):
    cpu: Any = None
    memory: Any = None


class ThirdPartyAllocation(msgspec.Struct, frozen=True):
    """What another scheduler, such as YARN, has given away on the node."""

    name: str = ""
    priority: str = ""
    resources: Mapping[str, Any] = {}


class ThirdPartyAllocations(msgspec.Struct, frozen=True):
    allocations: tuple[ThirdPartyAllocation, ...] = ()


_RESERVATION = document(RESERVATION, NodeReservation)
_RAW_ALLOCATABLE = document(RAW_ALLOCATABLE, _Allocatable)
_THIRD_PARTY = document(THIRD_PARTY, ThirdPartyAllocations)


class NodeAmounts(msgspec.Struct, frozen=True):
    total: CPUMemory | None
    """Capacity; None if it is not known, so that nothing can be said of the node."""
    kubelet_reserved: CPUMemory = ZERO
    annotation_reserved: CPUMemory = ZERO
    third_party: CPUMemory = ZERO
    """Of the batch resources."""
    amplification: Amplification = ratios.NOT_AMPLIFIED


def read(node: Node, bad: Bad) -> NodeAmounts:
    """Reads the amounts of ``node``; ``bad`` is told what cannot be read."""
    capacity = amounts.read(node.status.capacity).noted("status.capacity", bad)
    if capacity.cpu_milli is None or capacity.memory_bytes is None:
        return NodeAmounts(None)
    total, annotations = capacity.filled(), node.metadata.annotations
    allocatable = kubelets_allocatable(annotations, node.status.allocatable, bad).filled(total)
    return NodeAmounts(
        total,
        (total - allocatable).max(ZERO),
        _reserved(annotations, bad),
        _third_party(annotations, bad),
        ratios.amplification_of(annotations, bad),
    )


def kubelets_allocatable(annotations: Mapping[str, str], allocatable: Amounts, bad: Bad) -> ParsedAmounts:
    """Returns what kubelet offers to pods, of a Node with these annotations and this status."""
    status = amounts.read(allocatable).noted("status.allocatable", bad)
    if ratios.AMPLIFICATION not in annotations:
        return status
    raw = codecs.of_object(annotations, _RAW_ALLOCATABLE, _Allocatable, bad)
    if raw is None:
        return status
    reading = amounts.read({"cpu": raw.cpu, "memory": raw.memory}).noted(f"annotation {RAW_ALLOCATABLE}", bad)
    return ParsedAmounts(
        status.cpu_milli if reading.cpu_milli is None else reading.cpu_milli,
        status.memory_bytes if reading.memory_bytes is None else reading.memory_bytes,
    )


def _reserved(annotations: Mapping[str, str], bad: Bad) -> CPUMemory:
    """Returns what the annotation reserves. Its ``applyPolicy`` is the scheduler's: it says what its reservation of
    CPUs is for.
    """
    reservation = codecs.of_object(annotations, _RESERVATION, NodeReservation, bad)
    if reservation is None:
        return ZERO
    reserved = amounts.read(reservation.resources).noted(f"annotation {RESERVATION}: resources", bad).filled()
    if not reservation.reserved_cpus:
        return reserved
    return CPUMemory(1000 * len(reservation.reserved_cpus), reserved.memory_bytes)


def _third_party(annotations: Mapping[str, str], bad: Bad) -> CPUMemory:
    third_party = codecs.of_object(annotations, _THIRD_PARTY, ThirdPartyAllocations, bad)
    total = ZERO
    for allocation in third_party.allocations if third_party is not None else ():
        if allocation.priority == PriorityClass.BATCH:
            resources = {RENAMED.get(name, name): amount for name, amount in allocation.resources.items()}
            total += amounts.read(resources, BATCH).noted(f"annotation {THIRD_PARTY}: {allocation.name}", bad).filled()
    return total
