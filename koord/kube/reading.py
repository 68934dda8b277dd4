"""What an API server's answers decode to: entries, pages of a list, and changes of a watch.

Invariant: an object that does not fit its kind's struct costs itself only. It is an ``ObjectEntry`` without object that
still has its key and resource version, so whoever keeps a cache neither takes it for deleted nor loses its place.
Fails with ValueError where the answer itself is no list, or a line no change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from koord.kube.kind import Key, Kind, Object, T, Unstructured
from koord.model import core
from koord.model.core import ObjectMeta

Kept = TypeVar("Kept", bound=Object)
"""What a list or a cache keeps of an object that was read."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the list with which a watch begins."""


class ObjectEntry(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object as a list or a watch has it; ``object`` is None if it cannot be read, and ``problem`` says why."""

    key: Key
    resource_version: str
    object: T | None
    problem: str = ""


Transform = Callable[[ObjectEntry[T]], ObjectEntry[Kept] | None]
"""Returns the entry to be listed in place of one that was read; None: it is left out."""


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list, or all of it: ``continue_token`` is "" in the last."""

    entries: tuple[ObjectEntry[T], ...]
    resource_version: str
    continue_token: str = ""


class WatchEventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One line of a watch. A bookmark's entry has a resource version only.

    ``ends_list``: what the watch said so far is the whole list that it began with.
    """

    type: WatchEventType
    entry: ObjectEntry[T]
    ends_list: bool = False


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
    type: WatchEventType
    object: msgspec.Raw


class _TypedLine(msgspec.Struct, Generic[T], gc=False):
    type: WatchEventType
    object: T


class _WithMetadata(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()


class _WithAnyMetadata(msgspec.Struct):
    metadata: Mapping[str, Any] = {}


_LIST = msgspec.json.Decoder(_List)
_LINE = msgspec.json.Decoder(_Line)
_CHANGES = (WatchEventType.ADDED, WatchEventType.MODIFIED, WatchEventType.DELETED)
_Document = bytes | bytearray | msgspec.Raw


def read_object(kind: Kind[T], document: _Document) -> T:
    """The object of ``kind`` in a JSON document. Raises ValueError."""
    if kind.struct is Unstructured:
        return cast(T, _read_unstructured(document))
    return cast(T, core.read(cast(type[msgspec.Struct], kind.struct), document))


def _read_unstructured(document: _Document) -> Unstructured:
    content = msgspec.json.decode(document)
    try:
        return Unstructured(msgspec.convert(content["metadata"], ObjectMeta), content)
    except (msgspec.ValidationError, LookupError, TypeError):  # a null, or what is no object: as others are read
        return Unstructured(core.read(_WithMetadata, document).metadata, content)


def read_entry(kind: Kind[T], document: _Document) -> ObjectEntry[T]:
    """The object in a JSON document, or why there is none."""
    try:
        value = read_object(kind, document)
    except ValueError as error:
        return _unreadable(kind, document, str(error))
    metadata = value.metadata
    if not metadata.name:
        return _unreadable(kind, document, "it has no name")
    return ObjectEntry(Key(metadata.namespace, metadata.name), metadata.resource_version, value)


def as_it_is(entry: ObjectEntry[T]) -> ObjectEntry[T]:
    return entry


def read_page(kind: Kind[T], body: bytes | bytearray, transform: Transform[T, Kept]) -> ListPage[Kept]:
    """Returns the list in an answer; ``transform`` has each entry before the next one is read. Raises ValueError."""
    try:
        listed = _LIST.decode(body)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    kept = [transform(read_entry(kind, item)) for item in listed.items or ()]
    entries = tuple([entry for entry in kept if entry is not None])
    return ListPage(entries, listed.metadata.resource_version, listed.metadata.continue_ or "")


def read_change(kind: Kind[T], line: bytes) -> WatchEvent[T] | Status:
    """Returns the change in one line of a watch, or the error that ends it. Raises ValueError if it is neither."""
    if kind.struct is Unstructured:
        return _read_other_change(kind, line)
    try:
        typed = _typed_lines(kind.struct).decode(line)
    except (msgspec.DecodeError, RecursionError):
        return _read_other_change(kind, line)
    metadata = typed.object.metadata
    if typed.type in _CHANGES and metadata.name:
        key = Key(metadata.namespace, metadata.name)
        return WatchEvent(typed.type, ObjectEntry(key, metadata.resource_version, cast(T, typed.object)))
    return _read_other_change(kind, line)


def _read_other_change(kind: Kind[T], line: bytes) -> WatchEvent[T] | Status:
    """A bookmark, an error, an object that is read in two steps or not at all."""
    try:
        read = _LINE.decode(line)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    if read.type is WatchEventType.ERROR:
        return core.read(Status, read.object)
    if read.type is WatchEventType.BOOKMARK:
        metadata = core.read(_WithMetadata, read.object).metadata
        return WatchEvent(
            read.type,
            ObjectEntry(Key("", ""), metadata.resource_version, None),
            INITIAL_EVENTS_END in metadata.annotations,
        )
    return WatchEvent(read.type, read_entry(kind, read.object))


@cache
def _typed_lines(struct: type[Object]) -> msgspec.json.Decoder[_TypedLine[Object]]:
    return msgspec.json.Decoder(_TypedLine[struct])  # type: ignore[valid-type]


def _unreadable(kind: Kind[T], document: _Document, why: str) -> ObjectEntry[T]:
    try:
        metadata = msgspec.json.decode(document, type=_WithAnyMetadata).metadata
    except (ValueError, RecursionError):
        metadata = {}
    key = Key(_text(metadata, "namespace"), _text(metadata, "name"))
    problem = f"{kind.name} {key}: cannot be read: {why}" if key.name else f"{kind.name} cannot be read: {why}"
    return ObjectEntry(key, _text(metadata, "resourceVersion"), None, problem)


def _text(metadata: Mapping[str, Any], member: str) -> str:
    value = metadata.get(member)
    return value if isinstance(value, str) else ""
