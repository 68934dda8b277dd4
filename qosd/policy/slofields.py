"""The meaning of every field of NodeSLO, and its effect on a node.

A field that is set and has no effect is the worst kind of setting. So ``EFFECTS`` names the hooks and strategies that
act by each field and what they need (``Use``), or says why none does (``Gap``). The warnings of the policy
(``sloeffects``) and ``docs/node-slo.md`` are made of these tables, descriptions of the CRD of ``MEANINGS``. The structs
have the bounds and ``slo_defaults`` the defaults. Invariant: every field of the structs is in both tables, and both
hold no other.

``*`` in a path is any QoS class, ``[]`` any item of a list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

THRESHOLDS, STRATEGY, SYSTEM = "resourceUsedThresholdWithBE", "resourceQOSStrategy", "systemStrategy"
BURST, APPLICATION = "cpuBurstStrategy", "hostApplications[]"
KOORD_SUPPRESS = "extensions.koord.cpuSuppress"
CLASSES = ("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot")
_CLASS = f"{STRATEGY}.*"
_BLOCKS = f"{_CLASS}.blkioQOS.blocks[]"
_OF_CLASS = re.compile(rf"{STRATEGY}\.(?:{'|'.join(CLASSES)})(?=\.)")
_ITEM = re.compile(r"\[\d+\]")
T = TypeVar("T")


class GapStatus(StrEnum):
    NOT_YET = "not yet"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a field has no effect; ``why`` completes "it has no effect: "."""

    status: GapStatus
    why: str


@dataclass(frozen=True, slots=True)
class Use:
    """One hook or strategy that acts by a field.

    ``by`` is its name. Without one, all strategies behind ``gate`` act. ``files`` are rows of the table of kernel
    files; one that the node has is enough. The rest looks at other fields of the same object: ``when`` has the values
    with which it acts, ``fields`` must be set, and ``unless``, if set, takes the field's place. ``by_group``: it needs
    the class's resctrl group. ``needs``: what else it takes, for people.
    """

    by: str = ""
    gate: str = ""
    files: tuple[str, ...] = ()
    when: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    unless: str = ""
    by_group: bool = False
    needs: tuple[str, ...] = ()


Effect = tuple[Use, ...] | Gap
"""The hooks and strategies that act, or why none does."""


def _by_path(objects: Mapping[str, Mapping[str, T]]) -> Mapping[str, T]:
    """Returns by path what ``objects`` say of their fields; the field "" is the object itself."""
    rows = ((parent, name, row) for parent, fields in objects.items() for name, row in fields.items())
    return MappingProxyType({f"{parent}.{name}" if name else parent: row for parent, name, row in rows})


