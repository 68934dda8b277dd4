"""What the kernel and its cgroup trees offer, and what Koord does where they do not."""

from __future__ import annotations

from koord.host.support import Support
from koord.model.memorymeans import (
    SOFT_LIMIT,
    WITHOUT_FILE_PAGES,
    WITHOUT_PSI,
    can_take_file_pages,
    without_protection,
    without_reclaim,
)
from koordctl.doctor.facts import Facts
from koordctl.doctor.finding import Finding, Status

_OK, _INFO, _WARN, _FAIL = Status.OK, Status.INFO, Status.WARN, Status.FAIL
_NEEDED = ("cpu", "cpuset", "memory")
_USED = {1: _NEEDED, 2: (*_NEEDED, "io")}
_V2_SINCE = {"cpu": (4, 15), "cpuset": (5, 0)}  # as controllers of cgroup v2
_RDT_FLAGS = {"cat_l3": "cache allocation", "mba": "bandwidth allocation", "cqm_occup_llc": "cache monitoring"}
NO_REMOTE_PARTITIONS = "no remote cpuset partitions (cgroup v2 with cpuset.cpus.exclusive, Linux 6.7): plain CPU sets"
NO_MEMORY_THROTTLE = (
    "no memory throttle here (memory.high): a pod that takes too much memory is held to 100m of CPU instead, so that "
    "it grows slower, before it is frozen and evicted"
)
_UNKNOWN_TREE = "no cgroup of kubelet's exists yet, so this cannot be seen"


def kernel(facts: Facts) -> Finding:
    version = facts.kernel
    if version is None:
        said = facts.kernel_release or "unknown"
        return Finding("kernel", _WARN, f"release {said!r} is not understood", "see /proc/sys/kernel/osrelease")
    text = f"Linux {facts.kernel_release}"
    if version < (4, 18):
        return Finding("kernel", _FAIL, f"{text} is older than 4.18", "use a newer kernel")
    if version < (5, 15):
        return Finding("kernel", _WARN, f"{text} lacks cpu.idle (5.15)", "a kernel from 5.15 on lets BE yield more")
    return Finding("kernel", _OK, text)


def cgroup_version(facts: Facts) -> Finding:
    cgroup = facts.cgroup
    if cgroup.version is None:
        return Finding("cgroup-version", _FAIL, "no cgroup hierarchy is mounted", "mount cgroup2 at /sys/fs/cgroup")
    if cgroup.version == 2:
        return Finding("cgroup-version", _OK, "cgroup v2")
    beside = ", with a v2 tree beside it that gives pressure per container" if cgroup.hybrid else ""
    return Finding(
        "cgroup-version",
        _INFO,
        f"cgroup v1{beside}: no memory.high, memory.low, io limits or cpuset partitions",
        "boot with systemd.unified_cgroup_hierarchy=1 for memory QoS",
    )


def controllers(facts: Facts) -> Finding:
    """Without cpu, cpuset and memory nothing works; without io, device limits do not."""
    cgroup = facts.cgroup
    used = _USED.get(cgroup.version or 0, ())
    missing = [name for name in used if name not in cgroup.controllers]
    if not used or missing:
        remedy = "look for cgroup_disable= on the kernel's command line"
        since = [f"{name} since Linux {_dotted(_V2_SINCE[name])}" for name in missing if _is_too_new(facts, name)]
        late = f" (v2 has {', '.join(since)})" if since else ""
        return Finding("controllers", _gravity(missing), f"missing: {', '.join(missing) or 'all'}{late}", remedy)
    off = [name for name in used if cgroup.enabled_for_pods is not None and name not in cgroup.enabled_for_pods]
    if off and not cgroup.has_containers:
        text = f"{', '.join(used)}; for pods not yet {', '.join(off)}: their first container brings it"
        return Finding("controllers", _INFO, text)
    if off:
        remedy = f"kubelet enables them when it starts: restart it, or write +NAME to {cgroup.kube_root}'s file"
        text = f"off in cgroup.subtree_control of kubelet's tree: {', '.join(off)}"
        return Finding("controllers", _gravity(off), text, remedy)
    return Finding("controllers", _OK, ", ".join(used))


