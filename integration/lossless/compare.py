"""Where two decoded messages differ, and what of a message its own schema does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from integration.lossless.generate import is_map

Path = tuple[str, ...]


def leaves(document: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value of a JSON document with its path. An empty object has none: an edit may have to make the messages
    around a field, and whether one is there without content means nothing in CRI."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from leaves(value, (*path, name))
    elif isinstance(document, list) and any(isinstance(item, dict | list) for item in document):
        for index, item in enumerate(document):
            yield from leaves(item, (*path, str(index)))
    else:
        yield path, document


def differing(before: Any, after: Any) -> list[Path]:
    """The paths whose values are not the same in both."""
    old, new = dict(leaves(before)), dict(leaves(after))
    return sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))


def unknown(message: Message, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every unknown field, at any depth, as (path of its message, (number, wire type, value))."""
    yield from ((path, field) for field in _fields(UnknownFieldSet(message)))
    for known, value in message.ListFields():
        for key, inner in _messages(known, value):
            yield from unknown(inner, (*path, known.name, key))


def _messages(field: FieldDescriptor, value: Any) -> Iterator[tuple[str, Message]]:
    if field.message_type is None:
        return
    if is_map(field):
        if field.message_type.fields_by_name["value"].message_type is not None:
            yield from ((str(key), value[key]) for key in sorted(value))
    elif field.is_repeated:
        yield from (("", inner) for inner in value)  # no index: an edit may delete an entry before
    else:
        yield "", value


def _fields(unknown_fields: UnknownFieldSet) -> tuple[tuple[int, int, Any], ...]:
    """Number, wire type and value of each; the value of a group is a tuple of fields again."""
    found = []
    for index in range(len(unknown_fields)):
        field = unknown_fields[index]
        value = _fields(field.data) if isinstance(field.data, UnknownFieldSet) else field.data
        found.append((field.field_number, field.wire_type, value))
    return tuple(found)


def first_difference(sent: bytes, heard: bytes) -> str:
    """Where two messages part, for a failure's text."""
    at = next((i for i, (a, b) in enumerate(zip(sent, heard, strict=False)) if a != b), min(len(sent), len(heard)))
    return (
        f"{len(sent)} bytes sent, {len(heard)} heard, different from byte {at}: "
        f"{sent[at : at + 12].hex(' ')} / {heard[at : at + 12].hex(' ')}"
    )
