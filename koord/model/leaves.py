"""The leaves of a struct by their paths in JSON: of its type, for what is made of every field; of a value, those set.

A path is that of the document (``hostApplications[0].cgroupPath.base``); of a type ``[]`` stands for every item. A
struct is no leaf, nor is a list of structs; a map is one, but for the structs that it holds.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec import inspect


class Leaf(NamedTuple):
    """``kind``: without the None that means "not set"."""

    path: str
    kind: inspect.Type


class LeafValue(NamedTuple):
    path: str
    value: object


def of_type(cls: type[msgspec.Struct], path: str = "") -> Iterator[Leaf]:
    """Yields every leaf that a ``cls`` may have, in the order of its fields."""
    for field in _fields(cls):
        kind, place = _without_none(field.type), _child(path, field.encode_name)
        if isinstance(kind, inspect.VarTupleType) and isinstance(kind.item_type, inspect.StructType):
            kind, place = kind.item_type, f"{place}[]"
        if isinstance(kind, inspect.StructType):
            yield from of_type(kind.cls, place)
        else:
            yield Leaf(place, kind)


def of_value(value: msgspec.Struct, path: str = "") -> Iterator[LeafValue]:
    """Yields every leaf of ``value`` that is set (not None)."""
    for field in _fields(type(value)):
        member = getattr(value, field.name)
        if member is not None:
            yield from _settings(member, _child(path, field.encode_name))


def _settings(value: object, path: str) -> Iterator[LeafValue]:
    if isinstance(value, msgspec.Struct):
        yield from of_value(value, path)
    elif isinstance(value, tuple) and any(isinstance(item, msgspec.Struct) for item in value):
        for index, item in enumerate(value):
            yield from _settings(item, f"{path}[{index}]")
    elif isinstance(value, Mapping) and any(isinstance(item, msgspec.Struct) for item in value.values()):
        for key, item in value.items():
            yield from _settings(item, _child(path, key))
    else:
        yield LeafValue(path, value)


@functools.cache
def _fields(cls: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(cls)
    assert isinstance(described, inspect.StructType)
    return described.fields


def _without_none(kind: inspect.Type) -> inspect.Type:
    if isinstance(kind, inspect.UnionType):
        return next(member for member in kind.types if not isinstance(member, inspect.NoneType))
    return kind


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
