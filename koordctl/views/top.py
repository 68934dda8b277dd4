"""What ``koordctl top`` shows, as plain values: the node's lines and the pods by CPU in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.views.values import amount

Ask = Callable[[str, Any, Any], Any]
"""NodeInspect's method, its request, the class of its answer → the answer."""

NODE_METRICS = (
    "node_cpu_usage_cores",
    "node_be_cpu_usage_cores",
    "node_memory_usage_bytes",
    "node_cpu_pressure_some_avg10_percent",
    "node_memory_pressure_some_avg10_percent",
    "node_io_pressure_some_avg10_percent",
)
POD_COLUMNS = (
    ("pod_cpu_usage_cores", "CPU"),
    ("pod_cpu_throttled_ratio", "THROTTLED"),
    ("pod_memory_usage_bytes", "MEMORY"),
    ("pod_cpu_pressure_some_avg10_percent", "CPU WAIT"),
    ("pod_memory_pressure_some_avg10_percent", "MEM WAIT"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of the node: ``text`` for people, ``history`` oldest first."""

    name: str
    text: str
    history: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PodLine:
    """One pod: its cells in the order of POD_COLUMNS, and the history of the first."""

    name: str
    cells: tuple[str, ...]
    history: tuple[float, ...]
    sort: float


@dataclass(frozen=True, slots=True)
class Picture:
    node: tuple[Line, ...]
    pods: tuple[PodLine, ...]
    observed_unix_ns: int


def read(ask: Ask) -> Picture:
    """Ask the daemon for one picture; raises what ``ask`` raises."""

    def metrics(prefix: str, history: bool) -> inspect.MetricsResponse:
        request = inspect.MetricsRequest(metric=prefix, history=history)
        answer: inspect.MetricsResponse = ask("Metrics", request, inspect.MetricsResponse)
        return answer

    node, pods, busy = metrics("node_", True), metrics("pod_", False), metrics(POD_COLUMNS[0][0], True)
    return Picture(_node_lines(node), _pod_lines(pods, busy), node.observed_unix_ns)


def _node_lines(answer: inspect.MetricsResponse) -> tuple[Line, ...]:
    found = {metric.name: metric for metric in answer.metrics}
    shown = [found[name] for name in NODE_METRICS if name in found]
    return tuple(
        Line(metric.name.removeprefix("node_"), amount(metric.unit, sample.value), _history(sample))
        for metric in shown
        for sample in metric.samples
    )


def _pod_lines(answer: inspect.MetricsResponse, busy: inspect.MetricsResponse) -> tuple[PodLine, ...]:
    units = {metric.name: metric.unit for metric in answer.metrics}
    values = {
        metric.name: {sample.subject: sample.value for sample in metric.samples}
        for metric in answer.metrics
    }  # fmt: skip
    histories = {sample.subject: _history(sample) for metric in busy.metrics for sample in metric.samples}
    names = {sample.subject: sample.label or sample.subject for metric in answer.metrics for sample in metric.samples}
    first = POD_COLUMNS[0][0]
    lines = [
        PodLine(
            names[subject],
            _cells(subject, values, units),
            histories.get(subject, ()),
            values.get(first, {}).get(subject, 0.0),
        )
        for subject in names
    ]
    return tuple(sorted(lines, key=lambda line: (-line.sort, line.name)))


def _cells(subject: str, values: Mapping[str, Mapping[str, float]], units: Mapping[str, str]) -> tuple[str, ...]:
    found = [(name, values.get(name, {}).get(subject)) for name, _ in POD_COLUMNS]
    return tuple("-" if value is None else amount(units[name], value) for name, value in found)


def _history(sample: inspect.Sample) -> tuple[float, ...]:
    return tuple(point.value for point in sample.history)
