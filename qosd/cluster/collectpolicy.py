"""How a NodeMetric's spec wants the node measured and reported, with upstream's defaults for what it does not say.

A value out of bounds counts as the bound, an unreadable one as the default, and a window longer than samples are kept
as none; for each there is a sentence that names field and value. Nothing here raises.
"""

from __future__ import annotations

from dataclasses import dataclass

from koord.model import durations, schema
from koord.model.nodemetric import AggregatePolicy, CollectPolicy, MemoryCollectPolicy
from koord.overcommit.strategy import DEFAULTS, MetricAggregatePolicy
from qosd.sense.row import NODE_RETENTION_S, POD_RETENTION_S

LEAST_AGGREGATE_S, LEAST_REPORT_INTERVAL_S = 60, 30
_NANOSECONDS = 1_000_000_000
_PATH = "NodeMetric spec.metricCollectPolicy"


@dataclass(frozen=True, slots=True)
class AggregateWindow:
    """``duration``: as Go spells it. ``is_kept``: the node's samples are kept for that long."""

    duration: str
    length_s: float

    @property
    def is_kept(self) -> bool:
        return self.length_s <= NODE_RETENTION_S


@dataclass(frozen=True, slots=True)
class EffectiveCollectPolicy:
    """``aggregate_s``: the window of plain means. ``problems``: the settings that are not followed, and why."""

    aggregate_s: float
    report_interval_s: float
    windows: tuple[AggregateWindow, ...]
    memory: MemoryCollectPolicy
    problems: tuple[str, ...] = ()


def effective(policy: CollectPolicy | None) -> EffectiveCollectPolicy:
    stated, problems = policy or CollectPolicy(), list[str]()
    aggregate_s = _at_least(
        "aggregateDurationSeconds",
        stated.aggregate_duration_seconds,
        DEFAULTS.metric_aggregate_duration_seconds or LEAST_AGGREGATE_S,
        LEAST_AGGREGATE_S,
        problems,
    )
    report_interval_s = _at_least(
        "reportIntervalSeconds",
        stated.report_interval_seconds,
        DEFAULTS.metric_report_interval_seconds or LEAST_REPORT_INTERVAL_S,
        LEAST_REPORT_INTERVAL_S,
        problems,
    )
    if aggregate_s > POD_RETENTION_S:
        problems.append(
            f"{_PATH}.aggregateDurationSeconds: {aggregate_s} is more than the {POD_RETENTION_S:g} s that are kept of"
            f" pods, so means are of the last {POD_RETENTION_S:g} s"
        )
    return EffectiveCollectPolicy(
        min(aggregate_s, POD_RETENTION_S),
        report_interval_s,
        _windows(stated.node_aggregate_policy or AggregatePolicy(), problems),
        _memory(stated.node_memory_collect_policy, problems),
        tuple(problems),
    )


def _at_least(field: str, stated: int | None, default: int, least: int, problems: list[str]) -> int:
    if stated is None:
        return default
    if stated < least:
        problems.append(f"{_PATH}.{field}: {schema.clip(stated)} is less than {least}, which counts instead")
    return max(stated, least)


def _windows(policy: AggregatePolicy, problems: list[str]) -> tuple[AggregateWindow, ...]:
    defaults = DEFAULTS.metric_aggregate_policy or MetricAggregatePolicy()
    windows = []
    for index, text in enumerate(policy.durations or defaults.durations or ()):
        path = f"{_PATH}.nodeAggregatePolicy.durations[{index}]"
        length_ns = durations.parse_ns(text)
        if length_ns is None:
            problems.append(f"{path}: {schema.clip(text)} is not a duration such as 5m or 1h30m, and is left out")
            continue
        window = AggregateWindow(durations.spell(length_ns), length_ns / _NANOSECONDS)
        windows.append(window)
        if not window.is_kept:
            problems.append(
                f"{path}: {schema.clip(text)} is longer than the {NODE_RETENTION_S:g} s that are kept of the node,"
                " so its usage stays empty"
            )
    return tuple(windows)


def _memory(stated: str, problems: list[str]) -> MemoryCollectPolicy:
    plain, path = MemoryCollectPolicy.NO_PAGE_CACHE, f"{_PATH}.nodeMemoryCollectPolicy"
    if stated == MemoryCollectPolicy.HOT_PAGE_CACHE:
        problems.append(f"{path}: {stated} needs a kernel that tells hot pages from cold ones, so it counts as {plain}")
    elif stated == MemoryCollectPolicy.PAGE_CACHE:
        return MemoryCollectPolicy.PAGE_CACHE
    elif stated not in ("", plain):
        problems.append(f"{path}: {schema.clip(stated)} is no such policy and counts as {plain}")
    return plain
