"""Makes pictures of a node for ``koordctl top``, as plain values: its figures, and its pods.

The first picture asks for the history that koord-qosd keeps; the later ones add to it, so that each costs the daemon
two answers of newest samples. What seldom changes (capacity, QoS classes) is asked for every ``SLOW_S``.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.fields import Listing, ListingField, Visibility
from koordctl.values import NONE, amount, sparkline

Ask = Callable[[str, Any, Any], Any]
"""NodeInspect's method, its request, the class of its answer → the answer."""

SLOW_S = 5.0
MOST_POINTS = 240
"""The longest history: as many points as the widest screen shows."""

NODE_METRICS = (
    "node_cpu_usage_cores",
    "node_be_cpu_usage_cores",
    "node_memory_usage_bytes",
    "node_cpu_pressure_some_avg10_percent",
    "node_memory_pressure_some_avg10_percent",
    "node_io_pressure_some_avg10_percent",
)
CPU, BE_CPU, MEMORY, *STALLS = NODE_METRICS
_NODE, _POD = "node_", "pod_"
_BUSY = "cpu_usage_cores"
_HISTORY_WIDTH = 30


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of the node; ``history`` oldest first, one point an interval."""

    unit: str
    value: float
    history: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PodLine:
    """A pod: its metrics by name without ``pod_``; its CPU use, oldest first, and the amount of a full bar."""

    pod: str
    usage: Mapping[str, float]
    history: tuple[float, ...] = ()
    qos_class: str = ""
    scale: float = 0.0


@dataclass(frozen=True, slots=True)
class Picture:
    """``observed_unix_ns``: 0 before koord-qosd has looked at the node. ``pods``: the one that uses most CPU first."""

    observed_unix_ns: int = 0
    node_name: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    node: Mapping[str, Figure] = field(default_factory=dict)
    pods: tuple[PodLine, ...] = ()

    @property
    def scale(self) -> float:
        """The CPUs that a full bar in the history of a pod stands for."""
        return self.pods[0].scale if self.pods else 0.0


def _usage(name: str, header: str, text: Callable[[float], str]) -> ListingField[PodLine]:
    return ListingField(
        name,
        header,
        lambda line: text(line.usage[name]) if name in line.usage else NONE,
        value=lambda line: line.usage.get(name),
    )


PODS: Listing[PodLine] = Listing(
    "pods",
    (
        ListingField("pod", "POD"),
        ListingField("qos_class", "QOS", lambda line: line.qos_class or NONE),
        _usage(_BUSY, "CPU", lambda cores: f"{cores:.2f}"),
        _usage("memory_usage_bytes", "MEMORY", lambda size: amount("bytes", size)),
        _usage("cpu_throttled_ratio", "THR%", lambda ratio: f"{100 * ratio:.0f}"),
        _usage("cpu_pressure_some_avg10_percent", "CPUW%", lambda percent: f"{percent:.1f}"),
        _usage("memory_pressure_some_avg10_percent", "MEMW%", lambda percent: f"{percent:.1f}"),
        ListingField(
            "cpu_history",
            "HISTORY",
            lambda line: sparkline(line.history, _HISTORY_WIDTH, line.scale),
            value=lambda line: list(line.history),
        ),
        ListingField("scale", "FULL BAR", visibility=Visibility.NAMED),
    ),
    "No pods.",
)


class PictureReader:
    """Makes one picture after the other. ``interval_s``: between two; ``clock``: monotonic seconds."""

    def __init__(self, ask: Ask, interval_s: float, clock: Callable[[], float]) -> None:
        self._ask, self._interval_s, self._clock = ask, interval_s, clock
        self._slow_s = -math.inf
        self._facts = inspect.GetNodeResponse()
        self._classes: Mapping[str, str] = {}
        self._histories: dict[str, deque[float]] = {}
        self._observed_unix_ns = 0

    def read(self) -> Picture:
        """Makes the picture of now; raises what ``ask`` raises."""
        if self._clock() - self._slow_s >= SLOW_S:
            self._read_slow()
        node, pods = self._metrics(_NODE), self._metrics(_POD)
        if not self._observed_unix_ns:
            for name in (CPU, _POD + _BUSY):
                self._begin(self._metrics(name, history=True))
        elif node.observed_unix_ns != self._observed_unix_ns:
            self._extend(node, {CPU})
            self._extend(pods, {_POD + _BUSY})
        self._observed_unix_ns = node.observed_unix_ns
        return Picture(
            observed_unix_ns=node.observed_unix_ns,
            node_name=self._facts.cluster.node_name or os.uname().nodename,
            cpus=self._facts.capacity.cpus,
            memory_bytes=self._facts.capacity.memory_bytes,
            node=self._figures(node),
            pods=self._pod_lines(pods),
        )

    def _read_slow(self) -> None:
        self._facts = self._ask("GetNode", inspect.GetNodeRequest(), inspect.GetNodeResponse)
        answer: inspect.ListPodsResponse = self._ask("ListPods", inspect.ListPodsRequest(), inspect.ListPodsResponse)
        self._classes = {f"{pod.namespace}/{pod.name}": pod.qos_class for pod in answer.pods}
        self._slow_s = self._clock()

    def _metrics(self, prefix: str, history: bool = False) -> inspect.MetricsResponse:
        request = inspect.MetricsRequest(metric=prefix, history=history)
        answer: inspect.MetricsResponse = self._ask("Metrics", request, inspect.MetricsResponse)
        return answer

    def _begin(self, answer: inspect.MetricsResponse) -> None:
        """Begins the histories with what koord-qosd remembers, one point an interval."""
        for metric in answer.metrics:
            if metric.name in (CPU, _POD + _BUSY):
                for sample in metric.samples:
                    points = by_interval(((point.age_s, point.value) for point in sample.history), self._interval_s)
                    self._histories[metric.name + sample.subject] = deque(points, MOST_POINTS)

    def _extend(self, answer: inspect.MetricsResponse, names: set[str]) -> None:
        kept = {
            metric.name + sample.subject: sample.value
            for metric in answer.metrics
            if metric.name in names
            for sample in metric.samples
        }
        for key in [key for key in self._histories if key not in kept and any(map(key.startswith, names))]:
            del self._histories[key]
        for key, value in kept.items():
            self._histories.setdefault(key, deque(maxlen=MOST_POINTS)).append(value)

    def _figures(self, answer: inspect.MetricsResponse) -> dict[str, Figure]:
        return {
            metric.name: Figure(metric.unit, sample.value, tuple(self._histories.get(metric.name + sample.subject, ())))
            for metric in answer.metrics
            if metric.name in NODE_METRICS
            for sample in metric.samples
        }

    def _pod_lines(self, answer: inspect.MetricsResponse) -> tuple[PodLine, ...]:
        names: dict[str, str] = {}
        usage: dict[str, dict[str, float]] = {}
        for metric in answer.metrics:
            for sample in metric.samples:
                names[sample.subject] = sample.label or sample.subject
                usage.setdefault(sample.subject, {})[metric.name.removeprefix(_POD)] = sample.value
        lines = [
            PodLine(
                name,
                usage[subject],
                tuple(self._histories.get(_POD + _BUSY + subject, ())),
                self._classes.get(name, ""),
            )
            for subject, name in names.items()
        ]
        greatest = max((value for line in lines for value in line.history), default=None)
        scale = 0.0 if greatest is None else round_up(greatest)
        lines.sort(key=lambda line: (-line.usage.get(_BUSY, 0.0), line.pod))
        return tuple(replace(line, scale=scale) for line in lines)


def by_interval(points: Iterable[tuple[float, float]], interval_s: float) -> list[float]:
    """Returns the mean of the values of each interval, oldest first; ``points`` have age and value, in any order."""
    buckets: dict[int, list[float]] = {}
    for age_s, value in points:
        buckets.setdefault(int(age_s / interval_s), []).append(value)
    return [sum(buckets[number]) / len(buckets[number]) for number in sorted(buckets, reverse=True)]


def round_up(value: float) -> float:
    """Returns the next of 1, 2 and 5 times a power of ten, at least 0.01."""
    power = 10.0 ** math.floor(math.log10(max(value, 0.01)))
    return next(step * power for step in (1, 2, 5, 10, 20) if step * power >= value * (1 - 1e-9))


def document(picture: Picture, pods: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the picture for programs."""
    node = [
        {"metric": name.removeprefix(_NODE), "unit": each.unit, "value": each.value, "history": list(each.history)}
        for name, each in picture.node.items()
    ]
    return {
        "observed_unix_ns": picture.observed_unix_ns,
        "node_name": picture.node_name,
        "cpus": picture.cpus,
        "memory_bytes": picture.memory_bytes,
        "node": node,
        "pods": pods,
    }
