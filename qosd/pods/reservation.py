"""What kubelet keeps of the node, asked of kubelet itself: at the start, and every ten minutes from there on.

kubelet is restarted for another configuration, so that is often enough. Its read-only port tells none, and a token may
not be allowed to read it: then nothing is known, ``problem`` says why, and the rules file can say it instead. What was
known stays while kubelet does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from koord.model import reservation
from koord.model.reservation import NOTHING, ReservationError, Reserved
from qosd.pods.http import FetchError

AGAIN_S, RETRY_S = 600.0, 60.0


class Kubelet(Protocol):
    """``KubeletClient``, as far as it is needed here."""

    async def config(self) -> Mapping[str, Any]: ...


class ReservationSource:
    """``kubelet`` None: nobody is asked. ``changed`` is called when ``current`` is another."""

    def __init__(self, kubelet: Kubelet | None, memory_total_bytes: Callable[[], int], changed: Callable[[], object]):
        self._kubelet, self._memory_total_bytes, self._changed = kubelet, memory_total_bytes, changed
        self._task: asyncio.Task[None] | None = None
        self.current = NOTHING
        self.problem = ""

    def start(self) -> None:
        if self._kubelet is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(self._kubelet), name="kubelet's reservation")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self, kubelet: Kubelet) -> None:
        while True:
            has_told = await self.look(kubelet)
            await asyncio.sleep(AGAIN_S if has_told else RETRY_S)

    async def look(self, kubelet: Kubelet) -> bool:
        """Ask once; whether kubelet has told."""
        try:
            found = reservation.of_config(await kubelet.config(), self._memory_total_bytes())
        except (FetchError, ReservationError) as error:
            self.problem = f"what kubelet reserves of the node is not known: {error}"
            return False
        self.problem = ""
        self._take(found)
        return True

    def _take(self, reserved: Reserved) -> None:
        if reserved != self.current:
            self.current = reserved
            self._changed()
