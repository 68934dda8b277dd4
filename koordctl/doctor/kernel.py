"""Checks of the kernel and its cgroup trees: what they offer, and what Koord does where they do not."""

from __future__ import annotations

from koord.host.support import Support
from koord.model.locations import CGROUP_ROOT, RESCTRL_ROOT
from koord.model.memory_qos_messages import (
    SOFT_LIMIT,
    WITHOUT_FILE_PAGES,
    WITHOUT_PSI,
    can_take_file_pages,
    without_protection,
    without_reclaim,
)
from koordctl.doctor import CheckStatus, Judgement, fail, info, ok, warn
from koordctl.node.facts import Facts

_NEEDED = ("cpu", "cpuset", "memory")
_USED = {1: _NEEDED, 2: (*_NEEDED, "io")}
_V2_SINCE = {"cpu": (4, 15), "cpuset": (5, 0)}  # as controllers of cgroup v2
_RDT_FLAGS = {"cat_l3": "cache allocation", "mba": "bandwidth allocation", "cqm_occup_llc": "cache monitoring"}
NO_REMOTE_PARTITIONS = "no remote cpuset partitions (cgroup v2 with cpuset.cpus.exclusive, Linux 6.7): plain CPU sets"
NO_MEMORY_THROTTLE = (
    "no memory throttle here (memory.high): a pod that takes too much memory is held to 100m of CPU instead, so that "
    "it grows slower, before it is frozen and evicted"
)
_UNKNOWN_TREE = "kubelet has made no cgroup yet, so this cannot be seen"


def kernel(facts: Facts) -> Judgement:
    version = facts.kernel
    if version is None:
        said = facts.kernel_release or "unknown"
        return warn(f"release {said!r} is not understood", "see /proc/sys/kernel/osrelease")
    text = f"Linux {facts.kernel_release}"
    if version < (4, 18):
        return fail(f"{text} is older than 4.18", "use a newer kernel")
    if version < (5, 15):
        return warn(f"{text} lacks cpu.idle (5.15)", "use Linux 5.15 or later: best-effort pods yield more there")
    return ok(text)


def cgroup_version(facts: Facts) -> Judgement:
    cgroup = facts.cgroup
    if cgroup.version is None:
        return fail("no cgroup hierarchy is mounted", f"mount cgroup2 at {CGROUP_ROOT}")
    if cgroup.version == 2:
        return ok("cgroup v2")
    beside = ", with a v2 tree beside it that gives pressure per container" if cgroup.hybrid else ""
    return info(
        f"cgroup v1{beside}: no memory.high, memory.low, io limits or cpuset partitions",
        "boot with systemd.unified_cgroup_hierarchy=1 for memory QoS",
    )


def controllers(facts: Facts) -> Judgement:
    """Without cpu, cpuset and memory nothing works; without io, device limits do not."""
    cgroup = facts.cgroup
    used = _USED.get(cgroup.version or 0, ())
    missing = [name for name in used if name not in cgroup.controllers]
    if not used or missing:
        remedy = "look for cgroup_disable= on the kernel's command line"
        since = [f"{name} since Linux {'.'.join(map(str, version))}" for name, version in _newer(facts, missing)]
        late = f" (v2 has {', '.join(since)})" if since else ""
        return Judgement(_gravity(missing), f"missing: {', '.join(missing) or 'all'}{late}", remedy)
    off = [name for name in used if cgroup.enabled_for_pods is not None and name not in cgroup.enabled_for_pods]
    if off and not cgroup.has_containers:
        return info(f"{', '.join(used)}; for pods not yet {', '.join(off)}: their first container brings it")
    if off:
        remedy = f"restart kubelet, which enables them, or write +NAME to cgroup.subtree_control of {cgroup.kube_root}"
        return Judgement(_gravity(off), f"off in cgroup.subtree_control of kubelet's tree: {', '.join(off)}", remedy)
    return ok(", ".join(used))


def _gravity(missing: list[str]) -> CheckStatus:
    return CheckStatus.WARN if missing and not set(missing) & set(_NEEDED) else CheckStatus.FAIL


def _newer(facts: Facts, missing: list[str]) -> list[tuple[str, tuple[int, int]]]:
    """Returns the ``missing`` controllers of cgroup v2 that this kernel is too old for, and their versions."""
    if facts.cgroup.version != 2 or facts.kernel is None:
        return []
    return [(name, since) for name in missing if (since := _V2_SINCE.get(name)) and facts.kernel < since]


def kubelet_tree(facts: Facts) -> Judgement:
    cgroup = facts.cgroup
    if not cgroup.kube_root_exists:
        expected = f"; {cgroup.kube_root} is expected" if cgroup.kube_root else ""
        return warn(f"kubelet has made no cgroup{expected}", "start kubelet")
    return ok(f"pods are below {cgroup.kube_root} ({cgroup.driver} driver)")


def psi(facts: Facts) -> Judgement:
    if not facts.psi:
        since = " (Linux 4.20 has it)" if facts.kernel is not None and facts.kernel < (4, 20) else ""
        return warn(f"/proc/pressure is missing{since}: interference is seen late", "boot with psi=1")
    per_cgroup = facts.cgroup.support.get("cpu.pressure")
    if per_cgroup is Support.PRESENT:
        return ok("pressure is measured, of each cgroup too")
    if per_cgroup is Support.UNKNOWN or not facts.cgroup.kube_root_exists:
        return ok(f"pressure of the node is measured; of pods: {_UNKNOWN_TREE}")
    return info("pressure of the node is measured, that of pods is not: they have no cgroup of version 2")


