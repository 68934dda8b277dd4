"""The one table that says how each figure of the proxy is called.

The relay and the hooks add to plain integers; this module turns them into Prometheus' form only when somebody asks.
``prometheus_client`` is imported by ``render``, so that the start does not pay for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import koord
from runtimeproxy.histogram import Histogram
from runtimeproxy.hookcounters import HookCounters, Labels
from runtimeproxy.looplag import LoopLag
from runtimeproxy.relay.counters import RelayCounters

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that is exported. The callables are asked when somebody looks; they do not fail."""

    relay: RelayCounters
    lag: LoopLag
    hooks: HookCounters
    bypass: Callable[[], bool]
    backend_up: Callable[[], bool]
    hook_servers: Callable[[], int]
    log_lines_dropped: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric: ``read`` yields label values (in the order of ``labels``) with a number or a Histogram."""

    name: str
    kind: Kind
    help: str
    labels: Labels
    read: Callable[[Figures], Iterable[tuple[Labels, float | Histogram]]]


def _bare(value: Callable[[Figures], float]) -> Callable[[Figures], list[tuple[Labels, float | Histogram]]]:
    return lambda figures: [((), float(value(figures)))]


def _by(
    counts: Callable[[Figures], Counter[Labels]],
) -> Callable[[Figures], list[tuple[Labels, float | Histogram]]]:
    return lambda figures: [(labels, float(count)) for labels, count in counts(figures).items()]


def _by_reason(
    counts: Callable[[Figures], Counter[str]],
) -> Callable[[Figures], list[tuple[Labels, float | Histogram]]]:
    return lambda figures: [((reason,), float(count)) for reason, count in counts(figures).items()]


def _calls(figures: Figures) -> list[tuple[Labels, float | Histogram]]:
    return [((label, str(status)), float(count)) for (label, status), count in figures.relay.calls.items()]


def _by_method(
    histograms: Callable[[Figures], dict[str, Histogram]],
) -> Callable[[Figures], list[tuple[Labels, float | Histogram]]]:
    return lambda figures: [((method,), histogram) for method, histogram in histograms(figures).items()]


def _bytes(figures: Figures) -> list[tuple[Labels, float | Histogram]]:
    relay = figures.relay
    return [(("to_runtime",), float(relay.bytes_to_runtime)), (("to_client",), float(relay.bytes_to_client))]


PREFIX = "koord_runtimeproxy_"
METRICS = (
    Declared("calls", Kind.COUNTER, "Calls that ended, by path and gRPC status.", ("method", "code"), _calls),
    Declared(
        "call_duration_seconds",
        Kind.HISTOGRAM,
        "Time from a call's first frame to the end of its answer, holding and the runtime's work included.",
        ("method",),
        _by_method(lambda f: f.relay.latency),
    ),
    Declared(
        "hold_duration_seconds",
        Kind.HISTOGRAM,
        "Time from a held call's first frame to the decision on it.",
        ("method",),
        _by_method(lambda f: f.relay.hold),
    ),
    Declared(
        "loop_lag_seconds",
        Kind.HISTOGRAM,
        "How late a timer was that runs while there is work: what the process, or a full CPU, kept calls waiting.",
        (),
        lambda f: [((), f.lag.lateness)],
    ),
    Declared(
        "loop_lag_longest_seconds",
        Kind.GAUGE,
        "The longest of these since the start.",
        (),
        _bare(lambda f: f.lag.longest_s),
    ),
    Declared("edits", Kind.COUNTER, "Fields rewritten in requests.", ("method", "field"), _by(lambda f: f.hooks.edits)),
    Declared("edited_requests", Kind.COUNTER, "Requests that went on rewritten.", (), _bare(lambda f: f.relay.edited)),
    Declared(
        "refused", Kind.COUNTER, "Requests refused under failure policy Fail.", (), _bare(lambda f: f.relay.refused)
    ),
    Declared(
        "fail_open",
        Kind.COUNTER,
        "Requests that went on unedited although they were to be edited.",
        ("reason",),
        _by_reason(lambda f: f.relay.fail_open),
    ),
    Declared(
        "faults",
        Kind.COUNTER,
        "Errors of the proxy's own outside of a held request.",
        ("doing",),
        _by(lambda f: f.hooks.faults),
    ),
    Declared(
        "not_held",
        Kind.COUNTER,
        "Requests that could not be kept back for editing.",
        ("reason",),
        _by_reason(lambda f: f.relay.not_held),
    ),
    Declared(
        "not_copied",
        Kind.COUNTER,
        "Requests that passed without a copy for what is remembered of pods and containers.",
        ("reason",),
        _by_reason(lambda f: f.relay.not_copied),
    ),
    Declared(
        "blind_connections",
        Kind.COUNTER,
        "Connections on which decoding failed; relayed, never edited.",
        ("reason",),
        _by_reason(lambda f: f.relay.blind),
    ),
    Declared("connections", Kind.GAUGE, "Client connections open now.", (), _bare(lambda f: f.relay.connections)),
    Declared(
        "accepted_connections",
        Kind.COUNTER,
        "Client connections accepted.",
        (),
        _bare(lambda f: f.relay.connections_total),
    ),
    Declared(
        "unserved_connections",
        Kind.COUNTER,
        "Client connections closed because the runtime was missing.",
        (),
        _bare(lambda f: f.relay.connections_unserved),
    ),
    Declared("bytes", Kind.COUNTER, "Bytes relayed.", ("direction",), _bytes),
    Declared("held_streams", Kind.GAUGE, "Requests kept back now.", (), _bare(lambda f: f.relay.held_streams)),
    Declared("held_bytes", Kind.GAUGE, "Bytes of requests kept back now.", (), _bare(lambda f: f.relay.held_bytes)),
    Declared(
        "hook_calls",
        Kind.COUNTER,
        "Calls to hook servers.",
        ("server", "stage", "outcome"),
        _by(lambda f: f.hooks.calls),
    ),
    Declared(
        "hook_duration_seconds",
        Kind.HISTOGRAM,
        "Time a hook server took, failures included.",
        ("server", "stage"),
        lambda f: list(f.hooks.latency.items()),
    ),
    Declared(
        "hook_policy",
        Kind.COUNTER,
        "Failed hook calls and what the policy made of them.",
        ("server", "stage", "outcome"),
        _by(lambda f: f.hooks.policy),
    ),
    Declared(
        "hook_conflicts",
        Kind.COUNTER,
        "Values of one hook server overridden by a later one.",
        ("field",),
        _by(lambda f: f.hooks.conflicts),
    ),
    Declared(
        "hook_guards",
        Kind.COUNTER,
        "Edits of hook servers that were dropped.",
        ("reason",),
        _by(lambda f: f.hooks.guards),
    ),
    Declared(
        "hook_posts_dropped",
        Kind.COUNTER,
        "Post hooks not delivered.",
        ("server", "stage"),
        _by(lambda f: f.hooks.posts_dropped),
    ),
    Declared("hook_servers", Kind.GAUGE, "Hook servers registered now.", (), _bare(lambda f: f.hook_servers())),
    Declared(
        "hook_file_errors",
        Kind.GAUGE,
        "Hook server files that are invalid now.",
        (),
        _bare(lambda f: f.hooks.file_errors),
    ),
    Declared(
        "exempt",
        Kind.COUNTER,
        "Requests of pods that are exempt from hooks.",
        ("reason",),
        _by(lambda f: f.hooks.exemptions),
    ),
    Declared("cached_pods", Kind.GAUGE, "Pods remembered now.", (), _bare(lambda f: f.hooks.cached_pods)),
    Declared(
        "cached_containers", Kind.GAUGE, "Containers remembered now.", (), _bare(lambda f: f.hooks.cached_containers)
    ),
    Declared(
        "bypass", Kind.GAUGE, "1 while nothing is edited on request of the operator.", (), _bare(lambda f: f.bypass())
    ),
    Declared(
        "backend_up",
        Kind.GAUGE,
        "1 if the runtime's socket takes connections now.",
        (),
        _bare(lambda f: f.backend_up()),
    ),
    Declared(
        "log_lines_dropped",
        Kind.COUNTER,
        "Lines of the log and the audit log that nobody read in time.",
        (),
        _bare(lambda f: f.log_lines_dropped()),
    ),
    Declared(
        "build_info",
        Kind.GAUGE,
        "1, with the version that answers.",
        ("version",),
        lambda _: [((koord.__version__,), 1.0)],
    ),
)


Values = list[tuple[Labels, float | Histogram]]
Snapshot = list[tuple[Declared, Values]]
"""Every metric with its values at one moment: safe to be rendered while the figures go on."""


def take(figures: Figures) -> Snapshot:
    """Copy the figures: a millisecond at most, where rendering them takes tens."""
    return [(declared, [(labels, _copied(value)) for labels, value in declared.read(figures)]) for declared in METRICS]


def _copied(value: float | Histogram) -> float | Histogram:
    return value.copy() if isinstance(value, Histogram) else value


class Exposition:
    """The collector that Prometheus' registry asks."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._taken = snapshot

    def collect(self) -> Iterable[Metric]:
        return [_metric(declared, values) for declared, values in self._taken]


def render(snapshot: Snapshot) -> bytes:
    """The text exposition of every metric of the table, in any thread."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - imported after serving began

    registry = CollectorRegistry()
    registry.register(Exposition(snapshot))
    return generate_latest(registry)


def _metric(declared: Declared, values: Values) -> Metric:
    from prometheus_client.core import (  # noqa: PLC0415
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    families = {Kind.COUNTER: CounterMetricFamily, Kind.GAUGE: GaugeMetricFamily, Kind.HISTOGRAM: HistogramMetricFamily}
    metric: Metric = families[declared.kind](PREFIX + declared.name, declared.help, labels=declared.labels)
    for labels, value in values:
        if isinstance(metric, HistogramMetricFamily) and isinstance(value, Histogram):
            metric.add_metric(labels, buckets=value.cumulative(), sum_value=value.sum_s)
        elif isinstance(metric, CounterMetricFamily | GaugeMetricFamily) and isinstance(value, float):
            metric.add_metric(labels, value)
    return metric
