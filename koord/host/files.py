"""The kernel's files, one row each: the only place that knows their names, units, ranges and versions.

Rows are named as CRI names the value where CRI carries it, else as the kernel's v2 file, else as its v1 file. Sources:
the kernel's cgroup-v1, cgroup-v2, resctrl and sysctl documents; the ranges of vendor kernels' files are theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from koord.host.kernelfile import KernelFile, ParseError, Probe, Target, ValueRefused
from koord.host.keyed import DeviceLimit, DeviceSettings, DeviceWeight, SchedFeature, SchemataLine
from koord.host.spelling import Bytes, Counter, CPUList, Freezer, Integer, Reclaim, Shares, Spelling, Text, Word
from koord.model.cfs import MIN_QUOTA_US, UNLIMITED
from koord.model.lattice import Value

__all__ = ["ROWS", "KernelFile", "ParseError", "Probe", "Target", "UnknownRow", "Value", "ValueRefused", "row"]

_SWITCH = Integer(0, 1)
_NUMBER = Integer()
_SIZE = Bytes()
_TEXT = Text()
_WORD = Word()
_UNLIMITED = Integer(unlimited=True)


class UnknownRow(KeyError):
    """No row has this name, or the row does not take what stands after its ``@``."""


def row(name: str) -> KernelFile:
    """The row of a target's ``name``, bound to the device, pid or resctrl group after ``@``; raises UnknownRow."""
    found = ROWS.get(name)
    if found is not None:
        return found
    plain, _, qualifier = name.partition("@")
    found = ROWS.get(plain)
    if found is None or not found.accepts(qualifier):
        raise UnknownRow(name)
    return replace(found, qualifier=qualifier)


_CPU = (
    KernelFile("cpu_shares", "shares", Shares(), ("cpu", "cpu.shares"), "cpu.weight"),
    KernelFile("cpu_quota", "us", Integer(MIN_QUOTA_US, unlimited=True), ("cpu", "cpu.cfs_quota_us"), "cpu.max"),
    KernelFile(
        "cpu_period",
        "us",
        Integer(1000, 1_000_000, v2_word=1),
        ("cpu", "cpu.cfs_period_us"),
        None,  # cpu.max would take a lone number for the quota
        "cpu.max",
    ),
    KernelFile(
        "cpu.max.burst",
        "us",
        _NUMBER,
        ("cpu", "cpu.cfs_burst_us"),
        "cpu.max.burst",
        since="5.14",
        probe=Probe.TARGET,
        default=0,
    ),
    KernelFile("cpu.idle", "", _SWITCH, ("cpu", "cpu.idle"), "cpu.idle", since="5.15", probe=Probe.KUBEPODS, default=0),
    KernelFile(
        "cpu.bvt_warp_ns",
        "",
        Integer(-1, 2),
        ("cpu", "cpu.bvt_warp_ns"),
        "cpu.bvt_warp_ns",
        vendor_on=(1, 2),
        probe=Probe.KUBEPODS,
        default=0,
        is_inherited=True,
    ),
    KernelFile("cpuset_cpus", "", CPUList(), ("cpuset", "cpuset.cpus"), "cpuset.cpus", "cpuset.cpus.effective"),
    KernelFile("cpuset_mems", "", CPUList(), ("cpuset", "cpuset.mems"), "cpuset.mems", "cpuset.mems.effective"),
    KernelFile(
        "cpuset.cpus.partition",
        "",
        Word(("member", "root", "isolated")),
        v2="cpuset.cpus.partition",
        since="6.7",  # as remote partitions, the only ones that fit below kubelet's tree
        probe=Probe.KUBEPODS,
        default="member",
    ),
    KernelFile("cpuset.cpus.exclusive", "", CPUList(), v2="cpuset.cpus.exclusive", since="6.7", probe=Probe.KUBEPODS),
    KernelFile("cpu.uclamp.min", "percent", _WORD, ("cpu", "cpu.uclamp.min"), "cpu.uclamp.min", probe=Probe.KUBEPODS),
    KernelFile("cpu.uclamp.max", "percent", _WORD, ("cpu", "cpu.uclamp.max"), "cpu.uclamp.max", probe=Probe.KUBEPODS),
)


