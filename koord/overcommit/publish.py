"""What is to be written to a Node: JSON merge patches of the keys that the manager owns, of these only what differs.

Capacity and allocatable of the batch and mid resources are written when one of them has changed by more than
``resourceDiffThreshold``, has appeared or is to go, is less than pods hold or is to be just that, or when the last
write is ``updateTimeThresholdSeconds`` old; with them goes the annotation for other schedulers. The ratios of
normalization and amplification are written whenever they differ, unless this pass could not tell them: then they stay.

Invariant: a patch that changes nothing is None, so what is written converges; keys of others are in no patch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from koord.model import quantity
from koord.model.annotations.codecs import document
from koord.model.core import Amounts, Node
from koord.model.quantity import Format
from koord.overcommit import amounts, amplification, difference, normalization
from koord.overcommit.amounts import BATCH, MID, NOTHING, CPUMemory, shown
from koord.overcommit.batch import required
from koord.overcommit.demand import Held
from koord.overcommit.noderead import annotation
from koord.overcommit.strategy import ColocationStrategy

ORIGINAL = "node.koordinator.sh/originExtendedAllocatable"
Patch = dict[str, Any]
_PLACES = ("capacity", "allocatable")


class OriginalAllocatable(msgspec.Struct, frozen=True):
    """What other schedulers share with Kubernetes."""

    resources: Mapping[str, Any] = {}


_ORIGINAL = document(ORIGINAL, OriginalAllocatable)


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    batch: CPUMemory | None
    """Before what other schedulers have taken; None: nothing is offered."""
    mid: CPUMemory | None
    held: Held = Held()
    """What is shown at least, of both."""
    third_party: CPUMemory = NOTHING
    normalization_ratio: float | None = None
    """None: not told in this pass, the annotation stays."""
    amplification: Mapping[str, float] | None = None
    """None: not told in this pass, the annotation stays; empty: to be removed."""

    @property
    def published_batch(self) -> CPUMemory | None:
        return shown(self.batch, self.held.batch, self.third_party)

    @property
    def published_mid(self) -> CPUMemory | None:
        return shown(self.mid, self.held.mid)


RESET = Desired(batch=None, mid=None, amplification={})
"""For a node on which colocation is disabled. Normalization is a matter of its own and stays."""


class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """``status``: amounts, and the annotation for other schedulers. ``metadata``: the ratios."""

    status: Patch | None = None
    metadata: Patch | None = None

    @property
    def patch(self) -> Patch | None:
        """Both, for ``nodes/status``: it takes annotations along, and nothing of ``spec`` can be changed by it."""
        annotations = {
            key: text
            for part in (self.status, self.metadata)
            for key, text in (part or {}).get("metadata", {}).get("annotations", {}).items()
        }
        return {**(self.status or {}), **({"metadata": {"annotations": annotations}} if annotations else {})} or None


def decide(node: Node, desired: Desired, strategy: ColocationStrategy, idle_s: float | None) -> Writes:
    """``idle_s``: since the last write of the status; None if there was none since the manager started."""
    is_due = idle_s is None or idle_s >= required(strategy.update_time_threshold_seconds)
    share = required(strategy.resource_diff_threshold)
    status = status_patch(node, desired) if is_due or is_significant(node, desired, share) else None
    return Writes(status=status, metadata=metadata_patch(node, desired))


def is_significant(node: Node, desired: Desired, share: float) -> bool:
    """Does any of the resources differ by more than ``share``, or in being there, or from what pods hold?"""
    exact = difference.threshold(share)
    return any(
        difference.is_significant(each.observed, each.amount, exact) or each.is_off_what_is_held
        for each in _resources(node, desired)
    )


def status_patch(node: Node, desired: Desired) -> Patch | None:
    """Everything that differs, however little."""
    by_place: dict[str, dict[str, str | None]] = {}
    for place, name, observed, amount, _ in _resources(node, desired):
        if observed != amount:
            by_place.setdefault(place, {})[name] = None if amount is None else _text(name, amount)
    patch: Patch = {"status": by_place} if by_place else {}
    return {**patch, **_annotations_patch(node, {ORIGINAL: _original(node, desired)})} or None


def metadata_patch(node: Node, desired: Desired) -> Patch | None:
    texts: dict[str, str | None] = {}
    if desired.normalization_ratio is not None:
        texts[normalization.ANNOTATION] = normalization.text(desired.normalization_ratio)
    if desired.amplification is not None:
        texts[amplification.ANNOTATION] = amplification.text(desired.amplification)
    return _annotations_patch(node, texts) or None


def observed_batch(node: Node) -> CPUMemory | None:
    """What ``Desired.batch`` was at the last write, by what the node shows; None if it shows no batch resources."""
    read = amounts.read(node.status.allocatable, BATCH)
    if read.cpu_milli is None or read.memory_bytes is None:
        return None
    original = annotation(node.metadata.annotations, _ORIGINAL, OriginalAllocatable, lambda _: None)
    return read.filled() if original is None else amounts.read(original.resources, BATCH).filled(read.filled())


class _Resource(NamedTuple):
    """Where, its name, its amount now and as it is to be, and what pods hold of it."""

    place: str
    name: str
    observed: int | None
    amount: int | None
    held: int

    @property
    def is_off_what_is_held(self) -> bool:
        """Is less shown than pods hold, or more while nothing new may fit?"""
        if self.observed is None or self.amount is None or self.observed == self.amount:
            return False
        return self.observed < self.held or self.amount == self.held


def _resources(node: Node, desired: Desired) -> Iterator[_Resource]:
    stated: tuple[tuple[str, Amounts], ...] = tuple(
        zip(_PLACES, (node.status.capacity, node.status.allocatable), strict=True)
    )
    of_both = (BATCH, desired.published_batch, desired.held.batch), (MID, desired.published_mid, desired.held.mid)
    for names, amount, held in of_both:
        cpu, memory = _of(amount, "cpu_milli"), _of(amount, "memory_bytes")
        for place, now in stated:
            read = amounts.read(now, names)
            yield _Resource(place, names.cpu, _shown(now, names.cpu, read.cpu_milli), cpu, held.cpu_milli)
            observed_bytes = _shown(now, names.memory, read.memory_bytes)
            yield _Resource(place, names.memory, observed_bytes, memory, held.memory_bytes)


def _shown(stated: Amounts, name: str, amount: int | None) -> int | None:
    """-1 for one that is there and cannot be read, which any other differs from."""
    return -1 if amount is None and name in stated else amount


def _of(amount: CPUMemory | None, field: str) -> int | None:
    return None if amount is None else int(getattr(amount, field))


def _original(node: Node, desired: Desired) -> str | None:
    """0 once nothing is offered any more; a node that never offered anything has no annotation."""
    if desired.batch is None and ORIGINAL not in node.metadata.annotations:
        return None
    batch = desired.batch or NOTHING
    resources = {
        BATCH.cpu: _text(BATCH.cpu, batch.cpu_milli),
        BATCH.memory: _text(BATCH.memory, batch.memory_bytes),
    }
    return msgspec.json.encode(OriginalAllocatable(resources)).decode()


def _annotations_patch(node: Node, texts: Mapping[str, str | None]) -> Patch:
    now = node.metadata.annotations
    changes = {key: text for key, text in texts.items() if now.get(key) != text}
    return {"metadata": {"annotations": changes}} if changes else {}


def _text(name: str, amount: int) -> str:
    is_cpu = name in (BATCH.cpu, MID.cpu)
    return str(quantity.of(amount, Format.DECIMAL_SI if is_cpu else Format.BINARY_SI))
