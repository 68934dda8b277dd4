"""The directory of hook files: what is in it counts, at once, and mistakes cost nothing that worked before.

Every regular file whose name ends in ``.json`` and is not hidden is one hook server; the order is that of the names.
Invariants: a file that turns bad keeps its last good version until it is good again or gone; a deleted file's server
is gone with the next ``rescan``; a rescan that finds nothing changed reports nothing. A missing directory is made
(0755); one that cannot be read keeps everything as it is.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtimeproxy.hooks.hookfile import MAX_FILE_BYTES, HookFileError, ServerSpec, parse
from runtimeproxy.hooks.observe import Metrics

if TYPE_CHECKING:
    from koord.service.inotify import DirectoryWatch

SUFFIX = ".json"
log = logging.getLogger("runtimeproxy.hooks.directory")

Version = tuple[int, int, int]
"""Inode, mtime in ns and size: a file that was written again is another version even with the same content."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid hook file and the version of the file it was read from."""

    spec: ServerSpec
    version: Version


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the last look at one file yielded; ``good`` may stem from an earlier version."""

    version: Version
    good: Loaded | None
    error: str | None


class Directory:
    """Reads ``path`` on ``rescan`` and tells ``changed`` the servers, in order, whenever they differ."""

    def __init__(self, path: str, changed: Callable[[tuple[Loaded, ...]], None], metrics: Metrics) -> None:
        self._path = path
        self._changed = changed
        self._metrics = metrics
        self._seen: dict[str, _Seen] = {}
        self._servers: tuple[Loaded, ...] = ()

    @property
    def servers(self) -> tuple[Loaded, ...]:
        return self._servers

    @property
    def errors(self) -> Mapping[str, str]:
        """What is wrong now, by file name."""
        return {name: seen.error for name, seen in self._seen.items() if seen.error is not None}

    def watch(self, loop: asyncio.AbstractEventLoop) -> DirectoryWatch:
        """Rescan now and with every change from now on; the caller closes what is returned. Raises OSError."""
        from koord.service.inotify import DirectoryWatch  # noqa: PLC0415 - ctypes, after serving has begun

        watch = DirectoryWatch(loop, self._path, lambda names: self.rescan())
        self.rescan()
        return watch

    def rescan(self) -> None:
        """Bring the servers in step with the directory. Never raises for what it finds there."""
        try:
            names = self._names()
        except OSError as error:
            log.error("hook directory %s: %s; its servers stay as they are", self._path, error.strerror)
            return
        self._seen = {name: seen for name in names if (seen := self._look(name)) is not None}
        self._metrics.hook_file_errors(len(self.errors))
        servers = tuple(seen.good for _, seen in sorted(self._seen.items()) if seen.good is not None)
        if servers != self._servers:
            self._servers = servers
            log.info("hook servers: %s", ", ".join(loaded.spec.file for loaded in servers) or "none")
            self._changed(servers)

    def _names(self) -> list[str]:
        try:
            found = os.listdir(self._path)
        except FileNotFoundError:
            os.makedirs(self._path, mode=0o755, exist_ok=True)
            found = []
        return [name for name in found if name.endswith(SUFFIX) and not name.startswith(".")]

    def _look(self, name: str) -> _Seen | None:
        """The state of one file; None if it is gone or no regular file. An unchanged file is not read again."""
        before = self._seen.get(name)
        good = before.good if before else None
        try:
            version, content = _read(os.path.join(self._path, name), before.version if before else None)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
                return None
            return self._failed(name, before, _Seen((0, 0, 0), good, f"{name}: {error.strerror}"))
        if version is None:
            return None
        if content is None:
            return before
        try:
            spec = parse(name, content)
        except HookFileError as error:
            return self._failed(name, before, _Seen(version, good, str(error)))
        if spec.unknown_stages:
            log.warning("%s: runtime-hooks that this proxy never calls: %s", name, ", ".join(spec.unknown_stages))
        return _Seen(version, Loaded(spec, version), None)

    def _failed(self, name: str, before: _Seen | None, seen: _Seen) -> _Seen:
        if before is None or before.error != seen.error:
            log.error("hook file %s; %s", seen.error, "its last good version stays" if seen.good else "it is left out")
        return seen


def _read(path: str, known: Version | None) -> tuple[Version | None, bytes | None]:
    """Version and content; no version for what is not a regular file, no content if the version is ``known``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        if not stat.S_ISREG(status.st_mode):
            return None, None
        return (version, None) if version == known else (version, os.read(descriptor, MAX_FILE_BYTES + 1))
    finally:
        os.close(descriptor)
