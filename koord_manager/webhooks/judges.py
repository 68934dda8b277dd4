"""What each webhook decides by, and its decision: pure, in whichever process it is made.

``koord.admission`` has the rules; here are the paths, and what of the cluster a decision looks at. A path whose
gate is off allows everything: an entry of a webhook configuration that somebody forgot must not block the cluster.
Fails with UnknownNamespace, where the API server has to be asked first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from koord.admission import (
    AdmissionContext,
    mutate_node_status,
    mutate_pod,
    unknown_namespace,
    validate_config_map,
    validate_node,
    validate_pod,
)
from koord.sloconfig.checks import Nodes
from koord.sloconfig.config import SLOConfig
from koord.webhook.reviews import Response, Review

MUTATE_POD, VALIDATE_POD = "/mutate-pod", "/validate-pod"
MUTATE_NODE_STATUS, VALIDATE_NODE = "/mutate-node-status", "/validate-node"
VALIDATE_CONFIG_MAP = "/validate-configmap"
Labels = Mapping[str, str]
Namespaces = Mapping[str, Labels | None]
"""Labels of those that the API server was asked for; None: there is no such namespace."""
_NOBODY_ASKED: Namespaces = {}


@dataclass(frozen=True, slots=True)
class Grounds:
    """``paths``: those that are on. ``config_map``: namespace and name. ``nodes``: for the ConfigMap alone."""

    paths: frozenset[str]
    admission: AdmissionContext
    config: SLOConfig
    config_map: tuple[str, str]
    are_names_required: bool
    nodes: Nodes = ()


class UnknownNamespace(Exception):
    """Nobody knows the labels of the namespace ``name`` yet, and a pod is created in it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def judge(path: str, review: Review, grounds: Grounds, namespaces: Namespaces = _NOBODY_ASKED) -> Response:
    """Raises UnknownNamespace for one that is not in ``namespaces`` either."""
    if path not in grounds.paths:
        return {"allowed": True}
    response: Response = _JUDGES[path](review, grounds, namespaces)["response"]
    return response


def _mutate_pod(review: Review, grounds: Grounds, namespaces: Namespaces) -> Mapping[str, Any]:
    admission = grounds.admission
    name = unknown_namespace(review, admission)
    if name is not None:
        if name not in namespaces:
            raise UnknownNamespace(name)
        labels = namespaces[name]
        if labels is not None:
            admission = replace(admission, namespaces={**admission.namespaces, name: labels})
    return mutate_pod(review, admission)


def _validate_config_map(review: Review, grounds: Grounds, _: Namespaces) -> Mapping[str, Any]:
    return validate_config_map(review, *grounds.config_map, grounds.nodes, grounds.are_names_required)


_JUDGES: Mapping[str, Callable[[Review, Grounds, Namespaces], Mapping[str, Any]]] = {
    MUTATE_POD: _mutate_pod,
    VALIDATE_POD: lambda review, grounds, _: validate_pod(review, grounds.admission),
    MUTATE_NODE_STATUS: lambda review, grounds, _: mutate_node_status(review),
    VALIDATE_NODE: lambda review, grounds, _: validate_node(review, grounds.config),
    VALIDATE_CONFIG_MAP: _validate_config_map,
}
"""Each answers with a whole review, of which the server makes the envelope anew."""
PATHS = frozenset(_JUDGES)
