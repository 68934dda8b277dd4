"""What each held file looked like when all was well, so that seeing it again costs one read and no thought.

Invariant: the same bytes in a file of the same inode have the same meaning, so as long as the opinions on it are the
same too, there is nothing to decide. Anything else, a file that is gone or cannot be read included, is for whoever
can tell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from koord.host.files import Target

Look = tuple[int, bytes]
"""Inode and content."""
_READ_BYTES = 16_384


class Unchanged:
    """The last looks, by target."""

    def __init__(self) -> None:
        self._looks: dict[Target, Look] = {}

    def is_known(self, target: Target, look: Look | None) -> bool:
        """Is ``look`` what the file was like when all was well?"""
        return look is not None and self._looks.get(target) == look

    def replace(self, looked_at: Mapping[Target, Look | None]) -> None:
        """Of these files, those with a look are well, and of the others nothing is known."""
        for target, look in looked_at.items():
            if look is None:
                self._looks.pop(target, None)
            else:
                self._looks[target] = look


def look_at(path: str) -> Look | None:
    """Inode and content of the file at ``path`` now; None if it cannot be read, or is too long to be remembered."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = os.read(descriptor, _READ_BYTES)
        return (os.fstat(descriptor).st_ino, content) if len(content) < _READ_BYTES else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
