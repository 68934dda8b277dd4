"""Reads and edits protobuf's wire form without knowing the schema.

Fields that the proxy does not know must survive byte for byte, so a message is never decoded and written again: values
are appended (a later field is merged over an earlier one), and entries of repeated fields are replaced or dropped where
they stand. Invariant: every byte outside the entries an edit names is copied as it was, only the lengths of the
enclosing messages change. A sub-message may occur several times on the wire; each occurrence is visited. Anything that
is not a well-formed message raises ``MalformedMessage``; groups are counted, never recursed into. One of more than
``MAX_FIELDS`` fields raises ``TooManyFields``: a scan costs about a third of a microsecond for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

VARINT, FIXED64, LENGTH, GROUP_START, GROUP_END, FIXED32 = range(6)
MAX_FIELD_NUMBER = (1 << 29) - 1
MAX_VARINT_BYTES = 10
MAX_GROUP_DEPTH = 100
MAX_FIELDS = 1 << 18  # of one message; ten thousand services make 70,000 variables
UINT64_MASK = (1 << 64) - 1

_NONE: Mapping[int, list[int]] = {}

Path = tuple[int, ...]
"""Field numbers from the top-level message down."""


class MalformedMessage(ValueError):
    """Bytes that are not a protobuf message; ``offset`` is where reading stopped, in bytes from the start."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"malformed protobuf message at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class TooManyFields(MalformedMessage):
    """Well-formed as far as it was read, but too long to read on."""


class FieldSpan(NamedTuple):
    """One field on the wire: ``start`` is its tag, ``value`` its payload after tag and length, ``end`` exclusive."""

    number: int
    wire_type: int
    start: int
    value: int
    end: int


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the unsigned 64-bit varint at ``at`` and the offset behind it."""
    result = 0
    for index in range(MAX_VARINT_BYTES):
        if at + index >= end:
            raise MalformedMessage(at, "varint is cut off")
        byte = data[at + index]
        result |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return result & UINT64_MASK, at + index + 1
    raise MalformedMessage(at, "varint is longer than 10 bytes")


def spans(data: bytes, start: int = 0, end: int | None = None) -> Iterator[FieldSpan]:
    """Yields every field of the message in ``data[start:end]``, in wire order; a group is one span."""
    stop = len(data) if end is None else end
    at = start
    for _ in range(MAX_FIELDS + 1):
        if at >= stop:
            return
        span = _span(data, at, stop)
        if span.wire_type == GROUP_START:
            span = span._replace(end=_group_end(data, span, stop))
        elif span.wire_type == GROUP_END:
            raise MalformedMessage(at, "end of a group that was not opened")
        yield span
        at = span.end
    raise TooManyFields(at, f"more than {MAX_FIELDS} fields")


def gather(  # noqa: PLR0912 - a call for each field would cost as much again
    data: bytes, payloads: Mapping[int, list[bytes]], varints: Mapping[int, list[int]] = _NONE
) -> None:
    """Adds the fields of the message ``data`` to the lists of their numbers: payloads of length-delimited fields to
    ``payloads``, integers (unsigned) to ``varints``. One pass in one function, since most fields are skipped.
    """
    at, stop = 0, len(data)
    try:
        for _ in range(MAX_FIELDS + 1):
            if at >= stop:
                break
            tag, value = data[at], at + 1
            if tag >= 0x80:
                tag, value = read_varint(data, at, stop)
                if tag >> 3 > MAX_FIELD_NUMBER:
                    raise MalformedMessage(at, f"field number {tag >> 3}")
            if tag & 7 == LENGTH and tag > 7:
                length, start = data[value], value + 1
                if length >= 0x80:
                    length, start = read_varint(data, value, stop)
                end = start + length
                found = payloads.get(tag >> 3)
                if found is not None and end <= stop:
                    found.append(data[start:end])
            elif tag & 7 == VARINT and tag > 7:
                number, end = read_varint(data, value, stop)
                if tag >> 3 in varints:
                    varints[tag >> 3].append(number)
            else:
                end = _other_end(data, at, stop)
            at = end
        else:
            raise TooManyFields(at, f"more than {MAX_FIELDS} fields")
    except IndexError:
        at = stop + 1
    if at > stop:
        raise MalformedMessage(stop, "the last field is cut off")


def payloads(data: bytes, *numbers: int) -> list[list[bytes]]:
    """Returns the payloads of the length-delimited fields of each of ``numbers``, in wire order."""
    found: dict[int, list[bytes]] = {}
    for number in numbers:  # not a comprehension: that is a call more, on every creation's way
        found[number] = []
    gather(data, found)
    return list(found.values())


def _other_end(data: bytes, at: int, stop: int) -> int:
    span = _span(data, at, stop)
    if span.wire_type == GROUP_START:
        return _group_end(data, span, stop)
    if span.wire_type == GROUP_END:
        raise MalformedMessage(at, "end of a group that was not opened")
    return span.end


def _span(data: bytes, at: int, stop: int) -> FieldSpan:
    tag, value = read_varint(data, at, stop)
    number, wire_type = tag >> 3, tag & 7
    if not 0 < number <= MAX_FIELD_NUMBER:
        raise MalformedMessage(at, f"field number {number}")
    if wire_type == VARINT:
        end = read_varint(data, value, stop)[1]
    elif wire_type == LENGTH:
        length, value = read_varint(data, value, stop)
        end = value + length
    elif wire_type in (GROUP_START, GROUP_END):
        end = value
    elif wire_type in (FIXED64, FIXED32):
        end = value + (8 if wire_type == FIXED64 else 4)
    else:
        raise MalformedMessage(at, f"wire type {wire_type}")
    if end > stop:
        raise MalformedMessage(at, f"field {number} reaches {end - stop} bytes past the end")
    return FieldSpan(number, wire_type, at, value, end)


def _group_end(data: bytes, opening: FieldSpan, stop: int) -> int:
    open_numbers = [opening.number]
    at = opening.value
    fields = 0
    while open_numbers:
        fields += 1
        if at >= stop:
            raise MalformedMessage(opening.start, "group is not closed")
        if fields > MAX_FIELDS:
            raise TooManyFields(at, f"a group of more than {MAX_FIELDS} fields")
        span = _span(data, at, stop)
        if span.wire_type == GROUP_START:
            open_numbers.append(span.number)
            if len(open_numbers) > MAX_GROUP_DEPTH:
                raise MalformedMessage(at, f"groups nested deeper than {MAX_GROUP_DEPTH}")
        elif span.wire_type == GROUP_END and span.number != open_numbers.pop():
            raise MalformedMessage(at, f"group ends with field {span.number}")
        at = span.end
    return at


def varint(number: int) -> bytes:
    """Returns ``number`` as protobuf's varint; a negative one as int64's two's complement (ten bytes)."""
    if 0 <= number < 0x80:
        return bytes((number,))
    rest = number & UINT64_MASK
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def int_field(number: int, content: int) -> bytes:
    """Returns an int32/int64/uint64/bool field, written even when ``content`` is 0."""
    return varint(number << 3 | VARINT) + varint(content)


