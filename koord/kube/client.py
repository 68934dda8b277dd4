"""The API's verbs on kinds and keys: typed objects in, typed objects out.

Invariants: no request goes out faster than the rate limit; each try is bounded in time, and each wait for more of a
list or a watch; what may be sent again is tried ``TRIES`` times, with a pause that the server may name; a list is one
consistent snapshot, whole or an error; who may write only for a time (``guarded``) is asked when a write is sent, not
when it was meant. Between two parts of a list the event loop comes to other work.
After a lost answer the second try of a delete may find nothing and that of a replace a conflict: both did what they
should. Fails with KubeError; with ValueError for names that no object can have.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import random as uniform
from typing import Any, overload

import msgspec

from koord.kube import portforward, reading, watch
from koord.kube.backoff import Backoff, Random
from koord.kube.credentials import Credentials
from koord.kube.errors import APIError, BadAnswer, KubeError, from_status, may_retry
from koord.kube.kind import POD, Key, Kind, Object, T
from koord.kube.listbody import ListBody
from koord.kube.ratelimit import RateLimit
from koord.kube.reading import Kept, ListPage, ObjectEntry, Status, Transform, WatchEvent
from koord.kube.transport import HTTPRequest, Transport

_log = logging.getLogger(__name__)

QPS, BURST = 30.0, 50
TRIES = 4
TIMEOUT_S = 30.0
PAGE_SIZE = 500
WATCH_TIMEOUT_S = 540.0
STALL_S = 150.0
"""A server sends a bookmark each minute, but none of a kind in which nothing happened since it started."""

_PAUSE = Backoff(base_s=0.2, max_s=5.0)
_MAX_RETRY_AFTER_S = 30.0

NEWEST, ANY_VERSION = "", "0"
"""Of a list: what the database has now, and what any server's cache has: cheap, and maybe some seconds old."""

Body = Mapping[str, Any] | msgspec.Struct


class PatchType(StrEnum):
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(StrEnum):
    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind; "" leaves the choice open. Selectors are in the API's own text form."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        named = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: text for name, text in named.items() if text}


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The object must still be the one that the caller saw; "" leaves it open."""

    uid: str = ""
    resource_version: str = ""

    def encoded(self) -> dict[str, str]:
        named = {"uid": self.uid, "resourceVersion": self.resource_version}
        return {name: text for name, text in named.items() if text}


NO_PRECONDITIONS = Preconditions()


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How a client calls: ``rate`` None waits for nobody, ``timeout_s`` is for each try."""

    rate: RateLimit | None = None
    tries: int = TRIES
    timeout_s: float = TIMEOUT_S


@dataclass(slots=True)
class _Counts:
    retries: int = 0


def _nothing() -> None:
    pass


