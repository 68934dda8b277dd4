"""``/metrics``: the daemon's own figures, all samples, and what koordlet exports.

The event loop's state is read at once. A thread renders it, for tens of milliseconds in which hook calls go on.
koordlet's part is imported by the first scrape, so a node without Prometheus never pays for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from koord.service.metrics import CONTENT_TYPE, render
from koord.service.statusserver import Page
from qosd.metrics import PREFIX
from qosd.node import Node
from qosd.sense.exposition import SampleExposition

if TYPE_CHECKING:
    from qosd.koordlet.page import KoordletPage

_USUAL_RUNTIME = "containerd"


class MetricsPage:
    """``name``: the node's; ``started_unix_s``: when the daemon started."""

    def __init__(self, node: Node, name: str, started_unix_s: float) -> None:
        self._node, self._name, self._started_unix_s = node, name, started_unix_s
        self._exposition = SampleExposition(node.sense.store)
        self._koordlet: KoordletPage | None = None

    async def answer(self) -> Page:
        return Page(200, await self.text(), CONTENT_TYPE)

    async def text(self) -> bytes:
        from qosd.koordlet.page import KoordletPage, ScrapeInputs  # noqa: PLC0415 - when somebody asks

        node = self._node
        own, targets, version = node.metrics.take(), node.sense.sampler.targets, node.pods.version
        inputs = ScrapeInputs(node.loop.report, targets, own, version.name if version else _USUAL_RUNTIME)
        page = self._koordlet = self._koordlet or KoordletPage(node.sense.store, self._name, self._started_unix_s)

        def parts() -> bytes:
            return render(PREFIX, own) + self._exposition.render(targets) + page.render(inputs)

        return await asyncio.to_thread(parts)
