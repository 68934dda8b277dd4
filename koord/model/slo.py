"""NodeSLO, the cluster's policy for one node: its fields, and how a received object becomes the policy in force.

``decode`` reads the object (or a rules file of the same shape); ``slo_defaults.in_force`` lays it over the defaults and
replaces each disabled ``cpuQOS``, ``memoryQOS`` and ``resctrlQOS`` of the pod classes by neutral values, so that
switching a feature off writes neutral values instead of leaving the last ones behind.

Invariant: None in a decoded spec means "not set"; in the policy in force it means "write nothing".
Fails with SchemaError naming path and value; a caller keeps its last good policy. Who passes ``bad`` is told of each
bad leaf, which counts as not set, and gets the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from koord.model import leaves, qos, schema, slo_extensions
from koord.model.leaves import Leaf
from koord.model.problem import Bad
from koord.model.qos import QoSClass
from koord.model.qos_settings import (
    CPUQOS,
    BlkIOQOS,
    CPUBurstConfig,
    Flag,
    Int32,
    MemoryQOS,
    Natural,
    NetworkQOS,
    Percent,
    Positive,
    ResctrlQOS,
)
from koord.model.quantity import Quantity
from koord.model.schema import json_name
from koord.model.slo_extensions import KOORD, KoordExtension

WatermarkScaleFactor = Annotated[int, Meta(ge=10, le=400)]
CPUBurstPercent = Annotated[int, Meta(ge=1, le=10000)]
CFSQuotaBurstPercent = Annotated[int, Meta(ge=100)]
CFSQuotaBurstPeriod = Annotated[int, Meta(ge=-1)]
AllocatablePriority = Annotated[int, Meta(ge=-(2**31), le=7999)]
SatisfactionLower = Annotated[int, Meta(ge=1, le=60)]
SatisfactionUpper = Annotated[int, Meta(ge=1, le=99)]


class CPUSuppressPolicy(StrEnum):
    CPUSET = "cpuset"
    CFS_QUOTA = "cfsQuota"


class CPUEvictPolicy(StrEnum):
    BY_REAL_LIMIT = "evictByRealLimit"
    BY_ALLOCATABLE = "evictByAllocatable"


class CPUPolicy(StrEnum):
    GROUP_IDENTITY = "groupIdentity"
    CORE_SCHED = "coreSched"


class NetQOSPolicy(StrEnum):
    TC = "tc"
    TERWAY = "terway-qos"


class CgroupBase(StrEnum):
    CGROUP_ROOT = "CgroupRoot"
    KUBEPODS = "Kubepods"
    KUBEPODS_BURSTABLE = "KubepodsBurstable"
    KUBEPODS_BESTEFFORT = "KubepodsBesteffort"


class ResourceThresholds(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """``resourceUsedThresholdWithBE``: when BE is suppressed and when pods are evicted. Percentages of capacity."""

    enable: bool | None = None
    cpu_suppress_threshold_percent: Percent | None = None
    cpu_suppress_min_percent: Percent | None = None
    cpu_suppress_policy: CPUSuppressPolicy | None = None
    memory_evict_threshold_percent: Percent | None = None
    memory_evict_lower_percent: Percent | None = None
    memory_allocatable_evict_threshold_percent: Natural | None = None
    memory_allocatable_evict_lower_percent: Natural | None = None
    cpu_evict_be_satisfaction_lower_percent: SatisfactionLower | None = None
    cpu_evict_be_satisfaction_upper_percent: SatisfactionUpper | None = None
    cpu_evict_be_usage_threshold_percent: Percent | None = None
    cpu_evict_time_window_seconds: Positive | None = None
    cpu_evict_threshold_percent: Percent | None = None
    cpu_evict_lower_percent: Percent | None = None
    cpu_allocatable_evict_threshold_percent: Natural | None = None
    cpu_allocatable_evict_lower_percent: Natural | None = None
    cpu_evict_policy: CPUEvictPolicy | None = None
    evict_enabled_priority_threshold: Int32 | None = None
    allocatable_evict_priority_threshold: AllocatablePriority | None = None


class Policies(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    cpu_policy: CPUPolicy | None = None
    net_qos_policy: NetQOSPolicy | None = None


class ResourceQOS(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """All settings of one class (of the cgroup root: ``blkioQOS`` only)."""

    cpu_qos: CPUQOS | None = None
    memory_qos: MemoryQOS | None = None
    blkio_qos: BlkIOQOS | None = None
    resctrl_qos: ResctrlQOS | None = None
    network_qos: NetworkQOS | None = None


class ResourceQOSStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    policies: Policies | None = None
    lsr_class: ResourceQOS | None = None
    ls_class: ResourceQOS | None = None
    be_class: ResourceQOS | None = None
    system_class: ResourceQOS | None = None
    cgroup_root: ResourceQOS | None = None

    def of(self, cls: QoSClass) -> ResourceQOS | None:
        """The settings of ``cls``; LSE takes those of ``lsrClass``."""
        if cls in (QoSClass.LSE, QoSClass.LSR):
            return self.lsr_class
        return {QoSClass.LS: self.ls_class, QoSClass.BE: self.be_class}.get(cls, self.system_class)


class CPUBurstStrategy(CPUBurstConfig, frozen=True, kw_only=True, rename=json_name):
    cpu_burst_percent: CPUBurstPercent | None = None
    cfs_quota_burst_percent: CFSQuotaBurstPercent | None = None
    cfs_quota_burst_period_seconds: CFSQuotaBurstPeriod | None = None
    share_pool_threshold_percent: Percent | None = None


class SystemStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """Kernel parameters of the node. The kernel's own ranges are checked where they are written."""

    min_free_kbytes_factor: Positive | None = None
    watermark_scale_factor: WatermarkScaleFactor | None = None
    memcg_reap_back_ground: Flag | None = None
    sched_group_identity_enabled: Flag | None = None
    sched_idle_saver_wmark: Natural | None = None
    page_cache_limit_enabled: Flag | None = None
    sched_features: Mapping[str, bool] | None = None
    total_network_bandwidth: Quantity | None = None
    """Bits per second."""


