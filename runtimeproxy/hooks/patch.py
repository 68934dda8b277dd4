"""Puts edits into a request's bytes, as its table (``fields``) says.

Appended values are grouped by the message they belong to, so that ten resource fields cost one patch behind the
original. Invariant: a field that no edit names keeps its bytes and its order; without edits the same object is
returned. A variable that occurs several times is changed in each place, since runtimes differ in which one counts.
"""

from __future__ import annotations

from runtimeproxy.hooks.edits import Edits, Value
from runtimeproxy.hooks.fields import EditableField, FieldForm, FieldTable
from runtimeproxy.wire.protowire import Path, bytes_field, edit_entries, int_field, last_bytes, nested, set_last

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
KEY, VALUE = 1, 2  # of map entries, of KeyValue and of HugepageLimit alike


class EditTooLarge(ValueError):
    """The edited request would exceed what the runtime accepts, which the original does not."""


def apply(message: bytes, table: FieldTable, edits: Edits) -> bytes:
    """Returns ``message`` with ``edits``; raises MalformedMessage, EditTooLarge, KeyError for an unknown field."""
    if not edits:
        return message
    appended: dict[Path, bytearray] = {}
    visitors: dict[Path, _Entries] = {}
    for slot, value in edits.items():
        editable = table[slot.field]
        in_place = editable.form in (FieldForm.BYTES_LIST, FieldForm.INT_LIST) or value is None
        if in_place and slot.key.encode("utf-8", "surrogateescape") in message:  # else there is no such entry
            visitors.setdefault(editable.path, _Entries(editable, {})).values[slot.key] = value
        elif value is not None:
            appended.setdefault(editable.path[:-1], bytearray()).extend(_field(editable, slot.key, value))
    edited = edit_entries(message, visitors) if visitors else message
    for path, entries in visitors.items():
        appended.setdefault(path[:-1], bytearray()).extend(entries.missing())
    edited += b"".join([nested(path, bytes(content)) for path, content in appended.items() if content])
    check_size(message, edited)
    return edited


def check_size(message: bytes, edited: bytes) -> None:
    """Raises EditTooLarge."""
    if len(edited) > MAX_MESSAGE_BYTES >= len(message):
        raise EditTooLarge(f"{len(edited)} bytes after the edit, {len(message)} before")


class _Entries:
    """Visits the entries of one map or list and remembers which of the keys in ``values`` it met."""

    def __init__(self, editable: EditableField, values: dict[str, Value]) -> None:
        self._editable = editable
        self.values = values
        self._met: set[str] = set()

    def __call__(self, entry: bytes) -> bytes | None:
        key = last_bytes(entry, KEY).decode("utf-8", "surrogateescape")
        if key not in self.values:
            return entry
        self._met.add(key)
        value = self.values[key]
        return None if value is None else set_last(entry, VALUE, _value(value))

    def missing(self) -> bytes:
        """Returns entries for the keys that were not there."""
        return b"".join(
            _field(self._editable, key, value)
            for key, value in self.values.items()
            if value is not None and key not in self._met
        )


def _field(editable: EditableField, key: str, value: Value) -> bytes:
    number = editable.path[-1]
    if editable.form in (FieldForm.INT, FieldForm.STRING):
        return _value(value, number)
    return bytes_field(number, bytes_field(KEY, key.encode()) + _value(value))


def _value(value: Value, number: int = VALUE) -> bytes:
    if isinstance(value, int):
        return int_field(number, value)
    return bytes_field(number, value if isinstance(value, bytes) else str(value).encode())