def _gravity(missing: list[str]) -> Status:
    return _WARN if missing and not set(missing) & set(_NEEDED) else _FAIL


def _is_too_new(facts: Facts, controller: str) -> bool:
    since = _V2_SINCE.get(controller)
    return facts.cgroup.version == 2 and since is not None and facts.kernel is not None and facts.kernel < since


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def kubelet_tree(facts: Facts) -> Finding:
    cgroup = facts.cgroup
    if not cgroup.kube_root_exists:
        expected = f"; {cgroup.kube_root} is expected" if cgroup.kube_root else ""
        return Finding("kubelet-tree", _WARN, f"there is no cgroup of kubelet's{expected}", "start kubelet")
    return Finding("kubelet-tree", _OK, f"pods are below {cgroup.kube_root} ({cgroup.driver} driver)")


def psi(facts: Facts) -> Finding:
    if not facts.psi:
        since = " (Linux 4.20 has it)" if facts.kernel is not None and facts.kernel < (4, 20) else ""
        return Finding("psi", _WARN, f"/proc/pressure is missing{since}: interference is seen late", "boot with psi=1")
    per_cgroup = facts.cgroup.support.get("cpu.pressure")
    if per_cgroup is Support.PRESENT:
        return Finding("psi", _OK, "pressure is measured, of each cgroup too")
    if per_cgroup is Support.UNKNOWN or not facts.cgroup.kube_root_exists:
        return Finding("psi", _OK, f"pressure of the node is measured; of pods: {_UNKNOWN_TREE}")
    return Finding(
        "psi", _INFO, "pressure of the node is measured, that of pods is not: they have no cgroup of version 2"
    )


def cpu_idle(facts: Facts) -> Finding:
    return _file(facts, "cpu.idle", "cpu-idle", "BE pods can be made idle class", "BE pods yield by weight alone")


def cpu_burst(facts: Facts) -> Finding:
    return _file(facts, "cpu.max.burst", "cpu-burst", "CFS burst is there", "bursts are given by raising the quota")


def task_slices(facts: Facts) -> Finding:
    """By the kernel's version: no file shows it."""
    if facts.kernel is not None and facts.kernel >= (6, 12):
        return Finding("task-slices", _OK, "best-effort tasks can have long slices of CPU time")
    return Finding(
        "task-slices",
        _INFO,
        "no slices of single tasks (Linux 6.12): CPU suppression by pressure begins with cpu.idle",
    )


def group_identity(facts: Facts) -> Finding:
    if facts.cgroup.has("cpu.bvt_warp_ns"):
        return Finding("group-identity", _OK, "a vendor kernel with cpu.bvt_warp_ns")
    return Finding("group-identity", _INFO, "no cpu.bvt_warp_ns (vendor kernels only): weights and cpu.idle instead")


def memory_qos(facts: Facts) -> Finding:
    if facts.cgroup.has("memory.high"):
        return Finding("memory-qos", _OK, "memory.min, memory.low and memory.high are there")
    if facts.cgroup.version == 2 and not facts.cgroup.kube_root_exists:
        return Finding("memory-qos", _INFO, _UNKNOWN_TREE)
    stand_in = SOFT_LIMIT if facts.cgroup.has(SOFT_LIMIT) else ""
    return Finding("memory-qos", _INFO, without_protection(stand_in), "use cgroup v2")


def memory_reclaim(facts: Facts) -> Finding:
    """What stands in for the watermarks and page-cache limits of vendor kernels."""
    cgroup = facts.cgroup
    if not cgroup.has("memory.reclaim"):
        if cgroup.version == 2 and not cgroup.kube_root_exists:
            return Finding("memory-reclaim", _INFO, _UNKNOWN_TREE)
        return Finding("memory-reclaim", _INFO, without_reclaim(cgroup.version or 2), "use cgroup v2 and Linux 5.19")
    lacks = [] if facts.psi else [WITHOUT_PSI]
    if not can_take_file_pages(facts.kernel, facts.swap_bytes):
        lacks.append(WITHOUT_FILE_PAGES)
    if lacks:
        return Finding("memory-reclaim", _INFO, "; ".join(lacks))
    return Finding("memory-reclaim", _OK, "memory.reclaim: background reclaim and page-cache limits are possible")


