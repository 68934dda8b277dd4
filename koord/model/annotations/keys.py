"""The label and annotation keys of pods that a node reads. They are Koordinator's API and never change."""

from __future__ import annotations

from koord.model.priority import LABEL_PRIORITY_CLASS
from koord.model.qos import LABEL_QOS

QOS_CLASS = LABEL_QOS
PRIORITY_CLASS = LABEL_PRIORITY_CLASS
PRIORITY = "koordinator.sh/priority"
EVICTION_ENABLED = "koordinator.sh/eviction-enabled"
CORE_SCHED_GROUP_ID = "koordinator.sh/core-sched-group-id"
CORE_SCHED_POLICY = "koordinator.sh/core-sched-policy"
GPU_ISOLATION_PROVIDER = "koordinator.sh/gpu-isolation-provider"

EVICTION_POLICY = "koordinator.sh/eviction-policy"
EVICTION_PRIORITY = "koordinator.sh/eviction-priority"
CPU_BURST = "koordinator.sh/cpuBurst"
MEMORY_QOS = "koordinator.sh/memoryQOS"
CPU_QOS = "koordinator.sh/cpuQOS"
BLKIO_QOS = "koordinator.sh/blkioQOS"
NETWORK_QOS = "koordinator.sh/networkQOS"
OOM_SCORE_ADJ = "koordinator.sh/oom-score-adj"
OOM_SCORE_ADJ_SPEC = "koordinator.sh/oom-score-adj-spec"
RESCTRL = "node.koordinator.sh/resctrl"
EXTENDED_RESOURCE_SPEC = "node.koordinator.sh/extended-resource-spec"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"