def cpu_idle(facts: Facts) -> Judgement:
    return _file(facts, "cpu.idle", "BE pods can be made idle class", "BE pods yield by weight alone")


def cpu_burst(facts: Facts) -> Judgement:
    return _file(facts, "cpu.max.burst", "CFS burst is there", "bursts are given by raising the quota")


def task_slices(facts: Facts) -> Judgement:
    """Goes by the kernel's version: no file shows it."""
    if facts.kernel is not None and facts.kernel >= (6, 12):
        return ok("best-effort tasks can have long slices of CPU time")
    return info("no slices of single tasks (Linux 6.12): CPU suppression by pressure begins with cpu.idle")


def group_identity(facts: Facts) -> Judgement:
    if facts.cgroup.has("cpu.bvt_warp_ns"):
        return ok("a vendor kernel with cpu.bvt_warp_ns")
    return info("no cpu.bvt_warp_ns (vendor kernels only): weights and cpu.idle instead")


def memory_qos(facts: Facts) -> Judgement:
    if facts.cgroup.has("memory.high"):
        return ok("memory.min, memory.low and memory.high are there")
    if _is_unseen(facts):
        return info(_UNKNOWN_TREE)
    stand_in = SOFT_LIMIT if facts.cgroup.has(SOFT_LIMIT) else ""
    return info(without_protection(stand_in), "use cgroup v2")


def memory_reclaim(facts: Facts) -> Judgement:
    """Background reclaim stands in for the watermarks and page-cache limits of vendor kernels."""
    cgroup = facts.cgroup
    if not cgroup.has("memory.reclaim"):
        if _is_unseen(facts):
            return info(_UNKNOWN_TREE)
        return info(without_reclaim(cgroup.version or 2), "use cgroup v2 and Linux 5.19")
    lacks = [] if facts.psi else [WITHOUT_PSI]
    if not can_take_file_pages(facts.kernel, facts.swap_bytes):
        lacks.append(WITHOUT_FILE_PAGES)
    if lacks:
        return info("; ".join(lacks))
    return ok("memory.reclaim: background reclaim and page-cache limits are possible")


def memory_throttle(facts: Facts) -> Judgement:
    """Eviction throttles a pod that takes too much memory before it freezes and evicts."""
    if facts.cgroup.has("memory.high"):
        return ok("a pod that takes too much memory is throttled by memory.high first")
    if _is_unseen(facts):
        return info(_UNKNOWN_TREE)
    return info(NO_MEMORY_THROTTLE, "use cgroup v2")


def cpuset_partition(facts: Facts) -> Judgement:
    """Looks for the file, because kernels carry backports; a local partition cannot be made below kubelet's tree."""
    if facts.cgroup.has("cpuset.cpus.exclusive"):
        return ok("remote cpuset partitions are possible")
    if _is_unseen(facts) and facts.kernel is not None and facts.kernel >= (6, 7):
        return info(_UNKNOWN_TREE)
    return info(NO_REMOTE_PARTITIONS)


def isolated_cpus(facts: Facts) -> Judgement:
    if not facts.isolated_cpus:
        return ok("the kernel balances load over all CPUs")
    text = f"CPUs {facts.isolated_cpus} are isolated: the kernel balances no load there, so no CPU pool has them"
    return warn(text, "boot without isolcpus, or bind pods of class LSE or LSR to them")


def resctrl(facts: Facts) -> Judgement:
    able = [text for flag, text in _RDT_FLAGS.items() if flag in facts.cpu_flags]
    if not able:
        return info("the CPU has no RDT: caches and bandwidth are shared without limits")
    if not facts.resctrl_mounted:
        remedy = f"mount -t resctrl resctrl {RESCTRL_ROOT}"
        return warn(f"the CPU has {', '.join(able)}, and resctrl is not mounted", remedy)
    text = f"{', '.join(able)}; groups: {', '.join(sorted(facts.resctrl_classes)) or 'none'}"
    if facts.resctrl_in_mbps:
        return warn(f"{text}; mounted with mba_MBps: bandwidths are MB/s, not percent", "mount it without mba_MBps")
    return ok(text)


def perf(facts: Facts) -> Judgement:
    if not facts.perf_hardware:
        return info("no hardware counters (a virtual machine?): no cycles per instruction")
    if facts.perf_paranoid is not None and facts.perf_paranoid > 2:
        text = f"perf_event_paranoid is {facts.perf_paranoid}, which keeps koord-qosd out although it has CAP_PERFMON"
        return warn(text, "sysctl kernel.perf_event_paranoid=2")
    return ok("hardware counters")


def swap(facts: Facts) -> Judgement:
    if not facts.swap_bytes:
        return ok("no swap")
    size = f"{facts.swap_bytes / (1 << 30):.1f} GiB of swap"
    if facts.kubelet.running and facts.kubelet.fail_swap_on:
        return warn(f"{size}, and kubelet's failSwapOn is true", "swapoff -a, or failSwapOn: false")
    return info(f"{size}: a container's memory limit does not bound what it swaps")


def _is_unseen(facts: Facts) -> bool:
    """Returns whether files of cgroup v2 cannot be seen, because kubelet has made no cgroup."""
    return facts.cgroup.version == 2 and not facts.cgroup.kube_root_exists


def _file(facts: Facts, row: str, there: str, instead: str) -> Judgement:
    if facts.cgroup.has(row):
        return ok(there)
    if not facts.cgroup.kube_root_exists:
        return info(_UNKNOWN_TREE)
    return info(f"no {row}: {instead}", "use a newer kernel")
