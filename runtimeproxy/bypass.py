"""The operator's switch for "edit nothing": a file, the signal that makes and removes it, and a flag.

On while the file exists or the flag is set. The file outlives the process, so an upgrade or a crash does not turn off
what an operator turned on in an emergency; only a boot does, since /run is empty then. Invariant: ``apply`` gets the
state at construction, before anything is served, and then every change once.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from koord.service.directories import make_directories

if TYPE_CHECKING:
    from koord.service.inotify import FileWatch

log = logging.getLogger("runtimeproxy.bypass")


class Bypass:
    """Switches the bypass. ``switch``: the flag's value. ``file``: "" = none. ``apply`` gets the new state."""

    def __init__(self, apply: Callable[[bool], None], switch: bool, file: str) -> None:
        self._apply = apply
        self._switch = switch
        self._file = file
        self._watch: FileWatch | None = None
        self._on = self._is_due()
        apply(self._on)

    @property
    def on(self) -> bool:
        return self._on

    def toggle(self) -> None:
        """Makes the file or, while bypass is on, removes it and forgets the flag.

        Where no file can be made, this process keeps the switch by itself.
        """
        if self._on:
            self._remove_file()
            self.set_switch(False)
        else:
            self.set_switch(not self._make_file())

    def _make_file(self) -> bool:
        if not self._file:
            return False
        try:
            make_directories(os.path.dirname(self._file))
            os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
        except OSError as error:
            log.error("bypass ends with this process, %s cannot be made: %s", self._file, error.strerror)
            return False
        return True

    def _remove_file(self) -> None:
        try:
            os.unlink(self._file)
        except FileNotFoundError:
            return  # it was the flag, or there is no file
        except OSError as error:
            log.error("%s cannot be removed: %s", self._file, error.strerror)

    def set_switch(self, switch: bool) -> None:
        self._switch = switch
        self._update()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Follows the file from now on; without inotify its state at the start stays (logged)."""
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

    def _is_due(self) -> bool:
        return self._switch or bool(self._file and os.path.exists(self._file))

    def _update(self) -> None:
        on = self._is_due()
        if on == self._on:
            return
        self._on = on
        self._apply(on)
        log.warning("bypass is %s", "on: nothing is edited" if on else "off")
