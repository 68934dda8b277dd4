"""Metrics of a process: a dataclass, each of whose fields says all about one metric.

    @dataclass(slots=True)
    class Metrics:
        failed_ticks: int = counter("Ticks that an error of our own ended.")
        writes: Counter[str] = counter("Writes to kernel files, by result.", "result")

The metric has the field's name; the page has them in the fields' order. Counting is adding to a plain number: calls
wait for it. The numbers take Prometheus' form at a request, and ``prometheus_client`` is imported then, so that no
start pays for it. Invariant: ``take`` copies, so a snapshot can be rendered in any thread while the figures go on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
LATENCY_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0)
Labels = tuple[str, ...]
_FAMILY = "family"


class Histogram:
    """``counts[i]``: observations up to ``bounds[i]`` and over the bound before; the last has no bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def copy(self) -> Histogram:
        copied = Histogram(self.bounds)
        copied.counts, copied.sum = self.counts[:], self.sum
        return copied

    def cumulative(self) -> list[tuple[str, float]]:
        """Returns Prometheus' buckets: upper bound as text, and how many were at or below it."""
        total, buckets = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets


class MetricType(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with all its labels' values, in Prometheus' words. ``name``: without the program's prefix."""

    name: str
    kind: MetricType
    help: str
    labels: Labels = ()


def counter(help_text: str, *labels: str, factory: Callable[[], Any] | None = None) -> Any:
    """Makes a field that only grows: a number, or a Counter by label values. ``factory``: of another ``Figure``."""
    return _field(MetricType.COUNTER, help_text, labels, factory or (Counter if labels else int))


def gauge(help_text: str, *labels: str, factory: Callable[[], Any] | None = None) -> Any:
    """Makes a field that goes up and down, likewise."""
    return _field(MetricType.GAUGE, help_text, labels, factory or (Counter if labels else int))


def histogram(help_text: str, *labels: str, bounds: tuple[float, ...] = LATENCY_BOUNDS_S) -> Any:
    """Makes a field of a distribution: a Histogram, or a dict of them by label values that makes each on demand."""
    one = partial(Histogram, bounds)
    return _field(MetricType.HISTOGRAM, help_text, labels, partial(defaultdict, one) if labels else one)


def _field(kind: MetricType, help_text: str, labels: Labels, factory: Callable[[], Any]) -> Any:
    return field(default_factory=factory, metadata={_FAMILY: (kind, help_text, labels)})


Value = float | Histogram
Live = float | Callable[[], float]
"""A number, or a function that returns it at a request and does not fail."""
Figure: TypeAlias = "Live | Histogram | Mapping[Any, Value] | DataclassInstance"
"""A value, or several by their label values: a text, a tuple in the order of the labels, or a field's name."""
Gauge = tuple[Family, Callable[[], float]]
"""A value that another object keeps."""
Values = list[tuple[Labels, Value]]
Snapshot = list[tuple[Family, Values]]


def families(metrics: DataclassInstance | type[DataclassInstance]) -> tuple[Family, ...]:
    """Returns the families that the fields of the dataclass declare, in their order."""
    return tuple(Family(each.name, *each.metadata[_FAMILY]) for each in fields(metrics) if _FAMILY in each.metadata)


def take(metrics: DataclassInstance, gauges: Iterable[Gauge] = ()) -> Snapshot:
    """Returns every metric with its values at one moment, ``gauges`` last.

    Copying takes a millisecond at most, where rendering takes tens.
    """
    counted = [(family, getattr(metrics, family.name)) for family in families(metrics)]
    return [(family, _values(figure)) for family, figure in (*counted, *gauges)]


def _values(figure: Figure) -> Values:
    figure = figure() if callable(figure) else figure
    if is_dataclass(figure):
        figure = {each.name: getattr(figure, each.name) for each in fields(figure)}
    if not isinstance(figure, Mapping):
        return [((), _copied(figure))]
    return [(_labels(key), _copied(value)) for key, value in figure.items()]


def _labels(key: Any) -> Labels:
    return tuple(map(str, key)) if isinstance(key, tuple) else (str(key),)


def _copied(value: Value) -> Value:
    return value.copy() if isinstance(value, Histogram) else float(value)


class RegistryCollector:
    """Answers Prometheus' registry, as a collector. ``prefix``: before every name."""

    def __init__(self, prefix: str, snapshot: Snapshot) -> None:
        self._prefix, self._snapshot = prefix, snapshot

    def collect(self) -> Iterable[Metric]:
        return [_metric(self._prefix, family, values) for family, values in self._snapshot]


def render(prefix: str, snapshot: Snapshot) -> bytes:
    """Returns the text exposition; may run in any thread."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - at a request

    registry = CollectorRegistry()
    registry.register(RegistryCollector(prefix, snapshot))
    return generate_latest(registry)


def _metric(prefix: str, family: Family, values: Values) -> Metric:
    from prometheus_client.core import (  # noqa: PLC0415
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    kinds = {
        MetricType.COUNTER: CounterMetricFamily,
        MetricType.GAUGE: GaugeMetricFamily,
        MetricType.HISTOGRAM: HistogramMetricFamily,
    }
    metric: Metric = kinds[family.kind](prefix + family.name, family.help, labels=family.labels)
    for labels, value in values:
        if isinstance(metric, HistogramMetricFamily) and isinstance(value, Histogram):
            metric.add_metric(labels, buckets=value.cumulative(), sum_value=value.sum)
        elif isinstance(metric, CounterMetricFamily | GaugeMetricFamily) and isinstance(value, float):
            metric.add_metric(labels, value)
    return metric
