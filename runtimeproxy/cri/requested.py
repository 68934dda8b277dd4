"""Puts what kubelet requested of edited containers back into the statuses that kubelet reads.

kubelet reports a container's resources as the runtime states them: since 1.33 always, and before with the feature gate
InPlacePodVerticalScaling, where it also corrects what differs from the pod's specification. The scheduler and kubelet's
own admission count what is reported. So a container whose resources were edited carries a record, an annotation that
the runtime keeps with it, and the record is taken out of each status that passes to kubelet, with the requested values
in its place. The record's bytes are the room for them: a status stays as long as it is.

A record maps values that the runtime was told to those that kubelet requested. An update cannot change an annotation,
so what it changes is noted elsewhere (``UpdateRecords``), and precedes what the annotation says of the same field.

Invariant: a value is replaced only where the runtime states the very value that it was told in the place of kubelet's.
Any other value is another writer's, and kubelet is told of it. Nothing but these values and the record is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from runtimeproxy.hooks.edits import ANNOTATIONS, Edits, Slot, value
from runtimeproxy.wire import protowire
from runtimeproxy.wire.protowire import LENGTH, VARINT, bytes_field, edit_entries, int_field, last_bytes, nested, spans

RECORD = "runtimeproxy.koordinator.sh/requested-resources"
REPORTED: Mapping[str, int] = {"cpu_period": 1, "cpu_quota": 2, "cpu_shares": 3, "memory_limit_in_bytes": 4}
"""Those fields of LinuxContainerResources that kubelet reports, with their numbers."""
STATUSES: Mapping[str, protowire.Path] = {"ContainerStatus": (1,), "PodSandboxStatus": (3,), "GetContainerEvents": (5,)}
"""By method, where the ContainerStatus messages of its answer are."""
LARGEST_BYTES = 64 * 1024
"""Of a message that the event loop reads: some 20 containers."""
_ID, _ANNOTATIONS, _RESOURCES, _LINUX = 1, 13, 16, 1
_KEY, _VALUE = 1, 2
_FILLER = protowire.MAX_FIELD_NUMBER  # a field that no version of CRI has: readers skip its bytes
_FILLER_OVERHEAD_BYTES, _LONGEST_FILLER_BYTES = 6, 133  # tag and length; with a length of one byte
_MOST_PAIRS = 2

Pairs = tuple[tuple[int, int], ...]
"""(value that the runtime was told, value that kubelet requested), the newest first."""
Record = Mapping[str, Pairs]
"""By name of a field of ``REPORTED``."""


class NoRoom(Exception):
    """The requested values do not fit into the status: the container has no record."""


def record_of(edits: Edits, before: Edits) -> dict[str, Pairs]:
    """Returns the record of a container that is made with ``edits``; ``before``: the values that kubelet requested, if
    any.
    """
    found: dict[str, Pairs] = {}
    for field in REPORTED:
        told, requested = edits.get(Slot(field)), value(before, Slot(field))
        if isinstance(told, int) and isinstance(requested, int) and told != requested:
            found[field] = ((told, requested),)
    return found


def with_record(edits: Edits, before: Edits) -> Edits:
    """Returns the edits of a container that is made, and its record if there is anything to record."""
    record = record_of(edits, before)
    return {**edits, Slot(ANNOTATIONS, RECORD): format_record(record)} if record else edits


def format_record(record: Record) -> str:
    """Returns text such as ``cpu_quota:50000=0;cpu_shares:512=2``: by field, told and requested, without JSON."""
    spelled = {field: ",".join([f"{told}={requested}" for told, requested in pairs]) for field, pairs in record.items()}
    return ";".join([f"{field}:{pairs}" for field, pairs in spelled.items()])


def parse_record(text: str) -> dict[str, Pairs]:
    """Returns the parts of ``text`` that are a record; other parts are left out."""
    found: dict[str, Pairs] = {}
    for entry in text.split(";")[: len(REPORTED)]:
        field, colon, pairs = entry.partition(":")
        if field in REPORTED and colon:
            read = [_pair(pair) for pair in pairs.split(",")[:_MOST_PAIRS]]
            found[field] = tuple([pair for pair in read if pair is not None])
    return found


def _pair(text: str) -> tuple[int, int] | None:
    told, _, requested = text.partition("=")
    try:
        pair = int(told), int(requested)
    except ValueError:
        return None
    return pair if all(-(1 << 63) <= number < 1 << 63 for number in pair) else None


def after_update(known: Record, held: Edits, asked: Edits, edits: Edits) -> dict[str, Pairs]:
    """Returns the fields of the record that an update changes.

    ``known``: the record before it, as far as there is one; ``held``: the resources that the runtime has; ``asked``:
    what kubelet's update asks for; ``edits``: what hooks make of that. 0 means "leave it as it is".
    """
    found: dict[str, Pairs] = {}
    for field in REPORTED:
        asked_value, edited = _int(asked, field), _int(edits, field)
        if not (asked_value or edited):
            continue
        pairs = known.get(field, ())
        held_value = _int(held, field)
        told = edited or asked_value
        requested = asked_value or dict(reversed(pairs)).get(held_value, held_value)
        older = [pair for pair in pairs if pair[0] != told]
        newest = [(told, requested)] if told != requested else []
        found[field] = tuple((*newest, *older)[:_MOST_PAIRS])
    return found


def _int(values: Edits, field: str) -> int:
    found = values.get(Slot(field))
    return found if isinstance(found, int) else 0


def restored(message: bytes, statuses: protowire.Path, updates: Callable[[str], Record]) -> bytes:
    """Returns ``message`` with kubelet's values in its ContainerStatus messages at ``statuses``, in as many bytes.

    Returns the same object if there is nothing to restore. ``updates``: the changes of a container's record by updates.
    Raises MalformedMessage, NoRoom.
    """
    return edit_entries(message, {statuses: lambda status: _restored_status(status, updates)})


def _restored_status(status: bytes, updates: Callable[[str], Record]) -> bytes:
    updated = updates(last_bytes(status, _ID).decode("utf-8", "replace"))
    has_annotation = RECORD.encode() in status
    if not (updated or has_annotation):
        return status
    entries = [span for span in spans(status) if _is_record(status, span)] if has_annotation else []
    record = dict(updated)
    if entries:
        annotation = last_bytes(status[entries[-1].value : entries[-1].end], _VALUE)
        record = {**parse_record(annotation.decode("utf-8", "replace")), **updated}
    patch = _patch(status, record)
    if not (patch or entries):
        return status
    room_bytes = sum(span.end - span.start for span in entries) - len(patch)
    if room_bytes < _FILLER_OVERHEAD_BYTES:
        raise NoRoom
    kept, at = [], 0
    for span in entries:
        kept.append(status[at : span.start])
        at = span.end
    return b"".join((*kept, status[at:], patch, _filler(room_bytes)))


def _is_record(status: bytes, span: protowire.FieldSpan) -> bool:
    is_annotation = span.number == _ANNOTATIONS and span.wire_type == LENGTH
    return is_annotation and last_bytes(status[span.value : span.end], _KEY) == RECORD.encode()


def _patch(status: bytes, record: Record) -> bytes:
    """Returns bytes that, behind the status, put the requested values over the stated ones: later values count."""
    stated = _stated(status)
    content = b""
    for field, number in REPORTED.items():
        requested = dict(reversed(record.get(field, ()))).get(stated.get(number, 0))
        if requested is not None:
            content += int_field(number, requested)
    return nested((_RESOURCES, _LINUX), content) if content else b""


def _stated(status: bytes) -> dict[int, int]:
    """Returns the integers of the status' LinuxContainerResources, by number."""
    resources = b"".join(protowire.payloads(status, _RESOURCES)[0])
    linux = b"".join(protowire.payloads(resources, _LINUX)[0])
    found: dict[int, int] = {}
    for span in spans(linux):
        if span.wire_type == VARINT:
            number = protowire.read_varint(linux, span.value, span.end)[0]
            found[span.number] = number - (1 << 64) if number >> 63 else number
    return found


def _filler(size_bytes: int) -> bytes:
    """Returns so many bytes, ``_FILLER_OVERHEAD_BYTES`` at least, that mean nothing."""
    out = b""
    while size_bytes:
        part = size_bytes if size_bytes <= _LONGEST_FILLER_BYTES else _LONGEST_FILLER_BYTES // 2
        out += bytes_field(_FILLER, bytes(part - _FILLER_OVERHEAD_BYTES))
        size_bytes -= part
    return out
