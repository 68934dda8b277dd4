"""Kubernetes Events, which ``kubectl describe`` shows: core/v1, whose ``count`` every tool knows and a patch can raise.

``record`` takes no time and raises nothing; tasks write. The same of one object within ``WINDOW_S`` is one Event whose
count is raised, at most each ``PACE_S``; after ``MAX_SIMILAR`` of one object and reason that differ in their message
alone, further ones are one Event, too, which has the last message. An object gets ``BURST`` Events at once and another
each ``REFILL_S``. These are client-go's rules.

Invariants: Events of one object are written one after the other, in the order in which they were recorded; what waits
is bounded; what does not fit, or is refused by the server, is counted, and lost: an Event is for people, and no reason
to fail. Nor is it one to wait: while there is other work (``is_busy``), one Event is written at a time, unless half of
what may wait does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from koord.kube.errors import APIError, KubeError
from koord.kube.kind import EVENT, Key, Kind, Object, T
from koord.kube.recent import Recent
from koord.kube.workqueue import WorkQueue
from koord.model.core import ObjectMeta, api_time

_log = logging.getLogger(__name__)

WINDOW_S = 600.0
PACE_S = 10.0
MAX_KEPT = 8192
"""Events that are known, written or waiting to be."""

MAX_SIMILAR = 20
BURST, REFILL_S = 25, 300.0
WRITERS = 4
"""Each waits for the server's answers."""

COMBINED = "(combined from similar events): "

