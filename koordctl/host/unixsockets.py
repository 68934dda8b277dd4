"""The unix sockets of a node, from /proc/net/unix: who listens where, and who is connected.

Invariant: lines of another form, and sockets without a path, are passed over; a file that cannot be read shows none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from koordctl.host.node import Node

_FILE = "/proc/net/unix"
_FIELDS = 8
_LISTENS = "00010000"  # the flag __SO_ACCEPTCON
_ACCEPTED = "03"  # SS_CONNECTED; a connection that waits to be accepted is 02
_LINKED = "/var"  # /var/run is a link to /run


class UnixSocket(NamedTuple):
    """One socket: ``inode`` as /proc/PID/fd names it, ``path`` as it was bound."""

    inode: str
    path: str
    listens: bool
    accepted: bool

    def is_at(self, path: str) -> bool:
        return same_path(self.path, path)


def same_path(path: str, other: str) -> bool:
    """Are these the same path, below /run or /var/run?"""
    return path.removeprefix(_LINKED) == other.removeprefix(_LINKED)


def sockets(node: Node) -> Iterator[UnixSocket]:
    """Those that were bound to a path, and the accepted ends of their connections."""
    for line in (node.text(_FILE) or "").splitlines():
        words = line.split(None, _FIELDS - 1)
        if len(words) == _FIELDS:
            yield UnixSocket(words[6], words[7].strip(), words[3] == _LISTENS, words[5] == _ACCEPTED)
