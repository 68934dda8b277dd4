"""What every field of NodeSLO means and what follows from it on a node: one row per field.

A field that somebody sets and that nobody follows is the worst kind of setting. So each row names who acts by the field
and what that takes (``Use``), or says why nobody does (``Gap``); the warnings of the policy (``sloeffects``) and
``docs/node-slo.md`` are made of these rows. Bounds and defaults are not here: the structs and ``slo_defaults`` have
them. Invariant: every field of the structs has a row, and no row stands for no field.

``*`` in a path is any QoS class, ``[]`` any item of a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

THRESHOLDS, STRATEGY, SYSTEM = "resourceUsedThresholdWithBE", "resourceQOSStrategy", "systemStrategy"
BURST, APPLICATION = "cpuBurstStrategy", "hostApplications[]"
KOORD_SUPPRESS = "extensions.koord.cpuSuppress"
CLASSES = ("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot")
_CLASS = f"{STRATEGY}.*"


class Status(StrEnum):
    SUPPORTED = "supported"
    NOT_YET = "not yet"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Gap:
    """Why nobody acts by a field; ``why`` completes "it has no effect: "."""

    status: Status
    why: str


@dataclass(frozen=True, slots=True)
class Use:
    """One who acts by a field.

    ``by``: the hook, or the one strategy; ``gate``: of the strategies behind it, whichever they are, if ``by`` is none
    of them. ``files``: rows of the table of kernel files, of which one is enough. Of the same object: ``when`` has the
    values of other fields with which it acts, ``fields`` those that must be set, ``unless`` one that, being set, takes
    the field's place. ``by_group``: it needs the class's resctrl group. ``needs``: what else, for people.
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
"""Who acts, or why nobody does."""


@dataclass(frozen=True, slots=True)
class SLOField:
    """``gaps``: by a value of the field for which nobody acts."""

    path: str
    meaning: str
    effect: Effect
    gaps: Mapping[str, Gap] = field(default_factory=dict)


SWITCHES: Mapping[str, tuple[str, object]] = MappingProxyType(
    {
        THRESHOLDS: ("enable", False),
        **{f"{_CLASS}.{concern}QOS": ("enable", False) for concern in ("cpu", "memory", "blkio", "resctrl", "network")},
        BURST: ("policy", "none"),
    }
)
"""The field that switches an object on, with its value that is off; by the object's path."""

# Who acts. What takes no gate goes by the policy and by what the node has.
_LISTED = ("the runtime's CRI socket", "priorities from kubelet's pod list")
_AMOUNTS = (*_LISTED, "`node.allocatable` in the rules file, or the Node's own in a cluster")
_GRANTED = ("the unit's [grant](operations.md#what-the-unit-allows)",)
_SUPPRESS = Use("cpuSuppress", gate="BECPUSuppress")
_SATISFACTION = "cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"
_BY_USAGE, _BY_REQUESTS = "evictEnabledPriorityThreshold", "allocatableEvictPriorityThreshold"
_CPU_LEDGER = "cpuAllocatableEvictThresholdPercent", "cpuAllocatableEvictLowerPercent", _BY_REQUESTS
_MEMORY_LEDGER = "memoryAllocatableEvictThresholdPercent", "memoryAllocatableEvictLowerPercent", _BY_REQUESTS
_BE_CPU = Use(gate="BECPUEvict", fields=_SATISFACTION, needs=_LISTED)
_CPU = Use(gate="CPUEvict", fields=("cpuEvictThresholdPercent", _BY_USAGE), needs=_LISTED)
_CPU_REQUESTS = Use(gate="CPUAllocatableEvict", fields=_CPU_LEDGER, needs=_AMOUNTS)
_BE_MEMORY = Use(gate="BEMemoryEvict", needs=_LISTED)
_MEMORY = Use(gate="MemoryEvict", fields=(_BY_USAGE,), needs=_LISTED)
_MEMORY_REQUESTS = Use(gate="MemoryAllocatableEvict", fields=_MEMORY_LEDGER, needs=_AMOUNTS)
_EVICTIONS = (_BE_CPU, _CPU, _CPU_REQUESTS, _BE_MEMORY, _MEMORY, _MEMORY_REQUESTS)
_IDENTITY = Use("groupIdentity", gate="GroupIdentity", files=("cpu.bvt_warp_ns",))
_IDLE = Use("cpuIdle", files=("cpu.idle",))
_KERNEL_BURST = Use(gate="CPUBurst", files=("cpu.max.burst",), when={"policy": ("cpuBurstOnly", "auto")})
_QUOTA_BURST = Use(gate="CPUBurst", when={"policy": ("cfsQuotaBurstOnly", "auto")})
_GROUP = Use("resctrl", gate="RdtResctrl", by_group=True)
_APPLICATIONS = (Use("hostApplications"),)
_PAGE_CACHE = "memory.pagecache_limit.size"
_RECLAIM, _SOFT_LIMIT = "memory.reclaim", "memory.soft_limit_in_bytes"
"""What stands in for vendors' watermarks and limits of page cache; what does for ``memory.low`` on cgroup v1."""
_MEMORY_FILES = (
    "memory.min", "memory.low", "memory.high", "memory.oom.group", "memory.priority", "memory.use_priority_oom",
    "memory.wmark_ratio", "memory.wmark_scale_factor", "memory.wmark_min_adj", _PAGE_CACHE, _RECLAIM, _SOFT_LIMIT,
)  # fmt: skip


