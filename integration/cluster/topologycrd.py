"""The CRD of NodeResourceTopology, a kind of another project's: v1alpha1 as that serves it, with its schema."""

from __future__ import annotations

from typing import Any

from integration.cluster.api import Api, ApiError
from integration.harness.processes import wait_for

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "noderesourcetopologies.topology.node.k8s.io"
PATH = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_QUANTITY = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
    "pattern": rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$",
}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_RESOURCE = _object(
    ["name", "capacity", "allocatable", "available"],
    name=_TEXT,
    capacity=_QUANTITY,
    allocatable=_QUANTITY,
    available=_QUANTITY,
)
_COST = _object(["name", "value"], name=_TEXT, value={"type": "integer", "format": "int64"})
_ATTRIBUTE = _object(["name", "value"], name=_TEXT, value=_TEXT)
_ZONE = _object(
    ["name", "type"],
    name=_TEXT,
    type=_TEXT,
    parent=_TEXT,
    costs=_list(_COST),
    attributes=_list(_ATTRIBUTE),
    resources=_list(_RESOURCE),
)
_SCHEMA = _object(
    ["topologyPolicies", "zones"],
    apiVersion=_TEXT,
    kind=_TEXT,
    metadata={"type": "object"},
    topologyPolicies=_list(_TEXT),
    zones=_list(_ZONE),
)
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": NAME,
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
    },
    "spec": {
        "group": "topology.node.k8s.io",
        "scope": "Cluster",
        "names": {
            "kind": "NodeResourceTopology",
            "listKind": "NodeResourceTopologyList",
            "plural": "noderesourcetopologies",
            "singular": "noderesourcetopology",
            "shortNames": ["node-res-topo"],
        },
        "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}],
    },
}


def install(api: Api) -> None:
    """Returns when the API server serves the kind."""
    api.create(CRDS, CRD)
    wait_for(lambda: _serves(api), 20, f"{PATH} to be served")


def _serves(api: Api) -> bool:
    """A new kind is not known at first, then being prepared (429)."""
    try:
        return api.exists(PATH)
    except ApiError:
        return False


def remove(api: Api) -> None:
    api.delete(f"{CRDS}/{NAME}")
    wait_for(lambda: not api.exists(f"{CRDS}/{NAME}"), 20, f"{NAME} to be gone")
