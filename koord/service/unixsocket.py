"""Makes Koord's own unix sockets, without a moment of wider permissions and never from a live owner.

A socket file outlives a killed process, so a bind must remove it first; but the file may as well belong to a
process that still listens. Invariant: an existing path is removed only if it is a socket that no process answers on.
Fails with SocketTaken, which names path and reason.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from koord.service.directories import make_directories

UNIX_SCHEME = "unix://"


class SocketTaken(OSError):
    """The path is not ours to bind: a process listens on it, or it is no socket."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(errno.EADDRINUSE, reason, str(path))


def without_scheme(endpoint: str) -> str:
    """Returns ``unix:///run/x.sock`` and ``unix:/run/x.sock`` as the bare path ``/run/x.sock``."""
    return endpoint.removeprefix(UNIX_SCHEME).removeprefix("unix:")


def answers(path: str) -> bool:
    """Returns whether a process listens on the socket file; one with a full queue does. Raises OSError for no file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(path)
        except BlockingIOError:
            return True
        except ConnectionRefusedError:
            return False
    return True


def clear_abandoned(path: Path) -> None:
    """Removes the socket file at ``path`` if its owner is gone; does nothing when there is no such file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketTaken(path, "exists and is not a socket")
    with suppress(FileNotFoundError):
        if answers(str(path)):
            raise SocketTaken(path, "another process listens on it")
        path.unlink()


def prepare(path: Path) -> None:
    """Makes the directory (0755) of a socket about to be bound, and removes an abandoned file at ``path``."""
    make_directories(str(path.parent))
    clear_abandoned(path)


@contextmanager
def permissions(mode: int) -> Iterator[None]:
    """Gives new sockets ``mode`` (0o600, 0o660) from the start, within the block, by the process's umask."""
    before = os.umask(0o777 & ~mode)
    try:
        yield
    finally:
        os.umask(before)