def _memory(*files: str, unless: str = "") -> tuple[Use, ...]:
    return (Use("memory", gate="CgroupReconcile", files=files, unless=unless),)


def _sysctl(file: str) -> tuple[Use, ...]:
    return (Use(gate="SystemConfig", files=(file,), needs=_GRANTED),)


_BLOCK_IO = Gap(Status.NOT_YET, "limits and weights of block I/O are not set yet")
_BANDWIDTH = Gap(Status.NOT_YET, "network bandwidth is not shared out yet")
_TERWAY = Gap(Status.NEVER, "nothing is written for Terway, whose own agent would share out the bandwidth")
_CORE_SCHED = Gap(Status.NOT_YET, "core scheduling is not there yet")
_SCHEMATA = Gap(Status.NOT_YET, "resctrl groups keep the schemata that they were made with; none are written yet")
_NO_STRATEGY = Gap(Status.NEVER, "nobody has settings of a single host application, upstream's node agent neither")


def _fields(parent: str, *rows: tuple[str, str, Effect]) -> tuple[SLOField, ...]:
    return tuple(SLOField(f"{parent}.{name}", meaning, effect) for name, meaning, effect in rows)


_ON = "Switches what follows of the class."
_THRESHOLD_FIELDS = _fields(
    THRESHOLDS,
    ("enable", "Switches CPU suppression of best-effort pods, and every eviction below.", (_SUPPRESS, *_EVICTIONS)),
    ("cpuSuppressThresholdPercent", "Share of the node's CPU up to which best-effort pods may fill it.", (_SUPPRESS,)),
    (
        "cpuSuppressMinPercent",
        "Share of the node's CPU that best-effort pods keep however much others use; less than the threshold.",
        (_SUPPRESS,),
    ),
    (
        "cpuSuppressPolicy",
        "What bounds best-effort pods: their CPU set, or the CFS quota of kubelet's BestEffort tier.",
        (_SUPPRESS,),
    ),
    (
        "memoryEvictThresholdPercent",
        "Share of the node's memory in use from which pods are evicted.",
        (_BE_MEMORY, _MEMORY),
    ),
    (
        "memoryEvictLowerPercent",
        "Share to which memory in use is brought down; unset: the threshold less 2.",
        (_BE_MEMORY, _MEMORY),
    ),
    (
        "memoryAllocatableEvictThresholdPercent",
        "Share of allocatable memory that requests may come to before pods are evicted.",
        (_MEMORY_REQUESTS,),
    ),
    ("memoryAllocatableEvictLowerPercent", "Share to which these requests are brought down.", (_MEMORY_REQUESTS,)),
    (
        "cpuEvictBESatisfactionLowerPercent",
        "Share of their CPU requests at which best-effort pods get too little, and some are evicted.",
        (_BE_CPU,),
    ),
    ("cpuEvictBESatisfactionUpperPercent", "Share that the others get then; not below the lower one.", (_BE_CPU,)),
    (
        "cpuEvictBEUsageThresholdPercent",
        "Share of the CPU that they can get which they must use, else nothing lacks; unset: 90.",
        (_BE_CPU,),
    ),
    (
        "cpuEvictTimeWindowSeconds",
        "Time over which CPU is averaged before anybody is evicted for it, 1800 at most; unset: that of one sample.",
        (_BE_CPU, _CPU),
    ),
    ("cpuEvictThresholdPercent", "Share of the node's CPU in use from which pods are evicted.", (_CPU,)),
    ("cpuEvictLowerPercent", "Share to which CPU in use is brought down; unset: the threshold less 2.", (_CPU,)),
    (
        "cpuAllocatableEvictThresholdPercent",
        "Share of allocatable CPU that requests may come to before pods are evicted.",
        (_CPU_REQUESTS,),
    ),
    ("cpuAllocatableEvictLowerPercent", "Share to which these requests are brought down.", (_CPU_REQUESTS,)),
    (
        "cpuEvictPolicy",
        "What best-effort pods can get: what the kernel lets them have, or what the node has of batch-cpu.",
        (_BE_CPU,),
    ),
    (_BY_USAGE, "Highest priority of pods that are evicted by usage.", (_CPU, _MEMORY)),
    (_BY_REQUESTS, "Highest priority of pods that are evicted by requests.", (_CPU_REQUESTS, _MEMORY_REQUESTS)),
)
_POLICY_FIELDS = (
    SLOField(
        f"{STRATEGY}.policies.cpuPolicy",
        "What `cpuQOS` of the classes sets: group identity, or core scheduling.",
        (_IDENTITY,),
        {"coreSched": _CORE_SCHED},
    ),
    SLOField(
        f"{STRATEGY}.policies.netQOSPolicy",
        "What shares out the network's bandwidth.",
        _BANDWIDTH,
        {"terway-qos": _TERWAY},
    ),
)
_CPU_FIELDS = _fields(
    f"{_CLASS}.cpuQOS",
    ("enable", _ON, (_IDENTITY,)),
    ("groupIdentity", "Rank in the vendor kernel's scheduler: 2 is served first, -1 last.", (_IDENTITY,)),
    ("schedIdle", "1: pods of the class run when nothing else wants the CPU.", (_IDLE,)),
    ("coreExpeller", "Whether pods of the class keep others off the sibling threads of their cores.", _CORE_SCHED),
)
_MEMORY_FIELDS = _fields(
    f"{_CLASS}.memoryQOS",
    ("enable", _ON, _memory(*_MEMORY_FILES)),
    ("minLimitPercent", "Share of the memory request that is never reclaimed.", _memory("memory.min")),
    (
        "lowLimitPercent",
        "Share of it that is reclaimed only if there is nothing else.",
        _memory("memory.low", _SOFT_LIMIT),
    ),
    (
        "throttlingPercent",
        "Share of the way from request to limit at which allocations are throttled; 0: never.",
        _memory("memory.high"),
    ),
    (
        "wmarkRatio",
        "Share of the limit from which memory is reclaimed in the background; 0: never.",
        _memory("memory.wmark_ratio", _RECLAIM),
    ),
    (
        "wmarkScalePermill",
        "How far below that share reclaim goes, in thousandths of the limit.",
        _memory("memory.wmark_scale_factor", _RECLAIM),
    ),
    (
        "wmarkMinAdj",
        "By how much later (below 0) or earlier the class is hit when the whole node reclaims.",
        _memory("memory.wmark_min_adj"),
    ),
    ("priorityEnable", "1: an OOM kill goes by `priority`.", _memory("memory.use_priority_oom")),
    ("priority", "Rank in an OOM kill: 0 is killed first.", _memory("memory.priority")),
    ("oomKillGroup", "1: an OOM kill takes the whole cgroup.", _memory("memory.oom.group")),
    (
        "pageCacheEnable",
        "Whether page cache is limited; unset: if it has a size.",
        _memory("memory.pagecache_limit.enable", _RECLAIM),
    ),
    (
        "pageCacheLimitPercent",
        "Share of the memory limit that page cache may take.",
        _memory(_PAGE_CACHE, _RECLAIM, unless="pageCacheLimitSize"),
    ),
    ("pageCacheLimitSize", "Bytes that page cache may take, instead of the share.", _memory(_PAGE_CACHE, _RECLAIM)),
    (
        "pageCacheReclaimSync",
        "Whether who exceeds the limit reclaims itself, instead of the background.",
        _memory("memory.pagecache_limit.sync"),
    ),
)
_IO_FIELDS = _fields(
    f"{_CLASS}.blkioQOS",
    ("enable", _ON, _BLOCK_IO),
    ("blocks[].name", "Device (`/dev/vdb`), volume group, or volume of the pod.", _BLOCK_IO),
    ("blocks[].type", "Which of the three `name` is.", _BLOCK_IO),
    ("blocks[].ioCfg.readIOPS", "Reads per second; 0: no limit.", _BLOCK_IO),
    ("blocks[].ioCfg.writeIOPS", "Writes per second; 0: no limit.", _BLOCK_IO),
    ("blocks[].ioCfg.readBPS", "Bytes read per second; 0: no limit.", _BLOCK_IO),
    ("blocks[].ioCfg.writeBPS", "Bytes written per second; 0: no limit.", _BLOCK_IO),
    ("blocks[].ioCfg.ioWeightPercent", "Weight against others; unset: 100.", _BLOCK_IO),
    ("blocks[].ioCfg.readLatency", "Latency in µs that reads shall have; unset: 3000.", _BLOCK_IO),
    ("blocks[].ioCfg.writeLatency", "Latency in µs that writes shall have; unset: 3000.", _BLOCK_IO),
    ("blocks[].ioCfg.readLatencyPercent", "Percentile of reads at which that counts; unset: 95.", _BLOCK_IO),
    ("blocks[].ioCfg.writeLatencyPercent", "Percentile of writes at which that counts; unset: 95.", _BLOCK_IO),
    ("blocks[].ioCfg.enableUserModel", "Whether the device is as said below, not as the kernel learns.", _BLOCK_IO),
    ("blocks[].ioCfg.modelReadBPS", "Bytes per second that it can read.", _BLOCK_IO),
    ("blocks[].ioCfg.modelWriteBPS", "Bytes per second that it can write.", _BLOCK_IO),
    ("blocks[].ioCfg.modelReadSeqIOPS", "Sequential reads per second that it can do.", _BLOCK_IO),
    ("blocks[].ioCfg.modelWriteSeqIOPS", "Sequential writes per second that it can do.", _BLOCK_IO),
    ("blocks[].ioCfg.modelReadRandIOPS", "Random reads per second that it can do.", _BLOCK_IO),
    ("blocks[].ioCfg.modelWriteRandIOPS", "Random writes per second that it can do.", _BLOCK_IO),
)
_RESCTRL_FIELDS = _fields(
    f"{_CLASS}.resctrlQOS",
    ("enable", "Whether pods of the class belong to its resctrl group.", (_GROUP,)),
    ("catRangeStartPercent", "Where the cache ways of the class begin; below their end.", _SCHEMATA),
    ("catRangeEndPercent", "Where they end.", _SCHEMATA),
    ("mbaPercent", "Share of the memory bandwidth that the class may take.", _SCHEMATA),
)
_NETWORK_FIELDS = _fields(
    f"{_CLASS}.networkQOS",
    ("enable", _ON, _BANDWIDTH),
    ("ingressRequest", "Bandwidth of what comes in that the class has in any case.", _BANDWIDTH),
    ("ingressLimit", "Bandwidth of it that it has at most; 0: no limit.", _BANDWIDTH),
    ("egressRequest", "Bandwidth of what goes out that the class has in any case.", _BANDWIDTH),
    ("egressLimit", "Bandwidth of it that it has at most; 0: no limit.", _BANDWIDTH),
)
_BURST_FIELDS = _fields(
    BURST,
    (
        "policy",
        "Which bursts latency-sensitive containers get: quota saved up, quota raised, both or none.",
        (_KERNEL_BURST, _QUOTA_BURST),
    ),
    (
        "cpuBurstPercent",
        "Unused quota that a container may save up, as a share of its limit; a stock kernel takes no more than 100.",
        (_KERNEL_BURST,),
    ),
    (
        "cfsQuotaBurstPercent",
        "How far the quota of a throttled container is raised, as a share of its limit.",
        (_QUOTA_BURST,),
    ),
    (
        "cfsQuotaBurstPeriodSeconds",
        "Time for which a container may use the whole of that; -1: any time.",
        (_QUOTA_BURST,),
    ),
    (
        "sharePoolThresholdPercent",
        "Share of the shared CPUs in use from which raised quotas are taken back.",
        (_QUOTA_BURST,),
    ),
)
_SYSTEM_FIELDS = _fields(
    SYSTEM,
    (
        "minFreeKbytesFactor",
        "Memory that the kernel keeps free, in ten-thousandths of the node's.",
        _sysctl("vm.min_free_kbytes"),
    ),
    (
        "watermarkScaleFactor",
        "Distance of the kernel's memory watermarks, in ten-thousandths of the node's memory.",
        _sysctl("vm.watermark_scale_factor"),
    ),
    (
        "memcgReapBackGround",
        "1: what is left of removed cgroups is reclaimed in the background.",
        _sysctl("memcg_reaper.reap_background"),
    ),
    (
        "schedGroupIdentityEnabled",
        "Whether the kernel's scheduler heeds group identity.",
        _sysctl("kernel.sched_group_identity_enabled"),
    ),
    (
        "schedIdleSaverWmark",
        "Idle time of a CPU, in ns, that the vendor kernel's scheduler spares.",
        _sysctl("kernel.sched_idle_saver_wmark"),
    ),
    ("pageCacheLimitEnabled", "Whether the kernel limits page cache at all.", _sysctl("pagecache_limit.enabled")),
    (
        "schedFeatures",
        "Features of the kernel's scheduler by name, to be on (true) or off (false).",
        _sysctl("sched_features"),
    ),
    (
        "totalNetworkBandwidth",
        "Bandwidth of the node in bits/s, of which percentages are taken; 0: not known.",
        _BANDWIDTH,
    ),
)
_APPLICATION_FIELDS = _fields(
    APPLICATION,
    ("name", "What it is measured and shown as; each has one of its own.", _APPLICATIONS),
    ("priority", "Its priority class, in metrics.", _APPLICATIONS),
    (
        "qos",
        "Its QoS class: LS ones get the LS pool's CPUs, and each the group identity of its class.",
        _APPLICATIONS,
    ),
    ("cgroupPath.base", "Where its cgroup is: below the root, or below one of kubelet's.", _APPLICATIONS),
    ("cgroupPath.parentDir", "The directory there that its cgroup is in.", _APPLICATIONS),
    (
        "cgroupPath.relativePath",
        "The cgroup itself. Without `cgroupPath`: `host-latency-sensitive/NAME`, of BE `host-best-effort/NAME`.",
        _APPLICATIONS,
    ),
    ("strategy", "Free for settings of this application.", _NO_STRATEGY),
)

