"""NodeSLO's ``extensions``: a free map in which each key belongs to one component.

``EXTENSIONS`` are the keys that are read here, each with the struct of what stands under it: then bounds hold, unknown
keys are told, and an error names the path, as everywhere else below ``spec``. What stands under other keys passes
through as it came, for its reader; on a node there is none, which the rules' warnings say. To add a setting, give
the struct a field with its bounds (None = not set), its default in ``slo_defaults``, its row in
``qosd.policy.slofields``.

Invariant: a registered key holds its struct or is absent. Fails with SchemaError, as ``schema.read`` does.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from koord.model import schema
from koord.model.problem import Bad
from koord.model.schema import Unknown, json_name

KOORD = "koord"
_NESTED = "Object"
Registry = Mapping[str, type[msgspec.Struct]]


class CPUSuppressBy(StrEnum):
    """``slo``: by ``resourceUsedThresholdWithBE.cpuSuppressPolicy``."""

    SLO = "slo"
    PRESSURE = "pressure"


class CPUSuppressSettings(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """How CPU suppression decides. A node's own rules hold it in the same form."""

    policy: CPUSuppressBy | None = None
    set_point_milliseconds: Annotated[int, Meta(ge=1, le=1000)] | None = None
    ceiling_percent: Annotated[int, Meta(ge=1, le=100)] | None = None


class KoordExtension(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """``extensions.koord``: what Koord's own strategies take from the cluster and Koordinator has no field for."""

    cpu_suppress: CPUSuppressSettings | None = None


EXTENSIONS: Registry = MappingProxyType({KOORD: KoordExtension})
"""By key."""


def read(
    document: Mapping[str, Any],
    path: str,
    unknown: Unknown | None = None,
    bad: Bad | None = None,
    registry: Registry = EXTENSIONS,
) -> Mapping[str, Any]:
    """Reads ``document`` with the registered keys' structs. Raises SchemaError."""
    stated = {key: member for key, member in _flat(document).items() if member is not None}
    return {key: _value(key, member, path, unknown, bad, registry) for key, member in stated.items()}


def only(keys: Container[str], extensions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns those of ``extensions`` that are of ``keys``, in the form that they have."""
    nested = _nested(extensions)
    if nested is not None:
        return {_NESTED: only(keys, nested)}
    return {key: member for key, member in extensions.items() if key in keys}


def in_form_of(stored: Mapping[str, Any], extensions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns ``extensions``, which are flat, as ``stored`` has its own."""
    return extensions if _nested(stored) is None else {_NESTED: extensions}


def merged(base: Mapping[str, Any] | None, over: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Both, where a struct in ``over`` is laid over that of ``base`` field by field, and all else takes its place."""
    below = base or {}
    return {**below, **{key: _laid_over(below.get(key), member) for key, member in (over or {}).items()}}


def _laid_over(base: object, member: object) -> object:
    if isinstance(base, msgspec.Struct) and isinstance(member, msgspec.Struct):
        return schema.overlay(base, member)
    return member


def _value(key: str, member: object, path: str, unknown: Unknown | None, bad: Bad | None, registry: Registry) -> object:
    cls = registry.get(key)
    return member if cls is None else schema.read(cls, member, schema.child(path, key), unknown, bad)


def _flat(extensions: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = _nested(extensions)
    return extensions if nested is None else nested


def _nested(extensions: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The map where upstream's encoder has it, under the key ``Object``; both forms are read."""
    nested = extensions.get(_NESTED)
    return nested if len(extensions) == 1 and isinstance(nested, Mapping) else None
