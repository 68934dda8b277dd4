"""A cluster as it is at the time of a command: everything that a node's offer and a pod's fate depend on.

The lists are read one after the other, so a pod that is bound meanwhile may be in one and not yet in another. A kind
that the server does not know (no CRD is installed) has no objects.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from koord.kube.client import EVERYTHING, Client, Selection
from koord.kube.errors import APIError
from koord.kube.kind import (
    CLUSTER_COLOCATION_PROFILE,
    CONFIG_MAP,
    NAMESPACE,
    NODE,
    NODE_METRIC,
    NODE_SLO,
    Kind,
    T,
    Unstructured,
)
from koord.model.admission import AdmissionContext
from koord.model.core import Node
from koord.model.nodemetric import NodeMetric
from koord.model.overcommit import normalization
from koord.model.overcommit.amounts import CPUMemory
from koord.model.overcommit.offer import Offer, offer
from koord.model.overcommit.overallocation import allocated
from koord.model.overcommit.strategy import ColocationStrategy
from koord.model.profile import ClusterColocationProfile
from koord.model.profile import read as read_profile
from koord.model.schema import SchemaError
from koord.model.sloconfig.config import SLOConfig
from koord.model.sloconfig.loading import CONFIG_MAP_NAME, Loaded, load, texts
from koordctl.cluster.objects import DETAILED_POD, DetailedPod

NAMESPACE_OF_KOORD = "koordinator-system"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class ClusterState:
    """``pods``: by node, "" for those that have none. ``slos``: the specs of NodeSLO objects by node.

    ``policy``: what slo-controller-config says.
    """

    nodes: Mapping[str, Node] = field(default_factory=dict)
    pods: Mapping[str, Sequence[DetailedPod]] = field(default_factory=dict)
    metrics: Mapping[str, NodeMetric] = field(default_factory=dict)
    slos: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy: Loaded = field(default_factory=lambda: Loaded(SLOConfig.defaults()))
    admission: AdmissionContext = field(default_factory=AdmissionContext)
    now_s: float = 0.0

    def strategy(self, node: Node) -> ColocationStrategy:
        return self.policy.config.strategy(node.metadata.labels, node.metadata.annotations)[0]

    def offer(self, node: Node) -> Offer:
        """By the formula, now; as koord-manager works it out when it looks at the node."""
        name = node.metadata.name
        ratio = normalization.current(node.metadata.annotations) or 1.0
        pods = self.pods.get(name, ())
        return offer(node, pods, self.metrics.get(name), self.strategy(node), self.now_s, None, ratio)

    def held(self, node: str) -> CPUMemory:
        """What of its batch resources pods hold that have not ended."""
        return allocated(pod for pod in self.pods.get(node, ()) if pod.status.phase not in _ENDED)


def by_node(pods: Iterable[DetailedPod]) -> Mapping[str, Sequence[DetailedPod]]:
    found: dict[str, list[DetailedPod]] = defaultdict(list)
    for pod in pods:
        found[pod.spec.node_name].append(pod)
    return found


async def read(client: Client, namespace: str = NAMESPACE_OF_KOORD) -> ClusterState:
    """``namespace``: Koord's own. Raises KubeError."""
    config = await _list(client, CONFIG_MAP, Selection(namespace, fields=f"metadata.name={CONFIG_MAP_NAME}"))
    profiles = _profiles(await _list(client, CLUSTER_COLOCATION_PROFILE))
    namespaces = await _list(client, NAMESPACE)
    return ClusterState(
        nodes={each.metadata.name: each for each in await _list(client, NODE)},
        pods=by_node(await _list(client, DETAILED_POD)),
        metrics={each.metadata.name: each for each in await _list(client, NODE_METRIC)},
        slos={each.metadata.name: each.content.get("spec") or {} for each in await _list(client, NODE_SLO)},
        policy=load(texts(config[0].content.get("data")) if config else None),
        admission=AdmissionContext(
            profiles=profiles,
            namespaces={each.metadata.name: each.metadata.labels for each in namespaces},
            own_namespace=namespace,
        ),
        now_s=time.time(),
    )


async def _list(client: Client, kind: Kind[T], selection: Selection = EVERYTHING) -> list[T]:
    """Those that can be read: one that cannot hides no other."""
    try:
        page = await client.list(kind, selection)
    except APIError as error:
        if error.is_not_found:
            return []
        raise
    return [entry.object for entry in page.entries if entry.object is not None]


def _profiles(items: Iterable[Unstructured]) -> tuple[ClusterColocationProfile, ...]:
    found = []
    for item in items:
        try:
            found.append(read_profile(item.content))
        except SchemaError:
            continue  # koordctl lint says what is wrong with it; it matches no pod
    return tuple(found)
