"""qosd's own figures, in one registry that is handed to whoever counts."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

__all__ = ["CONTENT_TYPE", "Metrics"]

_LATENCY_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)


class Metrics:
    """Every metric of the process; ``render`` is the Prometheus text."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.hook_calls = Counter(
            "koord_qosd_hook_calls",
            "Hook calls answered, by stage, caller and result (edited, unchanged, error).",
            ["stage", "caller", "result"],
            registry=self.registry,
        )
        self.hook_seconds = Histogram(
            "koord_qosd_hook_seconds",
            "Time to answer a hook call.",
            ["stage"],
            buckets=_LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.hook_edits = Counter(
            "koord_qosd_hook_edits", "Fields edited, by hook.", ["hook", "field"], registry=self.registry
        )
        self.pod_problems = Counter(
            "koord_qosd_pod_problems",
            "Labels and annotations that were treated as absent, by stage.",
            ["stage"],
            registry=self.registry,
        )
        self.rules_loads = Counter(
            "koord_qosd_rules_loads",
            "Attempts to load the rules file, by result (loaded, defaults, kept_last_good).",
            ["result"],
            registry=self.registry,
        )

    def render(self) -> bytes:
        return generate_latest(self.registry)