class CgroupPath(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    base: CgroupBase | None = None
    parent_dir: str = ""
    relative_path: str = ""


class HostApplication(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """A process group of the host that takes part in QoS without being a pod."""

    name: str = ""
    priority: str = ""
    qos: str = ""
    cgroup_path: CgroupPath | None = None
    strategy: Mapping[str, Any] | None = None

    @property
    def qos_class(self) -> QoSClass | None:
        return qos.parse(self.qos)


class NodeSLOSpec(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    thresholds: ResourceThresholds | None = msgspec.field(default=None, name="resourceUsedThresholdWithBE")
    resource_qos: ResourceQOSStrategy | None = msgspec.field(default=None, name="resourceQOSStrategy")
    cpu_burst: CPUBurstStrategy | None = msgspec.field(default=None, name="cpuBurstStrategy")
    system: SystemStrategy | None = msgspec.field(default=None, name="systemStrategy")
    host_applications: tuple[HostApplication, ...] | None = None
    extensions: Mapping[str, Any] | None = None
    """By key: a struct where ``slo_extensions`` has one, else as it came."""

    @property
    def koord(self) -> KoordExtension:
        """Koord's own settings."""
        found = (self.extensions or {}).get(KOORD)
        return found if isinstance(found, KoordExtension) else KoordExtension()


def every_leaf() -> Iterator[Leaf]:
    """Yields every field that the specification may have, with those of the extensions that are read here."""
    yield from (leaf for leaf in leaves.of_type(NodeSLOSpec) if leaf.path != "extensions")
    for key, struct in slo_extensions.EXTENSIONS.items():
        yield from leaves.of_type(struct, f"extensions.{key}")


class NodeSLO(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """The cluster's policy for one node. There is one per node, named like it."""

    spec: NodeSLOSpec = NodeSLOSpec()


def decode(document: str | bytes | Mapping[str, Any], unknown: schema.Unknown | None = None) -> NodeSLO:
    """Reads the NodeSLO in JSON text or in a document already parsed (from YAML, for instance).

    ``unknown`` is told the path of each key under ``spec`` that NodeSLO does not have; such a key is no error.
    """
    parsed = schema.parse_json(document) if isinstance(document, str | bytes) else document
    if not isinstance(parsed, Mapping):
        raise schema.SchemaError("NodeSLO", parsed, "is not an object")
    spec = parsed.get("spec")
    return NodeSLO(spec=decode_spec({} if spec is None else spec, unknown=unknown))


def decode_spec(
    document: object, path: str = "spec", unknown: schema.Unknown | None = None, bad: Bad | None = None
) -> NodeSLOSpec:
    """Reads what stands under ``spec``; ``path`` is its name in messages. ``slo_rules.checked`` compares fields."""
    spec = schema.read(NodeSLOSpec, document, path, unknown, bad)
    if spec.extensions is None:
        return spec
    extensions = slo_extensions.read(spec.extensions, f"{path}.extensions", unknown, bad)
    return msgspec.structs.replace(spec, extensions=extensions)
