"""Makes structural OpenAPI schemas (apiextensions.k8s.io/v1) of structs.

The type annotations say everything: types, bounds (``Meta``), choices, formats. A whole number is int64 unless its
bounds are those of int32. A quantity and a number that may be a string are ``x-kubernetes-int-or-string``. An object of
no declared shape keeps whatever is in it, and may be null, as Go writes an empty one. Elsewhere null needs no word: an
API server drops it, unless a default takes its place.

Invariant: the result is structural: each node has a type (or is int-or-string), an array its items, an object either
properties or one schema for all its members. Fails with TypeError on a type that no schema stands for here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import inspect

from koord.model.percent import PercentOrQuantity
from koord.model.quantity import Quantity
from koord.model.selector import LabelSelector
from qosd.policy.slofields import CLASSES
from release.crds import descriptions

Schema = dict[str, Any]

QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
"""The pattern in the schemas of Kubernetes' own tools."""

_PATTERNS: Mapping[type, str] = MappingProxyType({Quantity: QUANTITY_PATTERN, PercentOrQuantity: ""})
"""By class that stands for a number or a string; upstream has no pattern for a share of bandwidth."""

_INT32 = (-(2**31), 2**31 - 1)
_CLASS_NAME = re.compile(rf"\.({'|'.join(CLASSES)})\.")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which whole numbers the API server takes; None: no bound."""

    low: int | None = None
    high: int | None = None
    is_int32: bool = False


@dataclass(frozen=True, slots=True)
class Schemas:
    """Makes the schemas of one kind.

    ``bounds`` and ``sentences`` go before what the structs say, by the path of a field (``pattern``). ``defaults``:
    what the API server fills in. ``open_choices``: where structs have a fixed choice of words, it takes any.
    """

    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    sentences: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, int] = field(default_factory=dict)
    open_choices: bool = False

    def of_struct(self, cls: type[msgspec.Struct], path: str) -> Schema:
        """Returns the schema of a struct; ``path``: where it stands in an object of the kind."""
        described = inspect.type_info(cls)
        assert isinstance(described, inspect.StructType)
        schema: Schema = {"type": "object", **_description(descriptions.of_class(cls))}
        if described.fields:
            schema["properties"] = {
                member.encode_name: self._of_field(cls, member, f"{path}.{member.encode_name}")
                for member in described.fields
            }
        if required := [member.encode_name for member in described.fields if member.required]:
            schema["required"] = required
        if cls is LabelSelector:
            schema["x-kubernetes-map-type"] = "atomic"
        return schema

    def _of_field(self, cls: type[msgspec.Struct], member: inspect.Field, path: str) -> Schema:
        """Returns the schema of a field, whose own sentence takes the place of its type's."""
        sentence = self.sentences.get(pattern(path)) or descriptions.of_field(cls, member.name)
        default = self.defaults.get(pattern(path))
        stated = {} if default is None else {"default": default}
        return {**self._of(member.type, path), **stated, **_description(sentence)}

    def _of(self, kind: inspect.Type, path: str) -> Schema:
        if isinstance(kind, inspect.Metadata):
            return {**self._of(kind.type, path), **(kind.extra_json_schema or {})}
        if isinstance(kind, inspect.UnionType):
            return self._of_union(kind, path)
        if isinstance(kind, inspect.StructType):
            return self.of_struct(kind.cls, path)
        if isinstance(kind, inspect.VarTupleType):
            return {"type": "array", "items": self._of(kind.item_type, f"{path}[]")}
        if isinstance(kind, inspect.DictType):
            return self._of_map(kind, path)
        return self.of_scalar(kind, path)

    def _of_union(self, kind: inspect.UnionType, path: str) -> Schema:
        """Returns the schema of one type and None; else of numbers and text."""
        members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
        if len(members) == 1:
            return self._of(members[0], path)
        types = {type(member) for member in members}
        if types == {inspect.IntType, inspect.StrType}:
            return _int_or_string()
        if types == {inspect.IntType, inspect.FloatType, inspect.StrType}:
            return _int_or_string(QUANTITY_PATTERN)
        raise TypeError(f"{path}: no schema stands for {kind!r}")

    def _of_map(self, kind: inspect.DictType, path: str) -> Schema:
        if isinstance(kind.value_type, inspect.AnyType):
            return {"type": "object", "nullable": True, "x-kubernetes-preserve-unknown-fields": True}
        return {"type": "object", "additionalProperties": self._of(kind.value_type, f"{path}{{}}")}

    def of_scalar(self, kind: inspect.Type, path: str) -> Schema:
        """Returns the schema of a value that is neither object nor list. Raises TypeError."""
        if isinstance(kind, inspect.BoolType):
            return {"type": "boolean"}
        if isinstance(kind, inspect.StrType):
            return {"type": "string"}
        if isinstance(kind, inspect.EnumType):
            choices = {} if self.open_choices else {"enum": [member.value for member in kind.cls]}
            return {"type": "string", **choices}
        if isinstance(kind, inspect.IntType):
            return _integer(self.bounds.get(pattern(path)) or _struct_bounds(kind))
        if isinstance(kind, inspect.DataclassType) and kind.cls in _PATTERNS:
            return _int_or_string(_PATTERNS[kind.cls])
        raise TypeError(f"{path}: no schema stands for {kind!r}")


def pattern(path: str) -> str:
    """``path`` with ``*`` for the name of a QoS class, as ``qosd.policy.slofields`` has its rows."""
    return _CLASS_NAME.sub(".*.", path)


def _description(sentence: str) -> Schema:
    return {"description": sentence} if sentence else {}


def _struct_bounds(kind: inspect.IntType) -> Bounds:
    return Bounds(is_int32=True) if (kind.ge, kind.le) == _INT32 else Bounds(kind.ge, kind.le)


def _integer(bounds: Bounds) -> Schema:
    limits = {"minimum": bounds.low, "maximum": bounds.high}
    stated = {key: limit for key, limit in limits.items() if limit is not None}
    return {"type": "integer", "format": "int32" if bounds.is_int32 else "int64", **stated}


def _int_or_string(pattern: str = "") -> Schema:
    schema: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    return {**schema, "pattern": pattern} if pattern else schema