def _protection(name: str, default: int, since: str = "") -> KernelFile:
    """A memory file that v2 has, and v1 on vendor kernels only."""
    return KernelFile(
        name, "bytes", _SIZE, ("memory", name), name, vendor_on=(1,), since=since, probe=Probe.KUBEPODS, default=default
    )


def _vendor_memory(name: str, unit: str, spelling: Spelling, default: int = 0) -> KernelFile:
    return KernelFile(
        name, unit, spelling, ("memory", name), name, vendor_on=(1, 2), probe=Probe.KUBEPODS, default=default
    )


def _page_cache(name: str, unit: str, spelling: Spelling) -> KernelFile:
    return KernelFile(name, unit, spelling, v2=name, vendor_on=(2,), since="", probe=Probe.KUBEPODS, default=0)


_MEMORY = (
    KernelFile("memory_limit_in_bytes", "bytes", _SIZE, ("memory", "memory.limit_in_bytes"), "memory.max"),
    _protection("memory.min", 0, "4.18"),
    _protection("memory.low", 0),
    _protection("memory.high", UNLIMITED),
    KernelFile(
        "memory.soft_limit_in_bytes",  # cgroups that use more are reclaimed first where the node runs short
        "bytes",
        _SIZE,
        ("memory", "memory.soft_limit_in_bytes"),
        probe=Probe.KUBEPODS,
        default=UNLIMITED,
    ),
    KernelFile(
        "memory.oom.group",
        "",
        _SWITCH,
        ("memory", "memory.oom.group"),
        "memory.oom.group",
        vendor_on=(1,),
        since="4.19",
        probe=Probe.KUBEPODS,
        default=0,
    ),
    KernelFile("memory.swap.max", "bytes", _SIZE, v2="memory.swap.max", probe=Probe.TARGET, default=UNLIMITED),
    KernelFile(
        "memory.swap.high", "bytes", _SIZE, v2="memory.swap.high", since="5.8", probe=Probe.TARGET, default=UNLIMITED
    ),
    KernelFile(
        "memory.zswap.max", "bytes", _SIZE, v2="memory.zswap.max", since="5.19", probe=Probe.TARGET, default=UNLIMITED
    ),
    KernelFile(
        "memory_swap_limit_in_bytes",  # memory and swap together, which v2 does not count
        "bytes",
        _SIZE,
        ("memory", "memory.memsw.limit_in_bytes"),
        probe=Probe.TARGET,
    ),
    _vendor_memory("memory.wmark_ratio", "percent", Integer(0, 100)),
    _vendor_memory("memory.wmark_scale_factor", "", Integer(1, 1000), 50),
    _vendor_memory("memory.wmark_min_adj", "percent", Integer(-25, 50)),
    _vendor_memory("memory.priority", "", Integer(0, 12)),
    _vendor_memory("memory.use_priority_oom", "", _SWITCH),
    _page_cache("memory.pagecache_limit.enable", "", _SWITCH),
    _page_cache("memory.pagecache_limit.size", "bytes", Bytes(unlimited=False)),
    _page_cache("memory.pagecache_limit.sync", "", _SWITCH),
    KernelFile(
        "memory.reclaim",
        "bytes",
        Reclaim(unlimited=False),
        v2="memory.reclaim",
        since="5.19",
        probe=Probe.KUBEPODS,
        is_one_shot=True,
    ),
    KernelFile(
        "memory.force_empty",  # all that is reclaimable, whatever is written
        "",
        _NUMBER,
        ("memory", "memory.force_empty"),
        probe=Probe.KUBEPODS,
        is_one_shot=True,
    ),
)


