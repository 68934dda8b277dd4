"""Whether the runtime itself is the one that fails: it was disturbed, and has not said RuntimeReady since.

The code that disturbs it reports here, and so does a client that talks to it directly. A call that fails while the
runtime is away, or comes back, is the runtime's failure and not the proxy's.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

from integration.harness.cri import RUNTIME
from integration.storm.client import Caller, Failed, Interrupted
from koord.pb.cri import api_pb2 as pb

LOOK_S = 0.1


class Runtime:
    """The runtime as ``direct`` sees it. ``moment`` changes when a disturbance begins, when it is done, and when the
    runtime is ready again: its answer to an earlier call may arrive after the news that it is ready.

    ``ready_s``: since when it is, by ``time.monotonic``.
    """

    def __init__(self, direct: Caller) -> None:
        self.moment = 0
        self.ready_s = time.monotonic()
        self._direct = direct
        self._disturbances = 0  # that are under way
        self._ready = asyncio.Event()
        self._ready.set()

    @contextlib.contextmanager
    def disturbed(self) -> Iterator[None]:
        """In this block it is killed or stopped, and nothing that it says until the end is news of the time after."""
        self.moment += 1
        self._disturbances += 1
        self._ready.clear()
        try:
            yield
        finally:
            self._disturbances -= 1
            self.moment += 1

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    def undisturbed_since(self, moment: int) -> bool:
        """Whether it was ready at that moment, and has been since."""
        return self._ready.is_set() and self.moment == moment

    async def ready(self) -> None:
        """Wait until it is ready again."""
        while not self._ready.is_set():
            moment = self.moment
            if await self._says_ready() and moment == self.moment and not self._disturbances:
                self.ready_s = time.monotonic()
                self._ready.set()
                self.moment += 1
            else:
                await asyncio.sleep(LOOK_S)

    async def _says_ready(self) -> bool:
        try:
            answer = await self._direct.call(RUNTIME + "Status", pb.StatusRequest(), pb.StatusResponse)
        except (Failed, Interrupted):
            return False
        return any(item.type == "RuntimeReady" and item.status for item in answer.status.conditions)
