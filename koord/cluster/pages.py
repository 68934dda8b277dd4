"""The status pages of a component, and what every component counts.

Calls are counted where they are made; caches and the leadership are asked when somebody reads the page. Probes may have
an address of their own; only ``/metrics`` wants the bearer token.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import koord
from koord.cluster.options import ComponentOptions
from koord.service import metrics
from koord.service.metrics import gauge
from koord.service.statuspages import StatusPages
from koord.service.statusserver import HEALTH_PAGES, LocalMaker, Maker, Page, StatusServer, TokenGuard, read_token

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ByName = Callable[[], Mapping[str, float]]
"""Asked when somebody reads the page."""
_BUILD: Mapping[str, float] = {koord.__version__: 1.0}


def zero() -> float:
    return 0.0


def none() -> Mapping[str, float]:
    return {}


@dataclass(slots=True)
class ComponentMetrics:
    """A component's own class extends it. The frame fills in what has no value here."""

    build_info: Mapping[str, float] = gauge("1; the version is the label.", "version", factory=lambda: _BUILD)
    leader: Callable[[], float] = gauge("1 while this replica leads.", factory=lambda: zero)
    cached_objects: ByName = gauge("Objects in the caches, by kind.", "kind", factory=lambda: none)
    api_retries: Callable[[], float] = gauge("Requests to the API server that were sent again.", factory=lambda: zero)


def metric_prefix(name: str) -> str:
    """Returns the prefix of every metric of the program ``name``."""
    return f"{name.replace('-', '_')}_"


def makers(counted: Mapping[str, DataclassInstance], unready: Callable[[], Awaitable[str]]) -> Mapping[str, Maker]:
    """Returns the pages ``/metrics``, ``/healthz`` and ``/readyz``. ``counted``: the metrics, by the prefix of their
    names. ``unready``: the reason why the replica cannot serve, "" if it can.
    """

    async def exposition() -> Page:
        snapshots = [(prefix, metrics.take(each)) for prefix, each in counted.items()]

        def rendered() -> bytes:
            return b"".join(metrics.render(prefix, snapshot) for prefix, snapshot in snapshots)

        return Page(200, await asyncio.to_thread(rendered), metrics.CONTENT_TYPE)

    async def ready() -> Page:
        sentence = await unready()
        return Page(503, sentence.encode() + b"\n") if sentence else Page(200, b"ok\n")

    return {"/metrics": exposition, "/healthz": lambda: Page(200, b"ok\n"), "/readyz": ready}


@contextlib.asynccontextmanager
async def served(
    by_path: Mapping[str, Maker], local: Mapping[str, LocalMaker], options: ComponentOptions
) -> AsyncIterator[None]:
    """Serves the pages at the addresses of ``options`` within the block; ``local`` for callers of this machine, or with
    the token. Raises OSError, or ValueError for a token that is none.
    """
    guard = TokenGuard(read_token(options.metrics_token_file), HEALTH_PAGES) if options.metrics_token_file else None
    health = {path: by_path[path] for path in HEALTH_PAGES}
    servers = {
        options.metrics_addr: StatusServer(by_path, guard, local=local),
        options.health_probe_addr: StatusServer(health),
    }
    opened = [StatusPages(server, endpoint) for endpoint, server in servers.items() if endpoint]
    for pages in opened:
        await pages.open()
    try:
        yield
    finally:
        for pages in opened:
            pages.close()