def _device_limit(key: str, v1_file: str, unit: str) -> KernelFile:
    return KernelFile(
        f"io.max.{key}", unit, DeviceLimit(key), ("blkio", f"blkio.throttle.{v1_file}"), "io.max", takes="device"
    )


_IO = (
    _device_limit("rbps", "read_bps_device", "bytes/s"),
    _device_limit("wbps", "write_bps_device", "bytes/s"),
    _device_limit("riops", "read_iops_device", "1/s"),
    _device_limit("wiops", "write_iops_device", "1/s"),
    KernelFile("io.weight", "", DeviceWeight(1, 10000), v2="io.weight", takes="optional device", probe=Probe.KUBEPODS),
    KernelFile(
        "blkio.cost.weight",
        "",
        DeviceWeight(1, 100),
        ("blkio", "blkio.cost.weight"),
        vendor_on=(1,),
        takes="device",
        probe=Probe.KUBEPODS,
    ),
    KernelFile("io.latency", "us", DeviceSettings("target=0"), v2="io.latency", takes="device", probe=Probe.KUBEPODS),
    KernelFile(
        "io.cost.qos",
        "",
        DeviceSettings("enable=0"),
        ("blkio", "blkio.cost.qos"),
        "io.cost.qos",
        vendor_on=(1,),
        since="5.4",
        takes="device",
        probe=Probe.TARGET,
    ),
    KernelFile(
        "io.cost.model",
        "",
        DeviceSettings("ctrl=auto"),
        ("blkio", "blkio.cost.model"),
        "io.cost.model",
        vendor_on=(1,),
        since="5.4",
        takes="device",
        probe=Probe.TARGET,
    ),
    KernelFile("net_cls.classid", "", Integer(0, 0xFFFFFFFF), ("net_cls", "net_cls.classid"), probe=Probe.TARGET),
    KernelFile("pids.max", "", _UNLIMITED, ("pids", "pids.max"), "pids.max", default=UNLIMITED),
)


def _statistics(name: str, v1: tuple[str, str] | None, v2: str | None, since: str = "") -> KernelFile:
    return KernelFile(name, "", _TEXT, v1, v2, writable=False, since=since)


def _pressure(name: str, since: str = "4.20") -> KernelFile:
    return KernelFile(
        name,
        "us",
        _TEXT,
        ("cpuacct", name),
        name,
        writable=False,
        vendor_on=(1,),
        unified=True,
        since=since,
        probe=Probe.TARGET,
    )


_STATISTICS = (
    _statistics("cpu.stat", ("cpu", "cpu.stat"), "cpu.stat"),
    _statistics("cpuacct.stat", ("cpuacct", "cpuacct.stat"), "cpu.stat"),
    KernelFile(
        "cpuacct.usage", "ns", Counter("usage_usec", 1000), ("cpuacct", "cpuacct.usage"), "cpu.stat", writable=False
    ),
    KernelFile(
        "memory.current", "bytes", _NUMBER, ("memory", "memory.usage_in_bytes"), "memory.current", writable=False
    ),
    _statistics("memory.stat", ("memory", "memory.stat"), "memory.stat"),
    _statistics("memory.numa_stat", ("memory", "memory.numa_stat"), "memory.numa_stat"),
    _statistics("memory.events", None, "memory.events"),
    KernelFile("memory.failcnt", "", _NUMBER, ("memory", "memory.failcnt"), writable=False),
    _statistics("memory.oom_control", ("memory", "memory.oom_control"), None),
    KernelFile("memory.swap.current", "bytes", _NUMBER, v2="memory.swap.current", writable=False, probe=Probe.TARGET),
    KernelFile(
        "memory.idle_page_stats",
        "",
        _TEXT,
        ("memory", "memory.idle_page_stats"),
        writable=False,
        vendor_on=(1,),
        probe=Probe.TARGET,
    ),
    _statistics("io.stat", None, "io.stat"),
    _statistics(
        "blkio.throttle.io_service_bytes_recursive", ("blkio", "blkio.throttle.io_service_bytes_recursive"), None
    ),
    _statistics("blkio.throttle.io_serviced_recursive", ("blkio", "blkio.throttle.io_serviced_recursive"), None),
    KernelFile("pids.current", "", _NUMBER, ("pids", "pids.current"), "pids.current", writable=False),
    _pressure("cpu.pressure"),
    _pressure("memory.pressure"),
    _pressure("io.pressure"),
    KernelFile("irq.pressure", "us", _TEXT, v2="irq.pressure", writable=False, unified=True, since="6.1"),
    KernelFile("cgroup.events", "", _TEXT, v2="cgroup.events", writable=False, unified=True),
)
_TASKS = (
    KernelFile("cgroup.procs", "pid", _TEXT, ("cpu", "cgroup.procs"), "cgroup.procs", writable=False),
    KernelFile("cgroup.threads", "tid", _TEXT, ("cpu", "tasks"), "cgroup.threads", writable=False),
    KernelFile(
        "cgroup.freeze", "", Freezer(), ("freezer", "freezer.state"), "cgroup.freeze", since="5.2", probe=Probe.KUBEPODS
    ),
)


