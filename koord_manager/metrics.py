"""What koord-manager counts. Calls are counted where they are made; queues are asked when somebody reads the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from koord.cluster.pages import ByName, ComponentMetrics, metric_prefix, none, zero
from koord.service.metrics import Histogram, gauge, histogram
from koord_manager.options import NAME

PREFIX = metric_prefix(NAME)
_WEBHOOK_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0)


@dataclass(slots=True)
class Metrics(ComponentMetrics):
    webhook_duration_seconds: dict[tuple[str, str], Histogram] = histogram(
        "Time that a webhook took, by its path and what became of the request.",
        "path",
        "result",
        bounds=_WEBHOOK_BOUNDS_S,
    )
    policy_absent: Callable[[], float] = gauge(
        "1 while there is no ConfigMap slo-controller-config: what it said last stays in force.", factory=lambda: zero
    )
    work_queue_length: ByName = gauge("Nodes that wait for a controller.", "controller", factory=lambda: none)
    work_handled: ByName = gauge("Nodes that a controller has looked at.", "controller", factory=lambda: none)
    work_failed: ByName = gauge("Looks that failed, and are repeated.", "controller", factory=lambda: none)
    nodelink_nodes: Callable[[], float] = gauge("Nodes of which fresh figures are known.", factory=lambda: zero)
    nodelink_followers: Callable[[], float] = gauge("Schedulers that follow what nodes report.", factory=lambda: zero)
    nodelink_calls: ByName = gauge("Calls on NodeLink, by what became of them.", "result", factory=lambda: none)
    nodelink_certificate_requests: ByName = gauge(
        "Certificate requests of nodes that this replica answered, or left for newer ones (superseded), by the result.",
        "result",
        factory=lambda: none,
    )
    crd_faults: ByName = gauge(
        "Fields and features of this release that the installed CustomResourceDefinition lacks.",
        "crd",
        factory=lambda: none,
    )
