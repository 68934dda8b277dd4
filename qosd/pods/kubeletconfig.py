"""kubelet's configuration, asked of kubelet itself: at the start, and every ten minutes from there on.

kubelet is restarted for another configuration, so that is often enough. Its read-only port has none, and a token may
not be allowed to read it: then nothing is known and ``problem`` says why; the rules file can state kubelet's
reservation instead. The last known configuration stays while kubelet does not answer, or its answer cannot be read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from koord.model import kubeletconfig
from koord.model.kubeletconfig import KubeletConfig, KubeletConfigError
from koord.model.reservation import NOTHING_RESERVED, ReservationError, Reserved
from qosd.pods.http import FetchError

AGAIN_S, RETRY_S = 600.0, 60.0


class KubeletConfigReader(Protocol):
    """The part of ``KubeletClient`` that is needed here."""

    async def config(self) -> Mapping[str, Any]: ...


class KubeletConfigSource:
    """``kubelet`` None: no kubelet is asked. ``changed`` is called when ``current`` is another."""

    def __init__(
        self, kubelet: KubeletConfigReader | None, memory_total_bytes: Callable[[], int], changed: Callable[[], object]
    ):
        self._kubelet, self._memory_total_bytes, self._changed = kubelet, memory_total_bytes, changed
        self._task: asyncio.Task[None] | None = None
        self.current: KubeletConfig | None = None
        """None: kubelet has not told it yet, or never will. The same object while it is equal."""
        self.cpu_manager_policy = ""
        """ "" while kubelet has not told it; known also where another member of its configuration cannot be read."""
        self.problem = ""
        self.is_awaited = kubelet is not None
        """Has no attempt to ask kubelet ended yet?"""

    @property
    def reserved(self) -> Reserved:
        """Returns what kubelet reserves of the node; nothing before it has told."""
        return NOTHING_RESERVED if self.current is None else self.current.reserved

    def start(self) -> None:
        if self._kubelet is not None:
            task = self._run(self._kubelet)
            self._task = asyncio.get_running_loop().create_task(task, name="kubelet's configuration")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self, kubelet: KubeletConfigReader) -> None:
        while True:
            has_told = await self.look(kubelet)
            await asyncio.sleep(AGAIN_S if has_told else RETRY_S)

    async def look(self, kubelet: KubeletConfigReader) -> bool:
        """Asks once. Returns whether kubelet has told."""
        try:
            answer = await kubelet.config()
            self.cpu_manager_policy = kubeletconfig.cpu_manager_policy(answer) or self.cpu_manager_policy
            config = kubeletconfig.read(answer, self._memory_total_bytes())
        except (FetchError, KubeletConfigError, ReservationError) as error:
            self.problem = f"kubelet's configuration, and so what it reserves of the node, is not known: {error}"
            return False
        finally:
            self.is_awaited = False
        self.problem = ""
        if config != self.current:
            self.current = config
            self._changed()
        return True
