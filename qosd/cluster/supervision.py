"""The parts of the connection to the cluster, each kept running by itself.

Invariant: an error of our own in one part ends neither another part nor the node's work; it is logged with its trace,
counted, and the part runs again after a pause that doubles while it keeps failing. Trouble with the API server is no
such error: parts deal with that themselves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import random as uniform

from koord.kube.backoff import Backoff, Random

SETTLED_S = 60.0
"""A part that ran so long counts as healthy again."""

BACKOFF = Backoff(base_s=1.0, max_s=60.0)
_log = logging.getLogger(__name__)


async def keep_running(
    name: str,
    run: Callable[[], Awaitable[None]],
    crashes: Counter[str],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    random: Random = uniform,
) -> None:
    """Runs a part until it is cancelled. ``crashes`` counts by ``name``."""
    failures = 0
    while True:
        began_s = clock()
        try:
            await run()
            _log.error("cluster: %s came to an end by itself", name)
        except Exception:  # noqa: BLE001 - the root of a part
            _log.exception("cluster: %s was ended by an error of our own", name)
        crashes[name] += 1
        failures = 1 if clock() - began_s >= SETTLED_S else failures + 1
        await sleep(BACKOFF.delay_s(failures, random))
