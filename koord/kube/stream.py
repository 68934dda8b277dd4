"""What changed in the caches of several informers: one stream of events, in order, for one reader.

Latest wins: what an object went through while nobody read is one event, from the state that the reader had to the
newest, in the place of the first change. So a slow reader costs no memory, and is never behind when it gets there.
A reader takes the events themselves, or lets ``deliver`` hand each to the handler of the informer that it came from.

Invariants: the events of one object follow each other, ``before`` of each being ``after`` of the last; an object that
came and went unseen has none; there are at most as many events as objects that exist or that the reader knew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from koord.kube.kind import Key, Kind, Object, T

T_co = TypeVar("T_co", bound=Object, covariant=True)


class ObjectEvent(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """``before`` None: added; ``after`` None: deleted; both the same: nothing changed, it is time to look again."""

    kind: Kind[Object]
    key: Key
    before: T_co | None
    after: T_co | None

    @property
    def is_replaced(self) -> bool:
        """Another object has the name now: the one before was deleted."""
        if self.before is None or self.after is None:
            return False
        return self.before.metadata.uid != self.after.metadata.uid


Handler = Callable[[ObjectEvent[T]], None]


def unhandled(_: ObjectEvent[Object]) -> None:
    """The handler of events that their reader takes."""


class EventStream:
    def __init__(self) -> None:
        self._pending: dict[tuple[Channel[Any], Key], ObjectEvent[Any]] = {}
        self._available = asyncio.Event()
        self.coalesced = 0

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._pending)

    def channel(self, kind: Kind[Object], handle: Handler[T] = unhandled) -> Channel[T]:
        """Returns the end at which a cache of ``kind`` puts its events, which ``deliver`` hands to ``handle``."""
        return Channel(self, kind, handle)

    def add(self, channel: Channel[T], key: Key, before: T | None, after: T | None) -> None:
        place = (channel, key)
        waiting = self._pending.get(place)
        if waiting is not None:
            self.coalesced += 1
            before = waiting.before
        if before is None and after is None:
            self._pending.pop(place, None)
        else:
            self._pending[place] = ObjectEvent(channel.kind, key, before, after)
        self._signal()

    async def take(self, limit: int) -> list[ObjectEvent[Object]]:
        """Returns the oldest events, 1 to ``limit`` of them; waits for one."""
        return [event for _, event in await self._take(limit)]

    async def deliver(self, limit: int) -> None:
        """Hands the oldest events, 1 to ``limit`` of them, to their handlers; waits for one."""
        for channel, event in await self._take(limit):
            channel.handle(event)

    async def _take(self, limit: int) -> list[tuple[Channel[Any], ObjectEvent[Any]]]:
        while not self._pending:
            await self._available.wait()
        places = list(islice(self._pending, limit))
        taken = [(place[0], self._pending.pop(place)) for place in places]
        self._signal()
        return taken

    def _signal(self) -> None:
        if not self._pending:
            self._available.clear()
        elif not self._available.is_set():
            self._available.set()


class Channel(Generic[T]):
    """One cache's end of a stream."""

    def __init__(self, stream: EventStream, kind: Kind[Object], handle: Handler[T]) -> None:
        self._stream, self.kind, self.handle = stream, kind, handle

    def put(self, key: Key, before: T | None, after: T | None) -> None:
        """Adds an event. ``before``: what the last call for this object had as ``after``."""
        self._stream.add(self, key, before, after)
