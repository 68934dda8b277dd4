"""Evicts pods of the batch and mid bands when they requested more than is allocatable now.

The allocatable amounts of these bands shrink and grow with what other pods leave, so requests that fitted once may be
too much later. Only requests for the band's own resource count, and only pods with such requests are evicted: native
requests are the scheduler's and kubelet's, and no pod of these bands could make up for them. Without an allocatable
amount nothing is demanded; an explicit 0 demands all back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar

import msgspec

from koord.model.formulas import FORMULA, Formula, Inputs, number
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, PriorityClass
from koord.model.quantity import Quantity
from koord.model.schema import json_name
from koord.model.slo import ResourceThresholds
from qosd.decide.decision import Decision
from qosd.decide.shortage import Measure, ReliefStep, Resource, Shortage, Victims
from qosd.decide.victims import belongs_to, request_of
from qosd.model.snapshot import NodeSnapshot, PodView, live
from qosd.strategies.eviction.evicting import (
    BY_PRIORITY,
    LISTS,
    SAMPLES_S,
    Evicting,
    SettingError,
    by_priority,
    required,
)

_BANDS: Mapping[Resource, Mapping[str, PriorityClass]] = {
    Resource.CPU_MILLI: {BATCH_CPU: PriorityClass.BATCH, MID_CPU: PriorityClass.MID},
    Resource.MEMORY_BYTES: {BATCH_MEMORY: PriorityClass.BATCH, MID_MEMORY: PriorityClass.MID},
}
_HIGHEST_PRIORITY = 7999
"""The highest priority of the mid band: no pod above it requests these resources."""


def to_release(requested: int, allocatable: int, lower_percent: int) -> int:
    """Returns what to release so that the rest is ``lower_percent`` of the allocatable; all of it if that is 0."""
    return (requested * 100 - lower_percent * allocatable) // 100 if allocatable else requested


def _compute(inputs: Inputs) -> int:
    return to_release(*(number(inputs, name) for name in ("requested", "allocatable", "lower_percent")))


RELEASE = Formula(
    "requests_to_release",
    "floor(requested - allocatable * lower_percent / 100); all if nothing is allocatable",
    _compute,
)


class _Requested(msgspec.Struct, frozen=True, eq=False):
    """What pods requested, by extended resource; ``pods`` and ``priority_at_most``: what the sums were made from."""

    pods: tuple[PodView, ...]
    priority_at_most: int
    by_resource: Mapping[str, int]


class Allocatable(Evicting[_Requested]):
    """The strategies ``cpuAllocatableEvict`` and ``memoryAllocatableEvict``."""

    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"usage": SAMPLES_S, **LISTS})
    formulas: ClassVar[tuple[Formula, ...]] = (RELEASE,)
    resource: ClassVar[Resource]
    prefix: ClassVar[str]
    """The beginning of the settings' names."""

    def states(
        self, snapshot: NodeSnapshot, thresholds: ResourceThresholds, last: _Requested | None
    ) -> tuple[Decision, _Requested | None]:
        upper, lower = self._percents(thresholds)
        priority_at_most = self._priority(thresholds)
        allocatable = snapshot.policy.node.allocatable
        if not allocatable.keys() & _BANDS[self.resource].keys():
            names = " nor of ".join(_BANDS[self.resource])
            return Decision(f"node.allocatable says nothing of {names}, so nobody is evicted by them"), last
        requested = self._requested(snapshot, priority_at_most, last)
        said = list(self._by_resource(snapshot, requested, allocatable, (upper, lower)))
        shortages = tuple([shortage for _, shortage in said if shortage is not None])
        return Decision("; ".join(sentence for sentence, _ in said), shortages=shortages), requested

    def _percents(self, thresholds: ResourceThresholds) -> tuple[int, int]:
        upper_name, lower_name = f"{self.prefix}_threshold_percent", f"{self.prefix}_lower_percent"
        upper, lower = required(thresholds, upper_name), required(thresholds, lower_name)
        if upper < 0:
            raise SettingError(upper_name, upper, "is negative")
        if lower >= upper:
            raise SettingError(lower_name, lower, f"is not less than {json_name(upper_name)}, {upper}")
        return upper, lower

    def _priority(self, thresholds: ResourceThresholds) -> int:
        name = "allocatable_evict_priority_threshold"
        priority_at_most = required(thresholds, name)
        if priority_at_most > _HIGHEST_PRIORITY:
            raise SettingError(name, priority_at_most, f"is more than {_HIGHEST_PRIORITY}")
        return priority_at_most

    def _victims(self, extended_resource: str, priority_at_most: int) -> Victims:
        bands = frozenset({_BANDS[self.resource][extended_resource]})
        return msgspec.structs.replace(by_priority(self.gate, priority_at_most), bands=bands)

    def _requested(self, snapshot: NodeSnapshot, priority_at_most: int, last: _Requested | None) -> _Requested:
        """Returns the sums, which are made again only if pods or threshold have changed."""
        if last is not None and last.pods is snapshot.pods and last.priority_at_most == priority_at_most:
            return last
        pods = [pod for pod in snapshot.pods if live(pod)]
        sums = {
            extended_resource: self._sum(pods, extended_resource, priority_at_most)
            for extended_resource in _BANDS[self.resource]
        }
        return _Requested(snapshot.pods, priority_at_most, sums)

    def _sum(self, pods: list[PodView], extended_resource: str, priority_at_most: int) -> int:
        victims = self._victims(extended_resource, priority_at_most)
        return sum([request_of(pod, self.resource, extended_resource) or 0 for pod in pods if belongs_to(pod, victims)])

    def _by_resource(
        self,
        snapshot: NodeSnapshot,
        requested: _Requested,
        allocatable: Mapping[str, Quantity],
        percents: tuple[int, int],
    ) -> Iterator[tuple[str, Shortage | None]]:
        """Yields a sentence on each extended resource, and its shortage if it has one."""
        upper, lower = percents
        for extended_resource, sum_ in requested.by_resource.items():
            if extended_resource not in allocatable:
                if sum_:
                    yield f"node.allocatable says nothing of {extended_resource}", None
                continue
            there = allocatable[extended_resource].value()
            whose = f"pods of a priority of {requested.priority_at_most} at most"
            has = f"{sum_} of {there} {extended_resource} are requested by {whose}"
            is_over = sum_ * 100 > upper * there if there else sum_ > 0
            if not is_over:
                yield f"{has}, no more than {upper} %", None
                continue
            amount, why = to_release(sum_, there, lower), f"{has}, more than {upper} %"
            inputs: Inputs = {
                FORMULA: RELEASE.name, "requested": sum_, "allocatable": there, "lower_percent": lower,
            }  # fmt: skip
            shortage = Shortage(
                self.resource,
                amount,
                self._victims(extended_resource, requested.priority_at_most),
                BY_PRIORITY,
                why,
                Measure.REQUEST,
                frozenset({ReliefStep.EVICT}),
                inputs,
                extended_resource,
                snapshot.sampled_by("usage"),
            )
            yield f"{why}: {self.resource.said(amount)} of them must be freed", shortage


class CPUAllocatable(Allocatable):
    name: ClassVar[str] = "cpuAllocatableEvict"
    gate: ClassVar[str] = "CPUAllocatableEvict"
    resource: ClassVar[Resource] = Resource.CPU_MILLI
    prefix: ClassVar[str] = "cpu_allocatable_evict"


class MemoryAllocatable(Allocatable):
    name: ClassVar[str] = "memoryAllocatableEvict"
    gate: ClassVar[str] = "MemoryAllocatableEvict"
    resource: ClassVar[Resource] = Resource.MEMORY_BYTES
    prefix: ClassVar[str] = "memory_allocatable_evict"
