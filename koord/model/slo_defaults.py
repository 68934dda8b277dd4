"""The built-in NodeSLO, the neutral values, and the policy in force.

The numbers are Koordinator's: what applies when the cluster says nothing, and what a disabled feature is set to so
that its last values do not stay behind. ``systemClass``, ``blkioQOS`` and ``networkQOS`` are never neutralised.
"""

from __future__ import annotations

import msgspec

from koord.model import quantity, schema, slo_extensions
from koord.model.percent import PercentOrQuantity
from koord.model.qos_settings import CPUQOS, BlkIOQOS, CPUBurstPolicy, MemoryQOS, NetworkQOS, ResctrlQOS
from koord.model.slo import (
    CPUBurstStrategy,
    CPUEvictPolicy,
    CPUPolicy,
    CPUSuppressPolicy,
    NetQOSPolicy,
    NodeSLOSpec,
    Policies,
    ResourceQOS,
    ResourceQOSStrategy,
    ResourceThresholds,
    SystemStrategy,
)
from koord.model.slo_extensions import KOORD, CPUSuppressBy, CPUSuppressSettings, KoordExtension


def neutral_cpu() -> CPUQOS:
    """The "None" values of ``cpuQOS``."""
    return CPUQOS(enable=False, group_identity=0, sched_idle=0, core_expeller=False)


def neutral_memory() -> MemoryQOS:
    """The "None" values of ``memoryQOS``; page cache limits stay unset."""
    return MemoryQOS(
        enable=False,
        min_limit_percent=0,
        low_limit_percent=0,
        throttling_percent=0,
        wmark_ratio=0,
        wmark_scale_permill=50,
        wmark_min_adj=0,
        priority_enable=0,
        priority=0,
        oom_kill_group=0,
    )


def neutral_resctrl() -> ResctrlQOS:
    """The "None" values of ``resctrlQOS``: all ways, all bandwidth."""
    return ResctrlQOS(enable=False, cat_range_start_percent=0, cat_range_end_percent=100, mba_percent=100)


def defaults() -> NodeSLOSpec:
    """Returns what applies when the cluster says nothing: every feature off, with the values it starts from when
    enabled.
    """
    return NodeSLOSpec(
        thresholds=ResourceThresholds(
            enable=False,
            cpu_suppress_threshold_percent=65,
            cpu_suppress_policy=CPUSuppressPolicy.CPUSET,
            memory_evict_threshold_percent=70,
            cpu_evict_policy=CPUEvictPolicy.BY_REAL_LIMIT,
        ),
        resource_qos=ResourceQOSStrategy(
            policies=Policies(cpu_policy=CPUPolicy.GROUP_IDENTITY, net_qos_policy=NetQOSPolicy.TC),
            lsr_class=_class(identity=2, expeller=True, wmark=(95, 20, -25), cat_end=100),
            ls_class=_class(identity=2, expeller=True, wmark=(95, 20, -25), cat_end=100),
            be_class=_class(identity=-1, expeller=False, wmark=(95, 20, 50), cat_end=30),
            system_class=_class(identity=0, expeller=False, wmark=(0, 50, 0), cat_end=100),
            cgroup_root=ResourceQOS(blkio_qos=BlkIOQOS(enable=False, blocks=())),
        ),
        cpu_burst=CPUBurstStrategy(
            policy=CPUBurstPolicy.NONE,
            cpu_burst_percent=1000,
            cfs_quota_burst_percent=300,
            cfs_quota_burst_period_seconds=-1,
            share_pool_threshold_percent=50,
        ),
        system=SystemStrategy(total_network_bandwidth=quantity.of(0)),
        host_applications=(),
        extensions={
            KOORD: KoordExtension(
                cpu_suppress=CPUSuppressSettings(
                    policy=CPUSuppressBy.SLO, set_point_milliseconds=20, ceiling_percent=95
                )
            )
        },
    )


def overlaid(base: NodeSLOSpec, over: NodeSLOSpec) -> NodeSLOSpec:
    """``base`` with each field that ``over`` sets; lists and maps are replaced, of the extensions those with a struct
    field by field."""
    extensions = slo_extensions.merged(base.extensions, over.extensions) or None
    return msgspec.structs.replace(schema.overlay(base, over), extensions=extensions)


def in_force(spec: NodeSLOSpec) -> NodeSLOSpec:
    """Returns ``spec`` over the defaults, with the disabled features of the pod classes set to neutral values."""
    merged = overlaid(defaults(), spec)
    strategy = merged.resource_qos
    if strategy is None:
        return merged
    replaced = msgspec.structs.replace(
        strategy,
        lsr_class=_neutralised(strategy.lsr_class),
        ls_class=_neutralised(strategy.ls_class),
        be_class=_neutralised(strategy.be_class),
    )
    return msgspec.structs.replace(merged, resource_qos=replaced)


def _neutralised(settings: ResourceQOS | None) -> ResourceQOS:
    kept = settings or ResourceQOS()
    return msgspec.structs.replace(
        kept,
        cpu_qos=kept.cpu_qos if kept.cpu_qos and kept.cpu_qos.enable else neutral_cpu(),
        memory_qos=kept.memory_qos if kept.memory_qos and kept.memory_qos.enable else neutral_memory(),
        resctrl_qos=kept.resctrl_qos if kept.resctrl_qos and kept.resctrl_qos.enable else neutral_resctrl(),
    )


def _class(identity: int, expeller: bool, wmark: tuple[int, int, int], cat_end: int) -> ResourceQOS:
    """One column of the table of class defaults. ``wmark`` is ratio percent, scale permill, min adjustment."""
    ratio, scale, adjustment = wmark
    nothing = PercentOrQuantity(percent=0)
    return ResourceQOS(
        cpu_qos=CPUQOS(enable=False, group_identity=identity, sched_idle=0, core_expeller=expeller),
        memory_qos=msgspec.structs.replace(
            neutral_memory(), wmark_ratio=ratio, wmark_scale_permill=scale, wmark_min_adj=adjustment
        ),
        blkio_qos=BlkIOQOS(enable=False, blocks=()),
        resctrl_qos=msgspec.structs.replace(neutral_resctrl(), cat_range_end_percent=cat_end),
        network_qos=NetworkQOS(
            enable=False,
            ingress_request=nothing,
            ingress_limit=nothing,
            egress_request=nothing,
            egress_limit=nothing,
        ),
    )
