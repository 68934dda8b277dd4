"""What an API server's answers decode to: entries, pages of a list, and changes of a watch.

Invariant: an object that does not fit its kind's struct costs itself only. It is an ``Entry`` without object that
still has its key and resource version, so whoever keeps a cache neither takes it for deleted nor loses its place.
Fails with ValueError where the answer itself is no list, or a line no change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Generic, cast

import msgspec

from koord.kube.kind import Key, Kind, T, Unstructured
from koord.model import core
from koord.model.core import ObjectMeta


class Entry(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object as a list or a watch has it; ``object`` is None if it cannot be read, and ``problem`` says why."""

    key: Key
    resource_version: str
    object: T | None
    problem: str = ""


Keep = Callable[[Entry[T]], Entry[T] | None]
"""Makes of an entry that was read the one that is listed; None: it is left out."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list, or all of it: ``continue_token`` is "" in the last."""

    entries: tuple[Entry[T], ...]
    resource_version: str
    continue_token: str = ""


class ChangeType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One line of a watch. A bookmark's entry has a resource version only."""

    type: ChangeType
    entry: Entry[T]


class StatusCause(msgspec.Struct, frozen=True):
    """Of an APIError, where the server names one: "DisruptionBudget", "FieldValueInvalid"…"""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int = 0
    causes: tuple[StatusCause, ...] = ()


class Status(msgspec.Struct, frozen=True):
    """``meta/v1.Status``, the body of an answer that is an error."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails = StatusDetails()


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: tuple[msgspec.Raw, ...] | None = None


class _Line(msgspec.Struct):
    type: ChangeType
    object: msgspec.Raw


class _WithMetadata(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()


class _WithAnyMetadata(msgspec.Struct):
    metadata: Mapping[str, Any] = {}


_LIST = msgspec.json.Decoder(_List)
_LINE = msgspec.json.Decoder(_Line)


def read_object(kind: Kind[T], document: bytes | msgspec.Raw) -> T:
    """The object of ``kind`` in a JSON document. Raises ValueError."""
    if kind.struct is Unstructured:
        metadata = core.read(_WithMetadata, document).metadata
        return cast(T, Unstructured(metadata, msgspec.json.decode(document)))
    return cast(T, core.read(cast(type[msgspec.Struct], kind.struct), document))


def read_entry(kind: Kind[T], document: bytes | msgspec.Raw) -> Entry[T]:
    """The object in a JSON document, or why there is none."""
    try:
        value = read_object(kind, document)
    except ValueError as error:
        return _unreadable(kind, document, str(error))
    metadata = value.metadata
    if not metadata.name:
        return _unreadable(kind, document, "it has no name")
    return Entry(Key(metadata.namespace, metadata.name), metadata.resource_version, value)


def as_it_is(entry: Entry[T]) -> Entry[T]:
    return entry


def read_page(kind: Kind[T], body: bytes, keep: Keep[T] = as_it_is) -> Page[T]:
    """The list in an answer; ``keep`` has each entry before the next one is read. Raises ValueError if it is none."""
    try:
        listed = _LIST.decode(body)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    kept = [keep(read_entry(kind, item)) for item in listed.items or ()]
    entries = tuple([entry for entry in kept if entry is not None])
    return Page(entries, listed.metadata.resource_version, listed.metadata.continue_ or "")


def read_change(kind: Kind[T], line: bytes) -> Change[T] | Status:
    """The change in one line of a watch, or the error that ends it. Raises ValueError if it is neither."""
    try:
        read = _LINE.decode(line)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    if read.type is ChangeType.ERROR:
        return core.read(Status, read.object)
    if read.type is ChangeType.BOOKMARK:
        version = core.read(_WithMetadata, read.object).metadata.resource_version
        return Change(read.type, Entry(Key("", ""), version, None))
    return Change(read.type, read_entry(kind, read.object))


def _unreadable(kind: Kind[T], document: bytes | msgspec.Raw, why: str) -> Entry[T]:
    try:
        metadata = msgspec.json.decode(document, type=_WithAnyMetadata).metadata
    except (ValueError, RecursionError):
        metadata = {}
    key = Key(_text(metadata, "namespace"), _text(metadata, "name"))
    problem = f"{kind.name} {key}: cannot be read: {why}" if key.name else f"{kind.name} cannot be read: {why}"
    return Entry(key, _text(metadata, "resourceVersion"), None, problem)


def _text(metadata: Mapping[str, Any], member: str) -> str:
    value = metadata.get(member)
    return value if isinstance(value, str) else ""
