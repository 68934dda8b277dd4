"""What a pod wants of CPUs and NUMA nodes, and what it says that it has: read of its annotations, class and requests.

Wishes are the pod's own. What it has is what a scheduler has written on a pod that is on a node, and counts no further
than the pod's requests go, since whoever may edit the pod may write it, too.
Source: Koordinator, pkg/scheduler/plugins/nodenumaresource: plugin.go, util.go.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from koord.model import priority, qos, schema
from koord.model.annotations.pod import KEYS
from koord.model.annotations.values import ResourceStatus
from koord.model.cpuset import CPUSet
from koord.model.priority import CPU, PriorityClass
from koord.model.qos import QoSClass
from koord.model.scheduling.numa import (
    NUMA_TOPOLOGY_SPEC,
    RESOURCE_SPEC,
    CPUBindPolicy,
    CPUExclusivePolicy,
    NUMAExclusive,
    NUMATopologyPolicy,
    NUMATopologySpec,
    ResourceSpec,
)
from koord.model.schema import SchemaError
from koord.scheduling.podinfo import PodInfo

RESOURCE_STATUS = KEYS["resource_status"].name
MILLI = 1000
_BINDING = (CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS)
_KEPT = 1024
S = TypeVar("S", bound=msgspec.Struct)
Amounts = tuple[tuple[str, int], ...]
"""By resource, in the units of `koord.scheduling.amounts`."""


class Request(NamedTuple):
    """``binds``: the pod wants CPUs of its own, wherever it is. ``required``: the policy that has to hold, if any;
    ``policy``: that or the preferred one. ``keeps_apart``: pods on one NUMA node and across several must not mix.
    """

    amounts: Amounts
    binds: bool
    required: CPUBindPolicy | None
    policy: CPUBindPolicy
    exclusive: CPUExclusivePolicy
    topology_policy: NUMATopologyPolicy
    keeps_apart: bool

    @property
    def cpu_milli(self) -> int:
        return next((amount for name, amount in self.amounts if name == CPU), 0)


class Allocation(NamedTuple):
    """What a pod has on its node. ``cpus``: a bit for each. ``numa_nodes``: amounts, by the number of the NUMA node."""

    cpus: int = 0
    numa_nodes: tuple[tuple[int, Amounts], ...] = ()
    exclusive: CPUExclusivePolicy = CPUExclusivePolicy.NONE


def request_of(pod: PodInfo, default: CPUBindPolicy) -> Request | str | None:
    """Returns what the pod wants, or why that cannot be read or had anywhere; None: nothing, since it requests nothing.

    ``default``: the policy of pods that say none.
    """
    if not pod.requests:
        return None
    annotations = pod.pod.metadata.annotations
    spec = _read(ResourceSpec, RESOURCE_SPEC, annotations.get(RESOURCE_SPEC, ""))
    numa = _read(NUMATopologySpec, NUMA_TOPOLOGY_SPEC, annotations.get(NUMA_TOPOLOGY_SPEC, ""))
    if isinstance(spec, str) or isinstance(numa, str):
        return spec if isinstance(spec, str) else str(numa)
    required = default if spec.required_cpu_bind_policy is CPUBindPolicy.DEFAULT else spec.required_cpu_bind_policy
    policy = required or spec.preferred_cpu_bind_policy or CPUBindPolicy.DEFAULT
    policy = default if policy is CPUBindPolicy.DEFAULT else policy
    binds = policy in _BINDING and _has_cpus_of_its_own(pod)
    keeps_apart = numa.single_numa_node_exclusive is NUMAExclusive.REQUIRED or (
        numa.single_numa_node_exclusive is None and numa.numa_topology_policy is not NUMATopologyPolicy.NONE
    )
    exclusive = spec.preferred_cpu_exclusive_policy or CPUExclusivePolicy.NONE
    return Request(
        tuple(sorted(pod.requests.items())),
        binds,
        required if binds else None,
        policy if policy in _BINDING else CPUBindPolicy.FULL_PCPUS,
        exclusive if binds else CPUExclusivePolicy.NONE,
        numa.numa_topology_policy,
        keeps_apart,
    )


def allocation_of(pod: PodInfo) -> Allocation | None:
    """Returns what the pod's annotation says that it has, as far as it requests it; None: nothing.

    Of too many CPUs the lowest count, as many as the pod requests: those that its node gives it, too.
    """
    annotations = pod.pod.metadata.annotations
    text = annotations.get(RESOURCE_STATUS)
    status = None if text is None else KEYS["resource_status"].decoded(text)[0]
    if not isinstance(status, ResourceStatus):
        return None
    cpus = CPUSet.of(islice(status.cpuset, -(-pod.requests.get(CPU, 0) // MILLI)))
    numa_nodes = _capped(status, dict(pod.requests))
    spec = _read(ResourceSpec, RESOURCE_SPEC, annotations.get(RESOURCE_SPEC, ""))
    exclusive = CPUExclusivePolicy.NONE
    if not isinstance(spec, str) and spec.preferred_cpu_exclusive_policy and cpus and _has_cpus_of_its_own(pod):
        exclusive = spec.preferred_cpu_exclusive_policy
    return Allocation(cpus.mask, numa_nodes, exclusive) if cpus or numa_nodes else None


def spec_of(pod: PodInfo) -> ResourceSpec:
    """Returns the pod's ``resource-spec``; one that says nothing, where it cannot be read."""
    spec = _read(ResourceSpec, RESOURCE_SPEC, pod.pod.metadata.annotations.get(RESOURCE_SPEC, ""))
    return ResourceSpec() if isinstance(spec, str) else spec


def _capped(status: ResourceStatus, left: dict[str, int]) -> tuple[tuple[int, Amounts], ...]:
    """Returns the amounts by NUMA node. ``left``: the pod's requests, which are used up."""
    found: dict[int, dict[str, int]] = {}
    for each in status.numa_node_resources:
        for name, amount in each.resources.items():
            counted = min(left.get(name, 0), amount.milli_value() if name == CPU else amount.value())
            if counted:
                left[name] -= counted
                amounts = found.setdefault(each.node, {})
                amounts[name] = amounts.get(name, 0) + counted
    return tuple([(number, tuple(sorted(amounts.items()))) for number, amounts in sorted(found.items())])


def _has_cpus_of_its_own(pod: PodInfo) -> bool:
    """Returns whether the pod is of a class that has CPUs of its own, and requests CPU. That these are whole ones is
    not asked here.
    """
    labelled = qos.labelled(pod.labels)
    return (
        labelled in (QoSClass.LSE, QoSClass.LSR)
        and pod.requests.get(CPU, 0) > 0
        and priority.effective(pod.labels, pod.spec.priority, labelled) is PriorityClass.PROD
    )


@lru_cache(_KEPT)
def _read(kind: type[S], key: str, text: str) -> S | str:
    """Returns the document, or why it cannot be read."""
    try:
        document = schema.parse_json(text) if text else None
        return kind() if document is None else schema.read(kind, document)
    except SchemaError as error:
        return f"annotation {key} cannot be read: {error}"
