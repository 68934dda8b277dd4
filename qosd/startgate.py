"""Holds the first container of a pod with CPUs of its own back until other tasks have left these CPUs.

A pod is announced with its sandbox, the tick that makes room begins at once, and the container follows a tenth of a
second later: in time, unless the machine is short of CPU. Then the container's creation waits for the end of that
tick, ``PATIENCE_S`` at most. Invariant: no other pod waits, and asking for another pod costs one look-up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping

PATIENCE_S = 0.5
"""Well below the time that a runtime proxy gives a hook."""
_log = logging.getLogger(__name__)


class StartGate:
    """The pods, by UID, for which there is no room yet."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._awaited: dict[str, asyncio.Event] = {}

    def expect(self, uid: str) -> None:
        """Notes that the next tick makes room for this pod."""
        self._awaited[uid] = asyncio.Event()

    def begun(self) -> Mapping[str, asyncio.Event]:
        """Returns the pods that the tick which begins makes room for; to be given to ``ended``."""
        return dict(self._awaited)

    def ended(self, made_room_for: Mapping[str, asyncio.Event]) -> None:
        """Lets these pods go: the tick has ended and has written what it could."""
        for uid, event in made_room_for.items():
            event.set()
            if self._awaited.get(uid) is event:
                del self._awaited[uid]

    def room_for(self, uid: str) -> Awaitable[None] | None:
        """Returns what to await before a container of this pod is created; None = nothing."""
        event = self._awaited.get(uid)
        return None if event is None else self._wait(uid, event)

    async def _wait(self, uid: str, event: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await event.wait()
        except TimeoutError:
            _log.warning("pod %s starts before its CPUs are free: no tick in %g s", uid, self._patience_s)
