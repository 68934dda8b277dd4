"""A cache of one kind's objects that follows the API server: list, watch, and the same again where a watch ends.

Where the server can, the list is the beginning of the watch: it sends each object by itself and nobody holds all of
them. Otherwise the first list is what the server has in its cache, some seconds old perhaps, which the watch makes up
for; later ones are not older than what is known, since a list from another server's cache could go back in time.

Invariants: after each list the cache is what was listed, whatever was missed before, and each difference is an event;
between lists it is what the watch said, in order. It never goes back to an earlier version, unless the server's newest
is one: its database was put back; of a watch that goes back not a word is taken, and the objects are listed. While
objects of a list are taken, which the event loop does between other work, the cache is partly as before. An object that
cannot be read leaves the last one that could be in its place, which is an event without a change, and ``unreadable``
has the reason. While the server cannot be reached, or refuses, the cache stays as it is and ``failure`` says why;
``last_contact_s`` is the instant of the last word.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from random import random as uniform
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from koord.kube.backoff import Backoff, Random
from koord.kube.client import ANY_VERSION, EVERYTHING, NEWEST, PAGE_SIZE, STALL_S, WATCH_TIMEOUT_S, Selection
from koord.kube.errors import APIError, BadAnswer, KubeError, Stalled, Unreachable
from koord.kube.kind import Key, Kind, Object, T
from koord.kube.reading import Kept, ListPage, ObjectEntry, Transform, WatchEvent, WatchEventType
from koord.kube.store import Index, ObjectStore
from koord.kube.stream import EventStream, Handler, unhandled

_log = logging.getLogger(__name__)
Wire = TypeVar("Wire", bound=Object)
"""What the server sends, as its consumer reads it."""

Item = TypeVar("Item")
_SLICE = 512
"""Objects of a list that are taken before the event loop comes to other work: some milliseconds."""

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
        self,
        kind: Kind[T],
        selection: Selection,
        page_size: int,
        *,
        transform: Transform[T, Kept],
        is_whole_allowed: bool,
        resource_version: str,
    ) -> ListPage[Kept]: ...

    def watch(
        self,
        kind: Kind[T],
        resource_version: str,
        selection: Selection,
        timeout_s: float,
        stall_s: float,
        opened: Callable[[], None],
        begins_with_list: bool,
    ) -> AsyncGenerator[WatchEvent[T], None]: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """``resync_s``: after how long each object is an event again without a change; 0: never. ``is_whole_allowed``: may
    a list be one answer, from the server's cache? Not where anybody makes large objects: then it comes in pages.

    ``most_silent_watches``: after so many in a row the objects are listed: a server whose database was put back to an
    earlier state says nothing until it reaches the version that we know, and what happens before is lost.

    A watch that said something, or that the server ended after ``settled_s`` or more, counts as a success, after which
    delays begin anew. ``refused``: the delays while the server does not know the kind, or lets nobody list it.
    """

    page_size: int = PAGE_SIZE
    is_whole_allowed: bool = True
    watch_timeout_s: float = WATCH_TIMEOUT_S
    stall_s: float = STALL_S
    most_silent_watches: int = 4
    resync_s: float = 0.0
    settled_s: float = 5.0
    backoff: Backoff = _BACKOFF
    refused: Backoff = _BACKOFF

    def delay_s(self, error: KubeError | None, failures: int, random: Random) -> float:
        """Seconds until the next try, after so many failures of which ``error`` is the last."""
        backoff = self.refused if error is not None and error.is_refusal else self.backoff
        return backoff.delay_s(failures, random)


ABSENT_PACE = Pace(refused=Backoff(base_s=30.0, max_s=120.0))
"""Of a kind that the API server need not have: how soon it is found once it is there."""


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
    def messages(self) -> int:
        """Lines of watches."""
        return self.changes + self.bookmarks


def _unobserved(_: str) -> None:
    pass


def _never(_: KubeError) -> bool:
    return False


def lacks_kind(error: KubeError) -> bool:
    """Returns whether the API server does not know the kind: lists and watches of known ones are always found."""
    return isinstance(error, APIError) and error.is_not_found


def as_read(value: T) -> T:
    """The transform of a cache that keeps all that its consumer reads."""
    return value


class Followed(Protocol):
    """An informer whatever its kind, for those who start them and tell how they do."""

    @property
    def kind(self) -> Kind[Object]: ...
    @property
    def synced(self) -> asyncio.Event: ...
    @property
    def error(self) -> str: ...
    @property
    def last_contact_s(self) -> float | None: ...
    @property
    def objects(self) -> Mapping[Key, Object]: ...
    async def run(self) -> None: ...


class Informer(Generic[Wire, Kept]):
    """``stream`` gets an event for each change of the cache, made before the event can be read, for ``handle``.

    ``transform`` makes of an object that was read the one that the cache keeps; it must not fail. None: the object is
    as if it was not there. Of a list that is tried again it may be called twice for the same object.
    ``does_without``: failures after which nobody need wait for the kind, so that ``synced`` is set.
    ``observe`` is called with "" at each word of the server, when the cache has taken it, and with the reason whenever
    there is none.
    """

    def __init__(
        self,
        client: Lister,
        kind: Kind[Wire],
        clock: Callable[[], float],
        selection: Selection = EVERYTHING,
        indexes: Mapping[str, Index[Kept]] = MappingProxyType({}),
        stream: EventStream | None = None,
        pace: Pace = Pace(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random = uniform,
        observe: Callable[[str], None] = _unobserved,
        handle: Handler[Kept] = unhandled,
        *,
        transform: Callable[[Wire], Kept | None],
        does_without: Callable[[KubeError], bool] = _never,
    ) -> None:
        self.kind, self.selection, self._transform = kind, selection, transform
        self._does_without = does_without
        self._client, self._pace, self._observe = client, pace, observe
        self._channel = None if stream is None else stream.channel(kind, handle)
        self._clock, self._sleep, self._random = clock, sleep, random
        self._store: ObjectStore[Kept] = ObjectStore(indexes)
        self._version = ""
        """From where to watch on; "": the objects are to be listed."""
        self._known_version = ""
        """The last one that the cache was at."""
        self._list_from = ANY_VERSION if pace.is_whole_allowed else NEWEST
        self._watch_may_list = pace.is_whole_allowed
        self._listed: dict[Key, ObjectEntry[Kept]] | None = None
        """What came so far of a list with which a watch begins; None between lists."""
        self._silent_watches = 0
        self.synced = asyncio.Event()
        """Set for good once the cache was complete, or is done without."""
        self.counts = Counts()
        self.unreadable: dict[Key, str] = {}
        self.failure: KubeError | None = None
        self.last_contact_s: float | None = None

    @property
    def error(self) -> str:
        """The failure, for people; "" = the server was heard since."""
        return "" if self.failure is None else str(self.failure)

    @property
    def objects(self) -> Mapping[Key, Kept]:
        """A live view."""
        return self._store.objects

    def get(self, key: Key) -> Kept | None:
        return self._store.objects.get(key)

    def indexed(self, index: str, value: str) -> tuple[Kept, ...]:
        """Returns the objects that ``index`` has under ``value``."""
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
                if not self._version and not self._watch_may_list:
                    await self._list()
                is_settled, error = await self._watch()
            except KubeError as failure:
                is_settled, error = False, failure
            if error is not None and self._may_list_otherwise(error):
                continue
            if error is not None:
                self._note(error)
            failures = 0 if is_settled else failures
            if error is not None or not is_settled:
                failures += 1
                await self._sleep(self._pace.delay_s(error, failures, self._random))

    async def _list(self) -> None:
        page = await self._client.list(
            self.kind,
            self.selection,
            self._pace.page_size,
            transform=self._kept,
            is_whole_allowed=self._pace.is_whole_allowed,
            resource_version=self._list_from,
        )
        await self._take_list({entry.key: entry for entry in page.entries}, page.resource_version)

    async def _watch(self) -> tuple[bool, KubeError | None]:
        """Returns whether the watch was a success, and the error that ended it, if one did."""
        begun_s, messages = self._clock(), self.counts.messages
        self._listed = None if self._version else {}
        error: KubeError | None = None
        watch = self._client.watch(
            self.kind,
            self._version or (NEWEST if self._list_from == ANY_VERSION else self._list_from),
            self.selection,
            self._pace.watch_timeout_s,
            self._pace.stall_s,
            self._opened,
            self._listed is not None,
        )
        try:
            async with contextlib.aclosing(watch) as changes:
                async for change in changes:
                    await self._take(change)
        except Stalled as failure:
            self.counts.stalls += 1
            error = None if self._listed is None else _NoListSent(str(failure))
        except KubeError as failure:
            error = failure
        if self._listed is not None and error is None:
            error = Unreachable("a watch ended before the list with which it began", may_have_arrived=True)
        if self.counts.messages > messages:
            self._silent_watches = 0
            return True, error
        if error is None:
            self._note_silence()
        return error is None and self._clock() - begun_s >= self._pace.settled_s, error

    async def _take(self, change: WatchEvent[Wire]) -> None:
        if self._listed is None:
            self._take_change(change)
        elif change.ends_list:
            self.counts.bookmarks += 1
            await self._take_list(self._listed, change.entry.resource_version)
            self._listed = None
        elif change.type is WatchEventType.BOOKMARK:
            raise _NoListSent("a watch goes on before it has sent a list")
        else:
            kept = None if change.type is WatchEventType.DELETED else self._kept(change.entry)
            if kept is None:
                self._listed.pop(change.entry.key, None)
            else:
                self._listed[kept.key] = kept

    def _may_list_otherwise(self, error: KubeError) -> bool:
        """Whether the objects are listed by themselves from now on, since no watch here begins with them."""
        if self._version or not self._watch_may_list:
            return False
        is_refused = isinstance(error, APIError) and (error.is_unknown_request or error.is_forbidden)
        if is_refused or isinstance(error, _NoListSent):
            _log.info("%s are listed by themselves: %s", self.kind.plural, error)
            self._watch_may_list = False
        return not self._watch_may_list

    def _note_silence(self) -> None:
        """No word is no failure: of a kind in which nothing happened, a server may have nothing to say."""
        self._silent_watches += 1
        if self._silent_watches >= self._pace.most_silent_watches:
            self._silent_watches, self._version, self._list_from = 0, "", NEWEST

    def _note(self, error: KubeError) -> None:
        self.counts.failures += 1
        is_expired = isinstance(error, APIError) and error.is_expired
        self.counts.expired += is_expired
        if _must_list(error):
            self._list_from = self._next_list_from(is_expired)
            self._version = ""
        if not is_expired:
            if str(error) != self.error:
                _log.warning("%s: %s", self.kind.plural, error)
            self.failure = error
            if not self.synced.is_set() and self._does_without(error):
                _log.warning("nobody waits for %s", self.kind.plural)
                self.synced.set()
            self._observe(self.error)

    def _opened(self) -> None:
        self.counts.watches += 1
        if self._listed is None:
            self._heard()

    def _heard(self) -> None:
        self.last_contact_s = self._clock()
        self.failure = None
        self._observe("")

    def _next_list_from(self, is_expired: bool) -> str:
        """After a failure. That a watch has expired is no reason to distrust caches, as other failures may be."""
        if not self._pace.is_whole_allowed:
            return NEWEST
        if not self._known_version:
            return ANY_VERSION
        return self._known_version if is_expired and self._version else NEWEST

    async def _take_list(self, listed: Mapping[Key, ObjectEntry[Kept]], version: str) -> None:
        """Makes the cache what was listed. Deletions first: what they free is free before somebody takes it."""
        if not version:
            raise BadAnswer(f"a list of {self.kind.plural} has no resource version")
        if self._list_from != NEWEST and _is_older(version, self._known_version):
            raise BadAnswer(f"a list of {self.kind.plural} is of {version}, and {self._known_version} is known")
        self.counts.lists += 1
        await _in_slices([key for key in self._store.objects if key not in listed], self._remove)
        self.unreadable = {key: problem for key, problem in self.unreadable.items() if key in listed}
        await _in_slices(listed.values(), self._put)
        self._version = self._known_version = version
        self.synced.set()
        self._heard()

    def _take_change(self, change: WatchEvent[Wire]) -> None:
        """Raises BadAnswer for one that is older than what is known."""
        entry, known = change.entry, self._known_version
        if _is_older(entry.resource_version, known):
            raise BadAnswer(f"a watch of {self.kind.plural} goes back from {known} to {entry.resource_version}")
        if change.type is WatchEventType.BOOKMARK:
            self.counts.bookmarks += 1
        elif change.type is WatchEventType.DELETED:
            self.counts.changes += 1
            self._remove(entry.key)
        else:
            self.counts.changes += 1
            kept = self._kept(entry)
            if kept is None:
                self._remove(entry.key)
            else:
                self._put(kept)
        self._version = self._known_version = entry.resource_version or self._version
        self._heard()

    def _kept(self, entry: ObjectEntry[Wire]) -> ObjectEntry[Kept] | None:
        """Returns it with the object that the cache keeps: its own, if that is of the same version. None: none."""
        if entry.object is None:
            return ObjectEntry(entry.key, entry.resource_version, None, entry.problem)
        known = self._store.objects.get(entry.key)
        if known is None or known.metadata.resource_version != entry.resource_version:
            known = self._transform(entry.object)
        return None if known is None else ObjectEntry(entry.key, entry.resource_version, known)

    def _put(self, entry: ObjectEntry[Kept]) -> None:
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

    def _deliver(self, key: Key, before: Kept | None, after: Kept | None) -> None:
        if self._channel is not None:
            self._channel.put(key, before, after)

    async def _resync(self) -> None:
        while True:
            await self._sleep(self._pace.resync_s)
            for key, value in self.objects.items():
                self._deliver(key, value, value)


class _NoListSent(KubeError):
    """A server took a watch that was to begin with a list for any other."""


async def _in_slices(items: Collection[Item], take: Callable[[Item], None]) -> None:
    for number, item in enumerate(items, 1):
        take(item)
        if number % _SLICE == 0:
            await asyncio.sleep(0)


def _is_older(version: str, known: str) -> bool:
    """Whether ``version`` is of an earlier moment, as far as the texts tell."""
    return version.isdecimal() and known.isdecimal() and int(version) < int(known)


def _must_list(error: KubeError) -> bool:
    """Whether watching on from the same resource version is no use."""
    if isinstance(error, APIError):
        return error.status not in _MAY_GO_ON
    return isinstance(error, BadAnswer)
