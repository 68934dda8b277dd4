"""Kubernetes Events, which ``kubectl describe`` shows: core/v1, whose ``count`` every tool knows and a patch can raise.

``record`` takes no time and raises nothing; a task writes. The same of one object within ``WINDOW_S`` is one Event
whose count is raised, at most each ``PACE_S``. Invariant: what waits is bounded; what does not fit, or is refused by
the server, is counted, and lost: an Event is for people, and no reason to fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from koord.kube.errors import APIError, KubeError
from koord.kube.kind import EVENT, Key, Kind, T
from koord.kube.workqueue import WorkQueue
from koord.model.core import ObjectMeta

_log = logging.getLogger(__name__)

WINDOW_S = 600.0
PACE_S = 10.0
MAX_KEPT = 2048
"""Events that are known, written or waiting to be."""

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

    kind: Kind[Any]
    key: Key
    uid: str
    resource_version: str = field(default="", compare=False)

    @classmethod
    def of(cls, kind: Kind[Any], metadata: ObjectMeta) -> Subject:
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
    subject: Subject
    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Record:
    """How often it came, from when to when, and how much of that the server knows. ``name`` "": nothing yet."""

    first_s: float
    last_s: float
    count: int = 1
    name: str = ""
    written_count: int = 0
    written_s: float = 0.0


class Events(Protocol):
    """The part of ``Client`` that a recorder needs."""

    async def create(self, kind: Kind[T], body: Mapping[str, Any], namespace: str) -> T: ...
    async def patch(self, kind: Kind[T], key: Key, body: Mapping[str, Any]) -> T: ...


class Recorder:
    """``component``: the program, ``instance``: which of them. ``wall_s``: seconds since 1970."""

    def __init__(
        self, events: Events, component: str, instance: str, wall_s: Callable[[], float], max_kept: int = MAX_KEPT
    ) -> None:
        self._events, self._component, self._instance, self._wall_s = events, component, instance, wall_s
        self._max_kept = max_kept
        self._records: dict[_Note, _Record] = {}
        self._queue: WorkQueue[_Note] = WorkQueue("event")
        self._created = 0
        self.written = 0
        self.dropped = 0
        self.failed = 0

    def record(self, subject: Subject, type: EventType, reason: str, message: str) -> None:
        """Says ``message`` about ``subject``; in the loop that ``run`` is in."""
        note = _Note(subject, type, reason[:_MAX_REASON], _clip(message))
        now_s = self._wall_s()
        known = self._records.pop(note, None)
        if known is not None and now_s - known.last_s < WINDOW_S:
            record = replace(known, last_s=now_s, count=known.count + 1)
        elif known is not None or self._has_room():
            record = _Record(now_s, now_s)
        else:
            self.dropped += 1
            return
        self._records[note] = record
        self._queue.add_after(note, record.written_s + PACE_S - now_s)

    async def run(self) -> None:
        """Writes until ``close``, or cancelled."""
        await self._queue.work(self._write)

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

    async def _write(self, note: _Note) -> float | None:
        """Says after how long to come back, if it is too soon."""
        record = self._records.get(note)
        if record is None or record.count == record.written_count:
            return None
        if (early_s := record.written_s + PACE_S - self._wall_s()) > 0:
            return early_s
        try:
            name = await self._create(note, record) if not record.name else await self._raise(note, record)
        except KubeError as error:
            self.failed += 1
            _log.info("event %s on %s is lost: %s", note.reason, note.subject.key, error)
            name = record.name
        else:
            self.written += 1
        self._keep(note, record, name)
        return None

    def _keep(self, note: _Note, written: _Record, name: str) -> None:
        """What came during the writing stays to be written."""
        now = self._records.get(note)
        if now is not None and now.first_s == written.first_s:
            self._records[note] = replace(now, name=name, written_count=written.count, written_s=self._wall_s())

    async def _raise(self, note: _Note, record: _Record) -> str:
        """The name of the Event that has the count; a new one if the server forgot the old."""
        key = Key(_namespace(note), record.name)
        body = {"count": record.count, "lastTimestamp": _time(record.last_s)}
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
            "message": note.message,
            "count": record.count,
            "firstTimestamp": _time(record.first_s),
            "lastTimestamp": _time(record.last_s),
            "source": {"component": self._component, "host": self._instance},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }
        await self._events.create(EVENT, body, _namespace(note))
        return name


def _namespace(note: _Note) -> str:
    return note.subject.key.namespace or _CLUSTER_NAMESPACE


def _clip(message: str) -> str:
    """At most the API's limit, which is in bytes."""
    encoded = message.encode()
    return message if len(encoded) <= _MAX_MESSAGE else encoded[: _MAX_MESSAGE - 3].decode(errors="ignore") + "…"


def _time(unix_s: float) -> str:
    """``Time`` as the API writes it: whole seconds."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
