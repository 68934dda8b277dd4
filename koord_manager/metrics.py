"""What koord-manager counts, and the page of it.

Calls are counted where they are made; queues, caches and the leadership are asked when somebody reads the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import koord
from koord.service import metrics
from koord.service.metrics import Histogram, gauge, histogram
from koord.service.statusserver import Maker, Page

PREFIX = "koord_manager_"
ByName = Callable[[], Mapping[str, float]]
"""Asked when somebody reads the page."""
_WEBHOOK_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0)


@dataclass(slots=True)
class Metrics:
    webhook_duration_seconds: dict[tuple[str, str], Histogram] = histogram(
        "Time that a webhook took, by its path and what became of the request.",
        "path",
        "result",
        bounds_s=_WEBHOOK_BOUNDS_S,
    )
    build_info: Mapping[str, float] = gauge("1; the version is the label.", "version", factory=lambda: _BUILD)
    leader: Callable[[], float] = gauge("1 while this replica leads.", factory=lambda: _zero)
    policy_absent: Callable[[], float] = gauge(
        "1 while there is no ConfigMap slo-controller-config: what it said last stays in force.", factory=lambda: _zero
    )
    work_queue_length: ByName = gauge("Nodes that wait for a controller.", "controller", factory=lambda: _none)
    work_handled: ByName = gauge("Nodes that a controller has looked at.", "controller", factory=lambda: _none)
    work_failed: ByName = gauge("Looks that failed, and are repeated.", "controller", factory=lambda: _none)
    nodelink_nodes: Callable[[], float] = gauge("Nodes of which fresh figures are known.", factory=lambda: _zero)
    nodelink_calls: ByName = gauge("Calls on NodeLink, by what became of them.", "result", factory=lambda: _none)
    nodelink_certificate_requests: ByName = gauge(
        "Certificate requests of nodes that this replica answered, or left for newer ones (superseded), by the result.",
        "result",
        factory=lambda: _none,
    )
    cached_objects: ByName = gauge("Objects in the caches, by kind.", "kind", factory=lambda: _none)
    crd_faults: ByName = gauge(
        "Fields and features of this release that the installed CustomResourceDefinition lacks.",
        "crd",
        factory=lambda: _none,
    )
    api_retries: Callable[[], float] = gauge("Requests to the API server that were sent again.", factory=lambda: _zero)


_BUILD: Mapping[str, float] = {koord.__version__: 1.0}


def _zero() -> float:
    return 0.0


def _none() -> Mapping[str, float]:
    return {}


class Pages:
    """``/metrics``, ``/healthz`` and ``/readyz``. ``unready``: a sentence, "" if the replica can serve."""

    def __init__(self, figures: Metrics, unready: Callable[[], Awaitable[str]]) -> None:
        self._figures, self._unready = figures, unready

    @property
    def by_path(self) -> Mapping[str, Maker]:
        return {"/metrics": self._exposition, "/healthz": lambda: Page(200, b"ok\n"), "/readyz": self._ready}

    async def _exposition(self) -> Page:
        snapshot = metrics.take(self._figures)
        body = await asyncio.to_thread(metrics.render, PREFIX, snapshot)
        return Page(200, body, metrics.CONTENT_TYPE)

    async def _ready(self) -> Page:
        sentence = await self._unready()
        return Page(503, sentence.encode() + b"\n") if sentence else Page(200, b"ok\n")
