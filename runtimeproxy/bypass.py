"""The operator's switch for "edit nothing": a flag, a signal, and a file.

On while the switch is on (``--bypass`` sets it, SIGUSR1 turns it over) or the file exists. Invariant: ``apply`` is
told the state at construction, before anything is served, and then every change once.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from koord.service.inotify import FileWatch

log = logging.getLogger("runtimeproxy.bypass")


class Bypass:
    """``file`` is "" if there is none; ``apply`` gets the new state."""

    def __init__(self, apply: Callable[[bool], None], switch: bool, file: str) -> None:
        self._apply = apply
        self._switch = switch
        self._file = file
        self._watch: FileWatch | None = None
        self._on = self._wanted()
        apply(self._on)

    @property
    def on(self) -> bool:
        return self._on

    def toggle(self) -> None:
        self.set_switch(not self._switch)

    def set_switch(self, switch: bool) -> None:
        self._switch = switch
        self._update()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Follow the file from now on; without inotify its state of the start counts (logged)."""
        from koord.service.inotify import FileWatch  # noqa: PLC0415 - ctypes, after serving has begun

        if not self._file or self._watch is not None:
            return
        try:
            self._watch = FileWatch(loop, self._file, self._update)
        except OSError as error:
            log.warning("%s is not watched: %s", self._file, error)
        self._update()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _wanted(self) -> bool:
        return self._switch or bool(self._file and os.path.exists(self._file))

    def _update(self) -> None:
        wanted = self._wanted()
        if wanted == self._on:
            return
        self._on = wanted
        self._apply(wanted)
        log.warning("bypass is %s", "on: nothing is edited" if wanted else "off")
