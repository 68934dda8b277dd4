"""What pods and nodes say of CPUs of a pod's own and of NUMA nodes: Koordinator's annotations and labels of scheduling.

A pod says what it would like in ``resource-spec`` and ``numa-topology-spec``; a node says by labels what it makes of
every pod. What the scheduler gives is in ``resource-status``, which `koord.model.annotations` knows: nodes read it.
Member names are upstream's; a word that is none of the choices is an error of that member alone.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from koord.model.schema import json_name

RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
NUMA_TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"

LABEL_CPU_BIND_POLICY = "node.koordinator.sh/cpu-bind-policy"
LABEL_NUMA_ALLOCATE_STRATEGY = "node.koordinator.sh/numa-allocate-strategy"
LABEL_NUMA_TOPOLOGY_POLICY = "node.koordinator.sh/numa-topology-policy"
AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio"
"""Of a Node: by resource, how many of it pods see for one that there is."""


class CPUBindPolicy(StrEnum):
    """How a pod's CPUs lie on cores. ``ConstrainedBurst`` binds none."""

    DEFAULT = "Default"
    FULL_PCPUS = "FullPCPUs"
    """Whole cores, few of them."""
    SPREAD_BY_PCPUS = "SpreadByPCPUs"
    """One CPU of each core."""
    CONSTRAINED_BURST = "ConstrainedBurst"


class CPUExclusivePolicy(StrEnum):
    """What a pod shares with no other pod of the same policy, if that can be had."""

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    """Cores."""
    NUMA_NODE_LEVEL = "NUMANodeLevel"
    """NUMA nodes."""


class NUMAAllocateStrategy(StrEnum):
    """Which NUMA node comes first of those with enough."""

    MOST_ALLOCATED = "MostAllocated"
    """The one with the least left."""
    LEAST_ALLOCATED = "LeastAllocated"
    """The one with the most left."""
    DISTRIBUTE_EVENLY = "DistributeEvenly"
    """As ``LEAST_ALLOCATED``."""


class NodeCPUBindPolicy(StrEnum):
    """A node's own: other than ``NONE`` it binds every pod that requests CPU, by this policy."""

    NONE = "None"
    FULL_PCPUS_ONLY = "FullPCPUsOnly"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


class NUMATopologyPolicy(StrEnum):
    """On how many NUMA nodes a pod may be."""

    NONE = ""
    """On any, and nobody counts what it uses of which."""
    BEST_EFFORT = "BestEffort"
    """On as few as there are enough on, else on all."""
    RESTRICTED = "Restricted"
    """On NUMA nodes that all that it requests comes from."""
    SINGLE_NUMA_NODE = "SingleNUMANode"


class NUMAExclusive(StrEnum):
    """Whether pods on one NUMA node and pods across several keep apart."""

    PREFERRED = "Preferred"
    REQUIRED = "Required"


class _Document(msgspec.Struct, frozen=True, omit_defaults=True, rename=json_name):
    pass


class ResourceSpec(_Document, frozen=True):
    """None: not said."""

    required_cpu_bind_policy: CPUBindPolicy | None = msgspec.field(default=None, name="requiredCPUBindPolicy")
    preferred_cpu_bind_policy: CPUBindPolicy | None = msgspec.field(default=None, name="preferredCPUBindPolicy")
    preferred_cpu_exclusive_policy: CPUExclusivePolicy | None = msgspec.field(
        default=None, name="preferredCPUExclusivePolicy"
    )


class NUMATopologySpec(_Document, frozen=True):
    """``single_numa_node_exclusive`` None: ``Required`` if the pod says a policy of its own."""

    numa_topology_policy: NUMATopologyPolicy = msgspec.field(default=NUMATopologyPolicy.NONE, name="numaTopologyPolicy")
    single_numa_node_exclusive: NUMAExclusive | None = msgspec.field(default=None, name="singleNUMANodeExclusive")
