"""Kernel files read again and again through kept descriptors: one pread a time, where open, read and close are three.

Invariant: a file that is gone reads as None and its descriptor is closed then and there; one made again at the same
path is noticed, and its inode tells that counters start afresh. The number of descriptors is bounded by ``limit``;
at the limit, or when the process runs out of descriptors (EMFILE, ENFILE), files are opened, read and closed each
time and ``tell`` is told, once until descriptors are free again. Any other refusal is a ReadError; the first of files
of one name is told too, and again when none was refused in between.

For one thread at a time. A directory removed from a file system that is not the kernel's own (a test's) keeps
reading until it is forgotten.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from types import TracebackType

from koord.host.cgroup import GONE, ReadError

_CHUNK_BYTES = 16384
_SHORT = (errno.EMFILE, errno.ENFILE)
_MAKE_ROOM = 32
"""Descriptors given back at EMFILE, so that the rest of the process can go on."""


class KeptFiles:
    """Reads files by path. ``limit``: descriptors it may keep; ``tell`` gets a sentence."""

    def __init__(self, limit: int, tell: Callable[[str], None]) -> None:
        self._limit, self._tell = limit, tell
        self._refused: dict[str, set[str]] = {}
        self._kept: dict[str, int] = {}
        self._inodes: dict[str, int] = {}
        self._short = False

    def __len__(self) -> int:
        """How many descriptors are open."""
        return len(self._kept)

    def __enter__(self) -> KeptFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, path: str) -> bytes | None:
        """The content of a file that the kernel prints in one piece (all of a cgroup's); None if it is gone."""
        descriptor = self._kept.get(path)
        if descriptor is not None:
            try:
                data = os.pread(descriptor, _CHUNK_BYTES, 0)
            except OSError as error:
                self._drop(path)
                if error.errno not in GONE:
                    raise self._refusal(path, error) from error
            else:
                return data if len(data) < _CHUNK_BYTES else data + _rest(descriptor, len(data))
        return self._open_and_read(path, whole=False)

    def read_all(self, path: str) -> bytes | None:
        """Returns as ``read``, for files that the kernel prints record by record (most of /proc): reads until nothing
        is left."""
        descriptor = self._kept.get(path)
        if descriptor is not None:
            try:
                return _rest(descriptor, 0)
            except OSError as error:
                self._drop(path)
                if error.errno not in GONE:
                    raise self._refusal(path, error) from error
        return self._open_and_read(path, whole=True)

    def inode(self, path: str) -> int:
        """The inode of the file read last at ``path``; 0 if that is gone or was never read."""
        return self._inodes.get(path, 0)

    def forget(self, prefix: str) -> None:
        """Close what is at or below ``prefix``."""
        below = prefix.rstrip("/") + "/"
        self.drop([path for path in self._inodes if path == prefix or path.startswith(below)])

    def drop(self, paths: Iterable[str]) -> None:
        """Close these files."""
        for path in paths:
            self._drop(path)

    def close(self) -> None:
        """Close all; the object can be used again."""
        self.drop(list(self._inodes))

    def _drop(self, path: str) -> None:
        self._inodes.pop(path, None)
        if self._refused:
            self._accepted(path)
        descriptor = self._kept.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)
            self._short = self._short and len(self._kept) + min(_MAKE_ROOM, self._limit // 4) > self._limit

    def _open_and_read(self, path: str, whole: bool) -> bytes | None:
        try:
            descriptor = self._open(path)
        except OSError as error:
            self._inodes.pop(path, None)
            if error.errno in GONE:
                return None
            raise self._refusal(path, error) from error
        kept = False
        try:
            data = os.pread(descriptor, _CHUNK_BYTES, 0)
            if whole or len(data) == _CHUNK_BYTES:
                data += _rest(descriptor, len(data))
            self._inodes[path] = os.fstat(descriptor).st_ino
            if self._refused:
                self._accepted(path)
            kept = self._keep(path, descriptor)
            return data
        except OSError as error:
            self._inodes.pop(path, None)
            if error.errno in GONE:
                return None
            raise self._refusal(path, error) from error
        finally:
            if not kept:
                os.close(descriptor)

    def _refusal(self, path: str, error: OSError) -> ReadError:
        refusal = ReadError(error.errno, f"cannot read: {error.strerror}", path)
        alike = self._refused.setdefault(path.rpartition("/")[2], set())
        if not alike and error.errno != errno.EOPNOTSUPP:  # which is how a cgroup says that it has no such account
            self._tell(f"{refusal}: what it would tell is missing")
        alike.add(path)
        return refusal

    def _accepted(self, path: str) -> None:
        """Notes that ``path`` is no longer refused, or no longer wanted."""
        name = path.rpartition("/")[2]
        alike = self._refused.get(name, set())
        alike.discard(path)
        if not alike:
            self._refused.pop(name, None)

    def _keep(self, path: str, descriptor: int) -> bool:
        if len(self._kept) >= self._limit:
            self._say(f"keeping {len(self._kept)} descriptors, the most allowed")
        if self._short:
            return False
        self._kept[path] = descriptor
        return True

    def _open(self, path: str) -> int:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in _SHORT or not self._kept:
                raise
            self._make_room(error)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _make_room(self, error: OSError) -> None:
        """Closes descriptors after EMFILE, by ``_MAKE_ROOM``, and lowers the limit to what is left."""
        count = len(self._kept)
        for path in list(self._kept)[-_MAKE_ROOM:]:
            os.close(self._kept.pop(path))
        self._limit = len(self._kept)
        self._say(f"{error.strerror} with {count} descriptors kept")

    def _say(self, problem: str) -> None:
        if not self._short:
            self._short = True
            self._tell(f"{problem}: further kernel files are opened and closed for each read")


def _rest(descriptor: int, offset: int) -> bytes:
    """Everything from ``offset`` on: a short read is not the end of a file that is printed record by record."""
    pieces = []
    while piece := os.pread(descriptor, _CHUNK_BYTES, offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)
