"""What each webhook decides by, and its decision: pure, in whichever process it is made.

``koord.admission`` has the rules; here are the paths, and what of the cluster a decision looks at. A path whose
gate is off allows everything: an entry of a webhook configuration that somebody forgot must not block the cluster.
Fails with UnknownNamespace, where the API server has to be asked first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from koord.admission import (
    AdmissionContext,
    PodsIn,
    mutate_node_status,
    mutate_pod,
    mutate_quota,
    validate_config_map,
    validate_node,
    validate_pod,
    validate_quota,
)
from koord.model.admissionreview import AdmissionRequest, AdmissionResponse
from koord.sloconfig.checks import Nodes
from koord.sloconfig.config import SLOConfig

MUTATE_POD, VALIDATE_POD = "/mutate-pod", "/validate-pod"
MUTATE_NODE_STATUS, VALIDATE_NODE = "/mutate-node-status", "/validate-node"
VALIDATE_CONFIG_MAP = "/validate-configmap"
MUTATE_QUOTA = "/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
VALIDATE_QUOTA = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
Labels = Mapping[str, str]
Namespaces = Mapping[str, Labels | None]
"""Labels of those that the API server was asked for; None: there is no such namespace."""
_NOBODY_ASKED: Namespaces = {}


def no_pods(quota: str, namespaces: tuple[str, ...]) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Grounds:
    """``paths``: those that are on. ``config_map``: namespace and name. ``nodes``: for the ConfigMap alone.
    ``pods_in``: for quotas alone.
    """

    paths: frozenset[str]
    admission: AdmissionContext
    config: SLOConfig
    config_map: tuple[str, str]
    are_names_required: bool
    nodes: Nodes = ()
    pods_in: PodsIn = no_pods


def judge(
    path: str, request: AdmissionRequest, grounds: Grounds, namespaces: Namespaces = _NOBODY_ASKED
) -> AdmissionResponse:
    """Raises UnknownNamespace for one that is not in ``namespaces`` either."""
    return _JUDGES[path](request, grounds, namespaces) if path in grounds.paths else AdmissionResponse()


def _mutate_pod(request: AdmissionRequest, grounds: Grounds, namespaces: Namespaces) -> AdmissionResponse:
    context = grounds.admission
    if namespaces:
        context = replace(context, namespaces={**namespaces, **context.namespaces})
    return mutate_pod(request, context)


_JUDGES: Mapping[str, Callable[[AdmissionRequest, Grounds, Namespaces], AdmissionResponse]] = {
    MUTATE_POD: _mutate_pod,
    VALIDATE_POD: lambda request, grounds, _: validate_pod(request, grounds.admission),
    MUTATE_QUOTA: lambda request, grounds, _: mutate_quota(request, grounds.admission),
    VALIDATE_QUOTA: lambda request, grounds, _: validate_quota(request, grounds.admission, grounds.pods_in),
    MUTATE_NODE_STATUS: lambda request, grounds, _: mutate_node_status(request),
    VALIDATE_NODE: lambda request, grounds, _: validate_node(request, grounds.config),
    VALIDATE_CONFIG_MAP: lambda request, grounds, _: validate_config_map(
        request, *grounds.config_map, grounds.nodes, grounds.are_names_required
    ),
}
PATHS = frozenset(_JUDGES)
