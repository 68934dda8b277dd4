"""qosd's own figures, in one registry that is handed to whoever counts.

Counting is adding to a number: a hook call makes half a dozen, and a pod waits for it. Prometheus' own counters lock
and check at each step; here the numbers take their form when somebody asks. One thread counts and reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["CONTENT_TYPE", "Count", "Counts", "Metrics"]

_TICK_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_LATENCY_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)


class Count:
    """One number that grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        self.value += amount


class Counts:
    """A counter by label values, as a collector of the registry."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name, self._help, self._labels = name, help_text, labels
        self._by_labels: dict[tuple[str, ...], Count] = {}
        registry.register(self)

    def labels(self, *values: str) -> Count:
        """The number of these label values, in the order of the names."""
        count = self._by_labels.get(values)
        if count is None:
            count = self._by_labels[values] = Count()
        return count

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for values, count in self._by_labels.items():
            family.add_metric(values, count.value)
        return [family]


class Gauges:
    """Numbers that somebody else keeps, asked for when they are read: (name, help, function)."""

    def __init__(self, rows: Sequence[tuple[str, str, Callable[[], float]]], registry: CollectorRegistry) -> None:
        self._rows = rows
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        for name, help_text, ask in self._rows:
            yield GaugeMetricFamily(name, help_text, value=ask())


class Total:
    """A number that grows and that somebody else keeps."""

    def __init__(self, name: str, help_text: str, ask: Callable[[], float], registry: CollectorRegistry) -> None:
        self._name, self._help, self._ask = name, help_text, ask
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._help, value=self._ask())


class Metrics:
    """Every metric of the process; ``render`` is the Prometheus text."""

    def __init__(self, log_lines_dropped: Callable[[], int] = lambda: 0) -> None:
        self.registry = CollectorRegistry()
        Total(
            "koord_qosd_log_lines_dropped",
            "Lines of the log that nobody read in time.",
            log_lines_dropped,
            self.registry,
        )
        self.hook_calls = Counts(
            "koord_qosd_hook_calls",
            "Hook calls answered, by stage, caller and result (edited, unchanged, yielded, error).",
            ["stage", "caller", "result"],
            self.registry,
        )
        self.hook_seconds = Histogram(
            "koord_qosd_hook_seconds",
            "Time to answer a hook call.",
            ["stage"],
            buckets=_LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.hook_edits = Counts("koord_qosd_hook_edits", "Fields edited, by hook.", ["hook", "field"], self.registry)
        self.unrecorded_edits = Counts(
            "koord_qosd_unrecorded_edits",
            "Containers made or updated with edits of which the undo record could not be told.",
            [],
            self.registry,
        )
        self.pod_problems = Counts(
            "koord_qosd_pod_problems",
            "Labels and annotations that were treated as absent, by stage.",
            ["stage"],
            self.registry,
        )
        self.tick_seconds = Histogram(
            "koord_qosd_tick_seconds",
            "Time from the beginning of a tick to its last write, by kind (beat, change, urgent).",
            ["kind"],
            buckets=_TICK_BUCKETS_S,
            registry=self.registry,
        )
        self.failed_ticks = Counts(
            "koord_qosd_failed_ticks", "Ticks that an error of our own ended.", [], self.registry
        )
        self.writes = Counts(
            "koord_qosd_writes", "Writes to kernel files that were decided, by result.", ["result"], self.registry
        )
        self.rules_loads = Counts(
            "koord_qosd_rules_loads",
            "Attempts to load the rules file, by result (loaded, defaults, kept_last_good, unknown).",
            ["result"],
            self.registry,
        )

    def follow(self, rows: Sequence[tuple[str, str, Callable[[], float]]]) -> None:
        """Show these numbers too: (name, help, function)."""
        Gauges(rows, self.registry)

    def render(self) -> bytes:
        return generate_latest(self.registry)
