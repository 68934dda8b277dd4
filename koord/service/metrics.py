"""Figures that a process counts, and one table per process that says how each of them is called.

Counting is adding to a plain number: calls wait for it. The numbers take Prometheus' form when somebody asks, and
``prometheus_client`` is imported then, so that no start pays for it. Invariant: ``take`` copies, so a snapshot can be
rendered in any thread while the figures go on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
LATENCY_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0)
Labels = tuple[str, ...]
F = TypeVar("F")


class Histogram:
    """``counts[i]``: observations up to ``bounds_s[i]`` and over the bound before; the last has no bound."""

    __slots__ = ("bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...] = LATENCY_BOUNDS_S) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.sum_s += seconds

    def copy(self) -> Histogram:
        copied = Histogram(self.bounds_s)
        copied.counts, copied.sum_s = self.counts[:], self.sum_s
        return copied

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' buckets: upper bound as text, and how many were at or below it."""
        total, buckets = 0, []
        for bound, count in zip((*map(str, self.bounds_s), "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Value = float | Histogram
Figure = Value | Mapping[Any, Value]
"""One number or histogram, or several by their label values: a text, or a tuple in the order of the labels."""


@dataclass(frozen=True, slots=True)
class Declared(Generic[F]):
    """One metric. ``read`` finds its figure in what the process counts; it does not fail."""

    name: str
    kind: Kind
    help: str
    labels: Labels
    read: Callable[[F], Figure]


Values = list[tuple[Labels, Value]]
Snapshot = list[tuple[Declared[Any], Values]]


def take(table: Iterable[Declared[F]], figures: F) -> Snapshot:
    """Every metric with its values at one moment; copying takes a millisecond at most, where rendering takes tens."""
    return [(declared, _values(declared.read(figures))) for declared in table]


def _values(figure: Figure) -> Values:
    if not isinstance(figure, Mapping):
        return [((), _copied(figure))]
    return [(_labels(key), _copied(value)) for key, value in figure.items()]


def _labels(key: Any) -> Labels:
    return tuple(map(str, key)) if isinstance(key, tuple) else (str(key),)


def _copied(value: Value) -> Value:
    return value.copy() if isinstance(value, Histogram) else float(value)


class Exposition:
    """The collector that Prometheus' registry asks. ``prefix``: before every name."""

    def __init__(self, prefix: str, snapshot: Snapshot) -> None:
        self._prefix, self._snapshot = prefix, snapshot

    def collect(self) -> Iterable[Metric]:
        return [_metric(self._prefix, declared, values) for declared, values in self._snapshot]


def render(prefix: str, snapshot: Snapshot) -> bytes:
    """The text exposition, in any thread."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - when somebody asks

    registry = CollectorRegistry()
    registry.register(Exposition(prefix, snapshot))
    return generate_latest(registry)


def _metric(prefix: str, declared: Declared[Any], values: Values) -> Metric:
    from prometheus_client.core import (  # noqa: PLC0415
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    families = {Kind.COUNTER: CounterMetricFamily, Kind.GAUGE: GaugeMetricFamily, Kind.HISTOGRAM: HistogramMetricFamily}
    metric: Metric = families[declared.kind](prefix + declared.name, declared.help, labels=declared.labels)
    for labels, value in values:
        if isinstance(metric, HistogramMetricFamily) and isinstance(value, Histogram):
            metric.add_metric(labels, buckets=value.cumulative(), sum_value=value.sum_s)
        elif isinstance(metric, CounterMetricFamily | GaugeMetricFamily) and isinstance(value, float):
            metric.add_metric(labels, value)
    return metric
