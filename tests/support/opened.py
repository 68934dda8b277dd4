"""Things that a test opens and need not close itself: ``opened(thing)`` is closed when the test ends.

Undo records and kept files hold descriptors of their own, which no garbage collector gives back.
"""

from __future__ import annotations

from typing import Protocol, TypeVar


class Closable(Protocol):
    """``close`` may be called twice."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)
_open: list[Closable] = []


def opened(thing: T) -> T:
    _open.append(thing)
    return thing


def close_all() -> None:
    while _open:
        _open.pop().close()