_ON = "Switches what follows of the class."
_FIELDS: Mapping[str, Mapping[str, str]] = {
    THRESHOLDS: {
        "enable": "Switches CPU suppression of best-effort pods, and every eviction below.",
        "cpuSuppressThresholdPercent": "Share of the node's CPU up to which best-effort pods may fill it.",
        "cpuSuppressMinPercent": (
            "Share of the node's CPU that best-effort pods keep however much others use; less than the threshold."
        ),
        "cpuSuppressPolicy": (
            "What bounds best-effort pods: their CPU set, or the CFS quota of kubelet's BestEffort tier."
        ),
        "memoryEvictThresholdPercent": "Share of the node's memory in use from which pods are evicted.",
        "memoryEvictLowerPercent": "Share to which memory in use is brought down; unset: the threshold less 2.",
        "memoryAllocatableEvictThresholdPercent": (
            "Share of allocatable memory that requests may come to before pods are evicted."
        ),
        "memoryAllocatableEvictLowerPercent": "Share to which these requests are brought down.",
        "cpuEvictBESatisfactionLowerPercent": (
            "Share of their CPU requests at which best-effort pods get too little, and some are evicted."
        ),
        "cpuEvictBESatisfactionUpperPercent": "Share that the remaining pods then get; not below the lower one.",
        "cpuEvictBEUsageThresholdPercent": (
            "Share of the CPU that they can get which they must use, else nothing lacks; unset: 90."
        ),
        "cpuEvictTimeWindowSeconds": (
            "Time over which CPU is averaged before a pod is evicted for it, 1800 at most; unset: that of one sample."
        ),
        "cpuEvictThresholdPercent": "Share of the node's CPU in use from which pods are evicted.",
        "cpuEvictLowerPercent": "Share to which CPU in use is brought down; unset: the threshold less 2.",
        "cpuAllocatableEvictThresholdPercent": (
            "Share of allocatable CPU that requests may come to before pods are evicted."
        ),
        "cpuAllocatableEvictLowerPercent": "Share to which these requests are brought down.",
        "cpuEvictPolicy": (
            "What best-effort pods can get: what the kernel lets them have, or what the node has of batch-cpu."
        ),
        "evictEnabledPriorityThreshold": "Highest priority of pods that are evicted by usage.",
        "allocatableEvictPriorityThreshold": "Highest priority of pods that are evicted by requests.",
    },
    f"{STRATEGY}.policies": {
        "cpuPolicy": "What `cpuQOS` of the classes sets: group identity, or core scheduling.",
        "netQOSPolicy": "What shares out the network's bandwidth.",
    },
    f"{_CLASS}.cpuQOS": {
        "enable": _ON,
        "groupIdentity": "Rank in the vendor kernel's scheduler: 2 is served first, -1 last.",
        "schedIdle": "1: pods of the class run when nothing else wants the CPU.",
        "coreExpeller": "Whether pods of the class keep others off the sibling threads of their cores.",
    },
    f"{_CLASS}.memoryQOS": {
        "enable": _ON,
        "minLimitPercent": "Share of the memory request that is never reclaimed.",
        "lowLimitPercent": "Share of it that is reclaimed only if there is nothing else.",
        "throttlingPercent": "Share of the way from request to limit at which allocations are throttled; 0: never.",
        "wmarkRatio": "Share of the limit from which memory is reclaimed in the background; 0: never.",
        "wmarkScalePermill": "How far below that share reclaim goes, in thousandths of the limit.",
        "wmarkMinAdj": "By how much later (below 0) or earlier the class is hit when the whole node reclaims.",
        "priorityEnable": "1: an OOM kill goes by `priority`.",
        "priority": "Rank in an OOM kill: 0 is killed first.",
        "oomKillGroup": "1: an OOM kill takes the whole cgroup.",
        "pageCacheEnable": "Whether page cache is limited; unset: if it has a size.",
        "pageCacheLimitPercent": "Share of the memory limit that page cache may take.",
        "pageCacheLimitSize": "Bytes that page cache may take, instead of the share.",
        "pageCacheReclaimSync": "Whether a pod above the limit reclaims by itself, instead of the background.",
    },
    f"{_CLASS}.blkioQOS": {
        "enable": _ON,
    },
    _BLOCKS: {
        "name": "Device (`/dev/vdb`), volume group, or volume of the pod.",
        "type": "Which of the three `name` names.",
    },
    f"{_BLOCKS}.ioCfg": {
        "readIOPS": "Reads per second; 0: no limit.",
        "writeIOPS": "Writes per second; 0: no limit.",
        "readBPS": "Bytes read per second; 0: no limit.",
        "writeBPS": "Bytes written per second; 0: no limit.",
        "ioWeightPercent": "Weight against others; unset: 100.",
        "readLatency": "Latency in µs that reads shall have; unset: 3000.",
        "writeLatency": "Latency in µs that writes shall have; unset: 3000.",
        "readLatencyPercent": "Percentile of reads at which that counts; unset: 95.",
        "writeLatencyPercent": "Percentile of writes at which that counts; unset: 95.",
        "enableUserModel": "Whether the device is as said below, not as the kernel learns.",
        "modelReadBPS": "Bytes per second that it can read.",
        "modelWriteBPS": "Bytes per second that it can write.",
        "modelReadSeqIOPS": "Sequential reads per second that it can do.",
        "modelWriteSeqIOPS": "Sequential writes per second that it can do.",
        "modelReadRandIOPS": "Random reads per second that it can do.",
        "modelWriteRandIOPS": "Random writes per second that it can do.",
    },
    f"{_CLASS}.resctrlQOS": {
        "enable": "Whether pods of the class belong to its resctrl group.",
        "catRangeStartPercent": "Where the cache ways of the class begin; below their end.",
        "catRangeEndPercent": "Where they end.",
        "mbaPercent": "Share of the memory bandwidth that the class may take.",
    },
    f"{_CLASS}.networkQOS": {
        "enable": _ON,
        "ingressRequest": "Incoming bandwidth that the class has in any case.",
        "ingressLimit": "Incoming bandwidth that it has at most; 0: no limit.",
        "egressRequest": "Outgoing bandwidth that the class has in any case.",
        "egressLimit": "Outgoing bandwidth that it has at most; 0: no limit.",
    },
    BURST: {
        "policy": "Which bursts latency-sensitive containers get: quota saved up, quota raised, both or none.",
        "cpuBurstPercent": (
            "Unused quota that a container may save up, as a share of its limit; a stock kernel takes at most 100."
        ),
        "cfsQuotaBurstPercent": "How far the quota of a throttled container is raised, as a share of its limit.",
        "cfsQuotaBurstPeriodSeconds": "Time for which a container may use the whole of that; -1: any time.",
        "sharePoolThresholdPercent": "Share of the shared CPUs in use from which raised quotas are taken back.",
    },
    SYSTEM: {
        "minFreeKbytesFactor": "Memory that the kernel keeps free, in ten-thousandths of the node's.",
        "watermarkScaleFactor": (
            "Distance of the kernel's memory watermarks, in ten-thousandths of the node's memory."
        ),
        "memcgReapBackGround": "1: what is left of removed cgroups is reclaimed in the background.",
        "schedGroupIdentityEnabled": "Whether the kernel's scheduler heeds group identity.",
        "schedIdleSaverWmark": "Idle time of a CPU, in ns, that the vendor kernel's scheduler spares.",
        "pageCacheLimitEnabled": "Whether the kernel limits page cache at all.",
        "schedFeatures": "Features of the kernel's scheduler by name, to be on (true) or off (false).",
        "totalNetworkBandwidth": "Bandwidth of the node in bits/s, the whole of all percentages; 0: not known.",
    },
    APPLICATION: {
        "name": "What it is measured and shown as; each has one of its own.",
        "priority": "Its priority class, in metrics.",
        "qos": "Its QoS class: LS ones get the LS pool's CPUs, and each the group identity of its class.",
        "strategy": "Free for settings of this application.",
    },
    f"{APPLICATION}.cgroupPath": {
        "base": "Where its cgroup is: below the root, or below one of kubelet's.",
        "parentDir": "The directory there that its cgroup is in.",
        "relativePath": (
            "The cgroup itself. Without `cgroupPath`: `host-latency-sensitive/NAME`, of BE `host-best-effort/NAME`."
        ),
    },
    KOORD_SUPPRESS: {
        "policy": (
            "What suppression goes by: `cpuSuppressPolicy` above (`slo`), or what latency-sensitive containers suffer."
        ),
        "setPointMilliseconds": (
            "How long of each second a latency-sensitive container may wait for best-effort work."
        ),
        "ceilingPercent": "Of the node's CPU, what may be used where the CPU time of best-effort pods is limited.",
    },
}
MEANINGS = _by_path(_FIELDS)
"""By the path of each field. ``extensions.koord`` has a row for each field of its struct; other extensions none."""

