"""Watches the directory of hook files: changes take effect at once, and a mistake costs nothing that worked before.

Every regular file whose name ends in ``.json`` and is not hidden is one hook server; the order is that of the names.
Directory and files must be root's or our own user's alone (``trust``). Each look reads everything again: files are few
and small, and one that was written twice within a tick of the file system's clock shows it by its content only.
Invariants: a file that turns bad keeps its last good version until it is good again or gone; a deleted file's server
is gone with the next ``rescan``; a rescan that finds nothing changed reports nothing. A missing directory is made
(0755); one that cannot be read, or is not trusted, keeps everything as it is.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from koord.service.directories import make_directories
from runtimeproxy.hooks import trust
from runtimeproxy.hooks.hookfile import MAX_FILE_BYTES, HookFileError, ServerSpec, parse
from runtimeproxy.metrics import Metrics

if TYPE_CHECKING:
    from koord.service.inotify import DirectoryWatch

SUFFIX = ".json"
log = logging.getLogger("runtimeproxy.hooks.directory")

Version = tuple[int, int, int]
"""Inode, mtime in ns and size: a file that was written again is another version even with the same content."""


@dataclass(frozen=True, slots=True)
class LoadedHookFile:
    """A valid hook file and the version of the file it was read from."""

    spec: ServerSpec
    version: Version


@dataclass(frozen=True, slots=True)
class _FileState:
    """The result of the last look at one file; ``good`` may stem from an earlier version."""

    good: LoadedHookFile | None
    error: str | None


class HookDirectory:
    """Reads ``path`` on ``rescan`` and calls ``changed`` with the servers, in order, when they differ; "" has none."""

    def __init__(
        self,
        path: str,
        changed: Callable[[tuple[LoadedHookFile, ...]], None],
        metrics: Metrics,
    ) -> None:
        self._path = path
        self._changed = changed
        self._metrics = metrics
        self._trusted = trust.owners()
        self._error: str | None = None
        self._states: dict[str, _FileState] = {}
        self._servers: tuple[LoadedHookFile, ...] = ()

    @property
    def servers(self) -> tuple[LoadedHookFile, ...]:
        return self._servers

    @property
    def errors(self) -> Mapping[str, str]:
        """The errors now, by file name; by the directory's path if it is the directory itself."""
        files = {shown_name(name): state.error for name, state in self._states.items() if state.error is not None}
        return files if self._error is None else {self._path: self._error, **files}

    def watch(self, loop: asyncio.AbstractEventLoop) -> DirectoryWatch:
        """Rescans now and with every change from now on; the caller closes what is returned. Raises OSError."""
        from koord.service.inotify import DirectoryWatch  # noqa: PLC0415 - ctypes, after serving has begun

        watch = DirectoryWatch(loop, self._path, lambda names: self.rescan())
        self.rescan()
        return watch

    def rescan(self) -> None:
        """Brings the servers in step with the directory. Never raises for what it finds there."""
        if not self._path:
            return
        try:
            self._read_all()
        except OSError as error:
            self._fail(f"hook directory {self._path}: {error.strerror}")
        self._metrics.hook_file_errors = len(self.errors)
        servers = tuple(state.good for _, state in sorted(self._states.items()) if state.good is not None)
        if servers != self._servers:
            self._servers = servers
            log.info("hook servers: %s", ", ".join(loaded.spec.file for loaded in servers) or "none")
            self._changed(servers)

    def _read_all(self) -> None:
        """Raises OSError if the directory cannot be read, or be made."""
        make_directories(self._path)
        distrust = trust.refusal(self._path, self._trusted)
        if distrust is not None:
            self._fail(f"hook directory {self._path}: {distrust}")
            return
        names = [name for name in os.listdir(self._path) if name.endswith(SUFFIX) and not name.startswith(".")]
        self._states = {name: state for name in names if (state := self._read_state(name)) is not None}
        self._error = None

    def _fail(self, error: str) -> None:
        if error != self._error:
            log.error("%s; its servers stay as they are", error)
        self._error = error

    def _read_state(self, name: str) -> _FileState | None:
        """Returns the state of one file; None if it is gone or no regular file."""
        before = self._states.get(name)
        good = before.good if before else None
        try:
            version, content = _read(os.path.join(self._path, name), self._trusted)
            spec = None if content is None else parse(_printable(name), content)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENXIO):
                return None
            return self._failed(before, _FileState(good, f"{shown_name(name)}: {error.strerror}"))
        except HookFileError as error:
            return self._failed(before, _FileState(good, str(error)))
        if spec is None:
            return None
        if spec.unknown_stages and (good is None or good.spec.unknown_stages != spec.unknown_stages):
            log.warning("%s: runtime-hooks that this proxy never calls: %s", name, ", ".join(spec.unknown_stages))
        return _FileState(LoadedHookFile(spec, version), None)

    def _failed(self, before: _FileState | None, state: _FileState) -> _FileState:
        if before is None or before.error != state.error:
            log.error(
                "hook file %s; %s", state.error, "its last good version stays" if state.good else "it is left out"
            )
        return state


def shown_name(name: str) -> str:
    """Returns a file's name as pages, labels and log lines can hold it; what cannot be printed is escaped."""
    return name if name.isprintable() else ascii(name)[1:-1]


def _printable(name: str) -> str:
    if not name.isprintable():
        raise HookFileError(shown_name(name), "", None, "its name is not printable UTF-8")
    return name


def _read(path: str, trusted: Collection[int]) -> tuple[Version, bytes | None]:
    """Returns version and content, if it is a regular file. Raises HookFileError for a file that is not trusted."""
    distrust = trust.refusal(path, trusted)
    if distrust is not None:
        raise HookFileError(shown_name(os.path.basename(path)), "", None, distrust)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        return version, os.read(descriptor, MAX_FILE_BYTES + 1) if stat.S_ISREG(status.st_mode) else None
    finally:
        os.close(descriptor)
