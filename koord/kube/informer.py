"""A cache of one kind's objects that follows the API server: list, watch, and the same again where a watch ends.

Invariants: after each list the cache is what was listed, whatever was missed before, and each difference is an event;
between lists it is what the watch said, in order. An object that cannot be read leaves the last one that could be in
its place, which is an event without a change, and ``unreadable`` has the reason. While the server cannot be reached, or
refuses, the cache stays as it is and ``failure`` says why; ``heard_s`` is the instant of the last word.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from random import random as uniform
from types import MappingProxyType
from typing import Generic, Protocol

import msgspec

from koord.kube.backoff import Backoff, Random
from koord.kube.client import EVERYTHING, PAGE_SIZE, STALL_S, WATCH_TIMEOUT_S, Selection
from koord.kube.errors import APIError, BadAnswer, KubeError, Stalled
from koord.kube.kind import Key, Kind, T
from koord.kube.reading import Change, ChangeType, Entry, Keep, Page
from koord.kube.store import Index, Store
from koord.kube.stream import EventStream

_log = logging.getLogger(__name__)

MAX_SILENT_WATCHES = 4
"""After so many in a row the objects are listed: a server whose database was put back to an earlier state says nothing
until it reaches the version that we know, and what happens before is lost."""

_BACKOFF = Backoff(base_s=0.5, max_s=30.0)
_MAY_GO_ON = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
"""Refusals that say nothing against the resource version; after any other the objects are listed anew."""


class Lister(Protocol):
    """The part of ``Client`` that an informer needs."""

    async def list(
        self, kind: Kind[T], selection: Selection, page_size: int, keep: Keep[T], is_whole_allowed: bool
    ) -> Page[T]: ...

    def watch(
        self,
        kind: Kind[T],
        resource_version: str,
        selection: Selection,
        timeout_s: float,
        stall_s: float,
        opened: Callable[[], None],
    ) -> AsyncGenerator[Change[T], None]: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """``resync_s``: after how long each object is an event again without a change; 0: never. ``is_whole_allowed``: may
    a list that the server cannot go on with be one answer? Not where anybody makes large objects.

    A watch that said something, or that the server ended after ``settled_s`` or more, counts as a success, after which
    delays begin anew. ``refused``: the delays while the server does not know the kind, or lets nobody list it.
    """

    page_size: int = PAGE_SIZE
    is_whole_allowed: bool = True
    watch_timeout_s: float = WATCH_TIMEOUT_S
    stall_s: float = STALL_S
    resync_s: float = 0.0
    settled_s: float = 5.0
    backoff: Backoff = _BACKOFF
    refused: Backoff = _BACKOFF

    def delay_s(self, error: KubeError | None, failures: int, random: Random) -> float:
        """Seconds until the next try, after so many failures of which ``error`` is the last."""
        backoff = self.refused if error is not None and error.is_refusal else self.backoff
        return backoff.delay_s(failures, random)


@dataclass(slots=True)
class Counts:
    """Since the start. ``expired``: lists that a forgotten resource version made necessary."""

    lists: int = 0
    watches: int = 0
    changes: int = 0
    bookmarks: int = 0
    expired: int = 0
    stalls: int = 0
    failures: int = 0

    @property
    def said(self) -> int:
        """Words of watches."""
        return self.changes + self.bookmarks


def _unobserved(_: str) -> None:
    pass


def _unchanged(value: T) -> T:
    return value


class Informer(Generic[T]):
    """``stream`` gets an event for each change of the cache, made before the event can be read.

    ``transform`` makes of an object that was read the one that the cache keeps; it must not fail. None: the object is
    as if it was not there.
    ``observe`` is called with "" at each word of the server, when the cache has taken it, and with the reason whenever
    there is none.
    """

    def __init__(
        self,
        client: Lister,
        kind: Kind[T],
        clock: Callable[[], float],
        selection: Selection = EVERYTHING,
        indexes: Mapping[str, Index[T]] = MappingProxyType({}),
        stream: EventStream | None = None,
        pace: Pace = Pace(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random = uniform,
        observe: Callable[[str], None] = _unobserved,
        transform: Callable[[T], T | None] = _unchanged,
    ) -> None:
        self.kind, self.selection, self._transform = kind, selection, transform
        self._client, self._stream, self._pace, self._observe = client, stream, pace, observe
        self._clock, self._sleep, self._random = clock, sleep, random
        self._store: Store[T] = Store(indexes)
        self._version = ""
        self._silent_watches = 0
        self.synced = asyncio.Event()
        """Set for good once the cache was complete."""
        self.counts = Counts()
        self.unreadable: dict[Key, str] = {}
        self.failure: KubeError | None = None
        self.heard_s: float | None = None

    @property
    def error(self) -> str:
        """The failure, for people; "" = the server was heard since."""
        return "" if self.failure is None else str(self.failure)

    @property
    def objects(self) -> Mapping[Key, T]:
        """A live view."""
        return self._store.objects

    def get(self, key: Key) -> T | None:
        return self._store.objects.get(key)

    def indexed(self, index: str, value: str) -> tuple[T, ...]:
        """The objects that ``index`` has under ``value``."""
        return self._store.indexed(index, value)

    async def run(self) -> None:
        """Follows the server until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._pace.resync_s > 0:
                group.create_task(self._resync())
            await self._follow()

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                await self._list_if_needed()
                is_settled, error = await self._watch()
            except KubeError as failure:
                is_settled, error = False, failure
            if error is not None:
                self._note(error)
            failures = 0 if is_settled else failures
            if error is not None or not is_settled:
                failures += 1
                await self._sleep(self._pace.delay_s(error, failures, self._random))

    async def _list_if_needed(self) -> None:
        if self._version:
            return
        page = await self._client.list(
            self.kind, self.selection, self._pace.page_size, self._kept, self._pace.is_whole_allowed
        )
        if not page.resource_version:
            raise BadAnswer(f"a list of {self.kind.plural} has no resource version")
        self.counts.lists += 1
        self._take_page(page)
        self._version = page.resource_version
        self.synced.set()
        self._heard()

    async def _watch(self) -> tuple[bool, KubeError | None]:
        """Whether the watch was a success, and the error that ended it, if one did."""
        self.counts.watches += 1
        begun_s, said = self._clock(), self.counts.said
        error: KubeError | None = None
        watch = self._client.watch(
            self.kind, self._version, self.selection, self._pace.watch_timeout_s, self._pace.stall_s, self._heard
        )
        try:
            async with contextlib.aclosing(watch) as changes:
                async for change in changes:
                    self._take_change(change)
        except Stalled:
            self.counts.stalls += 1
        except KubeError as failure:
            error = failure
        if self.counts.said > said:
            self._silent_watches = 0
            return True, error
        if error is None:
            self._note_silence()
        return error is None and self._clock() - begun_s >= self._pace.settled_s, error

    def _note_silence(self) -> None:
        """No word is no failure: of a kind in which nothing happened, a server may have nothing to say."""
        self._silent_watches += 1
        if self._silent_watches >= MAX_SILENT_WATCHES:
            self._silent_watches, self._version = 0, ""

    def _note(self, error: KubeError) -> None:
        self.counts.failures += 1
        is_expired = isinstance(error, APIError) and error.is_expired
        self.counts.expired += is_expired
        if _must_list(error):
            self._version = ""
        if not is_expired:
            if str(error) != self.error:
                _log.warning("%s: %s", self.kind.plural, error)
            self.failure = error
            self._observe(self.error)

    def _heard(self) -> None:
        self.heard_s = self._clock()
        self.failure = None
        self._observe("")

    def _take_page(self, page: Page[T]) -> None:
        """Deletions first: what they free is free before somebody takes it."""
        listed = {entry.key for entry in page.entries}
        for key in [key for key in self._store.objects if key not in listed]:
            self._remove(key)
        self.unreadable = {key: problem for key, problem in self.unreadable.items() if key in listed}
        for entry in page.entries:
            self._put(entry)

    def _take_change(self, change: Change[T]) -> None:
        entry = change.entry
        if change.type is ChangeType.BOOKMARK:
            self.counts.bookmarks += 1
        elif change.type is ChangeType.DELETED:
            self.counts.changes += 1
            self._remove(entry.key)
        else:
            self.counts.changes += 1
            kept = self._kept(entry)
            if kept is None:
                self._remove(entry.key)
            else:
                self._put(kept)
        self._version = entry.resource_version or self._version
        self._heard()

    def _kept(self, entry: Entry[T]) -> Entry[T] | None:
        """With the object as the cache keeps it: the one that it has, if that is of the same version. None: none."""
        if entry.object is None:
            return entry
        known = self.get(entry.key)
        is_known = known is not None and known.metadata.resource_version == entry.resource_version
        kept = known if is_known else self._transform(entry.object)
        return None if kept is None else msgspec.structs.replace(entry, object=kept)

    def _put(self, entry: Entry[T]) -> None:
        """``entry``: from ``_kept``."""
        before = self.get(entry.key)
        if entry.object is None:
            if self.unreadable.get(entry.key) != entry.problem:
                _log.warning("%s", entry.problem)
                self.unreadable[entry.key] = entry.problem
                self._deliver(entry.key, before, before)
            return
        self.unreadable.pop(entry.key, None)
        if entry.object is before:
            return
        self._store.put(entry.key, entry.object)
        self._deliver(entry.key, before, entry.object)

    def _remove(self, key: Key) -> None:
        self.unreadable.pop(key, None)
        before = self._store.remove(key)
        if before is not None:
            self._deliver(key, before, None)

    def _deliver(self, key: Key, before: T | None, after: T | None) -> None:
        if self._stream is not None:
            self._stream.put(self.kind, key, before, after)

    async def _resync(self) -> None:
        while True:
            await self._sleep(self._pace.resync_s)
            for key, value in self.objects.items():
                self._deliver(key, value, value)


def _must_list(error: KubeError) -> bool:
    """Whether watching on from the same resource version is no use."""
    if isinstance(error, APIError):
        return error.status not in _MAY_GO_ON
    return isinstance(error, BadAnswer)