SWITCHES: Mapping[str, tuple[str, object]] = MappingProxyType(
    {
        THRESHOLDS: ("enable", False),
        **{f"{_CLASS}.{concern}QOS": ("enable", False) for concern in ("cpu", "memory", "blkio", "resctrl", "network")},
        BURST: ("policy", "none"),
    }
)
"""The field that switches an object on, with its value that is off; by the object's path."""

# The uses. One without a gate goes by the policy and by the node alone.
_LISTED = ("the runtime's CRI socket", "priorities from kubelet's pod list")
_AMOUNTS = (*_LISTED, "`node.allocatable` in the rules file, or the Node's own in a cluster")
_GRANTED = ("the unit's [grant](operations.md#what-the-unit-allows)",)
_SUPPRESS = Use("cpuSuppress", gate="BECPUSuppress")
_BY_PRESSURE = (replace(_SUPPRESS, when={"policy": ("pressure",)}),)
_SATISFACTION = "cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"
_BY_USAGE, _BY_REQUESTS = "evictEnabledPriorityThreshold", "allocatableEvictPriorityThreshold"
_CPU_AMOUNTS = "cpuAllocatableEvictThresholdPercent", "cpuAllocatableEvictLowerPercent", _BY_REQUESTS
_MEMORY_AMOUNTS = "memoryAllocatableEvictThresholdPercent", "memoryAllocatableEvictLowerPercent", _BY_REQUESTS
_BE_CPU = Use(gate="BECPUEvict", fields=_SATISFACTION, needs=_LISTED)
_CPU = Use(gate="CPUEvict", fields=("cpuEvictThresholdPercent", _BY_USAGE), needs=_LISTED)
_CPU_REQUESTS = Use(gate="CPUAllocatableEvict", fields=_CPU_AMOUNTS, needs=_AMOUNTS)
_BE_MEMORY = Use(gate="BEMemoryEvict", needs=_LISTED)
_MEMORY = Use(gate="MemoryEvict", fields=(_BY_USAGE,), needs=_LISTED)
_MEMORY_REQUESTS = Use(gate="MemoryAllocatableEvict", fields=_MEMORY_AMOUNTS, needs=_AMOUNTS)
_EVICTIONS = (_BE_CPU, _CPU, _CPU_REQUESTS, _BE_MEMORY, _MEMORY, _MEMORY_REQUESTS)
_IDENTITY = Use("groupIdentity", gate="GroupIdentity", files=("cpu.bvt_warp_ns",))
_IDLE = Use("cpuIdle", files=("cpu.idle",))
_KERNEL_BURST = Use(gate="CPUBurst", files=("cpu.max.burst",), when={"policy": ("cpuBurstOnly", "auto")})
_QUOTA_BURST = Use(gate="CPUBurst", when={"policy": ("cfsQuotaBurstOnly", "auto")})
_GROUP = Use("resctrl", gate="RdtResctrl", by_group=True)
_PAGE_CACHE = "memory.pagecache_limit.size"
_RECLAIM, _SOFT_LIMIT = "memory.reclaim", "memory.soft_limit_in_bytes"
"""The substitute for vendors' watermarks and limits of page cache; that for ``memory.low`` on cgroup v1."""
_MEMORY_FILES = (
    "memory.min", "memory.low", "memory.high", "memory.oom.group", "memory.priority", "memory.use_priority_oom",
    "memory.wmark_ratio", "memory.wmark_scale_factor", "memory.wmark_min_adj", _PAGE_CACHE, _RECLAIM, _SOFT_LIMIT,
)  # fmt: skip


