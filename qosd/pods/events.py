"""The runtime's own events, read for as long as there are any, and only where reading takes none from kubelet.

Events are hints. Invariants: the version is asked before every subscription, because the runtime may have been
replaced; a version that has no events, or gives each to one reader only, is said once and asked again only after it
has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from koord.http2.grpc import UNIMPLEMENTED
from qosd.pods.cri import CRIClient, RuntimeUnreachable, RuntimeVersion

RETRY_S, RECHECK_S = 2.0, 60.0
_PROBE_S = 1.0  # a stream that ends well before that has no events (cri-o without enable_pod_events)
log = logging.getLogger(__name__)


class RuntimeEvents:
    """``on_event(id)``: something happened to that container or sandbox; "" = to any of them, as a stream began."""

    def __init__(self, runtime: CRIClient, on_event: Callable[[str], None]) -> None:
        self._runtime, self._on_event = runtime, on_event
        self._without: RuntimeVersion | None = None
        self.heard = False
        """Whether a stream is open."""

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            try:
                version = await self._runtime.version()
            except RuntimeUnreachable:
                await asyncio.sleep(RETRY_S)  # the lists say so already
                continue
            if version != self._without:
                await self._subscribe(version)
            await asyncio.sleep(RECHECK_S if version == self._without else RETRY_S)

    async def _subscribe(self, version: RuntimeVersion) -> None:
        if not version.may_read_events:
            self._do_without(version, "may give each event to one reader only, so they are left to kubelet")
            return
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        opened = loop.call_later(_PROBE_S, self._opened)
        try:
            async with aclosing(self._runtime.events()) as events:
                async for id_ in events:
                    self.heard = True
                    self._on_event(id_)
            if not self.heard and loop.time() - began_s < _PROBE_S:
                self._do_without(version, "has its events turned off")
        except RuntimeUnreachable as error:
            if error.code == UNIMPLEMENTED:
                self._do_without(version, "has no events")
            else:
                log.info("the runtime's events ended: %s", error)
        finally:
            opened.cancel()
            self.heard = False

    def _opened(self) -> None:
        self.heard = True
        self._on_event("")

    def _do_without(self, version: RuntimeVersion, why: str) -> None:
        self._without = version
        log.info("%s %s %s; pods are found through the cgroup tree", version.name, version.version, why)
