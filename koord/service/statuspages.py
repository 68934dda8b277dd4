"""Status pages at an address that may be taken for now.

Invariant: an address that is taken (by a predecessor that still serves it, or by another program) delays the pages and
nothing else; it is tried again every ``RETRY_S``.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from koord.service.statusserver import StatusServer

log = logging.getLogger("koord.service.statuspages")

RETRY_S = 1.0


class StatusPages:
    """Starts ``server`` at ``endpoint``, an absolute path or ``host:port``, as soon as it is free."""

    def __init__(self, server: StatusServer, endpoint: str, retry_s: float = RETRY_S) -> None:
        self._server, self._endpoint, self._retry_s = server, endpoint, retry_s
        self._retrying: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Returns after the first attempt; the others, until ``close``, are beside the caller."""
        try:
            await self._server.start(self._endpoint)
        except OSError as error:
            log.warning("no status pages at %s yet: %s", self._endpoint, error)
            self._retrying = asyncio.create_task(self._retry())

    def close(self) -> None:
        if self._retrying is not None:
            self._retrying.cancel()
        self._server.close()

    async def _retry(self) -> None:
        while True:
            await asyncio.sleep(self._retry_s)
            with suppress(OSError):
                return await self._server.start(self._endpoint)