def _memory(*files: str, unless: str = "") -> tuple[Use, ...]:
    return (Use("memory", gate="CgroupReconcile", files=files, unless=unless),)


def _sysctl(file: str) -> tuple[Use, ...]:
    return (Use(gate="SystemConfig", files=(file,), needs=_GRANTED),)


_BANDWIDTH = Gap(GapStatus.NOT_YET, "network bandwidth is not shared out yet")
_TERWAY = Gap(GapStatus.NEVER, "nothing is written for Terway, whose own agent would share out the bandwidth")
_CORE_SCHED = Gap(GapStatus.NOT_YET, "core scheduling is not there yet")
_SCHEMATA = Gap(GapStatus.NOT_YET, "resctrl groups keep the schemata that they were made with; none are written yet")
_NO_STRATEGY = Gap(GapStatus.NEVER, "nobody has settings of a single host application, upstream's node agent neither")

EFFECTS: Mapping[str, Effect] = _by_path(
    {
        THRESHOLDS: {
            "enable": (_SUPPRESS, *_EVICTIONS),
            "cpuSuppressThresholdPercent": (_SUPPRESS,),
            "cpuSuppressMinPercent": (_SUPPRESS,),
            "cpuSuppressPolicy": (_SUPPRESS,),
            "memoryEvictThresholdPercent": (_BE_MEMORY, _MEMORY),
            "memoryEvictLowerPercent": (_BE_MEMORY, _MEMORY),
            "memoryAllocatableEvictThresholdPercent": (_MEMORY_REQUESTS,),
            "memoryAllocatableEvictLowerPercent": (_MEMORY_REQUESTS,),
            "cpuEvictBESatisfactionLowerPercent": (_BE_CPU,),
            "cpuEvictBESatisfactionUpperPercent": (_BE_CPU,),
            "cpuEvictBEUsageThresholdPercent": (_BE_CPU,),
            "cpuEvictTimeWindowSeconds": (_BE_CPU, _CPU),
            "cpuEvictThresholdPercent": (_CPU,),
            "cpuEvictLowerPercent": (_CPU,),
            "cpuAllocatableEvictThresholdPercent": (_CPU_REQUESTS,),
            "cpuAllocatableEvictLowerPercent": (_CPU_REQUESTS,),
            "cpuEvictPolicy": (_BE_CPU,),
            _BY_USAGE: (_CPU, _MEMORY),
            _BY_REQUESTS: (_CPU_REQUESTS, _MEMORY_REQUESTS),
        },
        f"{STRATEGY}.policies": {"cpuPolicy": (_IDENTITY,), "netQOSPolicy": _BANDWIDTH},
        f"{_CLASS}.cpuQOS": {"": (_IDENTITY,), "schedIdle": (_IDLE,), "coreExpeller": _CORE_SCHED},
        f"{_CLASS}.memoryQOS": {
            "enable": _memory(*_MEMORY_FILES),
            "minLimitPercent": _memory("memory.min"),
            "lowLimitPercent": _memory("memory.low", _SOFT_LIMIT),
            "throttlingPercent": _memory("memory.high"),
            "wmarkRatio": _memory("memory.wmark_ratio", _RECLAIM),
            "wmarkScalePermill": _memory("memory.wmark_scale_factor", _RECLAIM),
            "wmarkMinAdj": _memory("memory.wmark_min_adj"),
            "priorityEnable": _memory("memory.use_priority_oom"),
            "priority": _memory("memory.priority"),
            "oomKillGroup": _memory("memory.oom.group"),
            "pageCacheEnable": _memory("memory.pagecache_limit.enable", _RECLAIM),
            "pageCacheLimitPercent": _memory(_PAGE_CACHE, _RECLAIM, unless="pageCacheLimitSize"),
            "pageCacheLimitSize": _memory(_PAGE_CACHE, _RECLAIM),
            "pageCacheReclaimSync": _memory("memory.pagecache_limit.sync"),
        },
        f"{_CLASS}.blkioQOS": {"": Gap(GapStatus.NOT_YET, "limits and weights of block I/O are not set yet")},
        f"{_CLASS}.resctrlQOS": {"": _SCHEMATA, "enable": (_GROUP,)},
        f"{_CLASS}.networkQOS": {"": _BANDWIDTH},
        BURST: {"": (_QUOTA_BURST,), "policy": (_KERNEL_BURST, _QUOTA_BURST), "cpuBurstPercent": (_KERNEL_BURST,)},
        SYSTEM: {
            "minFreeKbytesFactor": _sysctl("vm.min_free_kbytes"),
            "watermarkScaleFactor": _sysctl("vm.watermark_scale_factor"),
            "memcgReapBackGround": _sysctl("memcg_reaper.reap_background"),
            "schedGroupIdentityEnabled": _sysctl("kernel.sched_group_identity_enabled"),
            "schedIdleSaverWmark": _sysctl("kernel.sched_idle_saver_wmark"),
            "pageCacheLimitEnabled": _sysctl("pagecache_limit.enabled"),
            "schedFeatures": _sysctl("sched_features"),
            "totalNetworkBandwidth": _BANDWIDTH,
        },
        APPLICATION: {"": (Use("hostApplications"),), "strategy": _NO_STRATEGY},
        KOORD_SUPPRESS: {"": _BY_PRESSURE, "policy": (_SUPPRESS,)},
    }
)
"""By the path of a field, or of an object for those of its fields that have no row."""

