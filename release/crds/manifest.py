"""Makes the CustomResourceDefinition of a kind, and its text."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import yaml
from msgspec import inspect

from release.crds import descriptions
from release.crds.kinds import KINDS, Column, OwnedKind
from release.crds.schemas import Schema

_HEAD = "# Written by `python -m release.crds` from the structs in koord/model; change those.\n"
_PARTS = ("spec", "status")


@functools.cache
def texts() -> Mapping[str, str]:
    """Returns the text of every file in ``manifests/crds/`` by its name."""
    return MappingProxyType({f"{row.kind.group}_{row.kind.plural}.yaml": text(row) for row in KINDS})


def text(row: OwnedKind) -> str:
    """Returns the definition as YAML with sorted keys and no references."""
    return _HEAD + yaml.dump(definition(row), Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=120)


def definition(row: OwnedKind) -> dict[str, Any]:
    kind = row.kind
    names: dict[str, Any] = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": row.singular,
    }
    if row.short_names:
        names["shortNames"] = list(row.short_names)
    metadata: dict[str, Any] = {"name": f"{kind.plural}.{kind.group}"}
    if row.approval:
        metadata["annotations"] = {"api-approved.kubernetes.io": row.approval}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(row)],
        },
    }


def _version(row: OwnedKind) -> dict[str, Any]:
    version: dict[str, Any] = {
        "name": row.kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object(row)},
        "additionalPrinterColumns": [_column(each) for each in row.columns],
    }
    if row.has_status_subresource:
        version["subresources"] = {"status": {}}
    return version


def _column(column: Column) -> dict[str, Any]:
    made = {"name": column.name, "type": column.type, "jsonPath": f".{column.path}"}
    return {**made, "priority": 1} if column.is_wide else made


def _object(row: OwnedKind) -> Schema:
    """Returns the members of every object, and this kind's parts; a part that no struct reads is a plain object."""
    described = inspect.type_info(row.struct)
    assert isinstance(described, inspect.StructType)
    parts = {field.encode_name: field.type for field in described.fields if field.encode_name in _PARTS}
    return {
        "description": descriptions.of_class(row.struct),
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            **{name: _part(row, name, parts.get(name)) for name in _PARTS},
        },
    }


def _part(row: OwnedKind, name: str, kind: inspect.Type | None) -> Schema:
    return row.schemas.of_struct(kind.cls, name) if isinstance(kind, inspect.StructType) else {"type": "object"}


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)
