"""The schema of the chart's value ``sloControllerConfig``, from the structs that read the keys of the ConfigMap.

What is written there as YAML is checked by helm before anything is installed: names, types, choices and bounds. A key
may be JSON text instead, which no schema looks into; then koord-manager says what is wrong with it.

Invariant: what the schema takes, ``koord.sloconfig`` reads without a fault of one field. Rules between fields are
not in it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import inspect

from koord.model.selector import LabelSelector
from koord.sloconfig.rows import ROWS, KeyLayout, KeyRow
from release.crds.schemas import Schema, Schemas

VALUE = "sloControllerConfig"
_DROPPED = ("description", "format", "nullable")


class _JSONSchemas(Schemas):
    """Allows fractions, which CustomResourceDefinitions do without."""

    def of_scalar(self, kind: inspect.Type, path: str) -> Schema:
        if not isinstance(kind, inspect.FloatType):
            return super().of_scalar(kind, path)
        bounds = {"minimum": kind.ge, "exclusiveMinimum": kind.gt, "maximum": kind.le, "exclusiveMaximum": kind.lt}
        return {"type": "number", **{name: bound for name, bound in bounds.items() if bound is not None}}


_STRUCTS = _JSONSchemas()


def put_into(whole: Schema) -> Schema:
    """The schema of all values with the part of this value; what occurs in it more than once is a definition."""
    keys = {row.key: {**_key(row), "type": ["object", "string"]} for row in ROWS}
    made = {"type": "object", "properties": keys, "additionalProperties": False}
    definitions: dict[str, Schema] = {}
    shared = _shared(made, Counter(_objects(made)), definitions)
    return {**whole, "properties": {**whole["properties"], VALUE: shared}, "definitions": definitions}


def _key(row: KeyRow[Any]) -> Schema:
    strategy = _strict(_STRUCTS.of_struct(row.struct, row.key))
    selector = _strict(_STRUCTS.of_struct(LabelSelector, f"{row.key}.nodeSelector"))
    entry = _with(strategy, name={"type": "string"}, nodeSelector=selector)
    entries = {"type": "array", "items": entry}
    if row.layout is KeyLayout.FLAT:
        return _with(strategy, **{row.layout.value: entries})
    members = {"clusterStrategy": strategy, row.layout.value: entries}
    return {"type": "object", "properties": members, "additionalProperties": False}


def _with(base: Schema, **members: Schema) -> Schema:
    return {**base, "properties": {**base["properties"], **members}}


def _strict(part: Any) -> Any:
    """The schema of a CustomResourceDefinition as JSON Schema has it, in which an unknown member is an error."""
    if isinstance(part, list):
        return [_strict(each) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"], **({"pattern": part["pattern"]} if "pattern" in part else {})}
    made = {key: _strict(value) for key, value in part.items() if key not in _DROPPED and not key.startswith("x-")}
    return {**made, "additionalProperties": False} if "properties" in made else made


def _objects(part: Any) -> Iterator[str]:
    """The text of each object in a schema that has members."""
    if isinstance(part, dict):
        if "properties" in part:
            yield _text(part)
        for each in part.values():
            yield from _objects(each)


def _shared(part: Any, counts: Mapping[str, int], definitions: dict[str, Schema], name: str = VALUE) -> Any:
    """Returns ``part`` with references in place of what occurs more than once; ``name``: the member that it is."""
    if not isinstance(part, dict):
        return part
    if counts.get(text := _text(part), 0) > 1:
        digest = hashlib.sha256(text.encode()).hexdigest()[:6]
        key = next((known for known in definitions if known.endswith(digest)), f"{name}-{digest}")
        if key not in definitions:
            definitions[key] = {}
            definitions[key] = _members_shared(part, counts, definitions, name)
        return {"$ref": f"#/definitions/{key}"}
    return _members_shared(part, counts, definitions, name)


def _members_shared(
    part: Schema, counts: Mapping[str, int], definitions: dict[str, Schema], name: str
) -> dict[str, Any]:
    return {
        key: {member: _shared(each, counts, definitions, member) for member, each in value.items()}
        if key == "properties"
        else _shared(value, counts, definitions, name)
        for key, value in part.items()
    }


def _text(part: Any) -> str:
    return json.dumps(part, sort_keys=True)
