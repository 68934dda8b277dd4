"""What changed in the caches of several informers: one stream of events, in order, for one reader.

Latest wins: what an object went through while nobody read is one event, from the state that the reader had to the
newest, in the place of the first change. So a slow reader costs no memory, and is never behind when it gets there.

Invariants: the events of one object follow each other, ``before`` of each being ``after`` of the last; an object that
came and went unseen has none; there are at most as many events as objects that exist or that the reader knew.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any, Generic, NamedTuple

from koord.kube.kind import Key, Kind, T


class ObjectEvent(NamedTuple, Generic[T]):
    """``before`` None: added; ``after`` None: deleted; both the same: nothing changed, it is time to look again."""

    kind: Kind[T]
    key: Key
    before: T | None
    after: T | None

    @property
    def is_replaced(self) -> bool:
        """Another object has the name now: the one before was deleted."""
        if self.before is None or self.after is None:
            return False
        return self.before.metadata.uid != self.after.metadata.uid


class EventStream:
    def __init__(self) -> None:
        self._pending: dict[tuple[Kind[Any], Key], ObjectEvent[Any]] = {}
        self._available = asyncio.Event()
        self.coalesced = 0

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._pending)

    def put(self, kind: Kind[T], key: Key, before: T | None, after: T | None) -> None:
        """``before``: what the last call for this object had as ``after``."""
        waiting = self._pending.get((kind, key))
        if waiting is not None:
            self.coalesced += 1
            before = waiting.before
        if before is None and after is None:
            self._pending.pop((kind, key), None)
        else:
            self._pending[kind, key] = ObjectEvent(kind, key, before, after)
        self._signal()

    async def take(self, limit: int) -> list[ObjectEvent[Any]]:
        """The oldest events, 1 to ``limit`` of them; waits for one."""
        while not self._pending:
            await self._available.wait()
        places = list(islice(self._pending, limit))
        events = [self._pending.pop(place) for place in places]
        self._signal()
        return events

    def _signal(self) -> None:
        if self._pending:
            self._available.set()
        else:
            self._available.clear()
