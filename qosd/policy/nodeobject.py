"""The cluster's Node as a layer of policy: its labels, annotations and status over the file's ``node``.

    reservation             the CPUs outside both pools, as a list or as a quantity: the file's whole reservation
    system-qos-resource     the CPUs of SYSTEM pods: the file's ``systemQOS``
    cpu-normalization-ratio the ratio; label ``cpu-normalization-enabled: "false"`` switches any ratio off
    status.allocatable      memory (``raw-allocatable``, where the node is amplified), batch and mid resources, each by
                            its name

Settings that the Node does not have stay as the file has them. The bandwidth of annotation ``network-bandwidth`` is in
the NodeSLO that the manager makes, and amplification concerns schedulers: neither is read here.

Invariant: an annotation that cannot be read counts as not set, a bad member of one that member alone, and a sentence
names it; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from koord.model import cfs, quantity
from koord.model.annotations.codecs import document, of_object
from koord.model.core import Amount, Amounts, Node
from koord.model.cpuset import CPUSet
from koord.model.priority import EXTENDED_RESOURCES, RENAMED
from koord.model.problem import Bad, Problem
from koord.model.quantity import Quantity, QuantityError
from koord.model.topologyannotations import RESERVATION, SYSTEM_QOS_RESOURCE
from koord.overcommit import amounts, nodeamounts, ratios
from koord.overcommit.amounts import ParsedAmounts
from koord.overcommit.nodeamounts import NodeReservation
from qosd.model.policy import NodeSettings

Changes = dict[str, Any]
"""Fields of ``NodeSettings`` by name."""


class NodeFacts(msgspec.Struct, frozen=True):
    """The members of a Node that Koord goes by; without those that each heartbeat changes."""

    name: str = ""
    uid: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    capacity: Amounts = {}
    allocatable: Amounts = {}

    @classmethod
    def of(cls, node: Node) -> NodeFacts:
        metadata, status = node.metadata, node.status
        return cls(
            metadata.name, metadata.uid, metadata.labels, metadata.annotations, status.capacity, status.allocatable
        )

    def kubelets_allocatable(self, bad: Bad = lambda _: None) -> ParsedAmounts:
        """Returns what the node really has for pods, amplified or not; None for an amount that it does not state."""
        return nodeamounts.kubelets_allocatable(self.annotations, self.allocatable, bad)


class NodeSystemQOS(msgspec.Struct, frozen=True, rename="camel"):
    """Annotation ``system-qos-resource``."""

    cpuset: CPUSet | None = None
    cpuset_exclusive: bool | None = None


_RESERVATION = document(RESERVATION, NodeReservation)
_SYSTEM_QOS = document(SYSTEM_QOS_RESOURCE, NodeSystemQOS)


def over(settings: NodeSettings, facts: NodeFacts, bad: Bad) -> NodeSettings:
    """Returns ``settings`` with the Node's own in their place; ``bad`` is told of each one that does not count."""
    changes = {
        **_reservation(facts, bad),
        **_system_qos(facts, bad),
        **_normalization(facts, bad),
        **_memory(facts, bad),
        **_extended(settings, facts, bad),
    }
    return replace(settings, **changes) if changes else settings


def _reservation(facts: NodeFacts, bad: Bad) -> Changes:
    """Returns the reserved CPUs: a list goes before a number. A reservation of memory alone leaves the file's CPUs."""
    stated = of_object(facts.annotations, _RESERVATION, NodeReservation, bad)
    if stated is None:
        return {}
    cpu_milli = amounts.read(stated.resources).noted(f"annotation {RESERVATION}: resources", bad).cpu_milli
    if cpu_milli is None and not stated.reserved_cpus:
        return {}
    return {"reserved_cpus": str(stated.reserved_cpus or ""), "reserved_cpu_milli": cpu_milli or 0}


def _system_qos(facts: NodeFacts, bad: Bad) -> Changes:
    """Returns the system-QoS CPUs, which are exclusive unless the annotation says otherwise."""
    stated = of_object(facts.annotations, _SYSTEM_QOS, NodeSystemQOS, bad)
    if stated is None or not stated.cpuset:
        return {}
    return {"system_cpuset": str(stated.cpuset), "system_exclusive": stated.cpuset_exclusive is not False}


def _normalization(facts: NodeFacts, bad: Bad) -> Changes:
    try:
        if ratios.normalization_switch(facts.labels) is False:
            return {"cpu_normalization_ratio": None}
    except ratios.NormalizationError as error:
        bad(Problem("", str(error)))
    text = facts.annotations.get(ratios.NORMALIZATION)
    if text is None:
        return {}
    try:
        return {"cpu_normalization_ratio": cfs.parse_ratio(text), "is_ratio_announced": True}
    except cfs.RatioError as error:
        bad(Problem(f"annotation {ratios.NORMALIZATION}", str(error)))
        return {}


def _memory(facts: NodeFacts, bad: Bad) -> Changes:
    memory_bytes = facts.kubelets_allocatable(bad).memory_bytes
    return {} if memory_bytes is None else {"allocatable_memory_bytes": memory_bytes}


def _extended(policy: NodeSettings, facts: NodeFacts, bad: Bad) -> Changes:
    stated: dict[str, Quantity] = {}
    for name, amount in facts.allocatable.items():
        resource = RENAMED.get(name, name)
        if resource in EXTENDED_RESOURCES and (read := _amount(name, amount, bad)) is not None:
            stated[resource] = read
    return {"allocatable": {**policy.allocatable, **stated}} if stated else {}


def _amount(name: str, amount: Amount, bad: Bad) -> Quantity | None:
    try:
        read = quantity.from_json(amount)
    except QuantityError as error:
        bad(Problem("status.allocatable", f"{name} {error}"))
        return None
    if read.nano >= 0:
        return read
    bad(Problem("status.allocatable", f"{name} {str(amount)!r} is negative"))
    return None
