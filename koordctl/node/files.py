"""A node's files below one root: ``/`` for this node, a directory for a recorded one; and where the files are.

Invariant: what cannot be read is absent. Paths given and returned are the node's own (``/etc/…``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_THROUGH_PROCESS = re.compile(r"/proc/[0-9]+/root(?=/)")
_UNIX_SOCKETS = "/proc/net/unix"
_UNIX_FIELDS = 8
_LISTENS = "00010000"  # the flag __SO_ACCEPTCON
_ACCEPTED = "03"  # SS_CONNECTED; a connection that waits to be accepted is 02
_LINKED = "/var"  # /var/run is a link to /run


class NodeFiles:
    """The files of the node whose root directory is ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def at(self, path: str) -> Path:
        """Returns where the node's ``path`` is here."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """Returns the file's text; None if it cannot be read."""
        try:
            return self.at(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        return os.path.exists(self.at(path))  # Path.exists raises where it may not look

    def names(self, directory: str) -> list[str]:
        """Returns the names in ``directory``, sorted."""
        try:
            return sorted(os.listdir(self.at(directory)))
        except OSError:
            return []

    def own(self, here: Path) -> str:
        """Returns the node's own path of the file that is ``here``."""
        return f"/{here.relative_to(self.root)}"

    def plain(self, sentence: str) -> str:
        """Returns ``sentence`` with the node's own names for its files, those of a process in a container too."""
        top = str(self.root).rstrip("/")
        return _THROUGH_PROCESS.sub("", sentence.replace(f"{top}/", "/") if top else sentence)


class UnixSocket(NamedTuple):
    """One unix socket: ``inode`` as /proc/PID/fd names it, ``path`` as it was bound."""

    inode: str
    path: str
    listens: bool
    accepted: bool

    def is_at(self, path: str) -> bool:
        return same_path(self.path, path)


def same_path(path: str, other: str) -> bool:
    """Returns whether these are the same path, below /run or /var/run."""
    return path.removeprefix(_LINKED) == other.removeprefix(_LINKED)


def unix_sockets(node: NodeFiles) -> Iterator[UnixSocket]:
    """Yields the sockets that were bound to a path, and the accepted ends of their connections.

    Lines of another form, and sockets without a path, are passed over.
    """
    for line in (node.text(_UNIX_SOCKETS) or "").splitlines():
        words = line.split(None, _UNIX_FIELDS - 1)
        if len(words) == _UNIX_FIELDS:
            yield UnixSocket(words[6], words[7].strip(), words[3] == _LISTENS, words[5] == _ACCEPTED)