def _system(name: str, unit: str, spelling: Spelling, root: str, path: str, vendor: bool = False) -> KernelFile:
    vendor_on = (1, 2) if vendor else ()
    return KernelFile(name, unit, spelling, system=(root, path), vendor_on=vendor_on, probe=Probe.TARGET)


_SYSTEM = (
    _system("vm.min_free_kbytes", "kB", Integer(10240, 10485760), "proc", "sys/vm/min_free_kbytes"),
    _system("vm.watermark_scale_factor", "", Integer(10, 400), "proc", "sys/vm/watermark_scale_factor"),
    _system("kernel.sched_core", "", _SWITCH, "proc", "sys/kernel/sched_core", vendor=True),
    _system(
        "kernel.sched_group_identity_enabled", "", _SWITCH, "proc", "sys/kernel/sched_group_identity_enabled", True
    ),
    _system("kernel.sched_idle_saver_wmark", "", _NUMBER, "proc", "sys/kernel/sched_idle_saver_wmark", vendor=True),
    _system("memcg_reaper.reap_background", "", _SWITCH, "sys", "kernel/mm/memcg_reaper/reap_background", vendor=True),
    _system("pagecache_limit.enabled", "", _SWITCH, "sys", "kernel/mm/pagecache_limit/enabled", vendor=True),
    _system(
        "kidled.scan_period_in_seconds", "s", _NUMBER, "sys", "kernel/mm/kidled/scan_period_in_seconds", vendor=True
    ),
    _system("kidled.use_hierarchy", "", _SWITCH, "sys", "kernel/mm/kidled/use_hierarchy", vendor=True),
    KernelFile(
        "sched_features",
        "",
        SchedFeature(),
        system=("sys", "kernel/debug/sched/features"),
        system_before="kernel/debug/sched_features",  # 5.13
        takes="feature",
        probe=Probe.TARGET,
    ),
    KernelFile(
        "oom_score_adj",
        "",
        Integer(-1000, 1000),
        system=("proc", "{}/oom_score_adj"),
        takes="pid",
        probe=Probe.TARGET,
    ),
    KernelFile(
        "resctrl.schemata",
        "",
        SchemataLine(),
        system=("resctrl", "{}/schemata"),
        takes="group/resource",
        probe=Probe.TARGET,
    ),
)

ROWS: Mapping[str, KernelFile] = MappingProxyType(
    {one.name: one for one in (*_CPU, *_MEMORY, *_IO, *_STATISTICS, *_TASKS, *_SYSTEM)}
)
"""Every row by its name."""
