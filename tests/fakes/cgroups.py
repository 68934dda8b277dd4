"""Cgroups as files: which the kernel puts into one, by version, controller and release, and trees of plain ones.

Sources: the kernel's documents of both cgroup versions and the commits that added a file. ``since`` is the first
mainline release.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

Release = tuple[int, int]
ALWAYS: Release = (0, 0)
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


@dataclass(frozen=True, slots=True)
class File:
    name: str
    text: str = ""
    since: Release = ALWAYS


def _files(text: str) -> tuple[File, ...]:
    """``name[>=M.N] = first line`` per line."""
    found = []
    for line in text.strip().splitlines():
        name, _, content = line.strip().partition(" = ")
        name, _, since = name.partition(">=")
        major, _, minor = since.partition(".")
        found.append(File(name, f"{content}\n" if content else "", (int(major), int(minor)) if since else ALWAYS))
    return tuple(found)


V1_CORE = _files("""
    cgroup.clone_children = 0
    cgroup.procs
    notify_on_release = 0
    tasks
""")
V1: Mapping[str, tuple[File, ...]] = {
    "cpu": _files("""
        cpu.shares = 1024
        cpu.cfs_period_us = 100000
        cpu.cfs_quota_us = -1
        cpu.cfs_burst_us>=5.14 = 0
        cpu.idle>=5.15 = 0
        cpu.stat = nr_periods 0
    """),
    "cpuacct": _files("""
        cpuacct.stat = user 0
        cpuacct.usage = 0
        cpuacct.usage_percpu = 0
    """),
    "cpuset": _files("""
        cpuset.cpus = 0-1
        cpuset.cpu_exclusive = 0
        cpuset.effective_cpus = 0-1
        cpuset.effective_mems = 0
        cpuset.mems = 0
    """),
    "memory": _files("""
        memory.limit_in_bytes = 9223372036854771712
        memory.soft_limit_in_bytes = 9223372036854771712
        memory.force_empty
        memory.failcnt = 0
        memory.usage_in_bytes = 0
        memory.oom_control = oom_kill_disable 0
        memory.stat = cache 0
        memory.numa_stat = total=0 N0=0
    """),
    "blkio": _files("""
        blkio.throttle.io_service_bytes
        blkio.throttle.io_service_bytes_recursive
        blkio.throttle.io_serviced
        blkio.throttle.io_serviced_recursive
        blkio.throttle.read_bps_device
        blkio.throttle.read_iops_device
        blkio.throttle.write_bps_device
        blkio.throttle.write_iops_device
    """),
    "pids": _files("""
        pids.current = 0
        pids.max = max
    """),
    "devices": _files("devices.list = a *:* rwm"),
    "freezer": _files("freezer.state = THAWED"),
}
V2_CORE = _files("""
    cgroup.controllers
    cgroup.events = populated 1
    cgroup.freeze>=5.2 = 0
    cgroup.kill>=5.14
    cgroup.max.depth = max
    cgroup.max.descendants = max
    cgroup.procs
    cgroup.stat = nr_descendants 0
    cgroup.subtree_control
    cgroup.threads
    cgroup.type = domain
    cpu.stat = usage_usec 0
""")
V2: Mapping[str, tuple[File, ...]] = {
    "cpu": _files("""
        cpu.max = max 100000
        cpu.max.burst>=5.14 = 0
        cpu.idle>=5.15 = 0
        cpu.weight = 100
        cpu.weight.nice = 0
    """),
    "cpuset": _files("""
        cpuset.cpus
        cpuset.cpus.effective = 0-1
        cpuset.cpus.exclusive>=6.7
        cpuset.cpus.exclusive.effective>=6.7
        cpuset.cpus.partition = member
        cpuset.mems
        cpuset.mems.effective = 0
    """),
    "memory": _files("""
        memory.current = 0
        memory.events = low 0
        memory.high = max
        memory.low = 0
        memory.max = max
        memory.min>=4.18 = 0
        memory.numa_stat>=5.10 = anon N0=0
        memory.oom.group>=4.19 = 0
        memory.reclaim>=5.19
        memory.stat = anon 0
        memory.swap.current = 0
        memory.swap.high>=5.8 = max
        memory.swap.max = max
    """),
    "io": _files("""
        io.max
        io.stat
        io.weight = default 100
    """),
    "pids": _files("""
        pids.current = 0
        pids.max = max
    """),
}
OPTIONAL = frozenset({"irq.pressure", "io.latency", "memory.zswap.max", "memory.memsw.limit_in_bytes"})
"""Not in these nodes: a kernel's configuration or command line decides whether it has them."""
V2_CONTROLLERS_SINCE: Mapping[str, Release] = {"cpuset": (5, 0)}
_PRESSURE = tuple(File(f"{name}.pressure", PRESSURE, (4, 20)) for name in ("cpu", "io", "memory"))
_PRESSURE_SWITCH = (File("cgroup.pressure", "1\n", (6, 1)),)


