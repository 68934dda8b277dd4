"""What an API server does with a structural schema: whether it takes the schema, and whether an object passes it.

The rules are those of
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
as far as our schemas have a use for them; a keyword that is not known here is a finding, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

KEYWORDS = {
    "type", "format", "description", "properties", "additionalProperties", "required", "items", "enum", "pattern",
    "minimum", "maximum", "nullable", "default", "anyOf", "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-map-type",
}  # fmt: skip
TYPES: Mapping[str, type] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
FORMATS = {"integer": {"int32", "int64"}, "string": {"date-time"}}
RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


def malformed(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Why an API server would refuse the schema, place by place."""
    kind, any_of = schema.get("type"), schema.get("x-kubernetes-int-or-string", False)
    if unknown := schema.keys() - KEYWORDS:
        yield f"{path}: {sorted(unknown)} is not known"
    if any_of:
        if kind is not None or schema.get("anyOf") != INT_OR_STRING:
            yield f"{path}: not int-or-string as Kubernetes writes it"
    elif kind not in TYPES or "anyOf" in schema or "pattern" in schema:
        yield f"{path}: type {kind!r}"
    if "properties" in schema and "additionalProperties" in schema:
        yield f"{path}: properties and additionalProperties"
    if ("items" in schema) is not (kind == "array"):
        yield f"{path}: items"
    if kind != "object" and schema.keys() & {"properties", "additionalProperties", "required", "x-kubernetes-map-type"}:
        yield f"{path}: members of what is no object"
    if kind != "object" and "x-kubernetes-preserve-unknown-fields" in schema:
        yield f"{path}: preserves members of what is no object"
    if "format" in schema and schema["format"] not in FORMATS.get(str(kind), ()):
        yield f"{path}: format {schema['format']!r} of {kind!r}"
    if missing := set(schema.get("required", ())) - schema.get("properties", {}).keys():
        yield f"{path}: requires {sorted(missing)}, which are not there"
    if "default" in schema:
        yield from (f"{path}: default {why}" for why in problems(schema, schema["default"]))
    for place, member in members(schema, path):
        yield from malformed(member, place)


def members(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The schemas one level below, by their paths: ``[]`` is any item, ``{}`` any member."""
    for name, member in schema.get("properties", {}).items():
        yield (f"{path}.{name}" if path else name), member
    if "items" in schema:
        yield f"{path}[]", schema["items"]
    if "additionalProperties" in schema:
        yield f"{path}{{}}", schema["additionalProperties"]


def every(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """All schemas below, by their paths."""
    for place, member in members(schema, path):
        yield place, member
        yield from every(member, place)


def problems(schema: Mapping[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """Why an API server would refuse ``value``, or lose some of it."""
    if value is None:
        return  # kept if nullable, else dropped
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield f"{path}: {value!r} is neither a number nor a string"
        elif isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
            yield f"{path}: {value!r} does not match"
        return
    kind = schema["type"]
    if not _is_of(kind, value):
        yield f"{path}: {value!r} is not of type {kind}"
    elif kind == "object":
        yield from _of_object(schema, value, path)
    elif kind == "array":
        for index, item in enumerate(value):
            yield from problems(schema["items"], item, f"{path}[{index}]")
    else:
        yield from _of_scalar(schema, value, path)


def _is_of(kind: str, value: object) -> bool:
    return isinstance(value, TYPES[kind]) and not (kind == "integer" and isinstance(value, bool))


def _of_object(schema: Mapping[str, Any], value: Mapping[str, Any], path: str) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value and "default" not in known[name]:
            yield f"{path}: lacks {name}"
    for name, member in value.items():
        below = known.get(name, others)
        if below is not None:
            yield from problems(below, member, f"{path}.{name}" if path else name)
        elif not schema.get("x-kubernetes-preserve-unknown-fields") and path != "metadata":
            yield f"{path}: {name} would be dropped"


def _of_scalar(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is not one of {schema['enum']}"
    if schema.get("format") == "date-time":
        try:
            datetime.fromisoformat(value)
        except ValueError:
            yield f"{path}: {value!r} is no time"
    if schema["type"] == "integer":
        low, high = RANGES[schema["format"]]
        low, high = schema.get("minimum", low), schema.get("maximum", high)
        if not low <= value <= high:
            yield f"{path}: {value} is not in {low}..{high}"
