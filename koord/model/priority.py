"""Priority bands, the resources each band runs on, and which QoS class may be combined with which band.

The band comes from the label, else from ``spec.priority``; a label with an unknown value means "none" and
``spec.priority`` is then *not* asked, as in Koordinator. Only after that does the QoS class decide.

Invariant: nothing here raises on what a pod says; an out-of-band number is simply no band.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from koord.model.qos import QoSClass

LABEL_PRIORITY_CLASS = "koordinator.sh/priority-class"

CPU = "cpu"
MEMORY = "memory"
_IN_BYTES = (MEMORY, "ephemeral-storage", "hugepages-")
BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
MID_CPU = "kubernetes.io/mid-cpu"
MID_MEMORY = "kubernetes.io/mid-memory"
EXTENDED_RESOURCES = (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)
RENAMED = {"koordinator.sh/batch-cpu": BATCH_CPU, "koordinator.sh/batch-memory": BATCH_MEMORY}
"""Deprecated names, still found in old pods, and what they mean."""


class PriorityClass(StrEnum):
    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"


_BY_NAME = {cls.value: cls for cls in PriorityClass}


@dataclass(frozen=True, slots=True)
class PriorityBand:
    """The inclusive range of ``spec.priority`` of a class, its value for pods that have none, and its object's."""

    low: int
    high: int
    default: int
    object_value: int


BANDS: Mapping[PriorityClass, PriorityBand] = {
    PriorityClass.PROD: PriorityBand(9000, 9999, 9500, 9000),
    PriorityClass.MID: PriorityBand(7000, 7999, 7500, 7000),
    PriorityClass.BATCH: PriorityBand(5000, 5999, 5500, 5000),
    PriorityClass.FREE: PriorityBand(3000, 3999, 3500, 3000),
}

_RESOURCES: Mapping[PriorityClass, Mapping[str, str]] = {
    PriorityClass.MID: {CPU: MID_CPU, MEMORY: MID_MEMORY},
    PriorityClass.BATCH: {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY},
}


class CombinationVerdict(StrEnum):
    """What admission says of a combination of raw QoS class and raw priority class."""

    ACCEPTED = "accepted"
    TOLERATED = "tolerated"
    """Accepted by Koordinator's code although it is not in its design."""
    REJECTED = "rejected"


_A, _T, _X = CombinationVerdict.ACCEPTED, CombinationVerdict.TOLERATED, CombinationVerdict.REJECTED
_COLUMNS = (PriorityClass.PROD, PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE, None)
_MATRIX: Mapping[QoSClass | None, tuple[CombinationVerdict, ...]] = {
    QoSClass.LSE: (_A, _T, _T, _T, _T),
    QoSClass.LSR: (_A, _X, _X, _X, _X),
    QoSClass.LS: (_A, _A, _T, _T, _A),
    QoSClass.BE: (_X, _A, _A, _A, _X),
    QoSClass.SYSTEM: (_A, _T, _T, _T, _T),
    None: (_A, _A, _A, _A, _A),
}


def parse(text: str | None) -> PriorityClass | None:
    """The class that ``text`` names; None for anything else."""
    return _BY_NAME.get(text or "")


def band_of(value: int | None) -> PriorityClass | None:
    """The class whose band holds ``spec.priority``; None in the gaps and without a value."""
    if value is None:
        return None
    return next((cls for cls, band in BANDS.items() if band.low <= value <= band.high), None)


def raw(labels: Mapping[str, str], spec_priority: int | None) -> PriorityClass | None:
    """The class a pod says: its label when there is one, known or not, else the band of ``spec.priority``."""
    if LABEL_PRIORITY_CLASS in labels:
        return parse(labels[LABEL_PRIORITY_CLASS])
    return band_of(spec_priority)


def effective(labels: Mapping[str, str], spec_priority: int | None, qos: QoSClass) -> PriorityClass:
    """The class a pod is treated by: ``raw``, else prod, or batch for BE. ``qos`` is the derived class."""
    said = raw(labels, spec_priority)
    if said is not None:
        return said
    return PriorityClass.BATCH if qos is QoSClass.BE else PriorityClass.PROD


def value(spec_priority: int | None, cls: PriorityClass | None) -> int:
    """The number evictions compare: ``spec.priority`` if set and not 0, else the band's default, else 0."""
    if spec_priority:
        return spec_priority
    return BANDS[cls].default if cls is not None else 0


def resource_name(native: str, cls: PriorityClass | None) -> str:
    """The resource that pods of ``cls`` request in place of ``native``; free and prod keep the native ones."""
    if cls is None:
        return native
    return _RESOURCES.get(cls, {}).get(native, native)


def combination(qos: QoSClass | None, cls: PriorityClass | None, requests_batch: bool = False) -> CombinationVerdict:
    """Returns admission's verdict on raw QoS with raw priority; a pod that requests batch resources must be BE."""
    if requests_batch and qos is not QoSClass.BE:
        return CombinationVerdict.REJECTED
    return _MATRIX[qos][_COLUMNS.index(cls)]


def is_in_bytes(resource: str) -> bool:
    """Returns whether amounts of the resource are bytes."""
    return resource.startswith(_IN_BYTES)