class Client:
    def __init__(
        self,
        transport: Transport,
        limits: CallLimits,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random = uniform,
    ) -> None:
        self._transport, self._limits = transport, limits
        self._sleep, self._random = sleep, random
        self._counts = _Counts()
        self._check_write = _nothing

    @property
    def retries(self) -> int:
        """Requests that were sent again, by all clients of other limits, too."""
        return self._counts.retries

    def with_limits(self, limits: CallLimits) -> Client:
        """A client with other limits on the same connections: for leases, which wait for nobody."""
        return self._other(limits, self._check_write)

    def guarded(self, check_write: Callable[[], None]) -> Client:
        """A client that calls ``check_write`` before each write is sent; what that raises, a KubeError, it raises."""
        return self._other(self._limits, check_write)

    def check_write(self) -> None:
        """For a write that another program is asked for: raises, a KubeError, what a write of this client's would."""
        self._check_write()

    def _other(self, limits: CallLimits, check_write: Callable[[], None]) -> Client:
        other = Client(self._transport, limits, self._sleep, self._random)
        other._counts, other._check_write = self._counts, check_write
        return other

    async def get(self, kind: Kind[T], key: Key) -> T:
        return self._object(kind, await self._call(HTTPRequest("GET", kind.object_path(key))))

    async def forwarded(self, pod: Key, port: int, request: bytes) -> bytes:
        """Sends ``request`` to a port of the pod's loopback, once, and returns all that comes until it ends."""
        return await portforward.exchange(self._transport, pod, port, request, self._limits.timeout_s)

    async def get_path(self, path: str) -> bytes:
        """What is no object: ``/version``, ``/readyz``."""
        return await self._call(HTTPRequest("GET", path))

    @overload
    async def list(
        self, kind: Kind[T], selection: Selection = ..., page_size: int = ..., *, is_whole_allowed: bool = ...
    ) -> ListPage[T]: ...

    @overload
    async def list(
        self,
        kind: Kind[T],
        selection: Selection = ...,
        page_size: int = ...,
        *,
        transform: Transform[T, Kept],
        is_whole_allowed: bool = ...,
        resource_version: str = ...,
    ) -> ListPage[Kept]: ...

    async def list(
        self,
        kind: Kind[T],
        selection: Selection = EVERYTHING,
        page_size: int = PAGE_SIZE,
        *,
        transform: Transform[T, Any] = reading.as_it_is,
        is_whole_allowed: bool = True,
        resource_version: str = NEWEST,
    ) -> ListPage[Any]:
        """Returns all objects as they are at one moment, page by page.

        ``transform`` makes of each entry the one that is listed, or None, before the next one is read: of a list of
        large objects no more than the text of a few is ever in memory. Where the server forgets the moment between two
        pages, the list is begun again, in one piece, if that ``is_whole_allowed``.

        ``resource_version``: NEWEST; ANY_VERSION, which a server that has a cache answers from it in one piece,
        whatever ``page_size`` is; or one that the list must not be older than, which is one piece of a cache, too.
        """
        query = selection.query()
        if resource_version not in (NEWEST, ANY_VERSION):
            query |= {"resourceVersion": resource_version, "resourceVersionMatch": "NotOlderThan"}
            return await self._list_pages(kind, selection, query, 0, transform)
        cached = {"resourceVersion": resource_version} if resource_version else {}
        try:
            return await self._list_pages(kind, selection, query | cached, page_size, transform)
        except APIError as error:
            if not (error.is_expired and page_size and is_whole_allowed):
                raise
            return await self._list_pages(kind, selection, query, 0, transform)

    async def _list_pages(
        self, kind: Kind[T], selection: Selection, query: dict[str, str], page_size: int, transform: Transform[T, Kept]
    ) -> ListPage[Kept]:
        query = query | ({"limit": str(page_size)} if page_size else {})
        entries: list[ObjectEntry[Kept]] = []
        while True:
            request = HTTPRequest("GET", kind.collection_path(selection.namespace), query)
            page = await self._page(kind, request, transform)
            entries.extend(page.entries)
            if not page.continue_token:
                return ListPage(tuple(entries), page.resource_version)
            query = selection.query() | {"limit": str(page_size), "continue": page.continue_token}

    async def _page(self, kind: Kind[T], request: HTTPRequest, transform: Transform[T, Kept]) -> ListPage[Kept]:
        failures = 0
        while True:
            body = ListBody(kind, transform)
            try:
                await self._read(request, body)
                return body.end()
            except ValueError as error:
                raise BadAnswer(f"no list of {kind.plural}: {error}") from error
            except KubeError as error:
                failures += 1
                await self._pause(request, error, failures)

    async def _read(self, request: HTTPRequest, body: ListBody[T, Kept]) -> None:
        await self._take_turn()
        async with self._transport.stream(request, self._limits.timeout_s) as reader:
            while chunk := await watch.next_chunk(reader.readany, self._limits.timeout_s):
                body.feed(chunk)
                await asyncio.sleep(0)

    async def watch(
        self,
        kind: Kind[T],
        resource_version: str,
        selection: Selection = EVERYTHING,
        timeout_s: float = WATCH_TIMEOUT_S,
        stall_s: float = STALL_S,
        opened: Callable[[], None] = _nothing,
        begins_with_list: bool = False,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yields what changes after ``resource_version``, bookmarks too, until the server ends it after ``timeout_s``.

        ``opened`` is called when the server has agreed, which may be long before there is a change.
        ``begins_with_list``: first come all objects, as they are at NEWEST or at a moment that is not older than
        ``resource_version``, and then a change that ``ends_list``. Servers that do not know it refuse that.
        One try. Raises APIError (``is_expired``: list anew), Stalled after ``stall_s`` of silence, Unreachable where
        the connection breaks, BadAnswer. Close it (``contextlib.aclosing``) if it is left early.
        """
        query = selection.query() | {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(timeout_s * (1 - self._random() / 4)))),
        }
        if begins_with_list:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        await self._take_turn()
        request = HTTPRequest("GET", kind.collection_path(selection.namespace), query)
        async with (
            self._transport.stream(request, self._limits.timeout_s) as reader,
            contextlib.aclosing(watch.lines(reader.readany, stall_s)) as lines,
        ):
            opened()
            async for line in lines:
                yield _change(kind, line)

    async def create(
        self, kind: Kind[T], body: Body, namespace: str = "", field_manager: str = "", dry_run: bool = False
    ) -> T:
        query = _write_query(field_manager, dry_run)
        request = HTTPRequest("POST", kind.collection_path(namespace), query, _encoded(body), idempotent=False)
        return self._object(kind, await self._call(request))

    async def replace(self, kind: Kind[T], key: Key, body: Body, subresource: str = "", field_manager: str = "") -> T:
        """A ``resourceVersion`` in the body makes it a conflict to have missed a change."""
        path = kind.object_path(key, subresource)
        request = HTTPRequest("PUT", path, _write_query(field_manager), _encoded(body))
        return self._object(kind, await self._call(request))

    async def patch(
        self,
        kind: Kind[T],
        key: Key,
        body: Body | Sequence[Mapping[str, Any]],
        type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> T:
        """``force`` takes fields from other managers (APPLY only, which needs a ``field_manager``)."""
        query = _write_query(field_manager, dry_run) | ({"force": "true"} if force else {})
        path = kind.object_path(key, subresource)
        request = HTTPRequest("PATCH", path, query, _encoded(body), type.value, idempotent=type is not PatchType.JSON)
        return self._object(kind, await self._call(request))

    async def delete(
        self,
        kind: Kind[Object],
        key: Key,
        preconditions: Preconditions = NO_PRECONDITIONS,
        propagation: Propagation | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        options = _delete_options(preconditions, grace_period_s)
        if propagation is not None:
            options["propagationPolicy"] = propagation.value
        await self._call(HTTPRequest("DELETE", kind.object_path(key), body=_encoded(options)))

    async def evict(self, key: Key, uid: str = "", grace_period_s: int | None = None, dry_run: bool = False) -> None:
        """Deletes a pod if no PodDisruptionBudget forbids it, which is an APIError that is ``blocked_by_pdb``.

        Of a pod with another ``uid`` a server says after ten seconds that it is a conflict.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": key.namespace, "name": key.name},
            "deleteOptions": _delete_options(Preconditions(uid), grace_period_s),
        }
        path = POD.object_path(key, "eviction")
        query = _write_query(dry_run=dry_run)
        await self._call(HTTPRequest("POST", path, query, _encoded(eviction), idempotent=bool(uid)))

    async def bind(self, key: Key, uid: str, node: str) -> None:
        """Binds the pod with this ``uid`` to ``node``, which the server takes whether there is such a node or not.

        Raises APIError: one that ``is_not_found`` where there is no pod, and one that ``is_conflict`` where it is
        another pod, has a node, is being deleted or still has scheduling gates. Where no answer comes, it is not sent
        again: the pod says what became of it.
        """
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": key.namespace, "name": key.name, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = POD.object_path(key, "binding")
        await self._call(HTTPRequest("POST", path, body=_encoded(binding), idempotent=False))

    async def _call(self, request: HTTPRequest) -> bytes:
        failures = 0
        while True:
            try:
                if self._limits.rate is not None:
                    await self._limits.rate.take()
                if request.method == "GET":
                    return await self._transport.exchange(request, self._limits.timeout_s)
                self._check_write()
                return await self._transport.exchange(request, self._limits.timeout_s, self._check_write)
            except KubeError as error:
                failures += 1
                await self._pause(request, error, failures)

    async def _pause(self, request: HTTPRequest, error: KubeError, failures: int) -> None:
        """Waits until ``request`` may be sent again; raises ``error`` at once if it may not be."""
        if failures >= self._limits.tries or not may_retry(error, request.idempotent):
            raise error
        _log.debug("%s %s, try %d: %s", request.method, request.path, failures, error)
        self._counts.retries += 1
        await self._sleep(pause_s(error, failures, self._random, _PAUSE))

    async def _take_turn(self) -> None:
        if self._limits.rate is not None:
            await self._limits.rate.take()

    def _object(self, kind: Kind[T], body: bytes) -> T:
        try:
            return reading.read_object(kind, body)
        except ValueError as error:
            raise BadAnswer(f"no {kind.name}: {error}") from error


