"""A node's ColocationStrategy: the ConfigMap's, then the node's annotation, then its four ratio labels.

Invariant: every strategy that leaves here keeps the bounds of ``ColocationStrategy``; what would break them counts as
not set and is reported as a problem. Nothing here raises on what a node's metadata says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from koord.model import durations, schema, slo_extensions
from koord.model.nodemetric import AggregatePolicy, CollectPolicy
from koord.model.problem import Bad, Problem
from koord.model.schema import SchemaError, Unknown, wrong
from koord.overcommit.strategy import DEFAULTS, EXTENSIONS, ColocationStrategy, MetricAggregatePolicy
from koord.sloconfig.merging import laid_over

ANNOTATION_STRATEGY = "node.koordinator.sh/colocation-strategy"
RATIO_LABELS: Mapping[str, str] = {
    "node.koordinator.sh/cpu-reclaim-ratio": "cpuReclaimThresholdPercent",
    "node.koordinator.sh/memory-reclaim-ratio": "memoryReclaimThresholdPercent",
    "node.koordinator.sh/mid-static-cpu-reserved-ratio": "midStaticCPUReservedPercent",
    "node.koordinator.sh/mid-static-memory-reserved-ratio": "midStaticMemoryReservedPercent",
}
"""A node's labels, and the fields of its strategy that they replace."""

_RATIO = re.compile(r"(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE]-?[0-9]{1,2})?", re.ASCII)


def checked(strategy: ColocationStrategy, path: str, bad: Bad, unknown: Unknown | None = None) -> ColocationStrategy:
    """Returns ``strategy`` with its extensions read and in the flat form, and without durations that are none."""
    if strategy.extensions is not None:
        try:
            flat = slo_extensions.read(strategy.extensions, f"{path}.extensions", unknown, bad, EXTENSIONS)
        except SchemaError as error:
            bad(error.problem)
            flat = None
        strategy = msgspec.structs.replace(strategy, extensions=flat)
    policy = strategy.metric_aggregate_policy or MetricAggregatePolicy()
    for index, text in enumerate(policy.durations or ()):
        if durations.parse_ns(text) is None:
            place = f"{path}.metricAggregatePolicy.durations[{index}]"
            bad(wrong(place, text, "is not a duration such as 5m or 1h30m"))
            strategy = msgspec.structs.replace(strategy, metric_aggregate_policy=None)
    return strategy


def of_node(
    base: ColocationStrategy, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[ColocationStrategy, tuple[Problem, ...]]:
    """Returns ``base`` with what the node says of itself; a bad part of that counts as not set."""
    problems: list[Problem] = []
    bad = problems.append
    strategy = laid_over(base, _annotation(annotations, problems))
    for label, field in RATIO_LABELS.items():
        if label in labels:
            strategy = laid_over(strategy, _ratio(label, labels[label], field, bad))
    return strategy, tuple(problems)


def collect_policy(strategy: ColocationStrategy) -> CollectPolicy:
    """Returns what a node's agent measures by: ``strategy``'s settings if colocation is enabled, else the defaults.

    Durations are spelled as Go does, so that an object of upstream's manager is found equal.
    """
    source = strategy if strategy.enable else DEFAULTS
    policy = source.metric_aggregate_policy or MetricAggregatePolicy()
    windows_ns = [durations.parse_ns(text) for text in policy.durations or ()]
    return CollectPolicy(
        aggregate_duration_seconds=source.metric_aggregate_duration_seconds,
        report_interval_seconds=source.metric_report_interval_seconds,
        node_aggregate_policy=AggregatePolicy(durations=tuple(durations.spell(each) for each in windows_ns if each)),
        node_memory_collect_policy=source.metric_memory_collect_policy or "",
    )


def _annotation(annotations: Mapping[str, str], problems: list[Problem]) -> ColocationStrategy:
    text, bad = annotations.get(ANNOTATION_STRATEGY), problems.append
    if text is None:
        return ColocationStrategy()
    try:
        document = schema.parse_json(text)
    except SchemaError as error:
        problems.append(Problem(ANNOTATION_STRATEGY, str(error)))
        return ColocationStrategy()
    try:
        stated = schema.read(ColocationStrategy, {} if document is None else document, ANNOTATION_STRATEGY, bad=bad)
    except SchemaError as error:
        bad(error.problem)
        return ColocationStrategy()
    return checked(stated, ANNOTATION_STRATEGY, bad)


def _ratio(label: str, text: str, field: str, bad: Bad) -> ColocationStrategy:
    """Sets ``field`` in percent, truncated; in binary floating point as upstream, by which 0.29 is 28 %."""
    if not _RATIO.fullmatch(text):
        bad(wrong(label, text, "is not a ratio such as 0.65"))
        return ColocationStrategy()
    return schema.read(ColocationStrategy, {field: int(float(text) * 100)}, label, bad=bad)