def v2_controllers(release: Release) -> list[str]:
    return [name for name in V2 if release >= V2_CONTROLLERS_SINCE.get(name, ALWAYS)]


def v1_files(controller: str, release: Release) -> list[File]:
    return _present((*V1_CORE, *V1[controller]), release)


def v2_files(controllers: Iterable[str], release: Release, psi: bool) -> list[File]:
    """The files of a cgroup below the root, whose parent passes ``controllers`` on."""
    own = [file for name in controllers for file in V2[name]]
    return _present((*V2_CORE, *own, *((*_PRESSURE, *_PRESSURE_SWITCH) if psi else ())), release)


def _present(files: Iterable[File], release: Release) -> list[File]:
    return [file for file in files if release >= file.since]


# --- trees -----------------------------------------------------------------------------------------------------------

_PAGES = (
    "inactive_anon active_anon inactive_file active_file unevictable workingset_refault_anon workingset_refault_file"
)
NEW_V1: Mapping[str, Mapping[str, str]] = {
    "cpu": {
        "cpu.cfs_quota_us": "-1",
        "cpu.cfs_period_us": "100000",
        "cpu.shares": "1024",
        "cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0",
        "tasks": "",
        "cgroup.procs": "",
    },
    "cpuacct": {"cpuacct.usage": "1000000"},
    "cpuset": {"cpuset.cpus": "0-3", "cpuset.mems": "0", "cgroup.procs": ""},
    "memory": {
        "memory.limit_in_bytes": "9223372036854771712",
        "memory.usage_in_bytes": "4096",
        "memory.stat": "\n".join(f"total_{name} 4096" for name in _PAGES.split()),
    },
}
NEW_V2: Mapping[str, Mapping[str, str]] = {
    "": {
        "cgroup.controllers": "cpuset cpu memory",
        "cgroup.events": "populated 0",
        "cgroup.threads": "",
        "cpu.max": "max 100000",
        "cpu.weight": "100",
        "cpu.idle": "0",
        "cpu.stat": "usage_usec 1000\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0",
        "cpuset.cpus": "",
        "cpuset.cpus.effective": "0-3",
        "memory.current": "4096",
        "memory.max": "max",
        "memory.min": "0",
        "memory.low": "0",
        "memory.high": "max",
        "memory.stat": "\n".join(f"{name} 4096" for name in _PAGES.split()),
    }
}
"""Files, by hierarchy, of a new group on four CPUs; as few as the daemon does with."""
_BEST_EFFORT = {"cpu.shares": "2", "cpu.weight": "1"}
"""The values that kubelet gives the files of its tier, and that kubelet or the runtime give all below it."""
_V1_HIERARCHIES = {file.name: controller for controller, files in V1.items() for file in files}


class Cgroups:
    """Groups below ``root``, of version 1, whose hierarchies are named as their controllers, or 2."""

    def __init__(self, root: Path, version: int = 1) -> None:
        self.root, self.version = root, version

    def path(self, cgroup: str, name: str) -> Path:
        """Pressure on v1 is in the v2 tree of a hybrid."""
        hierarchy = "unified" if name.endswith(".pressure") else _V1_HIERARCHIES.get(name, "cpu")
        return self.root / ("" if self.version == 2 else hierarchy) / cgroup.lstrip("/") / name

    def put(self, cgroup: str, files: Mapping[str, str]) -> None:
        """Write a line to each file, in a directory that is made if need be."""
        for name, line in files.items():
            path = self.path(cgroup, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{line}\n")

    def make(self, cgroup: str) -> None:
        """Makes ``group`` and all above it, with the files of new ones; existing files stay."""
        parts = [part for part in cgroup.split("/") if part]
        for depth in range(len(parts) + 1):
            for hierarchy, files in (NEW_V1 if self.version == 1 else NEW_V2).items():
                directory = self.root / hierarchy / "/".join(parts[:depth])
                directory.mkdir(parents=True, exist_ok=True)
                of_kubelet = _BEST_EFFORT if any("besteffort" in part for part in parts[:depth]) else {}
                for name, line in files.items():
                    if not (directory / name).exists():
                        (directory / name).write_text(f"{of_kubelet.get(name, line)}\n")

    def remove(self, cgroup: str) -> None:
        for hierarchy in NEW_V1 if self.version == 1 else NEW_V2:
            shutil.rmtree(self.root / hierarchy / cgroup.lstrip("/"), ignore_errors=True)
