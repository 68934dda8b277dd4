"""NodeResourceTopology (v1alpha1): what each NUMA node of a node has. A kind that Koord uses and does not own.

The node's agent creates the object and keeps its zones, one per NUMA node; the manager adds what they offer to batch
pods. Further facts of the node's CPUs stand in annotations, which ``koord.model.annotations`` knows. Amounts are the
text that they were.

Invariants: what is absent stays absent when it is encoded; a member without a default is one that the API requires, and
so are the object's two lists, which are always written. Fails as ``koord.model.core`` does, with ValueError.
"""

from __future__ import annotations

import re

import msgspec

from koord.model.core import Amount, ObjectMeta

GROUP = "topology.node.k8s.io"
NUMA_ZONE = "Node"
"""The type of a zone that is a NUMA node."""

_ZONE_NAME = re.compile(r"node-(0|[1-9][0-9]{0,8})")


class _Slim(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """As in ``koord.model.core``, and encoded without what is at its default."""


class Cost(_Slim, frozen=True):
    """How far it is to the zone ``name``."""

    name: str
    value: int


class AttributeInfo(_Slim, frozen=True):
    name: str
    value: str


class ZoneResource(_Slim, frozen=True):
    """What a zone has of one resource: in all, for pods, and for pods that are yet to come."""

    name: str
    capacity: Amount
    allocatable: Amount
    available: Amount


class Zone(_Slim, frozen=True):
    name: str
    type: str
    parent: str = ""
    costs: tuple[Cost, ...] = ()
    attributes: tuple[AttributeInfo, ...] = ()
    resources: tuple[ZoneResource, ...] = ()
    """In the order of their names."""

    @property
    def numa_node(self) -> int | None:
        """The number of the NUMA node that the zone is; None if it is none."""
        match = _ZONE_NAME.fullmatch(self.name)
        return int(match.group(1)) if match is not None and self.type == NUMA_ZONE else None

    def resource(self, name: str) -> ZoneResource | None:
        return next((resource for resource in self.resources if resource.name == name), None)


class NodeResourceTopology(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One per node, named like it; of the cluster, not of a namespace. It has neither spec nor status."""

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: tuple[str, ...] = ()
    """Kubelet's policy and scope in one word: "None", "SingleNUMANodePodLevel"…"""
    zones: tuple[Zone, ...] = ()


def zone_name(numa_node: int) -> str:
    """The name of the zone that is NUMA node ``numa_node``."""
    return f"node-{numa_node}"
