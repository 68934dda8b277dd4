"""Reads what people and other programs wrote (JSON, YAML) into frozen msgspec structs, and says exactly what is wrong.

The struct's own type annotations are the schema: types, bounds (``Meta(ge=…, le=…)``), names. Reading is as lenient
as the Go programs that share these documents (unknown keys ignored, the case of keys not significant, null = absent,
"" = absent for an enumeration) and no more: a wrong type or a value out of bounds is an error. A caller that has a use
for the rest of a document passes ``bad``, which takes each bad leaf; that counts as absent, if absence is "not set"
(None); a bad item of a list of objects is left out whole. What stays an error of the whole: a wrong structure, a
missing required member, and a bad ``enable``, whose absence would switch something off.

Invariant: depth and size of the input are bounded before anything recurses, so no document can crash a process.
Fails with ``SchemaError``, which names the path and the value.
"""

from __future__ import annotations

import functools
import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
from msgspec import inspect

from koord.model import cpuset, quantity
from koord.model.cpuset import CPUSet, CPUSetError
from koord.model.percent import PercentOrQuantity
from koord.model.problem import Bad, Problem
from koord.model.quantity import MAX_INT64, Quantity, QuantityError

T = TypeVar("T", bound=msgspec.Struct)
Unknown = Callable[[str], None]
"""Told the path of each key that no field has, for those who want to warn of typing errors."""

MAX_JSON = 1 << 20
_SWITCH = "enable"
_DROPPED = object()
_ACRONYMS = {"be", "bps", "id", "iops", "qos"}
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,63}", re.ASCII)


class SchemaError(ValueError):
    """A document cannot be read; ``problem`` says where and why. ``why`` completes the sentence "path: value …"."""

    def __init__(self, path: str, value: object, why: str) -> None:
        self.problem, self.why = wrong(path, value, why), why
        super().__init__(str(self.problem))

    @classmethod
    def of(cls, problem: Problem) -> Self:
        error = cls(problem.path, "", "")
        error.problem, error.why, error.args = problem, problem.message, (str(problem),)
        return error

    @property
    def path(self) -> str:
        return self.problem.path


def wrong(path: str, value: object, why: str) -> Problem:
    """Returns the problem of the ``value`` at ``path``; ``why`` completes the sentence "path: value …"."""
    return Problem(path, f"{clip(value)} {why}")


def json_name(field: str) -> str:
    """The API's spelling of a field: ``cpu_evict_be_usage_percent`` is ``cpuEvictBEUsagePercent``."""
    first, *others = field.split("_")
    return first + "".join(word.upper() if word in _ACRONYMS else word.capitalize() for word in others)


