"""By what load nodes are rejected and scored: a profile's arguments, and what a node's annotation replaces of them.

Defaults are upstream's. An annotation is read when the node's object changes; what cannot be read of it is as if it was
not said, and is a problem of the node.
Sources: Koordinator, pkg/scheduler/apis/config/v1/defaults.go, apis/extension/load_aware.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from koord.model import durations
from koord.model.annotations import codecs
from koord.model.annotations.codecs import document
from koord.model.priority import CPU, MEMORY
from koord.model.problem import Bad, Problem

USAGE_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
"""Of a node: thresholds that replace those of the plugin's arguments."""
Percents = tuple[tuple[str, int], ...]
"""By the resource, in percent; of a threshold 0 is none."""


@dataclass(frozen=True)
class WindowChoice:
    """``aggregation``: as "p95"; ``duration_ns`` 0: the longest window that there is."""

    aggregation: str
    duration_ns: int = 0


@dataclass(frozen=True)
class Thresholds:
    """``window`` None: those of ``usage`` are for what is used now. ``prod``: for pods of koord-prod, and what those
    use; without any, such pods are as others.
    """

    usage: Percents = ((CPU, 65), (MEMORY, 95))
    window: WindowChoice | None = None
    prod: Percents = ()


@dataclass(frozen=True)
class LoadSettings:
    """Arguments of the plugin that goes by load; upstream's defaults.

    ``score_window`` None: scores are of what is used now. ``seconds_after_scheduled``, ``seconds_after_initialized``:
    for how long a pod counts with its estimate at least; None: until it was measured.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    filters_expired: bool = True
    expires_after_s: float = 180.0
    """0: never, as long as it says when it was measured."""
    passes_when_expired: bool = False
    prod_includes_system: bool = False
    scores_prod: bool = False
    score_window: WindowChoice | None = None
    factors: Percents = ((CPU, 85), (MEMORY, 70))
    seconds_after_scheduled: int | None = None
    seconds_after_initialized: int | None = None
    may_be_customized: bool = False
    weights: Percents = ((CPU, 1), (MEMORY, 1))
    dominant_weight: int = 0
    extra_resources: tuple[str, ...] = ()

    @property
    def resources(self) -> tuple[str, ...]:
        """Those that are looked at."""
        said = (self.factors, self.thresholds.usage, self.thresholds.prod, self.weights)
        return tuple(dict.fromkeys([CPU, MEMORY, *[name for each in said for name, _ in each], *self.extra_resources]))


_Percent = Annotated[int, msgspec.Meta(ge=0, le=1000)]


class _AggregatedThresholds(msgspec.Struct, frozen=True, rename="camel"):
    usage_thresholds: Mapping[str, _Percent] = {}
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = ""


class _NodeThresholds(msgspec.Struct, frozen=True, rename="camel"):
    usage_thresholds: Mapping[str, _Percent] = {}
    prod_usage_thresholds: Mapping[str, _Percent] = {}
    aggregated_usage: _AggregatedThresholds | None = None


class OwnThresholds(NamedTuple):
    """A node's own; what is empty is as in the settings."""

    usage: Percents
    prod: Percents
    aggregated: Percents
    window: WindowChoice | None


_THRESHOLDS_KEY = document(USAGE_THRESHOLDS, _NodeThresholds)


def own_thresholds(annotations: Mapping[str, str], bad: Bad) -> OwnThresholds | None:
    """Returns what a node with these annotations says; None: nothing. Aggregated ones count with their type only."""
    said = codecs.of_object(annotations, _THRESHOLDS_KEY, _NodeThresholds, bad)
    if said is None:
        return None
    usage, prod = tuple(said.usage_thresholds.items()), tuple(said.prod_usage_thresholds.items())
    aggregated = said.aggregated_usage
    if aggregated is None or not aggregated.usage_thresholds or not aggregated.usage_aggregation_type:
        return OwnThresholds(usage, prod, (), None)
    length_ns = duration_ns(aggregated.usage_aggregated_duration)
    if length_ns is None:
        why = f"usageAggregatedDuration {aggregated.usage_aggregated_duration!r} is no duration"
        bad(Problem(f"annotation {USAGE_THRESHOLDS}", why))
    window = WindowChoice(aggregated.usage_aggregation_type, length_ns or 0)
    return OwnThresholds(usage, prod, tuple(aggregated.usage_thresholds.items()), window)


def duration_ns(text: str) -> int | None:
    """Returns a window's length, as Go writes durations; 0: the longest that there is. None: it is no duration."""
    return 0 if text in ("", "0", "0s") else durations.parse_ns(text)
