"""Watches directories and files through inotify(7), on an asyncio loop.

``Inotify`` is the kernel interface. ``DirectoryWatch`` reports names that changed in a directory, ``FileWatch`` one
file that is edited in place, replaced by rename, or reached through a swapped symlink (as mounted ConfigMaps are);
so it watches the parent and compares the file at the end of the path.

Invariant: events are hints. After an overflow, or when the directory itself came, went or was replaced, the callback
gets the empty set, which means "look at everything". A directory that does not exist yet is waited for at its nearest
existing ancestor. Constructors raise OSError (EMFILE: fs.inotify.max_user_instances, ENOSPC: max_user_watches);
later failures are logged and retried every ``RETRY_S``.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

log = logging.getLogger("koord.service.inotify")

IN_ATTRIB = 0x00000004
IN_CLOSE_WRITE = 0x00000008
IN_MOVED_FROM = 0x00000040
IN_MOVED_TO = 0x00000080
IN_CREATE = 0x00000100
IN_DELETE = 0x00000200
IN_DELETE_SELF = 0x00000400
IN_MOVE_SELF = 0x00000800
IN_UNMOUNT = 0x00002000
IN_Q_OVERFLOW = 0x00004000
IN_IGNORED = 0x00008000
IN_ONLYDIR = 0x01000000

ENTRIES = IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE
_SELF_GONE = IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED
_HEADER = struct.Struct("iIII")  # wd, mask, cookie, length of the name
_READ_BYTES = 64 * 1024
RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class InotifyEvent:
    """One inotify_event. An overflow has ``wd`` -1; ``name`` is "" for events of the watched object itself."""

    wd: int
    mask: int
    cookie: int
    name: str

    @property
    def overflow(self) -> bool:
        return bool(self.mask & IN_Q_OVERFLOW)


def parse_events(data: bytes) -> Iterator[InotifyEvent]:
    """Yields the events that one read(2) returned; the kernel never splits one."""
    offset = 0
    while offset < len(data):
        wd, mask, cookie, length = _HEADER.unpack_from(data, offset)
        offset += _HEADER.size
        name = os.fsdecode(data[offset : offset + length].rstrip(b"\0"))
        offset += length
        yield InotifyEvent(wd, mask, cookie, name)


class Inotify:
    """A non-blocking, close-on-exec inotify instance. Every failure is an OSError with errno and path."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise _os_error("inotify_init1")

    def fileno(self) -> int:
        return int(self._fd)

    def add(self, path: str, mask: int) -> int:
        """Watches ``path``; returns the watch descriptor (the same one again for an inode that is watched already)."""
        wd = int(self._libc.inotify_add_watch(self._fd, os.fsencode(path), ctypes.c_uint32(mask)))
        if wd < 0:
            raise _os_error(path)
        return wd

    def remove(self, wd: int) -> None:
        """Ends a watch; one that the kernel has already ended is no error."""
        if self._libc.inotify_rm_watch(self._fd, wd) < 0 and ctypes.get_errno() != errno.EINVAL:
            raise _os_error(f"watch {wd}")

    def read(self) -> list[InotifyEvent]:
        """Returns all events that are waiting; [] if there are none."""
        try:
            return list(parse_events(os.read(self._fd, _READ_BYTES)))
        except BlockingIOError:
            return []

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class DirectoryWatch:
    """Calls ``changed(names)`` on ``loop`` when entries of ``directory`` change; the empty set = anything may have.

    A regular file is reported when it is complete (closed after writing, or renamed into place), not when it is
    created. Construct first, then read the directory: nothing that happens in between is lost.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, directory: str, changed: Callable[[frozenset[str]], None]
    ) -> None:
        self._loop = loop
        self._directory = os.path.abspath(directory)
        self._changed = changed
        self._retry: asyncio.TimerHandle | None = None
        self._target_wd = -1  # the directory; -1 while it does not exist
        self._above_wds: set[int] = set()  # its parent; or the nearest ancestors that exist
        self._inotify = Inotify()
        try:
            self._arm()
        except OSError:
            self._inotify.close()
            raise
        loop.add_reader(self._inotify.fileno(), self._on_readable)

    def close(self) -> None:
        if self._inotify.fileno() >= 0:
            self._loop.remove_reader(self._inotify.fileno())
        if self._retry is not None:
            self._retry.cancel()
        self._inotify.close()

    def _arm(self) -> None:
        """Walks down from the root, watches each step before it tries the next, and keeps the last two.

        So a directory that is missing on the way is seen when it appears, and a symlink when it is swapped.
        """
        for wd in self._above_wds | {self._target_wd} - {-1}:
            self._inotify.remove(wd)
        self._above_wds, self._target_wd = set(), -1
        above = current = -1
        for path in _chain(self._directory):
            try:
                wd = self._inotify.add(path, ENTRIES | _SELF_GONE | IN_ONLYDIR)
            except (FileNotFoundError, NotADirectoryError):
                self._above_wds = {above, current} - {-1}
                return
            except PermissionError:
                if path == self._directory:
                    raise
                continue  # an ancestor that may be passed through but not read: changes in it are not seen
            if above not in (-1, current, wd):
                self._inotify.remove(above)
            above, current = current, wd
        self._target_wd = current
        self._above_wds = {above} - {-1, current}

    def _rearm(self) -> None:
        self._retry = None
        try:
            self._arm()
        except OSError as error:
            log.warning("%s is not watched, next attempt in %g s: %s", self._directory, RETRY_S, error)
            self._retry = self._loop.call_later(RETRY_S, self._rearm_and_report)

    def _rearm_and_report(self) -> None:
        self._rearm()
        self._changed(frozenset())

    def _on_readable(self) -> None:
        names: set[str] = set()
        moved = everything = False
        for event in self._inotify.read():
            if event.overflow:
                everything = True
            elif event.wd == self._target_wd:
                moved |= bool(event.mask & _SELF_GONE)
                if event.name and not self._unfinished(event):
                    names.add(event.name)
            elif event.wd in self._above_wds:
                moved |= bool(event.mask & _SELF_GONE) or self._leads_here(event)
        if moved and self._retry is None:
            self._rearm_and_report()
        elif everything or names:
            self._changed(frozenset() if everything else frozenset(names))

    def _leads_here(self, event: InotifyEvent) -> bool:
        """Returns whether an entry of an ancestor, whichever it is, may be a component of our path."""
        return event.name in self._directory.split("/") and not event.mask & IN_ATTRIB

    def _unfinished(self, event: InotifyEvent) -> bool:
        """Returns whether a regular file was just created, whose IN_CLOSE_WRITE follows (hard links have none)."""
        if not event.mask & IN_CREATE:
            return False
        try:
            entry = os.lstat(os.path.join(self._directory, event.name))
        except OSError:
            return False  # gone again, which is a change
        return stat.S_ISREG(entry.st_mode) and entry.st_nlink == 1


class FileWatch:
    """Calls ``changed()`` when the file at ``path`` differs: content rewritten, replaced, created, deleted, chmod.

    Construct first, then read the file.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, path: str, changed: Callable[[], None]) -> None:
        self._path = os.path.abspath(path)
        self._changed = changed
        self._seen = _signature(self._path)
        self._watch = DirectoryWatch(loop, os.path.dirname(self._path), self._on_change)

    def close(self) -> None:
        self._watch.close()

    def _on_change(self, names: frozenset[str]) -> None:
        """Compares the file after a change of any name: the path may lead through a neighbour that was swapped."""
        now = _signature(self._path)
        rewritten = os.path.basename(self._path) in names  # two writes within one clock tick leave no other trace
        if now != self._seen or (rewritten and now is not None):
            self._seen = now
            self._changed()


def _signature(path: str) -> tuple[int, ...] | None:
    try:
        entry = os.stat(path)
    except OSError:
        return None
    return (entry.st_dev, entry.st_ino, entry.st_size, entry.st_mtime_ns, entry.st_mode)


def _chain(path: str) -> list[str]:
    """Returns ``/``, then every directory down to ``path``."""
    parts = [part for part in path.split("/") if part]
    return ["/" + "/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def _os_error(subject: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), subject)
