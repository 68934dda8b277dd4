"""ColocationStrategy: how much of a node is offered again, and by which figures. The API's names and defaults.

None means "not set". ``DEFAULTS`` apply to what is not set; batch limits have no default.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from koord.model.qos_settings import Natural, Percent, Positive
from koord.model.schema import json_name
from koord.model.slo_extensions import KOORD, Registry

T = TypeVar("T")
DiffThreshold = Annotated[float, Meta(gt=0, le=1)]


class CalculatePolicy(StrEnum):
    """The amount that a pod of higher priority counts with. For CPU ``request`` acts as ``usage``, as upstream."""

    USAGE = "usage"
    REQUEST = "request"
    MAX_USAGE_REQUEST = "maxUsageRequest"


class MidReclaimMode(StrEnum):
    """An unset mode means ``dynamic``: prediction says what prod leaves. A level below overrides the one above it."""

    STATIC = "static"
    DYNAMIC = "dynamic"


class MetricAggregatePolicy(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    durations: tuple[str, ...] | None = None
    """Go's notation: ``5m``, ``1h30m``."""


class ColocationStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    enable: bool | None = None
    metric_aggregate_duration_seconds: Positive | None = None
    metric_report_interval_seconds: Positive | None = None
    metric_aggregate_policy: MetricAggregatePolicy | None = None
    metric_memory_collect_policy: str | None = None
    cpu_reclaim_threshold_percent: Natural | None = None
    """May exceed 100, which sells more than there is."""
    memory_reclaim_threshold_percent: Natural | None = None
    cpu_calculate_policy: CalculatePolicy | None = None
    memory_calculate_policy: CalculatePolicy | None = None
    degrade_time_minutes: Positive | None = None
    update_time_threshold_seconds: Positive | None = None
    resource_diff_threshold: DiffThreshold | None = None
    mid_reclaim_mode: MidReclaimMode | None = None
    mid_cpu_threshold_percent: Percent | None = msgspec.field(default=None, name="midCPUThresholdPercent")
    mid_memory_threshold_percent: Percent | None = None
    mid_unallocated_percent: Percent | None = None
    mid_static_cpu_reserved_percent: Percent | None = msgspec.field(default=None, name="midStaticCPUReservedPercent")
    mid_static_memory_reserved_percent: Percent | None = None
    batch_cpu_threshold_percent: Natural | None = msgspec.field(default=None, name="batchCPUThresholdPercent")
    batch_memory_threshold_percent: Natural | None = None
    extensions: Mapping[str, Any] | None = None
    """By key: a struct where ``EXTENSIONS`` has one, else as it came."""

    @property
    def covers_running_pods(self) -> bool:
        """Returns whether a Node shows at least what its running pods hold; it does by default."""
        found = (self.extensions or {}).get(KOORD)
        return not isinstance(found, KoordColocation) or found.cover_running_pods is not False


class KoordColocation(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """``extensions.koord`` of the strategy: what Koordinator has no field for."""

    cover_running_pods: bool | None = None
    """False: a Node shows what the formula leaves, as Koordinator's does, also where its pods hold more."""


EXTENSIONS: Registry = MappingProxyType({KOORD: KoordColocation})


DEFAULTS = ColocationStrategy(
    enable=False,
    metric_aggregate_duration_seconds=300,
    metric_report_interval_seconds=60,
    metric_aggregate_policy=MetricAggregatePolicy(durations=("5m", "10m", "30m")),
    metric_memory_collect_policy="usageWithoutPageCache",
    cpu_reclaim_threshold_percent=60,
    memory_reclaim_threshold_percent=65,
    cpu_calculate_policy=CalculatePolicy.USAGE,
    memory_calculate_policy=CalculatePolicy.USAGE,
    degrade_time_minutes=15,
    update_time_threshold_seconds=300,
    resource_diff_threshold=0.1,
    mid_cpu_threshold_percent=100,
    mid_memory_threshold_percent=100,
    mid_unallocated_percent=0,
    mid_static_cpu_reserved_percent=0,
    mid_static_memory_reserved_percent=0,
)


def required(value: T | None) -> T:
    """Returns the value of a field that a complete strategy, one over ``DEFAULTS``, sets. Raises ValueError."""
    if value is None:
        raise ValueError("the strategy is not complete; it is to be laid over DEFAULTS")
    return value
