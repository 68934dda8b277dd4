"""A lock between processes of one user, which no other user can take or keep.

flock(2) needs no more than an open descriptor, so any user can lock a directory or a file that he may read. Invariants:
the lock is a file that no other user may open; it exists while the lock is held and, after a kill, until the next
holder leaves. A second process fails at once, with BlockingIOError.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Holds the lock for the block. BlockingIOError if another process holds it, OSError if it cannot be a lock."""
    fd = _acquired(path)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            path.unlink()  # still locked: a process that opened it meanwhile finds that the path leads elsewhere
        os.close(fd)


def _acquired(path: Path) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _refuse_others(fd, path)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _leads_to(path, fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _refuse_others(fd: int, path: Path) -> None:
    found = os.fstat(fd)
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or mode & 0o077 or found.st_nlink > 1:
        why = f"is no lock of ours: owner {found.st_uid}, mode {mode:04o}, {found.st_nlink} links"
        raise PermissionError(errno.EPERM, why, str(path))


def _leads_to(path: Path, fd: int) -> bool:
    """Returns whether the open file is still the one at ``path``: its holder removes it before it unlocks."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(fd))