def clip(value: object, length: int = 120) -> str:
    """Writes ``value`` for an error message, never long however large the value is."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**length:
        return "a very large number"
    shown = repr(value[: length + 1]) if isinstance(value, str | bytes) else repr(value)
    return shown if len(shown) <= length + 2 else f"{shown[:length]}…"


def parse_json(text: str | bytes) -> object:
    """The document in ``text`` as plain dicts, lists and scalars; at most 1 MiB of it."""
    if len(text) > MAX_JSON:
        raise SchemaError("", f"{len(text)} characters", f"are more than {MAX_JSON}")
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise SchemaError("", text, "is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise SchemaError("", text, f"is not JSON: {error}") from error


class _Listeners(NamedTuple):
    unknown: Unknown | None = None
    bad: Bad | None = None


def read(cls: type[T], document: object, path: str = "", unknown: Unknown | None = None, bad: Bad | None = None) -> T:
    """Reads ``document`` as a ``cls``; ``path`` is where the document itself is, for messages. Raises SchemaError."""
    described = _describe(cls)
    result = _struct(described, document, path, _Listeners(unknown, bad))
    assert isinstance(result, cls)
    return result


def read_member(cls: type[msgspec.Struct], field: str, document: object, path: str = "", bad: Bad | None = None) -> Any:
    """Reads ``document`` as the type of one field of ``cls``, for documents that are a list or a map at the top."""
    return _read(_fields(cls)[field].type, document, path, _Listeners(bad=bad))


def encode(value: msgspec.Struct | Mapping[str, object]) -> str:
    """Compact JSON with sorted keys; fields at their defaults are left out. What ``read`` reads back equal."""
    return msgspec.json.encode(_plain(value), order="sorted").decode()


def overlay(base: T, over: msgspec.Struct | None) -> T:
    """Returns ``base`` with each of its fields that ``over`` has and sets (is not None).

    Structs merge by field; lists and maps are replaced. ``over`` may be of another type with fields in common, as a
    pod's ``CPUBurst`` over the node's ``CPUBurstStrategy``.
    """
    if over is None:
        return base
    changes: dict[str, Any] = {}
    for name in base.__struct_fields__:
        ours, theirs = getattr(base, name), getattr(over, name, None)
        if theirs is None:
            continue
        merge = isinstance(ours, msgspec.Struct) and isinstance(theirs, msgspec.Struct)
        changes[name] = overlay(ours, theirs) if merge else theirs
    return msgspec.structs.replace(base, **changes)


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        members = ((field, getattr(value, field.name)) for field in _describe(type(value)).fields)
        return {field.encode_name: _plain(member) for field, member in members if not _is_default(field, member)}
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, PercentOrQuantity) and value.percent is not None:
        return value.percent
    return str(value) if isinstance(value, Quantity | CPUSet | PercentOrQuantity) else value


def _is_default(field: inspect.Field, value: object) -> bool:
    if field.default_factory is not msgspec.NODEFAULT:
        return not value
    return field.default is not msgspec.NODEFAULT and value == field.default


@functools.cache
def _describe(cls: type[msgspec.Struct]) -> inspect.StructType:
    described = inspect.type_info(cls)
    assert isinstance(described, inspect.StructType)
    return described


@functools.cache
def _fields(cls: type) -> Mapping[str, inspect.Field]:
    """Fields of a struct by lower-case JSON name."""
    return {field.encode_name.lower(): field for field in _describe(cls).fields}


def child(path: str, key: str) -> str:
    """The path of member ``key`` of the object at ``path``; odd keys are quoted and shortened."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{clip(key, 80)}]"
    return f"{path}.{key}" if path else key


def _read(kind: inspect.Type, value: object, path: str, listeners: _Listeners) -> object:
    if isinstance(kind, inspect.UnionType):
        kind = _alternative(kind, value)
    if isinstance(kind, inspect.StructType):
        return _struct(kind, value, path, listeners)
    if isinstance(kind, inspect.VarTupleType):
        return _list(kind, value, path, listeners)
    if isinstance(kind, inspect.DictType):
        return _dict(kind, value, path, listeners)
    if isinstance(kind, inspect.AnyType):
        return value
    return _scalar(kind, value, path)


def _alternative(kind: inspect.UnionType, value: object) -> inspect.Type:
    """The member of ``kind`` to read ``value`` as: of ``int | str | None`` the string for a string, else the number."""
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    if len(members) == 1:
        return members[0]
    is_text = isinstance(value, str)
    return next((member for member in members if isinstance(member, inspect.StrType) is is_text), members[0])


def _struct(kind: inspect.StructType, value: object, path: str, listeners: _Listeners) -> object:
    if not isinstance(value, Mapping):
        raise SchemaError(path, value, "is not an object")
    fields, found = _fields(kind.cls), {}
    for key, member in value.items():
        name = str(key)
        field = fields.get(name.lower())
        if field is None:
            if listeners.unknown is not None:
                listeners.unknown(child(path, name))
        elif member is not None and not _blank_choice(field.type, member):
            may_drop = field.default is None and field.name != _SWITCH
            made = _member(field.type, member, child(path, field.encode_name), listeners, may_drop)
            if made is not _DROPPED:
                found[field.name] = made
    for field in fields.values():
        if field.required and field.name not in found:
            raise SchemaError(path, value, f"lacks {field.encode_name}")
    return kind.cls(**found)


def _blank_choice(kind: inspect.Type, value: object) -> bool:
    """Go writes an unset enumeration as ""."""
    members: Sequence[inspect.Type] = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return value == "" and any(isinstance(member, inspect.EnumType) for member in members)


def _list(kind: inspect.VarTupleType, value: object, path: str, listeners: _Listeners) -> object:
    if not isinstance(value, list | tuple):
        raise SchemaError(path, value, "is not a list")
    items = [_item(kind.item_type, item, f"{path}[{index}]", listeners) for index, item in enumerate(value)]
    return tuple([item for item in items if item is not _DROPPED])


