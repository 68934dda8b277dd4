"""The settings of one QoS concern each (CPU, memory, block I/O, resctrl, network, burst), with their JSON names.

NodeSLO holds them per class and pod annotations hold them per pod, in the same form. None means "not set": it is
filled from the level below (class defaults) and, where nothing sets it, means "do not write". Bounds are the API's.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from koord.model.percent import PercentOrQuantity
from koord.model.schema import json_name

Percent = Annotated[int, Meta(ge=0, le=100)]
Flag = Annotated[int, Meta(ge=0, le=1)]
Natural = Annotated[int, Meta(ge=0)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Positive = Annotated[int, Meta(ge=1)]
GroupIdentity = Annotated[int, Meta(ge=-1, le=2)]
WmarkScalePermill = Annotated[int, Meta(ge=1, le=1000)]
WmarkMinAdj = Annotated[int, Meta(ge=-25, le=50)]
OOMPriority = Annotated[int, Meta(ge=0, le=12)]
IOWeightPercent = Annotated[int, Meta(ge=1, le=100)]


class CPUQOS(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """Group identity (``cpu.bvt_warp_ns``), idle scheduling and SMT expelling."""

    enable: bool | None = None
    group_identity: GroupIdentity | None = None
    sched_idle: Flag | None = None
    core_expeller: bool | None = None


class MemoryQOS(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """Memory protection, throttling, background reclaim, OOM order and page cache limit."""

    enable: bool | None = None
    min_limit_percent: Percent | None = None
    low_limit_percent: Percent | None = None
    throttling_percent: Percent | None = None
    wmark_ratio: Percent | None = None
    wmark_scale_permill: WmarkScalePermill | None = None
    wmark_min_adj: WmarkMinAdj | None = None
    priority_enable: Flag | None = None
    priority: OOMPriority | None = None
    oom_kill_group: Flag | None = None
    page_cache_enable: bool | None = None
    page_cache_limit_percent: Percent | None = None
    page_cache_limit_size: Natural | None = None
    """Bytes."""
    page_cache_reclaim_sync: bool | None = None


class BlockType(StrEnum):
    DEVICE = "device"
    VOLUME_GROUP = "volumegroup"
    POD_VOLUME = "podvolume"


class IOCfg(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """Limits (0 = none), weight and iocost model of one block device; bytes and operations per second, latency us."""

    read_iops: Natural | None = None
    write_iops: Natural | None = None
    read_bps: Natural | None = None
    write_bps: Natural | None = None
    io_weight_percent: IOWeightPercent | None = None
    read_latency_us: Natural | None = msgspec.field(default=None, name="readLatency")
    write_latency_us: Natural | None = msgspec.field(default=None, name="writeLatency")
    read_latency_percent: Percent | None = None
    write_latency_percent: Percent | None = None
    enable_user_model: bool | None = None
    model_read_bps: Positive | None = None
    model_write_bps: Positive | None = None
    model_read_seq_iops: Positive | None = None
    model_write_seq_iops: Positive | None = None
    model_read_rand_iops: Positive | None = None
    model_write_rand_iops: Positive | None = None


class Block(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """One device by ``/dev`` name, volume group or pod volume."""

    name: str = ""
    type: BlockType = BlockType.DEVICE
    io_cfg: IOCfg = IOCfg()


class BlkIOQOS(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    enable: bool | None = None
    blocks: tuple[Block, ...] | None = None


class ResctrlQOS(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """A class's share of the last-level cache ways and of memory bandwidth."""

    enable: bool | None = None
    cat_range_start_percent: Percent | None = None
    cat_range_end_percent: Percent | None = None
    mba_percent: Percent | None = None


class NetworkQOS(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    enable: bool | None = None
    ingress_request: PercentOrQuantity | None = None
    ingress_limit: PercentOrQuantity | None = None
    egress_request: PercentOrQuantity | None = None
    egress_limit: PercentOrQuantity | None = None


class CPUBurstPolicy(StrEnum):
    NONE = "none"
    CPU_BURST_ONLY = "cpuBurstOnly"
    CFS_QUOTA_BURST_ONLY = "cfsQuotaBurstOnly"
    AUTO = "auto"


class CPUBurstConfig(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """What a pod may override of the node's burst strategy. No number is out of bounds: it says how little it wants."""

    policy: CPUBurstPolicy | None = None
    cpu_burst_percent: int | None = None
    """0 or less = no buffer."""
    cfs_quota_burst_percent: int | None = None
    """100 or less = the quota does not grow."""
    cfs_quota_burst_period_seconds: int | None = None
    """Below 0 = bursts of any length."""