def bytes_field(number: int, content: bytes) -> bytes:
    """Returns a string, bytes or message field, written even when ``content`` is empty."""
    size = len(content)
    if number < 16 and size < 0x80:
        return bytes((number << 3 | LENGTH, size)) + content
    return varint(number << 3 | LENGTH) + varint(size) + content


def fields(content: Mapping[int, Sequence[bytes]]) -> bytes:
    """Returns string, bytes or message fields: the payloads of each number, in that order."""
    out: list[bytes] = []
    for number, payloads in content.items():
        for each in payloads:
            size = len(each)
            if number < 16 and size < 0x80:  # as bytes_field, without a call for each label
                out.append(bytes((number << 3 | LENGTH, size)))
                out.append(each)
            else:
                out.append(bytes_field(number, each))
    return b"".join(out)


def nested(path: Path, content: bytes) -> bytes:
    """Returns ``content`` as (part of) the message at ``path``; appended to a message, it is merged into that."""
    for number in reversed(path):
        content = bytes_field(number, content)
    return content


def last_bytes(data: bytes, number: int) -> bytes:
    """Returns the effective value of a singular string or bytes field: its last occurrence, empty if there is none."""
    found = b""
    for span in spans(data):
        if span.number == number and span.wire_type == LENGTH:
            found = data[span.value : span.end]
    return found


def set_last(data: bytes, number: int, field: bytes) -> bytes:
    """Puts the encoded ``field`` in place of the last occurrence of field ``number``, or behind everything."""
    last = None
    for span in spans(data):
        if span.number == number:
            last = span
    if last is None:
        return data + field
    return data[: last.start] + field + data[last.end :]


Visitor = Callable[[bytes], bytes | None]
"""Takes one entry's payload and returns its replacement: the same object (untouched), other bytes, or None (dropped).
"""


def edit_entries(data: bytes, visitors: Mapping[Path, Visitor]) -> bytes:
    """Applies each visitor to every entry of the repeated message field (or map) at its path, where it stands.

    Returns ``data`` itself if no visitor changed anything.
    """
    edited = _edit(data, 0, len(data), visitors)
    return data if edited is None else edited


def _edit(data: bytes, start: int, end: int, visitors: Mapping[Path, Visitor]) -> bytes | None:
    """Returns the edited message of ``data[start:end]``, None if nothing changed. Recursion is as deep as the paths."""
    by_number: dict[int, dict[Path, Visitor]] = {}
    for path, visitor in visitors.items():
        by_number.setdefault(path[0], {})[path[1:]] = visitor
    out: list[bytes] = []
    copied = start
    for span in spans(data, start, end):
        deeper = by_number.get(span.number)
        if deeper is None or span.wire_type != LENGTH:
            continue
        replaced = _visit(data, span, deeper)
        if replaced is not None:
            out += (data[copied : span.start], replaced)
            copied = span.end
    if not out:
        return None
    out.append(data[copied:end])
    return b"".join(out)


def _visit(data: bytes, span: FieldSpan, deeper: Mapping[Path, Visitor]) -> bytes | None:
    """Returns the replacement of the field ``span``; None: unchanged, empty: dropped."""
    visitor = deeper.get(())
    if visitor is None:
        inner = _edit(data, span.value, span.end, deeper)
        return None if inner is None else bytes_field(span.number, inner)
    entry = data[span.value : span.end]
    kept = visitor(entry)
    if kept is None:
        return b""
    return None if kept is entry else bytes_field(span.number, kept)
