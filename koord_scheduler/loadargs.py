"""Koordinator's LoadAwareSchedulingArgs, and the plugin that is made of them.

Bounds and defaults are upstream's. Sources: Koordinator, pkg/scheduler/apis/config/v1/{types,defaults}.go,
pkg/scheduler/apis/config/validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import msgspec

from koord.model.core import Slim
from koord.scheduling import loadsettings
from koord.scheduling.loadsettings import LoadSettings, Percents, Thresholds, WindowChoice
from koord.scheduling.plugin import Plugin
from koord.scheduling.plugins.loadaware import LoadAwareScheduling
from koord_scheduler.documentreader import DocumentReader

_ESTIMATORS = ("", "defaultEstimator")
_Threshold = Annotated[int, msgspec.Meta(ge=0, le=100)]
_Part = Annotated[int, msgspec.Meta(ge=1, le=100)]
"""A weight or a factor."""
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Aggregation(StrEnum):
    NONE = ""
    AVERAGE = "avg"
    P50 = "p50"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"


class AggregatedArgs(Slim, frozen=True):
    usage_thresholds: Mapping[str, _Threshold] = {}
    usage_aggregation_type: Aggregation = Aggregation.NONE
    usage_aggregated_duration: str = ""
    score_aggregation_type: Aggregation = Aggregation.NONE
    score_aggregated_duration: str = ""


class LoadAwareSchedulingArgs(Slim, frozen=True):
    api_version: str | None = None
    kind: str | None = None
    filter_expired_node_metrics: bool | None = None
    node_metric_expiration_seconds: _Seconds | None = None
    enable_schedule_when_node_metrics_expired: bool | None = None
    resource_weights: Mapping[str, _Part] | None = None
    dominant_resource_weight: _Threshold | None = None
    usage_thresholds: Mapping[str, _Threshold] | None = None
    prod_usage_thresholds: Mapping[str, _Threshold] | None = None
    prod_usage_include_sys: bool | None = None
    score_according_prod_usage: bool | None = None
    estimator: str | None = None
    estimated_scaling_factors: Mapping[str, _Part] | None = None
    estimated_seconds_after_pod_scheduled: _Seconds | None = None
    estimated_seconds_after_initialized: _Seconds | None = None
    allow_customize_estimation: bool | None = None
    aggregated: AggregatedArgs | None = None
    supported_resources: tuple[str, ...] | None = None


def load_aware(document: object, path: str, reader: DocumentReader) -> Plugin:
    args, default = reader.read(LoadAwareSchedulingArgs, document, path), LoadSettings()
    if (args.estimator or "") not in _ESTIMATORS:
        reader.wrong(f"{path}.estimator", args.estimator, "is not defaultEstimator, the only one that there is")
    dominant = args.dominant_resource_weight or 0
    weights = _pairs(args.resource_weights) or (() if dominant else default.weights)
    factors = dict(default.factors) | dict(args.estimated_scaling_factors or {})
    for name, weight in weights:
        if name not in factors:
            why = "has a weight and no factor in estimatedScalingFactors"
            reader.wrong(f"{path}.resourceWeights[{name}]", weight, why)
    aggregated, place = args.aggregated or AggregatedArgs(), f"{path}.aggregated"
    usage, window = _pairs(args.usage_thresholds), None
    if args.usage_thresholds is None:
        usage = default.thresholds.usage
    by_usage = _window(
        aggregated.usage_aggregation_type,
        aggregated.usage_aggregated_duration,
        f"{place}.usageAggregatedDuration",
        reader,
    )
    if by_usage is not None and aggregated.usage_thresholds:
        usage, window = _pairs(aggregated.usage_thresholds), by_usage
    by_score = _window(
        aggregated.score_aggregation_type,
        aggregated.score_aggregated_duration,
        f"{place}.scoreAggregatedDuration",
        reader,
    )
    expires_after_s = args.node_metric_expiration_seconds
    return LoadAwareScheduling(
        LoadSettings(
            Thresholds(usage, window, _pairs(args.prod_usage_thresholds)),
            args.filter_expired_node_metrics is not False,
            default.expires_after_s if expires_after_s is None else float(expires_after_s),
            args.enable_schedule_when_node_metrics_expired is True,
            args.prod_usage_include_sys is True,
            args.score_according_prod_usage is True,
            by_score,
            tuple(factors.items()),
            args.estimated_seconds_after_pod_scheduled,
            args.estimated_seconds_after_initialized,
            args.allow_customize_estimation is True,
            weights,
            dominant,
            args.supported_resources or (),
        )
    )


def _window(aggregation: Aggregation, duration: str, path: str, reader: DocumentReader) -> WindowChoice | None:
    """None: none is asked for."""
    duration_ns = loadsettings.duration_ns(duration)
    if duration_ns is None:
        reader.wrong(path, duration, "is no duration, as 5m is one")
    return WindowChoice(aggregation.value, duration_ns or 0) if aggregation else None


def _pairs(percents: Mapping[str, int] | None) -> Percents:
    return tuple((percents or {}).items())
