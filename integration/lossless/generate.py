"""Random messages of any class, the same for the same seed.

Every kind of content a field can have occurs: the limits of the integer types, enum values without a name,
bytes that are not UTF-8, texts longer than an HTTP/2 frame. Messages of any depth carry unknown fields of every wire
type, as one that was written by a newer release does.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from integration.lossless.schema import descriptor

M = TypeVar("M", bound=Message)

UNKNOWN_NUMBERS = (20_000, 29_999)
UNKNOWN_LIKELIHOOD = 0.3
MOST_ENTRIES = 2
DEEPEST = 12
LETTERS = 'aZ09 ./-_="\\\n\0äßπ漢\U0001f427'
LENGTHS = (0, 1, 7, 40, 200)
LONG, LONG_LIKELIHOOD = 20_000, 0.002  # more than the 16384 bytes of a frame
INTEGER_BITS: Mapping[int, tuple[int, bool]] = {  # width, signed
    FieldDescriptor.CPPTYPE_INT32: (32, True),
    FieldDescriptor.CPPTYPE_INT64: (64, True),
    FieldDescriptor.CPPTYPE_UINT32: (32, False),
    FieldDescriptor.CPPTYPE_UINT64: (64, False),
}


class Generator:
    """``density``: how likely a field is set; 1.0 sets all of them."""

    def __init__(self, seed: str, density: float) -> None:
        self._random = random.Random(seed)
        self._density = density

    def message(self, kind: type[M]) -> M:
        made = kind()
        self._fill(made, 0)
        return made

    def _fill(self, message: Message, depth: int) -> None:
        for field in descriptor(type(message)).fields:
            if depth < DEEPEST and self._random.random() < self._density:
                self._set(message, field, depth)
        if self._random.random() < UNKNOWN_LIKELIHOOD:
            message.MergeFromString(self._unknown())

    def _set(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        place: Any = getattr(message, field.name)
        if is_map(field):
            for _ in range(self._entries()):
                self._add_to_map(place, cast(Descriptor, field.message_type), depth)
        elif field.message_type is not None:
            places = [place.add() for _ in range(self._entries())] if field.is_repeated else [place]
            for each in places:
                each.SetInParent()
                self._fill(each, depth + 1)
        elif field.is_repeated:
            place.extend(self._scalar(field) for _ in range(self._entries()))
        else:
            setattr(message, field.name, self._scalar(field))

    def _add_to_map(self, place: Any, entry: Descriptor, depth: int) -> None:
        key, value_field = self._scalar(entry.fields_by_name["key"]), entry.fields_by_name["value"]
        if value_field.message_type is not None:
            self._fill(place[key], depth + 1)
        else:
            place[key] = self._scalar(value_field)

    def _entries(self) -> int:
        return self._random.randint(1, MOST_ENTRIES)

    def _scalar(self, field: FieldDescriptor) -> Any:
        kind = field.cpp_type
        if kind in INTEGER_BITS:
            return self._integer(*INTEGER_BITS[kind])
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return self._random.random() < 0.5
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return self._enum(cast(EnumDescriptor, field.enum_type))
        if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return self._random.uniform(-1e9, 1e9)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._random.randbytes(self._length()) + b"\xff\xc3\x28"
        return "".join(self._random.choices(LETTERS, k=self._length()))

    def _integer(self, bits: int, signed: bool) -> int:
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return self._random.choice((0, 1, low, high, self._random.randint(low, high), self._random.randint(0, 100_000)))

    def _enum(self, enum: EnumDescriptor) -> int:
        named = [value.number for value in enum.values]
        return self._random.choice((*named, max(named) + self._random.randint(1, 1000)))

    def _length(self) -> int:
        return LONG if self._random.random() < LONG_LIKELIHOOD else self._random.choice(LENGTHS)

    def _unknown(self) -> bytes:
        """One field of each wire type, the group with a field of its own inside."""
        pick = self._random
        number = pick.randint(*UNKNOWN_NUMBERS)
        text = pick.randbytes(pick.choice(LENGTHS))
        fields = [
            _tag(number, 0) + _varint(pick.getrandbits(64)),
            _tag(number, 1) + struct.pack("<Q", pick.getrandbits(64)),
            _tag(number, 2) + _varint(len(text)) + text,
            _tag(number, 3) + _tag(1, 0) + _varint(pick.getrandbits(7)) + _tag(number, 4),
            _tag(number, 5) + struct.pack("<I", pick.getrandbits(32)),
        ]
        pick.shuffle(fields)
        return b"".join(fields)


def is_map(field: FieldDescriptor) -> bool:
    """On the wire a map is a list of entries; its class is a dictionary."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
