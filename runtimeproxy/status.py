"""The proxy's own pages: ``/metrics``, ``/healthz``, ``/readyz`` and ``/dump``.

Opened after serving has begun. Invariant: an address that is taken (by a predecessor that still serves it, or by
somebody else) delays the pages and nothing else; it is tried again every ``RETRY_S``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping

from koord.service.statusserver import Page, StatusServer
from koord.service.unixsocket import answers
from runtimeproxy.metrics import Figures, render

log = logging.getLogger("runtimeproxy.status")

RETRY_S = 1.0
METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"


def pages(
    figures: Figures, dump: Callable[[], Mapping[str, object]], settle: Callable[[], None]
) -> Mapping[str, Callable[[], Page]]:
    """``dump`` returns what the cache holds, as JSON values and without environment values; ``settle`` counts what is
    not counted yet."""

    def metrics() -> Page:
        settle()
        return Page(200, render(figures), METRICS_TYPE)

    def ready() -> Page:
        if not figures.backend_up():
            return Page(503, b"the runtime takes no connections\n")
        return Page(200, b"bypass\n" if figures.bypass() else b"ok\n")

    return {
        "/metrics": metrics,
        "/healthz": lambda: Page(200, b"ok\n"),
        "/readyz": ready,
        "/dump": lambda: Page(200, json.dumps(dump(), indent=1, sort_keys=True).encode() + b"\n", "application/json"),
    }


def backend_up(path: str) -> bool:
    """Whether somebody listens on the unix socket; a full queue counts as yes."""
    try:
        return answers(path)
    except OSError:
        return False


class StatusPages:
    """Opens ``endpoint`` ("" = never) and keeps trying until ``close``."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, endpoint: str, served: Mapping[str, Callable[[], Page]]
    ) -> None:
        self._loop = loop
        self._endpoint = endpoint
        self._server = StatusServer(served)
        self._opening: asyncio.Task[None] | None = None

    def open(self) -> None:
        if self._endpoint and self._opening is None:
            self._opening = self._loop.create_task(self._open())

    def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        self._server.close()

    async def _open(self) -> None:
        told = False
        while True:
            try:
                return await self._server.start(self._endpoint)
            except OSError as error:
                if not told:
                    log.warning("no status pages at %s yet: %s", self._endpoint, error)
                told = True
            await asyncio.sleep(RETRY_S)