def _item(kind: inspect.Type, value: object, path: str, listeners: _Listeners) -> object:
    """Returns the item of a list; ``_DROPPED`` for a bad object, if ``bad`` takes it."""
    if listeners.bad is None or not isinstance(kind, inspect.StructType):
        return _read(kind, value, path, listeners)
    try:
        return _read(kind, value, path, _Listeners(listeners.unknown))
    except SchemaError as error:
        listeners.bad(error.problem)
        return _DROPPED


def _dict(kind: inspect.DictType, value: object, path: str, listeners: _Listeners) -> object:
    if not isinstance(value, Mapping):
        raise SchemaError(path, value, "is not an object")
    members = {
        str(key): _member(kind.value_type, member, child(path, str(key)), listeners)
        for key, member in value.items()
        if member is not None
    }
    return {key: member for key, member in members.items() if member is not _DROPPED}


def _member(kind: inspect.Type, value: object, path: str, listeners: _Listeners, may_drop: bool = True) -> object:
    """Returns the member of an object; ``_DROPPED`` for a bad leaf, if ``bad`` takes it."""
    try:
        return _read(kind, value, path, listeners)
    except SchemaError as error:
        if listeners.bad is None or not may_drop or not _is_leaf(kind):
            raise
        listeners.bad(error.problem)
        return _DROPPED


def _is_leaf(kind: inspect.Type) -> bool:
    """A scalar, or a list of scalars, of which none can be left out."""
    if isinstance(kind, inspect.UnionType):
        return all(_is_leaf(member) for member in kind.types)
    if isinstance(kind, inspect.VarTupleType):
        return _is_leaf(kind.item_type)
    return not isinstance(kind, inspect.StructType | inspect.DictType | inspect.AnyType)


def _scalar(kind: inspect.Type, value: object, path: str) -> object:
    if isinstance(kind, inspect.IntType):
        return _int(kind, value, path)
    if isinstance(kind, inspect.FloatType):
        return _float(kind, value, path)
    if isinstance(kind, inspect.BoolType):
        if not isinstance(value, bool):
            raise SchemaError(path, value, "is neither true nor false")
        return value
    if isinstance(kind, inspect.StrType):
        return _str(value, path)
    if isinstance(kind, inspect.EnumType):
        return _choice(kind, value, path)
    return _custom(kind, value, path)


def _int(kind: inspect.IntType, value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SchemaError(path, value, "is not a whole number")
    low = -MAX_INT64 - 1 if kind.ge is None else kind.ge
    high = MAX_INT64 if kind.le is None else kind.le
    if value < low and kind.le is None:
        raise SchemaError(path, value, f"is less than {low}")
    if not low <= value <= high:
        raise SchemaError(path, value, f"is not in {low}..{high}")
    return value


def _float(kind: inspect.FloatType, value: object, path: str) -> float:
    """Reads a number; whole ones are taken, too: JSON has one kind of number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(path, value, "is not a number")
    if not -sys.float_info.max <= value <= sys.float_info.max:
        raise SchemaError(path, value, "is not a finite number")
    for bound, holds, why in (
        (kind.ge, operator.ge, "is less than"),
        (kind.gt, operator.gt, "is not more than"),
        (kind.le, operator.le, "is more than"),
        (kind.lt, operator.lt, "is not less than"),
    ):
        if bound is not None and not holds(value, bound):
            raise SchemaError(path, value, f"{why} {bound:g}")
    return float(value)


def _str(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise SchemaError(path, value, "is not a string")
    return value


def _choice(kind: inspect.EnumType, value: object, path: str) -> object:
    choices = {member.value: member for member in kind.cls}
    if not isinstance(value, str) or value not in choices:
        raise SchemaError(path, value, f"is not one of {', '.join(choices)}")
    return choices[value]


def _custom(kind: inspect.Type, value: object, path: str) -> object:
    wanted = getattr(kind, "cls", None)
    try:
        if wanted is Quantity:
            return quantity.from_json(value)
        if wanted is PercentOrQuantity:
            return PercentOrQuantity.from_json(value)
        if wanted is CPUSet:
            if not isinstance(value, str):
                raise SchemaError(path, value, "is not a string")
            return cpuset.parse(value)
    except (QuantityError, CPUSetError) as error:
        raise SchemaError(path, value, error.why) from error
    raise TypeError(f"{path}: structs may not hold {kind!r}")
