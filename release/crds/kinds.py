"""The kinds that Koord owns, and how far the API server goes beyond their structs.

Of NodeSLO it takes what upstream's schema takes. Upstream has bounds for some of the numbers, choices for none of the
words, and its node agent and webhook, like ours, refuse more than that. ``_NODE_SLO_BOUNDS`` are the numbers where our
structs do as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from koord.kube.kind import (
    CLUSTER_COLOCATION_PROFILE,
    ELASTIC_QUOTA,
    ELASTIC_QUOTA_PROFILE,
    NODE_METRIC,
    NODE_SLO,
    Kind,
)
from koord.kube.schedulingkinds import POD_GROUP
from koord.model import schema
from koord.model.elasticquota import ElasticQuota
from koord.model.nodemetric import NodeMetric
from koord.model.profile import ClusterColocationProfile
from koord.model.quotaprofile import ElasticQuotaProfile
from koord.model.scheduling.koordinator import PodGroup
from koord.model.slo import NodeSLO
from koord.sloconfig.nodeslo import NETWORK_DEFAULTS
from qosd.policy import slofields
from qosd.policy.slofields import STRATEGY, SYSTEM, THRESHOLDS
from release.crds.schemas import Bounds, Schemas

_ANY, _NATURAL, _INT32 = Bounds(), Bounds(low=0), Bounds(is_int32=True)
_USAGE = "status.nodeMetric.nodeUsage.resources"
_CLASS, _BURST = f"spec.{STRATEGY}.*", f"spec.{slofields.BURST}"
_IO = f"{_CLASS}.blkioQOS.blocks[].ioCfg"

_NODE_SLO_BOUNDS: Mapping[str, Bounds] = MappingProxyType(
    {
        f"spec.{THRESHOLDS}.cpuEvictBESatisfactionLowerPercent": _ANY,
        f"spec.{THRESHOLDS}.cpuEvictBESatisfactionUpperPercent": _ANY,
        f"spec.{THRESHOLDS}.cpuEvictBEUsageThresholdPercent": _ANY,
        f"spec.{THRESHOLDS}.cpuEvictTimeWindowSeconds": _ANY,
        f"spec.{THRESHOLDS}.allocatableEvictPriorityThreshold": _INT32,
        f"{_CLASS}.cpuQOS.groupIdentity": _ANY,
        f"{_CLASS}.cpuQOS.schedIdle": _ANY,
        **{f"{_CLASS}.memoryQOS.{name}Percent": _NATURAL for name in ("minLimit", "lowLimit", "throttling")},
        **{f"{_CLASS}.memoryQOS.{name}": _ANY for name in ("priorityEnable", "priority", "oomKillGroup")},
        f"{_CLASS}.memoryQOS.pageCacheLimitSize": _ANY,
        f"{_IO}.readLatency": _ANY,
        f"{_IO}.writeLatency": _ANY,
        f"{_BURST}.cpuBurstPercent": Bounds(0, 10000),
        f"{_BURST}.cfsQuotaBurstPercent": _ANY,
        f"{_BURST}.cfsQuotaBurstPeriodSeconds": _ANY,
        f"{_BURST}.sharePoolThresholdPercent": _ANY,
        f"spec.{SYSTEM}.minFreeKbytesFactor": _ANY,
        f"spec.{SYSTEM}.watermarkScaleFactor": _ANY,
        f"spec.{SYSTEM}.memcgReapBackGround": _ANY,
        f"spec.{SYSTEM}.schedGroupIdentityEnabled": _ANY,
        f"spec.{SYSTEM}.schedIdleSaverWmark": _ANY,
        f"spec.{SYSTEM}.pageCacheLimitEnabled": _ANY,
    }
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``. ``path``: where an object has the value (``spec.qosClass``)."""

    name: str
    path: str
    type: str = "string"
    is_wide: bool = False
    """Whether only ``-o wide`` shows it."""


_POD_GROUP_COUNTS = (
    *(("spec", "minMember"), ("spec", "scheduleTimeoutSeconds")),
    *[("status", name) for name in ("scheduled", "running", "succeeded", "failed")],
)
_AGE = Column("Age", "metadata.creationTimestamp", "date")


