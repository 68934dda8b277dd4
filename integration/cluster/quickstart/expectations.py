"""What the output of a guide's commands has to show: small readings of YAML and tables, each true or false.

Quantities are compared by their amounts, because the API server writes 2000 as 2k. Invariant: an expectation that does
not hold is False, never an error, since a cluster that has just started may not have the object yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from koord.model import quantity

Check = Callable[[str], bool]
PERCENTILES = {"p50", "p90", "p95", "p99"}
DURATIONS = ["5m0s", "10m0s", "30m0s"]
COLLECT_POLICY = {
    "aggregateDurationSeconds": 300,
    "nodeAggregatePolicy": {"durations": DURATIONS},
    "nodeMemoryCollectPolicy": "usageWithoutPageCache",
    "reportIntervalSeconds": 60,
}


def pods_run(counts: Mapping[str, int]) -> Check:
    """``kubectl get pod``: so many pods of each name's beginning, all of them Running and Ready, and no other pod."""

    def check(output: str) -> bool:
        rows = [line.split() for line in output.splitlines()[1:]]
        found = {name: sum(row[0].startswith(f"{name}-") for row in rows) for name in counts}
        return (
            found == counts
            and len(rows) == sum(counts.values())
            and all(row[1] == "1/1" and row[2] == "Running" for row in rows)
        )

    return check


def lines_begin(*beginnings: str) -> Check:
    """The output's lines begin with these words, in this order."""

    def check(output: str) -> bool:
        lines = [" ".join(line.split()) for line in output.splitlines()]
        return len(lines) == len(beginnings) and all(map(str.startswith, lines, beginnings))

    return check


def contains(*texts: str) -> Check:
    return lambda output: all(text in output for text in texts)


def some_item_has(excerpt: str) -> Check:
    """``kubectl get -o yaml``: an item of the list has everything that the YAML ``excerpt`` shows."""
    wanted = yaml.safe_load(excerpt)
    return lambda output: any(has(item, wanted) for item in _items(output))


def nodemetric_is_complete(*, with_aggregates: bool) -> Check:
    """``kubectl get nodemetric -o yaml``: one object, with every field that NodeMetric has.

    ``with_aggregates``: the window of five minutes has percentiles; longer ones may still have none.
    """

    def check(output: str) -> bool:
        items = list(_items(output))
        return len(items) == 1 and not list(missing_of_nodemetric(items[0], with_aggregates))

    return check


def missing_of_nodemetric(item: Mapping[str, Any], with_aggregates: bool) -> Iterator[str]:
    """The fields, by their paths, that are absent or hold nothing."""
    if item["spec"].get("metricCollectPolicy") != COLLECT_POLICY:
        yield "spec.metricCollectPolicy"
    status = item.get("status") or {}
    node = status.get("nodeMetric") or {}
    for key in ("nodeUsage", "systemUsage"):
        if not _is_usage(node.get(key)):
            yield f"status.nodeMetric.{key}"
    for key in ("aggregatedNodeUsages", "aggregatedSystemUsages"):
        yield from _missing_of_aggregates(f"status.nodeMetric.{key}", node.get(key) or [], with_aggregates)
    pods = status.get("podsMetric") or []
    if not pods:
        yield "status.podsMetric"
    for pod in pods:
        named = all(pod.get(key) for key in ("name", "namespace", "priority", "qos"))
        if not (named and _is_usage(pod.get("podUsage"))):
            yield f"status.podsMetric: {pod}"
    if not _is_usage((status.get("prodReclaimableMetric") or {}).get("resource")):
        yield "status.prodReclaimableMetric.resource"
    if not status.get("updateTime"):
        yield "status.updateTime"


def _missing_of_aggregates(path: str, entries: list[dict[str, Any]], with_aggregates: bool) -> Iterator[str]:
    if not with_aggregates:
        return
    windows = {entry["duration"]: entry.get("usage") or {} for entry in entries}
    if list(windows) != DURATIONS:
        yield f"{path}: {list(windows)}"
    for duration, usage in windows.items():
        if not (usage or duration != DURATIONS[0]):
            yield f"{path} of {duration}"
        if usage and not (set(usage) >= PERCENTILES and all(_is_usage(usage[each]) for each in PERCENTILES)):
            yield f"{path} of {duration}: {usage}"


def _is_usage(value: Any) -> bool:
    return isinstance(value, dict) and {"cpu", "memory"} <= set(value.get("resources") or {})


def has(value: Any, wanted: Any) -> bool:
    """Whether ``value`` has all of ``wanted``: keys of maps, items of lists by position, quantities by amount."""
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(has(value.get(key), each) for key, each in wanted.items())
    if isinstance(wanted, list):
        return isinstance(value, list) and len(value) >= len(wanted) and all(map(has, value, wanted))
    return value == wanted or _amount(value) == _amount(wanted) is not None


def _amount(value: Any) -> int | None:
    """In billionths; None for what is no quantity."""
    try:
        return quantity.parse(str(value)).nano
    except ValueError:
        return None


def _items(output: str) -> Iterator[dict[str, Any]]:
    document = yaml.safe_load(output) or {}
    yield from document.get("items") or []