@contextlib.asynccontextmanager
async def connected(
    credentials: Credentials, user_agent: str, qps: float = QPS, burst: int = BURST
) -> AsyncIterator[Client]:
    """A client for as long as the block lasts. ``user_agent``: the program and its version, ``koord-manager/1.0``."""
    async with Transport(credentials, user_agent) as transport:
        yield Client(transport, CallLimits(RateLimit(qps, burst, time.monotonic)))


def pause_s(error: KubeError, failures: int, random: Random, backoff: Backoff) -> float:
    """Returns the seconds until a request may be sent again; no less than the server says in ``error``."""
    delay_s = backoff.delay_s(failures, random)
    if isinstance(error, APIError) and error.retry_after_s is not None:
        return min(error.retry_after_s, _MAX_RETRY_AFTER_S) + delay_s
    return delay_s


def _change(kind: Kind[T], line: bytes) -> WatchEvent[T]:
    try:
        change = reading.read_change(kind, line)
    except ValueError as error:
        raise BadAnswer(f"no change of {kind.plural}: {error}") from error
    if isinstance(change, Status):
        raise from_status(change)
    return change


def _encoded(body: Body | Sequence[Mapping[str, Any]]) -> bytes:
    return msgspec.json.encode(body)


def _write_query(field_manager: str = "", dry_run: bool = False) -> dict[str, str]:
    query = {"fieldManager": field_manager} if field_manager else {}
    return query | {"dryRun": "All"} if dry_run else query


def _delete_options(preconditions: Preconditions, grace_period_s: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if encoded := preconditions.encoded():
        options["preconditions"] = encoded
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    return options
