"""Replaces a file as a whole: written beside it, synced, renamed, and the directory synced.

Invariant: whenever the process or the machine ends, the file is the old one or the new one; what a kill left beside it
is removed by the next write.
"""

from __future__ import annotations

import os
from pathlib import Path

BESIDE = ".tmp"
"""Ends the name of what is written beside a file."""

_MODE = 0o600


def write(content: bytes, file: Path) -> None:
    """Replaces ``file``. Raises OSError, and then the old one is still there, and nothing else."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    beside = file.with_name(file.name + BESIDE)
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(beside, file)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
