"""An ElasticQuota in numbers: read once of each version of its object.

A part that cannot be read costs itself, and a problem says so: an amount counts as absent, of a maximum as 0, so that
what nobody can read allows nothing. Amounts are in the units of scheduling: ``cpu`` in thousandths, all else whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from koord.model import quantity
from koord.model.core import Amounts
from koord.model.elasticquota import ElasticQuota
from koord.model.priority import CPU, is_in_bytes
from koord.model.problem import Problem
from koord.model.quantity import Format, QuantityError
from koord.quota import names

MOST = 2**62
"""An amount above counts as this much."""


class QuotaSpec(NamedTuple):
    """``parent``, ``tree``: names, ``tree`` "" being that of the cluster. ``minimum``, ``maximum``, ``weight``: by
    resource; what ``maximum`` lacks is not limited. ``namespaces``: whose pods are in it, but for those whose label
    says otherwise. ``total``: what its tree has, of the root of one; None of any other quota.
    """

    name: str
    namespace: str = ""
    parent: str = names.ROOT
    tree: str = ""
    is_parent: bool = False
    lends: bool = True
    minimum: Mapping[str, int] = {}
    maximum: Mapping[str, int] = {}
    weight: Mapping[str, int] = {}
    namespaces: tuple[str, ...] = ()
    total: Mapping[str, int] | None = None
    ignores_default_tree: bool = False


def of(quota: ElasticQuota) -> tuple[QuotaSpec, tuple[Problem, ...]]:
    """Returns what the object says, and what of it cannot be read."""
    problems: list[Problem] = []
    metadata = quota.metadata
    labels, annotations = metadata.labels, metadata.annotations
    maximum = _amounts(quota.spec.max, "spec.max", problems)
    weight = _annotated(annotations, names.ANNOTATION_WEIGHT, problems)
    is_root = labels.get(names.LABEL_IS_ROOT) == "true"
    spec = QuotaSpec(
        metadata.name,
        metadata.namespace,
        labels.get(names.LABEL_PARENT) or names.ROOT,
        labels.get(names.LABEL_TREE, ""),
        labels.get(names.LABEL_IS_PARENT) == "true",
        labels.get(names.LABEL_LENDS) != "false",
        _amounts(quota.spec.min, "spec.min", problems),
        maximum,
        {**maximum, **(weight or {})},
        _namespaces(annotations, problems),
        (_annotated(annotations, names.ANNOTATION_TOTAL, problems) or {}) if is_root else None,
        labels.get(names.LABEL_IGNORES_DEFAULT_TREE) == "true",
    )
    return spec, tuple(problems)


def name_for(label: str | None, namespace: str, quotas: Mapping[str, QuotaSpec], listing: str) -> str:
    """Returns the name of the quota that a pod is in: the one of its label, else that of its namespace.

    ``quotas``: by name; ``listing``: the one that lists the namespace, or else that of all others.
    """
    if label:
        return label if label != names.ROOT and label in quotas else names.DEFAULT
    own = quotas.get(namespace)
    return own.name if own is not None and own.namespace == namespace else listing


def units(resource: str, amount: object) -> int:
    """Returns an amount in the resource's unit. Raises QuantityError for one that is none, or below 0."""
    parsed = quantity.from_json(amount)
    if parsed.nano < 0:
        raise QuantityError(amount, "is negative")
    return min(parsed.milli_value() if resource == CPU else parsed.value(), MOST)


def text(resource: str, amount: int) -> str:
    """Returns the amount as Kubernetes writes it."""
    if resource == CPU:
        return str(quantity.of_milli(amount))
    return str(quantity.of(amount, Format.BINARY_SI if is_in_bytes(resource) else Format.DECIMAL_SI))


def texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {resource: text(resource, amount) for resource, amount in sorted(amounts.items())}


def json(amounts: Mapping[str, int]) -> str:
    """Returns a list of resources as Koordinator writes it into annotations."""
    return msgspec.json.encode(texts(amounts)).decode()


def read_json(value: str) -> dict[str, int]:
    """Reads such a list. Raises ValueError."""
    return {name: units(name, amount) for name, amount in msgspec.json.decode(value, type=dict[str, Any]).items()}


def _amounts(amounts: Amounts, path: str, problems: list[Problem]) -> dict[str, int]:
    found = {}
    for resource, amount in amounts.items():
        try:
            found[resource] = units(resource, amount)
        except QuantityError as error:
            problems.append(Problem(f"{path}[{resource}]", str(error)))
            found[resource] = 0
    return found


def _annotated(annotations: Mapping[str, str], key: str, problems: list[Problem]) -> dict[str, int] | None:
    value = annotations.get(key)
    if not value:
        return None
    try:
        return read_json(value)
    except ValueError as error:
        problems.append(Problem(f"metadata.annotations[{key}]", f"cannot be read: {error}"))
        return None


def _namespaces(annotations: Mapping[str, str], problems: list[Problem]) -> tuple[str, ...]:
    value = annotations.get(names.ANNOTATION_NAMESPACES)
    if not value:
        return ()
    try:
        return tuple(msgspec.json.decode(value, type=list[str]))
    except msgspec.DecodeError as error:
        problems.append(Problem(f"metadata.annotations[{names.ANNOTATION_NAMESPACES}]", f"cannot be read: {error}"))
        return ()
