"""A client of the API server in memory, and the objects that tests put there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from koord.kube.client import CallLimits, Client
from koord.kube.credentials import Credentials
from koord.kube.kubeconfig import RESTConfig
from koord.kube.ratelimit import RateLimit
from koord.kube.transport import Transport

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/leases"


def credentials(settings: RESTConfig) -> Credentials:
    return Credentials(lambda: settings, {}, time.monotonic, time.time)


@asynccontextmanager
async def client(
    url: str, tries: int = 4, timeout_s: float = 5.0, rate: RateLimit | None = None, **settings: Any
) -> AsyncIterator[Client]:
    """It pauses between tries, but for no time."""
    async with Transport(credentials(RESTConfig(url, **settings)), "test/1") as transport:
        yield Client(transport, CallLimits(rate, tries, timeout_s), sleep=_no_time)


async def _no_time(_: float) -> None:
    await asyncio.sleep(0)
