"""A machine of plain files: a cgroup tree whose new groups have their files, /proc, /sys, and a runtime on it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koord.host.files import Target, Value
from koord.host.writer import Writer
from qosd.locator import CgroupLocator
from qosd.options import Options
from tests.fakes.runtime import TIERS, FakeRuntime

_PAGES = (
    "inactive_anon active_anon inactive_file active_file unevictable workingset_refault_anon workingset_refault_file"
)
V1_FILES: Mapping[str, Mapping[str, str]] = {
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
V2_FILES: Mapping[str, str] = {
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
MEMORY_KB: Mapping[str, int] = {
    "MemTotal": 16 << 20,
    "MemFree": 8 << 20,
    "MemAvailable": 12 << 20,
    "Active(file)": 1 << 20,
    "Inactive(file)": 1 << 20,
}


class Runtime(FakeRuntime):
    """Its groups come with their files, and go with them."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.hierarchy)
        self._machine = machine

    def make(self, group: str) -> None:
        self._machine.make(group)

    def unmake(self, group: str) -> None:
        self._machine.unmake(group)


@dataclass
class Machine:
    """CPUs 0-3, 16 GiB. ``root`` holds everything; nothing is below ``cgroup`` before `kubepods` or a pod is made."""

    root: Path
    version: int = 1
    runtime: Runtime = field(init=False)

    def __post_init__(self) -> None:
        self.put("proc/self/mountinfo", "")
        self.put("proc/meminfo", "".join(f"{name}: {kb} kB\n" for name, kb in MEMORY_KB.items()))
        self.put("proc/stat", "cpu  100 0 100 1000 0 0 0 0 0 0\n")
        self.put("proc/sys/kernel/random/boot_id", "6f1d\n")
        self.put("sys/devices/system/cpu/online", "0-3\n")
        self.make("")
        self.runtime = Runtime(self)

    @property
    def cgroup_root(self) -> Path:
        return self.root / "cgroup"

    @property
    def hierarchy(self) -> Path:
        """The one in which pods are looked for: v1, the CPU controller's."""
        return self.cgroup_root if self.version == 2 else self.cgroup_root / "cpu"

    def put(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def kubepods(self) -> None:
        """kubelet's own cgroups."""
        for tier in TIERS:
            self.make(tier)

    def make(self, group: str) -> None:
        """``group`` and all above it, with their files."""
        parts = [part for part in group.split("/") if part]
        for depth in range(len(parts) + 1):
            for files in [("", V2_FILES)] if self.version == 2 else V1_FILES.items():
                self._fill(self.cgroup_root / files[0] / "/".join(parts[:depth]), files[1])

    def unmake(self, group: str) -> None:
        for controller in [""] if self.version == 2 else V1_FILES:
            shutil.rmtree(self.cgroup_root / controller / group.lstrip("/"), ignore_errors=True)

    def _fill(self, directory: Path, files: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            if not (directory / name).exists():
                (directory / name).write_text(text + "\n")

    def options(self, **other: Any) -> Options:
        """Everything below ``root``, no port, no NRI; the runtime's socket is where ``serving`` puts it."""
        return Options(
            **{
                "rules_file": self.root / "rules.yaml",
                "hook_socket": self.root / "h.sock",
                "inspect_socket": self.root / "i.sock",
                "hookserver_dir": str(self.root / "hookserver.d"),
                "runtime_endpoint": f"unix://{self.socket}",
                "kubelet_state_dir": self.root / "kubelet",
                "nri_socket": "",
                "cgroup_root": self.cgroup_root,
                "resctrl_root": self.root / "resctrl",
                "proc_root": self.root / "proc",
                "sys_root": self.root / "sys",
                "run_dir": self.root / "run",
                "state_dir": self.root / "state",
                "metrics_endpoint": f"unix://{self.root}/m.sock",
                **other,
            }
        )

    def flags(self) -> list[str]:
        """``options()`` as a command line."""
        options, defaults = self.options(), Options()
        changed = {name: getattr(options, name) for name in Options.__slots__}
        return [
            word
            for name, value in changed.items()
            if value != getattr(defaults, name)
            for word in (f"--{name.replace('_', '-')}", str(value))
        ]

    @property
    def socket(self) -> Path:
        return self.root / "cri.sock"

    def locator(self, **other: Any) -> CgroupLocator:
        """The locator as the options have it, with configuration of kubelet and runtime below ``host``."""
        return CgroupLocator(self.options(**other), self.root / "host")

    def holds(self, group: str, name: str) -> Value | None:
        """What the kernel's file holds, in CRI's units."""
        return Writer(self.locator().tree).read(Target(group, name))
