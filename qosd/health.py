"""The pages for liveness and readiness; each says why not.

Alive: the node's loop ends its ticks; systemd's watchdog is fed only then. Ready: a tick has ended, and the pods are
known. A collector or a strategy that fails is no reason to restart the daemon; ``koordctl node`` and the metrics show
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from koord.service.notify import Notifier
from koord.service.statusserver import Page

_OK = Page(200, b"ok\n")
_STUCK_TICKS, _STUCK_S = 10, 10.0
PODS_MAX_AGE_S = 120.0
_log = logging.getLogger(__name__)


class Health:
    """``ended_s`` and ``now_s``: monotonic seconds of the last tick's end (None: none yet) and now."""

    def __init__(
        self,
        interval_s: float,
        ended_s: Callable[[], float | None],
        pods_age_s: Callable[[], float | None],
        now_s: Callable[[], float],
    ) -> None:
        self._patience_s = _STUCK_TICKS * interval_s + _STUCK_S
        self._ended_s, self._pods_age_s, self._now_s = ended_s, pods_age_s, now_s
        self._began_s = now_s()

    def alive(self) -> Page:
        return _page(self.stuck())

    def ready(self) -> Page:
        return _page(self.stuck() or self._not_ready())

    def stuck(self) -> str:
        """Returns why the loop counts as stuck; "" if it does not."""
        ended_s = self._ended_s()
        silent_s = self._now_s() - (self._began_s if ended_s is None else ended_s)
        return f"no tick has ended for {silent_s:.0f} s" if silent_s > self._patience_s else ""

    def _not_ready(self) -> str:
        if self._ended_s() is None:
            return "no tick has ended yet"
        age_s = self._pods_age_s()
        if age_s is None:
            return "the pods are not known yet: neither the runtime nor kubelet has answered"
        return f"the pods are {age_s:.0f} s old" if age_s > PODS_MAX_AGE_S else ""


async def feed_watchdog(notifier: Notifier, stuck: Callable[[], str], interval_s: float) -> None:
    """Feeds systemd's watchdog for ever, unless ``stuck`` says why not; each silence is logged once."""
    said = False
    while True:
        why = stuck()
        if not why:
            notifier.watchdog()
        elif not said:
            _log.error("the watchdog is not fed: %s", why)
        said = bool(why)
        await asyncio.sleep(interval_s)


def _page(why_not: str) -> Page:
    return Page(503, f"{why_not}\n".encode()) if why_not else _OK
