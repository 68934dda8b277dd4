"""Who makes room for a newcomer where a server has as many connections as it may.

A server that refuses newcomers is shut by whoever comes first and stays; one that cuts the oldest connection is shut by
whoever comes most often. Here the source with most connections gives one: of those that were of no use yet the one that
has waited longest, and if all were, the one whose use is longest ago. So a source can only take its own places, and
even there silence takes none from those who speak. Pure. Invariants: there are never more than ``most``; no source
gives a connection while another one has more.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Source(Generic[K]):
    """Its connections by the number of their coming, or of their last use; longest ago first."""

    unused: dict[K, int] = field(default_factory=dict)
    used: dict[K, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.unused) + len(self.used)

    def next(self) -> tuple[K, int]:
        """The connection that it gives first, and its number."""
        return next(iter((self.unused or self.used).items()))


class ConnectionLimit(Generic[K]):
    """``most``: connections at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._number = 0
        self._owners: dict[K, str] = {}
        self._sources: dict[str, _Source[K]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    @property
    def sources(self) -> int:
        return len(self._sources)

    def add(self, key: K, source: str) -> K | None:
        """Takes ``key`` in. Returns the connection that has to be closed for it, which does not count any more."""
        self._owners[key] = source
        self._sources.setdefault(source, _Source()).unused[key] = self._next()
        if len(self._owners) <= self._most:
            return None
        given, _ = max(self._sources.values(), key=_rank).next()
        self.discard(given)
        return given

    def use(self, key: K) -> None:
        """``key`` was of use just now."""
        owner = self._owners.get(key)
        if owner is not None:
            source = self._sources[owner]
            source.unused.pop(key, None)
            source.used.pop(key, None)
            source.used[key] = self._next()

    def discard(self, key: K) -> None:
        """``key`` is closed."""
        owner = self._owners.pop(key, None)
        if owner is not None:
            source = self._sources[owner]
            source.unused.pop(key, None)
            source.used.pop(key, None)
            if not len(source):
                del self._sources[owner]

    def _next(self) -> int:
        self._number += 1
        return self._number


def _rank(source: _Source[K]) -> tuple[int, int]:
    """The source of the highest rank gives one: who has most, and of these whose has waited longest."""
    return len(source), -source.next()[1]
