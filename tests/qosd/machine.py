"""A machine of plain files: a cgroup tree whose new groups have their files, /proc, /sys, and a runtime on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koord.host.files import Target, Value
from koord.host.writer import Writer
from qosd.locator import CgroupLocator
from qosd.options import Options
from tests.fakes.cgroups import Cgroups
from tests.fakes.runtime import TIERS, FakeRuntime

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
        self._cgroups = machine.cgroups

    def make(self, cgroup: str) -> None:
        self._cgroups.make(cgroup)

    def unmake(self, cgroup: str) -> None:
        self._cgroups.remove(cgroup)


@dataclass
class Machine:
    """CPUs 0-3, 16 GiB. ``root`` holds everything; nothing is below ``cgroup`` before `kubepods` or a pod is made."""

    root: Path
    version: int = 1
    cgroups: Cgroups = field(init=False)
    runtime: Runtime = field(init=False)

    def __post_init__(self) -> None:
        self.put("proc/self/mountinfo", "")
        self.put("proc/meminfo", "".join(f"{name}: {kb} kB\n" for name, kb in MEMORY_KB.items()))
        self.put("proc/stat", "cpu  100 0 100 1000 0 0 0 0 0 0\n")
        self.put("proc/sys/kernel/random/boot_id", "6f1d\n")
        self.put("sys/devices/system/cpu/online", "0-3\n")
        self.cgroups = Cgroups(self.cgroup_root, self.version)
        self.cgroups.make("")
        self.runtime = Runtime(self)

    @property
    def cgroup_root(self) -> Path:
        return self.root / "cgroup"

    @property
    def hierarchy(self) -> Path:
        """The one in which pods are looked for: v1, the CPU controller's."""
        return self.cgroups.path("", "cpu.stat").parent

    def put(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def kubepods(self) -> None:
        """kubelet's own cgroups."""
        for tier in TIERS:
            self.cgroups.make(tier)

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

    def holds(self, cgroup: str, name: str) -> Value | None:
        """What the kernel's file holds, in CRI's units."""
        return Writer(self.locator().tree).read(Target(cgroup, name))