@dataclass(frozen=True, slots=True)
class OwnedKind:
    """``struct`` reads the objects of ``kind``; ``singular`` and ``short_names`` are what kubectl takes for it.

    ``columns``: of ``kubectl get``, besides the name.
    """

    kind: Kind[Any]
    singular: str
    struct: type[msgspec.Struct]
    schemas: Schemas
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    has_status_subresource: bool = True
    approval: str = ""
    """Where Kubernetes has approved of a kind in a group of its own."""


KINDS: tuple[OwnedKind, ...] = (
    OwnedKind(
        NODE_METRIC,
        "nodemetric",
        NodeMetric,
        Schemas(),
        columns=(
            Column("CPU", f"{_USAGE}.cpu"),
            Column("Memory", f"{_USAGE}.memory"),
            Column("Updated", "status.updateTime", "date"),
            _AGE,
        ),
    ),
    OwnedKind(
        NODE_SLO,
        "nodeslo",
        NodeSLO,
        Schemas(
            bounds=_NODE_SLO_BOUNDS,
            sentences={
                **{f"spec.{field}": meaning for field, meaning in slofields.MEANINGS.items()},
                "spec.extensions": "Settings of further components by their names, or all of those under `Object`.",
            },
            defaults={
                f"{_CLASS}.networkQOS.{schema.json_name(name)}": share.percent
                for name, share in NETWORK_DEFAULTS.items()
                if share.percent is not None
            },
            open_choices=True,
        ),
        columns=(
            Column("Suppress", f"spec.{THRESHOLDS}.enable", "boolean"),
            Column("Policy", f"spec.{THRESHOLDS}.cpuSuppressPolicy"),
            Column("CPU-Threshold", f"spec.{THRESHOLDS}.cpuSuppressThresholdPercent", "integer"),
            Column("Memory-Evict", f"spec.{THRESHOLDS}.memoryEvictThresholdPercent", "integer", is_wide=True),
            Column("CPU-Burst", f"spec.{slofields.BURST}.policy", is_wide=True),
            _AGE,
        ),
    ),
    OwnedKind(
        POD_GROUP,
        "podgroup",
        PodGroup,
        Schemas(bounds={f"{part}.{name}": _INT32 for part, name in _POD_GROUP_COUNTS}),
        columns=(
            Column("Phase", "status.phase"),
            Column("Min-Member", "spec.minMember", "integer"),
            Column("Scheduled", "status.scheduled", "integer"),
            Column("Running", "status.running", "integer"),
            Column("Succeeded", "status.succeeded", "integer", is_wide=True),
            Column("Failed", "status.failed", "integer", is_wide=True),
            _AGE,
        ),
        short_names=("pg", "pgs"),
        approval="https://github.com/kubernetes-sigs/scheduler-plugins/pull/50",
    ),
    OwnedKind(
        CLUSTER_COLOCATION_PROFILE,
        "clustercolocationprofile",
        ClusterColocationProfile,
        Schemas(),
        columns=(
            Column("QoS", "spec.qosClass"),
            Column("Priority-Class", "spec.priorityClassName"),
            Column("Scheduler", "spec.schedulerName"),
            Column("Probability", "spec.probability", is_wide=True),
            _AGE,
        ),
    ),
    OwnedKind(
        ELASTIC_QUOTA,
        "elasticquota",
        ElasticQuota,
        Schemas(),
        columns=(
            Column("Min-CPU", "spec.min.cpu"),
            Column("Max-CPU", "spec.max.cpu"),
            Column("Used-CPU", "status.used.cpu"),
            Column("Max-Memory", "spec.max.memory", is_wide=True),
            Column("Used-Memory", "status.used.memory", is_wide=True),
            _AGE,
        ),
        has_status_subresource=False,
        approval="https://github.com/kubernetes-sigs/scheduler-plugins/pull/52",
    ),
    OwnedKind(
        ELASTIC_QUOTA_PROFILE,
        "elasticquotaprofile",
        ElasticQuotaProfile,
        Schemas(),
        columns=(
            Column("Quota", "spec.quotaName"),
            Column("Ratio", "spec.resourceRatio"),
            _AGE,
        ),
        short_names=("eqp",),
        has_status_subresource=False,
    ),
)
