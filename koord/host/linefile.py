"""A file of lines that is appended to, and replaced as a whole where it is to become shorter.

Invariants: lines that are appended together are all in the file, or none of them; a last line that was not written
whole, because the process was killed, is not read. A new file takes the old one's place by a rename, so there is always
one of them. What fails raises OSError, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path

NEW = ".new"
"""Ends the name of a file that is to take another's place."""


def read(file: Path) -> list[bytes]:
    """Returns the lines that were written whole. Raises FileNotFoundError, OSError."""
    return file.read_bytes().split(b"\n")[:-1]


class LineFile:
    """The file at ``path``, for one writer. ``replace`` comes before the first ``append``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._size_bytes = 0
        self.lines = 0
        """How many lines the file has."""

    def append(self, lines: Sequence[bytes]) -> None:
        """Appends all of ``lines``, or none."""
        content = _joined(lines)
        try:
            if os.write(self._descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._descriptor, self._size_bytes)
            raise
        self._size_bytes += len(content)
        self.lines += len(lines)

    def replace(self, lines: Sequence[bytes]) -> None:
        """Puts a new file of ``lines`` in the place of the old one."""
        content = _joined(lines)
        descriptor = _replaced(self._path, content)
        self.close()
        self._descriptor, self._size_bytes, self.lines = descriptor, len(content), len(lines)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def _joined(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _replaced(file: Path, content: bytes) -> int:
    """Puts a new file in the place of ``file``, and returns a descriptor that appends to it."""
    new = Path(f"{file}{NEW}")
    descriptor = -1
    try:
        new.write_bytes(content)
        descriptor = os.open(new, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        new.rename(file)
    except OSError:
        if descriptor >= 0:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    return descriptor
