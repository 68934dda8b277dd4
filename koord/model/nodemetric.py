"""NodeMetric: what a node's agent reports of its use, and how it is asked to. Upstream's kind, field by field.

``koord-qosd`` writes the status, ``koord-manager`` the policy; schedulers and deschedulers read it. Amounts are the
text that they were: CPU in CPUs ("1500m"), memory in bytes. Words of a fixed choice stay words, so that one of another
release costs nothing here; the API server knows the choice.

Invariants: what is absent stays absent when it is encoded, so an object read and written back says no more than before;
a member without a default here is one that the API requires, and is always written.
Fails as ``koord.model.core`` does: with ValueError, which says where the document is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from koord.model.core import Amount, Amounts, ObjectMeta
from koord.model.qos_settings import Int32

GROUP = "slo.koordinator.sh"
AGGREGATIONS = ("avg", "p50", "p90", "p95", "p99")


class MemoryCollectPolicy(StrEnum):
    """What counts as a node's use of memory beside what processes hold."""

    HOT_PAGE_CACHE = "usageWithHotPageCache"
    NO_PAGE_CACHE = "usageWithoutPageCache"
    PAGE_CACHE = "usageWithPageCache"


Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""As RFC 3339 has it; ``core.unix_s`` reads it."""

PolicyName = Annotated[str, Meta(extra_json_schema={"enum": [policy.value for policy in MemoryCollectPolicy]})]
Health = Annotated[bool, Meta(extra_json_schema={"default": False})]


class _Slim(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """As in ``koord.model.core``, and encoded without what is at its default."""


# what there is of a resource


class DeviceTopology(_Slim, frozen=True):
    socket_id: Int32 = msgspec.field(name="socketID")
    node_id: Int32 = msgspec.field(name="nodeID")
    """The NUMA node; -1 if the device is at none."""
    pcie_id: str = msgspec.field(name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class VirtualFunction(_Slim, frozen=True):
    minor: Int32
    bus_id: str = msgspec.field(default="", name="busID")


class VirtualFunctionGroup(_Slim, frozen=True):
    labels: Mapping[str, str] = {}
    vfs: tuple[VirtualFunction, ...] = ()


class DeviceCondition(_Slim, frozen=True):
    """``type`` holds, does not, or that is not known: ``status`` is "True", "False" or "Unknown"."""

    type: str
    status: str
    last_transition_time: Time
    reason: str
    message: str
    observed_generation: int | None = None


class DeviceInfo(_Slim, frozen=True):
    """A GPU, an FPGA or an RDMA card."""

    health: Health
    type: str = ""
    """"gpu", "fpga", "rdma" or another."""
    labels: Mapping[str, str] = {}
    id: str = ""
    """Its UUID, or its address on its bus."""
    minor: Int32 | None = None
    module_id: Int32 | None = msgspec.field(default=None, name="moduleID")
    resources: Amounts = {}
    topology: DeviceTopology | None = None
    vf_groups: tuple[VirtualFunctionGroup, ...] = ()
    conditions: tuple[DeviceCondition, ...] = ()


class ResourceMap(_Slim, frozen=True):
    """Amounts of a node's own resources, and of its devices one by one."""

    resources: Amounts = {}
    devices: tuple[DeviceInfo, ...] = ()


# how to report


class AggregatePolicy(_Slim, frozen=True):
    durations: tuple[str, ...] = ()
    """The windows to aggregate over, as Go writes durations: "5m0s"."""


class CollectPolicy(_Slim, frozen=True):
    """How a node measures and reports. What is absent is as the agent has it by default."""

    aggregate_duration_seconds: int | None = None
    """The window that use is averaged over."""
    report_interval_seconds: int | None = None
    """How long from one report to the next."""
    node_aggregate_policy: AggregatePolicy | None = None
    node_memory_collect_policy: PolicyName = ""
    """What counts as memory in use."""


# what is reported


class AggregatedUsage(_Slim, frozen=True):
    """``usage`` by one of ``AGGREGATIONS`` over ``duration``; empty until there are enough samples."""

    duration: str = ""
    """The window, as Go writes durations: "5m0s"."""
    usage: Mapping[str, ResourceMap] = {}
    """By "avg", "p50", "p90", "p95" or "p99"."""


class NUMAUsage(_Slim, frozen=True):
    """The use of one NUMA node."""

    numa_node_id: Int32 = msgspec.field(name="numaNodeID")
    node_usage: ResourceMap = ResourceMap()
    system_usage: ResourceMap = ResourceMap()


class NodeUsage(_Slim, frozen=True):
    """The use of the node as a whole."""

    node_usage: ResourceMap = ResourceMap()
    system_usage: ResourceMap = ResourceMap()
    """Of the node, less pods and host applications."""
    aggregated_node_usages: tuple[AggregatedUsage, ...] = ()
    aggregated_system_usages: tuple[AggregatedUsage, ...] = ()
    numa_usages: tuple[NUMAUsage, ...] = ()


class PodUsage(_Slim, frozen=True):
    """The use of one pod."""

    name: str = ""
    namespace: str = ""
    pod_usage: ResourceMap = ResourceMap()
    priority: str = ""
    """The name of the priority class; "" if the pod has none."""
    qos: str = ""
    extensions: Mapping[str, Any] = {}


class HostApplicationUsage(_Slim, frozen=True):
    """The use of a process group of the host that is no pod."""

    name: str = ""
    usage: ResourceMap = ResourceMap()
    priority: str = ""
    qos: str = ""


class ReclaimableMetric(_Slim, frozen=True):
    resource: ResourceMap = ResourceMap()


class NodeMetricSpec(_Slim, frozen=True):
    metric_collect_policy: CollectPolicy | None = None


class NodeMetricStatus(_Slim, frozen=True):
    update_time: Time | None = None
    """When the status was written, by the node's clock."""
    node_metric: NodeUsage | None = None
    pods_metric: tuple[PodUsage, ...] = ()
    host_application_metric: tuple[HostApplicationUsage, ...] = ()
    prod_reclaimable_metric: ReclaimableMetric | None = None
    """What pods of the prod band requested and are not going to use."""
    prod_peak_metric: ReclaimableMetric | None = None
    """The most that they are going to use, with what the system uses and a margin for safety."""


class NodeMetric(_Slim, frozen=True):
    """What a node uses, as its agent measured it. One per node, named like it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()


def amount(usage: ResourceMap | None, resource: str) -> Amount | None:
    """Returns the amount of ``resource`` in ``usage``; None if there is none."""
    return None if usage is None else usage.resources.get(resource)
