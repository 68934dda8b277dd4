"""What the annotations hold once decoded: frozen structs, exact quantities, CPU sets instead of text.

Each struct is also the JSON form: ``koord.model.schema.encode`` writes what ``read`` reads back equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from koord.model import quantity
from koord.model.cpuset import EMPTY, CPUSet
from koord.model.priority import BATCH_CPU, CPU, MID_CPU, RENAMED
from koord.model.problem import Problem
from koord.model.qos_settings import MemoryQOS, Percent
from koord.model.quantity import Bytes, MilliCPU, Quantity
from koord.model.schema import child, json_name

Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
OOMScoreAdj = Annotated[int, Meta(ge=-1000, le=1000)]

_CPU_NAMES = {CPU, BATCH_CPU, MID_CPU}


class MemoryPolicy(StrEnum):
    DEFAULT = "default"
    """The node's class settings, then the pod's own fields."""
    NONE = "none"
    """Neutral values."""
    AUTO = "auto"
    """The built-in class settings, then the pod's own fields."""


class PodMemoryQOS(MemoryQOS, frozen=True, kw_only=True, rename=json_name):
    policy: MemoryPolicy | None = None


class PodNetworkQOS(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """Limits in bits per second; None = not limited."""

    ingress_limit: Quantity | None = None
    egress_limit: Quantity | None = None


class CoreSchedPolicy(StrEnum):
    NONE = "none"
    EXCLUSIVE = "exclusive"


class Schemata(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """A share of one resource: cache ways from..to, or bandwidth, in percent."""

    percent: Percent | None = None
    range: tuple[Percent, ...] | None = None


class CacheSchemata(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """The same for one cache id (L3 domain)."""

    cache_id: Index
    percent: Percent | None = None
    range: tuple[Percent, ...] | None = None


class ResctrlResource(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """The value for all caches, and those that differ."""

    schemata: Schemata | None = None
    schemata_per_cache: tuple[CacheSchemata, ...] = ()


class PodResctrl(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    llc: ResctrlResource | None = None
    mb: ResctrlResource | None = None


class ContainerResources(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """Requests and limits of one container by resource name, as exact quantities."""

    limits: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    requests: Mapping[str, Quantity] = msgspec.field(default_factory=dict)

    def request_milli(self, resource: str) -> MilliCPU | None:
        """CPU requested under ``resource`` (batch-cpu, mid-cpu or cpu) in thousandths; None = not requested."""
        return milli(self.requests, resource)

    def limit_milli(self, resource: str) -> MilliCPU | None:
        return milli(self.limits, resource)

    def request_bytes(self, resource: str) -> Bytes | None:
        """Memory requested under ``resource`` (batch-memory, mid-memory or memory); None = not requested."""
        return in_bytes(self.requests, resource)

    def limit_bytes(self, resource: str) -> Bytes | None:
        return in_bytes(self.limits, resource)


class ExtendedResourceSpec(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """Batch and mid resources by container name: what kubelet does not tell the runtime.

    ``init_containers``: sidecars among them; Koordinator does not write them.
    """

    containers: Mapping[str, ContainerResources] = msgspec.field(default_factory=dict)
    init_containers: Mapping[str, ContainerResources] = msgspec.field(default_factory=dict)


class NUMANodeResource(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    node: Index
    resources: Mapping[str, Quantity] = msgspec.field(default_factory=dict)

    @property
    def has_cpu(self) -> bool:
        """Whether CPU of any kind (native, batch, mid) was given on this NUMA node."""
        return any((milli(self.resources, name) or 0) > 0 for name in _CPU_NAMES)


class ResourceStatus(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """What the scheduler gave the pod: CPUs of its own, and amounts by NUMA node."""

    cpuset: CPUSet = EMPTY
    numa_node_resources: tuple[NUMANodeResource, ...] = ()


class AllocatedVirtualFunction(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    minor: Index = 0
    bus_id: str = ""


class DeviceExtension(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    vfs: tuple[AllocatedVirtualFunction, ...] = ()
    gpu_shared_resource_template: str = ""


class DeviceAllocation(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """One device, or a share of one."""

    minor: Index = 0
    id: str = ""
    """GPU UUID, or PCI address."""
    resources: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    extension: DeviceExtension = DeviceExtension()


def milli(resources: Mapping[str, Quantity], name: str) -> MilliCPU | None:
    """The amount of CPU resource ``name`` in thousandths of a CPU; old names count as their new ones."""
    amount = _amount(resources, name)
    if amount is None:
        return None
    return quantity.cpu_milli(amount) if name == CPU else quantity.extended_cpu_milli(amount)


def in_bytes(resources: Mapping[str, Quantity], name: str) -> Bytes | None:
    """The amount of memory resource ``name``; old names count as their new ones."""
    amount = _amount(resources, name)
    return None if amount is None else quantity.memory_bytes(amount)


def problem_of(path: str, name: str, amount: Quantity) -> Problem | None:
    """Returns the problem of ``amount`` of resource ``name`` at ``path``; None when there is none."""
    measured = amount.milli_value() if RENAMED.get(name, name) == CPU else amount.value()
    if 0 <= measured <= quantity.MAX_INT64:
        return None
    why = "is negative" if measured < 0 else "does not fit 64 bits"
    return Problem(child(path, name), f"{str(amount)!r} {why}")


def _amount(resources: Mapping[str, Quantity], name: str) -> Quantity | None:
    found = resources.get(name)
    if found is not None:
        return found
    return next((amount for old, amount in resources.items() if RENAMED.get(old) == name), None)
