"""Which files to look at now: those with something new, and a few of the others in turn.

    another value is wanted · a process wrote the file (``touched``) · an attempt is due again · the longest unseen of
    all held files, as many as it takes to see each every ``RECHECK_S``

Invariants: ``due`` changes nothing, so that a dry run and the run see the same; ``done`` records what was looked at. A
run at which nothing is new costs as many looks as there are held files, over ``RECHECK_S``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import msgspec

from koord.host.files import Target
from koord.host.reconcile.state import FileStates, Look

RECHECK_S = 50.0
_MAX_TOUCHED = 16_384
"""How many touches are kept between two runs; the recheck finds the files beyond that."""
_READ_BYTES = 16_384
_S = 1_000_000_000


class Due(msgspec.Struct, frozen=True):
    """The files to look at. ``changed``: there is something new to decide about these files.

    ``paths``: those of files that may be unchanged; ``touched``: how many touches are among the reasons.
    """

    changed: tuple[Target, ...]
    paths: Mapping[Target, str]
    touched: int


class LookQueue:
    """Over ``states``, which it only reorders. ``touched`` may be called from any thread, the rest from one."""

    def __init__(self, states: FileStates) -> None:
        self._states = states
        self._seen_ns: int | None = None
        self._owed = 0.0
        self._touched: list[str] = []

    def touched(self, path: str) -> None:
        """Notes that a process, perhaps this one, wrote the file at ``path``, or made or removed its directory."""
        if self._states.at(path) and len(self._touched) < _MAX_TOUCHED:
            self._touched.append(path)

    def due(self, changed: Iterable[Target], now_ns: int) -> Due:
        """Returns the files to look at now; ``changed``: files for which another value is wanted than before."""
        states, touched = self._states, len(self._touched)
        chosen = dict.fromkeys((*changed, *states.due(now_ns)))
        seen = dict.fromkeys(target for path in self._touched[:touched] for target in states.at(path))
        seen.update(dict.fromkeys(states.longest_unseen(int(self._debt(now_ns)))))
        paths = {target: states[target].path for target in seen if target not in chosen}
        return Due(tuple(chosen), paths, touched)

    def done(self, due: Due, examined: Iterable[Target], now_ns: int) -> None:
        """Notes that the files that were ``due``, and all that were ``examined``, have been looked at and acted on."""
        self._owed = self._debt(now_ns) % 1.0
        self._seen_ns = now_ns
        del self._touched[: due.touched]
        for target in (*due.paths, *examined):
            self._states.seen(target)

    def _debt(self, now_ns: int) -> float:
        """How many files are to be looked at in turn by now, to see each in ``RECHECK_S``."""
        if self._seen_ns is None:
            return 0.0
        elapsed_s, watched = max(0, now_ns - self._seen_ns) / _S, self._states.watched
        return min(float(watched), self._owed + watched * elapsed_s / RECHECK_S)


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
