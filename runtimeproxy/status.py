"""The proxy's own pages: ``/metrics``, ``/healthz``, ``/readyz`` and ``/dump``.

Opened after serving has begun. Invariants: rendering a page, however large, keeps no call waiting; a port shows figures
only for a token.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from koord.service import metrics
from koord.service.statusserver import HEALTH_PAGES, Maker, Page, TokenGuard, read_token
from koord.service.unixsocket import answers
from runtimeproxy.metrics import PREFIX, Metrics

log = logging.getLogger("runtimeproxy.status")

Dump = Callable[[], Callable[[], Mapping[str, object]]]
"""Copies the state cheaply; the function that it returns makes JSON values of the copy, in any thread."""
T = TypeVar("T")


class Pages:
    """Renders the pages by path; slow ones beside the loop, one at a time.

    ``worked`` is called when the loop does something.
    """

    def __init__(
        self,
        metrics: Metrics,
        dump: Dump,
        backend_up: Callable[[], float],
        bypass: Callable[[], float],
        worked: Callable[[], None] = lambda: None,
    ) -> None:
        self._metrics, self._dump, self._worked = metrics, dump, worked
        self._backend_up, self._bypass = backend_up, bypass
        self._renderer = ThreadPoolExecutor(1, "pages")

    @property
    def by_path(self) -> Mapping[str, Maker]:
        return {
            "/metrics": self._exposition,
            "/healthz": lambda: Page(200, b"ok\n"),
            "/readyz": self._ready,
            "/dump": self._cache,
        }

    def close(self) -> None:
        self._renderer.shutdown(wait=False, cancel_futures=True)

    async def _exposition(self) -> Page:
        self._worked()
        snapshot = metrics.take(self._metrics)
        return Page(200, await self._beside(lambda: metrics.render(PREFIX, snapshot)), metrics.CONTENT_TYPE)

    async def _cache(self) -> Page:
        self._worked()
        shown = self._dump()
        return Page(200, await self._beside(lambda: _json(shown())), "application/json")

    async def _beside(self, make: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._renderer, make)

    def _ready(self) -> Page:
        if not self._backend_up():
            return Page(503, b"the runtime takes no connections\n")
        return Page(200, b"bypass\n" if self._bypass() else b"ok\n")


def _json(value: Mapping[str, object]) -> bytes:
    """Renders JSON; with an indent the encoder is Python's own, which lets the loop's thread in between."""
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


def guard_of(endpoint: str, token_file: str) -> TokenGuard | None:
    """Returns None for a unix socket, whose mode says who may connect, and where there is no endpoint.

    A port can be reached by every user and every pod of the host's network: without a token that can be read, it shows
    nothing but its health pages, and the log says why.
    """
    if not endpoint or endpoint.startswith("/"):
        return None
    if not token_file:
        log.warning("no /metrics and no /dump at %s: they want a token there, see --metrics-token-file", endpoint)
        return TokenGuard("", HEALTH_PAGES)
    try:
        return TokenGuard(read_token(token_file), HEALTH_PAGES)
    except (OSError, ValueError) as error:
        log.error("no /metrics and no /dump at %s: --metrics-token-file=%s: %s", endpoint, token_file, error)
        return TokenGuard("", HEALTH_PAGES)


def backend_up(path: str) -> bool:
    """Returns whether a process listens on the unix socket; one with a full queue does."""
    try:
        return answers(path)
    except OSError:
        return False