_ONLY_BLOCK_IO = Gap(GapStatus.NEVER, "cgroupRoot has blkioQOS alone")
_ONLY_BE_IDLE = Gap(GapStatus.NEVER, "only pods that count as BE are ever idle")
_ROOT_GROUP = Gap(GapStatus.NEVER, "SYSTEM pods stay in resctrl's root group")
_OTHERS = ("cpuQOS", "memoryQOS", "resctrlQOS", "networkQOS")
EXCEPTIONS: Mapping[str, Effect] = MappingProxyType(
    {
        f"{STRATEGY}.beClass.cpuQOS.enable": (_IDENTITY, replace(_IDLE, when={"schedIdle": (1,)})),
        **{f"{STRATEGY}.{name}.cpuQOS.schedIdle": _ONLY_BE_IDLE for name in ("lsrClass", "lsClass", "systemClass")},
        f"{STRATEGY}.systemClass.resctrlQOS": _ROOT_GROUP,
        **{f"{STRATEGY}.cgroupRoot.{name}": _ONLY_BLOCK_IO for name in _OTHERS},
    }
)
"""The effects in one class that differ from those of all; by the path of a field or of an object."""

GAPS_BY_VALUE: Mapping[str, Mapping[str, Gap]] = MappingProxyType(
    {
        f"{STRATEGY}.policies.cpuPolicy": {"coreSched": _CORE_SCHED},
        f"{STRATEGY}.policies.netQOSPolicy": {"terway-qos": _TERWAY},
    }
)
"""The values of a field that have no effect, and why; by the field's path."""


def pattern(path: str) -> str:
    """Returns ``path`` as the tables have it: ``*`` in place of the class, ``[]`` in place of an item's number."""
    return _ITEM.sub("[]", _OF_CLASS.sub(_CLASS, path))


def effect_of(path: str) -> Effect | None:
    """Returns the hooks and strategies that act by the field at ``path``, or why none does; None: no such path."""
    return _of_innermost(path, EXCEPTIONS) or _of_innermost(pattern(path), EFFECTS)


def _of_innermost(path: str, effects: Mapping[str, Effect]) -> Effect | None:
    """Returns the effect of the field at ``path``, else of the innermost object around it that ``effects`` has."""
    while path and path not in effects:
        path = path.rpartition(".")[0]
    return effects.get(path)