_PRESSURE = {"policy": ("pressure",)}
_KOORD_FIELDS = (
    SLOField(
        f"{KOORD_SUPPRESS}.policy",
        "What suppression goes by: `cpuSuppressPolicy` above (`slo`), or what latency-sensitive containers suffer.",
        (_SUPPRESS,),
    ),
    SLOField(
        f"{KOORD_SUPPRESS}.setPointMilliseconds",
        "How long of each second a latency-sensitive container may wait for best-effort work.",
        (replace(_SUPPRESS, when=_PRESSURE),),
    ),
    SLOField(
        f"{KOORD_SUPPRESS}.ceilingPercent",
        "Of the node's CPU, what may be used where the CPU time of best-effort pods is limited.",
        (replace(_SUPPRESS, when=_PRESSURE),),
    ),
)

FIELDS: tuple[SLOField, ...] = (
    *_THRESHOLD_FIELDS,
    *_POLICY_FIELDS,
    *_CPU_FIELDS,
    *_MEMORY_FIELDS,
    *_IO_FIELDS,
    *_RESCTRL_FIELDS,
    *_NETWORK_FIELDS,
    *_BURST_FIELDS,
    *_SYSTEM_FIELDS,
    *_APPLICATION_FIELDS,
    *_KOORD_FIELDS,
)
"""In the order of the structs. ``extensions.koord`` has a row for each field of its struct; other extensions none."""

_ONLY_BLOCK_IO = Gap(Status.NEVER, "cgroupRoot has blkioQOS alone")
_ONLY_BE_IDLE = Gap(Status.NEVER, "only pods that count as BE are ever idle")
_ROOT_GROUP = Gap(Status.NEVER, "SYSTEM pods stay in resctrl's root group")
_OTHERS = ("cpuQOS", "memoryQOS", "resctrlQOS", "networkQOS")
EXCEPTIONS: Mapping[str, Effect] = MappingProxyType(
    {
        f"{STRATEGY}.beClass.cpuQOS.enable": (_IDENTITY, replace(_IDLE, when={"schedIdle": (1,)})),
        **{f"{STRATEGY}.{name}.cpuQOS.schedIdle": _ONLY_BE_IDLE for name in ("lsrClass", "lsClass", "systemClass")},
        f"{STRATEGY}.systemClass.resctrlQOS": _ROOT_GROUP,
        **{f"{STRATEGY}.cgroupRoot.{name}": _ONLY_BLOCK_IO for name in _OTHERS},
    }
)
"""What holds of one class otherwise than its row says; by the path of a field or of an object."""
