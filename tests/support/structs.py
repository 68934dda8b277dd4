"""JSON documents that a struct reads, generated from its annotations alone: types, bounds, choices and formats."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import inspect

from koord.model.percent import PercentOrQuantity
from koord.model.quantity import MAX_INT64

MOST_MEMBERS = 3
AMOUNTS = st.sampled_from(["0", "500m", "1.5", "4Gi", "1e3", "+2k", "-3", ".5", "393941019"]) | st.integers(0, 2**40)
TIMES = st.sampled_from(["2025-05-25T03:36:38Z", "2025-05-25T11:36:38+08:00"])
KEYS = st.sampled_from(["a", "example.com/b", "c-1"])
FREE = st.dictionaries(KEYS, st.recursive(st.booleans() | st.text(max_size=3), st.lists, max_leaves=3), max_size=2)


@functools.cache
def documents(cls: type[msgspec.Struct]) -> SearchStrategy[Any]:
    """Objects with all members that ``cls`` requires and some of the others; none is null."""
    fields = inspect.type_info(cls).fields  # type: ignore[attr-defined]
    required = {field.encode_name: _of(field.type) for field in fields if field.required}
    others = {field.encode_name: _of(field.type) for field in fields if not field.required}
    if not others:
        return st.fixed_dictionaries(required)
    chosen = st.lists(st.sampled_from(sorted(others)), unique=True, max_size=MOST_MEMBERS)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({**required, **{name: others[name] for name in names}}))


def substance(document: Any) -> Any:
    """``document`` without its empty members, which mean the same as absent ones."""
    if isinstance(document, list):
        return [substance(item) for item in document]
    if not isinstance(document, dict):
        return document
    members = {key: substance(member) for key, member in document.items()}
    return {key: member for key, member in members.items() if member not in ("", {}, [], None)}


def _of(kind: inspect.Type) -> SearchStrategy[Any]:
    match kind:
        case inspect.UnionType():
            return _of_union([member for member in kind.types if not isinstance(member, inspect.NoneType)])
        case inspect.StructType():
            return st.deferred(lambda: documents(kind.cls))
        case inspect.VarTupleType():
            return st.lists(_of(kind.item_type), max_size=2)
        case inspect.DictType(value_type=inspect.AnyType()):
            return FREE
        case inspect.DictType():
            return st.dictionaries(KEYS, _of(kind.value_type), max_size=2)
        case _:
            return _of_scalar(kind)


def _of_union(members: list[inspect.Type]) -> SearchStrategy[Any]:
    if any(isinstance(member, inspect.FloatType) for member in members):
        return AMOUNTS
    return st.one_of([_of(member) for member in members])


def _of_scalar(kind: inspect.Type) -> SearchStrategy[Any]:
    match kind:
        case inspect.Metadata(extra_json_schema={"format": "date-time"}):
            return TIMES
        case inspect.Metadata(extra_json_schema={"enum": choices}):
            return st.sampled_from(choices)
        case inspect.Metadata():
            return _of(kind.type)
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(
                -MAX_INT64 - 1 if kind.ge is None else kind.ge, MAX_INT64 if kind.le is None else kind.le
            )
        case inspect.StrType():
            return st.text(max_size=5)
        case inspect.EnumType():
            return st.sampled_from([member.value for member in kind.cls])
        case inspect.DataclassType(cls=cls):
            return AMOUNTS if cls is not PercentOrQuantity else st.integers(0, 100) | st.sampled_from(["50M", "1Gi"])
        case _:
            raise TypeError(f"no documents of {kind!r}")
