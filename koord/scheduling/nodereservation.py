"""What a node keeps from pods by Koordinator's annotation: placed pods have the rest of what is allocatable.

The annotation is read when the node's object changes. One that cannot be read keeps nothing, and is a problem of the
node. What batch pods are offered is net of it already.
Source: Koordinator, pkg/util/node.go, TrimNodeAllocatableByNodeReservation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koord.model.annotations import codecs
from koord.model.annotations.codecs import document
from koord.model.cpuset import CPUSet
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, CPU
from koord.model.problem import Bad, Problem
from koord.model.quantity import QuantityError
from koord.model.topologyannotations import RESERVATION
from koord.scheduling import amounts

_FROM_PODS = ("", "Default")
"""The policies by which it is kept from pods; ``ReservedCPUsOnly`` keeps the CPUs from being pinned, no more."""


class _Reservation(msgspec.Struct, frozen=True):
    resources: Mapping[str, Any] = {}
    reserved_cpus: CPUSet | None = msgspec.field(default=None, name="reservedCPUs")
    apply_policy: str = msgspec.field(default="", name="applyPolicy")


_KEY = document(RESERVATION, _Reservation)


def without_reserved(allocatable: Mapping[str, int], annotations: Mapping[str, str], bad: Bad) -> dict[str, int]:
    """Returns what is left of ``allocatable``, whose units are those of `koord.scheduling.amounts`; never below 0."""
    left = dict(allocatable)
    if RESERVATION not in annotations:
        return left
    stated = codecs.of_object(annotations, _KEY, _Reservation, bad)
    if stated is None or stated.apply_policy not in _FROM_PODS:
        return left
    for name, amount in _reserved(stated, bad).items():
        if name in left and name not in (BATCH_CPU, BATCH_MEMORY):
            left[name] = max(0, left[name] - amount)
    return left


def _reserved(stated: _Reservation, bad: Bad) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, amount in stated.resources.items():
        try:
            found |= amounts.allocatable({name: amount})
        except QuantityError as error:
            bad(Problem(f"annotation {RESERVATION}: resources.{name}", str(error)))
    if stated.reserved_cpus:
        found[CPU] = 1000 * len(stated.reserved_cpus)
    return found