def memory_throttle(facts: Facts) -> Finding:
    """What eviction does to whoever takes too much memory, before it freezes and evicts."""
    if facts.cgroup.has("memory.high"):
        return Finding("memory-throttle", _OK, "a pod that takes too much memory is throttled by memory.high first")
    if facts.cgroup.version == 2 and not facts.cgroup.kube_root_exists:
        return Finding("memory-throttle", _INFO, _UNKNOWN_TREE)
    return Finding("memory-throttle", _INFO, NO_MEMORY_THROTTLE, "use cgroup v2")


def cpuset_partition(facts: Facts) -> Finding:
    """Seen by its file, because kernels carry backports; a local partition cannot be made below kubelet's tree."""
    if facts.cgroup.has("cpuset.cpus.exclusive"):
        return Finding("cpuset-partition", _OK, "remote cpuset partitions are possible")
    new_enough = facts.cgroup.version == 2 and facts.kernel is not None and facts.kernel >= (6, 7)
    if new_enough and not facts.cgroup.kube_root_exists:
        return Finding("cpuset-partition", _INFO, _UNKNOWN_TREE)
    return Finding("cpuset-partition", _INFO, NO_REMOTE_PARTITIONS)


def isolated_cpus(facts: Facts) -> Finding:
    if not facts.isolated_cpus:
        return Finding("isolated-cpus", _OK, "the kernel balances load over all CPUs")
    text = f"CPUs {facts.isolated_cpus} are isolated: the kernel balances no load there, so no CPU pool has them"
    return Finding("isolated-cpus", _WARN, text, "boot without isolcpus, or bind pods of class LSE or LSR to them")


def resctrl(facts: Facts) -> Finding:
    able = [text for flag, text in _RDT_FLAGS.items() if flag in facts.cpu_flags]
    if not able:
        return Finding("resctrl", _INFO, "the CPU has no RDT: caches and bandwidth are shared without limits")
    if not facts.resctrl_mounted:
        remedy = "mount -t resctrl resctrl /sys/fs/resctrl"
        return Finding("resctrl", _WARN, f"the CPU has {', '.join(able)}, and resctrl is not mounted", remedy)
    text = f"{', '.join(able)}; groups: {', '.join(sorted(facts.resctrl_classes)) or 'none'}"
    if facts.resctrl_in_mbps:
        remedy = "mount it without mba_MBps"
        return Finding("resctrl", _WARN, f"{text}; mounted with mba_MBps: bandwidths are MB/s, not percent", remedy)
    return Finding("resctrl", _OK, text)


def perf(facts: Facts) -> Finding:
    if not facts.perf_hardware:
        return Finding("perf", _INFO, "no hardware counters (a virtual machine?): no cycles per instruction")
    if facts.perf_paranoid is not None and facts.perf_paranoid > 2:
        text = f"perf_event_paranoid is {facts.perf_paranoid}, which keeps koord-qosd out although it has CAP_PERFMON"
        return Finding("perf", _WARN, text, "sysctl kernel.perf_event_paranoid=2")
    return Finding("perf", _OK, "hardware counters")


def swap(facts: Facts) -> Finding:
    if not facts.swap_bytes:
        return Finding("swap", _OK, "no swap")
    size = f"{facts.swap_bytes / (1 << 30):.1f} GiB of swap"
    if facts.kubelet.running and facts.kubelet.fail_swap_on:
        return Finding("swap", _WARN, f"{size}, and kubelet's failSwapOn is true", "swapoff -a, or failSwapOn: false")
    return Finding("swap", _INFO, f"{size}: a container's memory limit does not bound what it swaps")


def _file(facts: Facts, row: str, check: str, there: str, instead: str) -> Finding:
    if facts.cgroup.has(row):
        return Finding(check, _OK, there)
    if not facts.cgroup.kube_root_exists:
        return Finding(check, _INFO, _UNKNOWN_TREE)
    return Finding(check, _INFO, f"no {row}: {instead}", "a newer kernel has it")
