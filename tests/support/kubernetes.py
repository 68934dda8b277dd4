"""Pods, Nodes and a profile as an API server serves them: plain, with the fields that a test adds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from koord.model import core

Kind = TypeVar("Kind", bound=msgspec.Struct)
Document = dict[str, Any]
QUICK_START_PROFILE: Document = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch-workload-profile"},
    "spec": {
        "namespaceSelector": {"matchLabels": {"koordinator.sh/enable-colocation": "true"}},
        "selector": {"matchLabels": {"app-type": "batch"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "schedulerName": "koord-scheduler",
        "labels": {"koordinator.sh/mutated": "true"},
    },
}
"""The ClusterColocationProfile of the quick start."""


def container(name: str = "main", requests: Any = None, limits: Any = None, **members: Any) -> Document:
    """``requests`` and ``limits`` are left out where they are None; ``members``: further ones of Container."""
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value is not None}
    return {"name": name, "image": "i", **({"resources": resources} if resources else {}), **members}


def pod(
    *containers: Document,
    name: str = "p",
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Document:
    """A pod of ``containers``, by default one; without a ``namespace`` if that is "". ``spec``: fields of PodSpec."""
    place = {"namespace": namespace} if namespace else {}
    own = _metadata(name, labels, annotations, {**place, **(metadata or {})})
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": own}
    made["spec"] = {"containers": list(containers) or [container()], **spec}
    return made if status is None else {**made, "status": dict(status)}


def node(
    name: str = "n1",
    allocatable: Mapping[str, Any] | None = None,
    capacity: Mapping[str, Any] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **status: Any,
) -> Document:
    """A Node whose capacity is allocatable, unless it says otherwise; ``status``: further fields of NodeStatus."""
    has = {"capacity": capacity or allocatable or {}, "allocatable": allocatable or {}}
    own = _metadata(name, labels, annotations, metadata or {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": own, "status": {**has, **status}}


def read(kind: type[Kind], document: Document) -> Kind:
    """Returns ``document`` as the product reads it."""
    return core.read(kind, json.dumps(document).encode())


def _metadata(
    name: str, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None, others: Mapping[str, Any]
) -> Document:
    said = {"name": name, **others}
    said |= {"labels": dict(labels)} if labels is not None else {}
    return said | ({"annotations": dict(annotations)} if annotations is not None else {})