_MAX_MESSAGE, _MAX_REASON, _MAX_NAME = 1024, 128, 220
_CLUSTER_NAMESPACE = "default"
"""Where the Events of objects without namespace are, Nodes above all."""


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an Event is about.

    ``kubectl describe`` finds Events by the name, namespace, kind and UID of the object; one without the UID it does
    not show. ``resource_version`` tells which state of the object the Event was about, and makes no other Event of it.
    """

    kind: Kind[Object]
    key: Key
    uid: str
    resource_version: str = field(default="", compare=False)

    def __hash__(self) -> int:
        return hash((self.uid, self.key.name))  # texts know theirs: an Event is looked up a dozen times

    @classmethod
    def of(cls, kind: Kind[Object], metadata: ObjectMeta) -> Subject:
        """The object of ``kind`` with this metadata."""
        return cls(kind, Key(metadata.namespace, metadata.name), metadata.uid, metadata.resource_version)

    @property
    def reference(self) -> dict[str, str]:
        """``involvedObject``, without the members that are not known."""
        members = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.name,
            "namespace": self.key.namespace,
            "name": self.key.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {name: text for name, text in members.items() if text}


class _Note(NamedTuple):
    """``message`` COMBINED: of those that differ by their message."""

    subject: Subject
    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Record:
    """How often it came, from when to when, and how much of that the server knows. ``name`` "": nothing yet."""

    first_s: float
    last_s: float
    message: str
    count: int = 1
    name: str = ""
    written_count: int = 0
    written_s: float = 0.0


_Like = tuple[Subject, EventType, str]
"""An object, and what Events that differ by their message have in common."""


class _Similar(NamedTuple):
    """How many Events of one object and reason there are that differ, and when the last one came."""

    events: int
    last_s: float


class _Allowance(NamedTuple):
    """How many Events an object may still get, as of ``at_s``."""

    events: float
    at_s: float


class EventWriter(Protocol):
    """The part of ``Client`` that a recorder needs."""

    async def create(self, kind: Kind[T], body: Mapping[str, Any], namespace: str) -> T: ...
    async def patch(self, kind: Kind[T], key: Key, body: Mapping[str, Any]) -> T: ...


class EventRecorder:
    """``component``: the program, ``instance``: which of them. ``wall_s``: seconds since 1970."""

    def __init__(
        self, events: EventWriter, component: str, instance: str, wall_s: Callable[[], float], max_kept: int = MAX_KEPT
    ) -> None:
        self._events, self._component, self._instance, self._wall_s = events, component, instance, wall_s
        self._max_kept = max_kept
        self._records: dict[_Note, _Record] = {}
        self._waiting: dict[Subject, dict[_Note, None]] = {}
        """What is to be written, in its order."""
        self._similar = Recent[_Like, _Similar](max_kept)
        self._allowances = Recent[Subject, _Allowance](max_kept)
        self._queue: WorkQueue[Subject] = WorkQueue("events of")
        self._created = 0
        self._under_way, self._ended = 0, asyncio.Condition()
        self.is_busy: Callable[[], bool] = _never
        """Whether what Events tell of is still to be done; whoever does that sets it."""
        self.written = 0
        self.dropped = 0
        self.failed = 0

    def record(self, subject: Subject, type: EventType, reason: str, message: str) -> None:
        """Says ``message`` about ``subject``; in the loop that ``run`` is in."""
        note, now_s = _Note(subject, type, reason[:_MAX_REASON], _clip(message)), self._wall_s()
        like = note[:3]
        similar = self._similar_to(like, now_s)
        if similar >= MAX_SIMILAR and note not in self._records:
            note, message = note._replace(message=COMBINED), COMBINED + message
        known = self._records.pop(note, None)
        if known is not None and now_s - known.last_s < WINDOW_S:
            record = replace(known, last_s=now_s, count=known.count + 1, message=_clip(message))
        elif (known is not None or self._has_room()) and self._may_get_another(subject, now_s):
            record = _Record(now_s, now_s, _clip(message))
            self._similar.put(like, _Similar(similar + 1, now_s))
        else:
            self.dropped += 1
            return
        self._records[note] = record
        self._waiting.setdefault(subject, {})[note] = None
        self._queue.add_after(subject, record.written_s + PACE_S - now_s)

    async def run(self) -> None:
        """Writes until ``close``, or cancelled."""
        await self._queue.work(self._write_all_of, WRITERS)

    def close(self) -> None:
        """What waits for a first Event is still written; counts that wait are not."""
        self._queue.close()

    def _has_room(self) -> bool:
        """Forgets the oldest if there is nothing of it to write."""
        if len(self._records) < self._max_kept:
            return True
        oldest = next(iter(self._records))
        if self._records[oldest].count > self._records[oldest].written_count:
            return False
        del self._records[oldest]
        return True

    def _similar_to(self, like: _Like, now_s: float) -> int:
        """How many Events that differ by their message came within the window."""
        similar = self._similar.get(like)
        return 0 if similar is None or now_s - similar.last_s >= WINDOW_S else similar.events

    def _may_get_another(self, subject: Subject, now_s: float) -> bool:
        last = self._allowances.get(subject) or _Allowance(BURST, now_s)
        events = min(BURST, last.events + (now_s - last.at_s) / REFILL_S)
        may = events >= 1
        self._allowances.put(subject, _Allowance(events - may, now_s))
        return may

    async def _write_all_of(self, subject: Subject) -> float | None:
        """Writes what is due about ``subject``; says after how long more is."""
        waiting, later_s = self._waiting.get(subject, {}), []
        for note in list(waiting):
            record = self._records.get(note)
            if record is None or record.count == record.written_count:
                del waiting[note]
            elif (early_s := record.written_s + PACE_S - self._wall_s()) > 0:
                later_s.append(early_s)
            else:
                del waiting[note]
                await self._write(note, record)
        if not waiting:
            self._waiting.pop(subject, None)
        return min(later_s, default=None)

    async def _write(self, note: _Note, record: _Record) -> None:
        async with self._turn():
            try:
                name = await self._create(note, record) if not record.name else await self._raise(note, record)
            except KubeError as error:
                self.failed += 1
                _log.info("event %s on %s is lost: %s", note.reason, note.subject.key, error)
                name = record.name
            else:
                self.written += 1
        self._keep(note, record, name)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Within the block one Event is written; each end lets those that wait look again."""
        async with self._ended:
            await self._ended.wait_for(self._may_write)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            async with self._ended:
                self._ended.notify_all()

    def _may_write(self) -> bool:
        return not self._under_way or not self.is_busy() or len(self._waiting) > self._max_kept // 2

    def _keep(self, note: _Note, written: _Record, name: str) -> None:
        """What came during the writing stays to be written."""
        now = self._records.get(note)
        if now is not None and now.first_s == written.first_s:
            self._records[note] = replace(now, name=name, written_count=written.count, written_s=self._wall_s())

    async def _raise(self, note: _Note, record: _Record) -> str:
        """The name of the Event that has the count; a new one if the server forgot the old."""
        key = Key(_namespace(note), record.name)
        body: dict[str, Any] = {"count": record.count, "lastTimestamp": api_time(record.last_s)}
        if note.message == COMBINED:
            body["message"] = record.message
        try:
            await self._events.patch(EVENT, key, body)
        except APIError as error:
            if not error.is_not_found:
                raise
            return await self._create(note, record)
        return record.name

    async def _create(self, note: _Note, record: _Record) -> str:
        self._created += 1
        suffix = int(self._wall_s() * 1e9) + self._created
        name = f"{note.subject.key.name[:_MAX_NAME].rstrip('.-')}.{suffix:x}"
        body = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.name,
            "metadata": {"namespace": _namespace(note), "name": name},
            "involvedObject": note.subject.reference,
            "type": note.type.value,
            "reason": note.reason,
            "message": record.message,
            "count": record.count,
            "firstTimestamp": api_time(record.first_s),
            "lastTimestamp": api_time(record.last_s),
            "source": {"component": self._component, "host": self._instance},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }
        await self._events.create(EVENT, body, _namespace(note))
        return name


def _namespace(note: _Note) -> str:
    return note.subject.key.namespace or _CLUSTER_NAMESPACE


def _never() -> bool:
    return False


def _clip(message: str) -> str:
    """At most the API's limit, which is in bytes."""
    encoded = message.encode()
    return message if len(encoded) <= _MAX_MESSAGE else encoded[: _MAX_MESSAGE - 3].decode(errors="ignore") + "…"
