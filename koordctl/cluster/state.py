"""The state of a cluster at the time of a command: all that a node's offer and a pod's fate depend on.

Where one node alone matters, no other is read: a cluster has tens of thousands of pods. The lists are read one after
the other, so a pod that is bound meanwhile may be in one and not yet in another.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from koord.kube.client import EVERYTHING, Client, Selection
from koord.kube.kind import CONFIG_MAP, NODE, NODE_METRIC, NODE_SLO
from koord.model.core import Node
from koord.model.nodemetric import NodeMetric
from koord.model.problem import Problem
from koord.overcommit import ratios
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.demand import allocated
from koord.overcommit.offer import Overcommit, offer
from koord.overcommit.strategy import ColocationStrategy
from koord.sloconfig.loading import CONFIG_MAP_NAME, LoadedConfig, load, texts
from koordctl.cluster.connection import read_list
from koordctl.cluster.objects import DETAILED_POD, DetailedPod


@dataclass(frozen=True, slots=True)
class ClusterState:
    """``pods``: by node, "" for those that have none. ``slos``: the specs of NodeSLO objects by node.

    ``namespace``: Koord's own. ``policy``: what its slo-controller-config says.
    """

    namespace: str
    nodes: Mapping[str, Node] = field(default_factory=dict)
    pods: Mapping[str, Sequence[DetailedPod]] = field(default_factory=dict)
    metrics: Mapping[str, NodeMetric] = field(default_factory=dict)
    slos: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy: LoadedConfig = field(default_factory=lambda: load(None))
    now_s: float = 0.0

    @property
    def absence_of_policy(self) -> str:
        """A sentence if there is no slo-controller-config; else ""."""
        return f"there is no {CONFIG_MAP_NAME} in {self.namespace}" if self.policy.is_absent else ""

    def strategy(self, node: Node) -> ColocationStrategy:
        return self.policy.config.strategy(node.metadata.labels, node.metadata.annotations)[0]

    def problems(self, node: Node) -> Iterable[Problem]:
        """Returns what in the node's own annotation and labels about its strategy cannot be read."""
        return self.policy.config.strategy(node.metadata.labels, node.metadata.annotations)[1]

    def offer(self, node: Node) -> Overcommit:
        """Works out the offer by the formula, now, as koord-manager does when it looks at the node."""
        name = node.metadata.name
        ratio = ratios.current_normalization(node.metadata.annotations) or 1.0
        pods = self.pods.get(name, ())
        return offer(node, pods, self.metrics.get(name), self.strategy(node), self.now_s, None, ratio)

    def held(self, node: str) -> CPUMemory:
        """Returns the batch resources of the node that pods hold that have not ended."""
        return allocated(self.pods.get(node, ()))


def by_node(pods: Iterable[DetailedPod]) -> Mapping[str, Sequence[DetailedPod]]:
    found: dict[str, list[DetailedPod]] = defaultdict(list)
    for pod in pods:
        found[pod.spec.node_name].append(pod)
    return found


async def read(client: Client, namespace: str, node: str = "") -> ClusterState:
    """Reads the cluster, or only ``node`` and its pods. ``namespace``: Koord's own. Raises KubeError."""
    named = Selection(fields=f"metadata.name={node}") if node else EVERYTHING
    bound = Selection(fields=f"spec.nodeName={node}") if node else EVERYTHING
    config = await read_list(client, CONFIG_MAP, Selection(namespace, fields=f"metadata.name={CONFIG_MAP_NAME}"))
    return ClusterState(
        namespace,
        nodes={each.metadata.name: each for each in await read_list(client, NODE, named)},
        pods=by_node(await read_list(client, DETAILED_POD, bound)),
        metrics={each.metadata.name: each for each in await read_list(client, NODE_METRIC, named)},
        slos={each.metadata.name: each.content.get("spec") or {} for each in await read_list(client, NODE_SLO, named)},
        policy=load(texts(config[0].content.get("data")) if config else None),
        now_s=time.time(),
    )
