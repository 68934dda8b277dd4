"""What a Node is to show of an offer, and when that is written: only what differs, and of the manager's own keys alone.

*How much* (``grow``), given an offer by averages and one by use of this second. A burst of the services' use shows in
the seconds-fresh offer at once, and in the averaged one a minute later and diluted. So the lower of both counts, it is
followed down at once, and up only by an averaged report that has come in since the lower one last *held* the node: was
not above what the node shows. That report has the burst in it. Invariant: while both offers stay within the threshold
of what is shown, nothing changes; what is shown never rises above the lower offer. No resource waits for the other.

*When* (``decide``): capacity and allocatable of the batch and mid resources are written when one of them has changed by
more than ``resourceDiffThreshold``, has appeared or is to go, is less than pods hold or is to be just that, or when the
last write is ``updateTimeThresholdSeconds`` old; with them goes the annotation for other schedulers. The ratios of
normalization and amplification are written whenever they differ, unless this pass could not tell them: then they stay.
Invariant: a patch that changes nothing is None, so what is written converges; keys of others are in no patch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from koord.model import quantity
from koord.model.annotations import codecs
from koord.model.annotations.codecs import document
from koord.model.core import Amounts, Node
from koord.model.quantity import Format
from koord.overcommit import amounts, ratios
from koord.overcommit.amounts import BATCH, MID, ZERO, CPUMemory
from koord.overcommit.offer import Offered
from koord.overcommit.strategy import ColocationStrategy, required

ORIGINAL = "node.koordinator.sh/originExtendedAllocatable"
Patch = dict[str, Any]
_PLACES = ("capacity", "allocatable")


class OriginalAllocatable(msgspec.Struct, frozen=True):
    """The amounts that other schedulers share with Kubernetes."""

    resources: Mapping[str, Any] = {}


_ORIGINAL = document(ORIGINAL, OriginalAllocatable)


class DesiredResources(Offered, frozen=True, kw_only=True):
    """All that a Node is to show."""

    normalization_ratio: float | None = None
    """None: not known in this pass, the annotation stays."""
    amplification: Mapping[str, float] | None = None
    """None: not known in this pass, the annotation stays; empty: to be removed."""


RESET = DesiredResources(amplification={})
"""For a node on which colocation is disabled. Normalization is a matter of its own and stays."""


class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """``status``: amounts, and the annotation for other schedulers. ``metadata``: the ratios."""

    status: Patch | None = None
    metadata: Patch | None = None

    @property
    def patch(self) -> Patch | None:
        """Returns both, for ``nodes/status``, which takes annotations along and cannot change ``spec``."""
        annotations = {
            key: text
            for part in (self.status, self.metadata)
            for key, text in (part or {}).get("metadata", {}).get("annotations", {}).items()
        }
        return {**(self.status or {}), **({"metadata": {"annotations": annotations}} if annotations else {})} or None


class GrowthState(msgspec.Struct, frozen=True):
    """When the lower offer last held each resource, by the manager's clock; None: not since the manager started."""

    cpu_held_s: float | None = None
    memory_held_s: float | None = None


class Averaged(msgspec.Struct, frozen=True):
    batch: CPUMemory | None
    """None: to be removed."""
    arrival_s: float
    """When the report that it was computed from came in, by the manager's clock."""


def threshold(share: float) -> Fraction:
    """Returns ``resourceDiffThreshold`` exactly: 0.1 is a tenth."""
    return Fraction(str(share))


def differs(observed: int | None, desired: int | None, share: Fraction) -> bool:
    """Returns whether an amount appears, goes, or changes by more than ``share`` of what is observed.

    Exact: 27500 against 25000 is no difference at 10 %, and 27501 is one.
    """
    if observed is None or desired is None:
        return observed is not desired
    return abs(desired - observed) > observed * share


def grow(
    shown: CPUMemory | None,
    averaged: Averaged,
    fresh: CPUMemory | None,
    state: GrowthState,
    now_s: float,
    share: Fraction,
    is_due: bool = False,
) -> tuple[CPUMemory | None, GrowthState]:
    """Returns the batch resources that the node is to show, and the state after that.

    ``shown``: what it shows now. ``fresh``: None if there is no such report. ``share``: ``threshold``.
    ``is_due``: the last write is so old that small differences count as well.
    """
    if averaged.batch is None:
        return None, GrowthState()
    low = averaged.batch if fresh is None else averaged.batch.min(fresh)
    if shown is None:
        return low, GrowthState()
    after = GrowthState(
        now_s if low.cpu_milli <= shown.cpu_milli else state.cpu_held_s,
        now_s if low.memory_bytes <= shown.memory_bytes else state.memory_held_s,
    )
    reach = _reachable(shown, low, after, averaged.arrival_s)
    return (reach if is_due or _differ(shown, reach, share) else shown), after


