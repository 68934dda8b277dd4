"""A node's files below one root: ``/`` for this node, a directory for a recorded one.

Invariant: whatever cannot be read is absent. Paths given and returned are the node's own (``/etc/…``).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_THROUGH_PROCESS = re.compile(r"/proc/[0-9]+/root(?=/)")


class Node:
    """The files of the node whose root directory is ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def at(self, path: str) -> Path:
        """Where the node's ``path`` is here."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """The file's text; None if it cannot be read."""
        try:
            return self.at(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        return os.path.exists(self.at(path))  # Path.exists raises where it may not look

    def names(self, directory: str) -> list[str]:
        """What is in ``directory``, sorted."""
        try:
            return sorted(os.listdir(self.at(directory)))
        except OSError:
            return []

    def own(self, here: Path) -> str:
        """The node's own path of the file that is ``here``."""
        return f"/{here.relative_to(self.root)}"

    def plain(self, sentence: str) -> str:
        """``sentence`` with the node's own names for its files, those of a process in a container too."""
        top = str(self.root).rstrip("/")
        return _THROUGH_PROCESS.sub("", sentence.replace(f"{top}/", "/") if top else sentence)
