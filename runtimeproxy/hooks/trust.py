"""Trusts the files and sockets of root and of the user that the proxy runs as, and no others.

A hook server sees and edits the environment of every container. So a hook file, a server's socket, and everything on
the way to them (each directory, each symbolic link and what it leads to) must belong to one of the two, and no other
user may be able to write there. A directory with the sticky bit, such as ``/tmp``, may be on the way: in it no user can
remove or rename the files of others. Invariant: only those two could have put there what ``refusal`` lets pass.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection

LINKS = 40  # as many symbolic links as the kernel follows
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def owners() -> frozenset[int]:
    """Returns the user ids that are trusted."""
    return frozenset({0, os.geteuid()})


def refusal(path: str, trusted: Collection[int]) -> str | None:
    """Returns why the file at ``path`` must not be used, with file, owner and mode; None if it may. Raises OSError.

    The socket's own mode does not count: a process that can write to it is a client, and cannot answer in its place.
    """
    current, rest, links = "/", _names(path), 0
    reason = _distrust("/", os.lstat("/"), trusted, is_last=not rest)
    while rest and reason is None:
        current, rest = os.path.normpath(os.path.join(current, rest[0])), rest[1:]
        entry = os.lstat(current)
        reason = _distrust(current, entry, trusted, is_last=not rest)
        if stat.S_ISLNK(entry.st_mode):
            links += 1
            if links > LINKS:
                return f"{path} leads through more than {LINKS} symbolic links"
            target = os.readlink(current)
            current, rest = "/" if target.startswith("/") else os.path.dirname(current), _names(target) + rest
    return reason


def distrust(path: str, uid: int | None) -> str | None:
    """Judges a hook server's socket and the user that it runs as, as ``koord.http2.client.Distrust``."""
    if uid is None:
        return refusal(path, owners())
    return None if uid in owners() else f"its server runs as uid {uid}"


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _distrust(path: str, entry: os.stat_result, trusted: Collection[int], *, is_last: bool) -> str | None:
    mode = entry.st_mode
    if entry.st_uid not in trusted:
        return f"{path} belongs to uid {entry.st_uid} (mode {stat.S_IMODE(mode):04o})"
    sticky = stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX) and not is_last
    if mode & _WRITABLE and not (sticky or stat.S_ISLNK(mode) or stat.S_ISSOCK(mode)):
        return f"{path} can be written by others than uid {entry.st_uid} (mode {stat.S_IMODE(mode):04o})"
    return None
