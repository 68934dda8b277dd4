"""What ``koordctl top`` shows, as plain values: the node's lines and the pods by CPU in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.fields import Column, Field, Layout, Listing
from koordctl.values import NONE, amount, sparkline

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
_NODE, _POD = "node_", "pod_"
_BUSY = "cpu_usage_cores"
_NODE_WIDTH, _POD_WIDTH = 60, 30


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One metric of the node; ``history`` oldest first."""

    metric: str
    unit: str
    value: float
    history: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PodLine:
    """One pod: its metrics by name without ``pod_``, and how much CPU it used, oldest first."""

    pod: str
    usage: Mapping[str, float]
    history: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    node: tuple[NodeLine, ...]
    pods: tuple[PodLine, ...]
    observed_unix_ns: int


def _usage(name: str, header: str, unit: str, column: Column = Column.ALWAYS) -> Field[PodLine]:
    return Field(
        name,
        header,
        lambda line: amount(unit, line.usage[name]) if name in line.usage else NONE,
        column,
        lambda line: line.usage.get(name),
    )


PODS: Listing[PodLine] = Listing(
    "pods",
    (
        Field("pod", "POD"),
        _usage(_BUSY, "CPU", "cores"),
        _usage("cpu_throttled_ratio", "THROTTLED", "ratio"),
        _usage("memory_usage_bytes", "MEMORY", "bytes"),
        _usage("cpu_pressure_some_avg10_percent", "CPU WAIT", "percent"),
        _usage("memory_pressure_some_avg10_percent", "MEM WAIT", "percent"),
        Field(
            "cpu_history",
            "CPU HISTORY",
            lambda line: sparkline(line.history, _POD_WIDTH),
            value=lambda line: list(line.history),
        ),
    ),
    "No pods.",
)


def read(ask: Ask) -> Picture:
    """Ask the daemon for one picture, the pod that uses most first; raises what ``ask`` raises."""

    def metrics(prefix: str, history: bool) -> inspect.MetricsResponse:
        request = inspect.MetricsRequest(metric=prefix, history=history)
        answer: inspect.MetricsResponse = ask("Metrics", request, inspect.MetricsResponse)
        return answer

    node, pods, busy = metrics(_NODE, True), metrics(_POD, False), metrics(_POD + _BUSY, True)
    return Picture(_node_lines(node), _pod_lines(pods, busy), node.observed_unix_ns)


def node_text(picture: Picture) -> str:
    """The node's lines: metric, value, history."""
    width = max((len(line.metric) for line in picture.node), default=0)
    return "\n".join(
        f"{line.metric:<{width}}  {amount(line.unit, line.value):>10}  {sparkline(line.history, _NODE_WIDTH)}"
        for line in picture.node
    )


def page(picture: Picture, layout: Layout[PodLine]) -> str:
    """One picture as text."""
    return f"{node_text(picture)}\n\n{layout.table(picture.pods)}"


def document(picture: Picture, layout: Layout[PodLine]) -> dict[str, Any]:
    """The same for programs."""
    node = [asdict(line) | {"history": list(line.history)} for line in picture.node]
    return {"observed_unix_ns": picture.observed_unix_ns, "node": node, "pods": layout.objects(picture.pods)}


def _node_lines(answer: inspect.MetricsResponse) -> tuple[NodeLine, ...]:
    metrics = {metric.name: metric for metric in answer.metrics}
    shown = [metrics[name] for name in NODE_METRICS if name in metrics]
    return tuple(
        NodeLine(metric.name.removeprefix(_NODE), metric.unit, sample.value, _history(sample))
        for metric in shown
        for sample in metric.samples
    )


def _pod_lines(answer: inspect.MetricsResponse, busy: inspect.MetricsResponse) -> tuple[PodLine, ...]:
    histories = {sample.subject: _history(sample) for metric in busy.metrics for sample in metric.samples}
    names: dict[str, str] = {}
    usage: dict[str, dict[str, float]] = {}
    for metric in answer.metrics:
        for sample in metric.samples:
            names[sample.subject] = sample.label or sample.subject
            usage.setdefault(sample.subject, {})[metric.name.removeprefix(_POD)] = sample.value
    lines = [PodLine(name, usage[subject], histories.get(subject, ())) for subject, name in names.items()]
    return tuple(sorted(lines, key=lambda line: (-line.usage.get(_BUSY, 0.0), line.pod)))


def _history(sample: inspect.Sample) -> tuple[float, ...]:
    return tuple(point.value for point in sample.history)