def _reachable(shown: CPUMemory, low: CPUMemory, state: GrowthState, arrival_s: float) -> CPUMemory:
    """Returns ``low``, or of a resource that may not grow yet the shown amount, if that is less."""
    least = shown.min(low)
    return CPUMemory(
        low.cpu_milli if _may_grow(state.cpu_held_s, arrival_s) else least.cpu_milli,
        low.memory_bytes if _may_grow(state.memory_held_s, arrival_s) else least.memory_bytes,
    )


def _may_grow(held_s: float | None, arrival_s: float) -> bool:
    return held_s is None or arrival_s > held_s


def _differ(shown: CPUMemory, reach: CPUMemory, share: Fraction) -> bool:
    return differs(shown.cpu_milli, reach.cpu_milli, share) or differs(shown.memory_bytes, reach.memory_bytes, share)


def is_due(idle_s: float | None, strategy: ColocationStrategy) -> bool:
    """Returns whether small differences count, too: the status was written ``idle_s`` ago, or not (None) since the
    manager started.
    """
    return idle_s is None or idle_s >= required(strategy.update_time_threshold_seconds)


def decide(node: Node, desired: DesiredResources, strategy: ColocationStrategy, is_due: bool) -> Writes:
    """Returns what is to be written to ``node``. ``is_due``: small differences count, too."""
    share = required(strategy.resource_diff_threshold)
    status = status_patch(node, desired) if is_due or is_significant(node, desired, share) else None
    return Writes(status=status, metadata=metadata_patch(node, desired))


def is_significant(node: Node, desired: DesiredResources, share: float) -> bool:
    """Returns whether any resource differs by more than ``share``, or appears or goes, or is off what pods hold."""
    exact = threshold(share)
    return any(
        differs(each.observed, each.amount, exact) or each.is_off_what_is_held for each in _resources(node, desired)
    )


def status_patch(node: Node, desired: DesiredResources) -> Patch | None:
    """Returns a patch of all amounts that differ, however little."""
    by_place: dict[str, dict[str, str | None]] = {}
    for place, name, observed, amount, _ in _resources(node, desired):
        if observed != amount:
            by_place.setdefault(place, {})[name] = None if amount is None else _text(name, amount)
    patch: Patch = {"status": by_place} if by_place else {}
    return {**patch, **_annotations_patch(node, {ORIGINAL: _original(node, desired)})} or None


def metadata_patch(node: Node, desired: DesiredResources) -> Patch | None:
    texts: dict[str, str | None] = {}
    if desired.normalization_ratio is not None:
        texts[ratios.NORMALIZATION] = ratios.normalization_text(desired.normalization_ratio)
    if desired.amplification is not None:
        texts[ratios.AMPLIFICATION] = ratios.amplification_text(desired.amplification)
    return _annotations_patch(node, texts) or None


def observed_batch(node: Node) -> CPUMemory | None:
    """Returns ``DesiredResources.batch`` of the last write, by what the node shows; None if it shows no batch
    resources.
    """
    read = amounts.read(node.status.allocatable, BATCH)
    if read.cpu_milli is None or read.memory_bytes is None:
        return None
    original = codecs.of_object(node.metadata.annotations, _ORIGINAL, OriginalAllocatable, lambda _: None)
    return read.filled() if original is None else amounts.read(original.resources, BATCH).filled(read.filled())


class _Resource(NamedTuple):
    """Its place in the status, its name, its amount now and as it is to be, and the amount that pods hold."""

    place: str
    name: str
    observed: int | None
    amount: int | None
    held: int

    @property
    def is_off_what_is_held(self) -> bool:
        """Returns whether less is shown than pods hold, or more while nothing new may fit."""
        if self.observed is None or self.amount is None or self.observed == self.amount:
            return False
        return self.observed < self.held or self.amount == self.held


def _resources(node: Node, desired: DesiredResources) -> Iterator[_Resource]:
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


def _original(node: Node, desired: DesiredResources) -> str | None:
    """0 once nothing is offered any more; a node that never offered anything has no annotation."""
    if desired.batch is None and ORIGINAL not in node.metadata.annotations:
        return None
    batch = desired.batch or ZERO
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
