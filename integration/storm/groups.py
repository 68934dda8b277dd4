"""The cgroups of a storm's pods: made, removed and read back, on cgroup v1 by path and on v2 under systemd by slice.

Expected values are named as cgroup v1 names them, because that is what CRI asks for; on v2 they are compared as the
runtime converts them (runc 1.1: weight = 1 + (shares - 2) × 9999 / 262142).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from integration.harness import cgroups
from integration.harness.pods import CPU_PERIOD_US, Pod
from integration.harness.processes import wait_for

EMPTY_S = 20.0
Expected = Mapping[str, object]  # a subset of cpuset_cpus, cfs_quota_us, cpu_shares, memory_limit_bytes


class Groups(Protocol):
    """What kubelet does for a pod's cgroup, and the kernel's side of the ledger."""

    def make(self, pod: Pod) -> None: ...

    def remove(self, pod: Pod) -> None:
        """Remove the pod's cgroup; HarnessError if something still runs in it."""

    def exists(self, pod: Pod, container_id: str) -> bool: ...

    def differences(self, pod: Pod, container_id: str, expected: Expected) -> str:
        """What the kernel shows otherwise, or that the cgroup is not there; "" if all is as expected."""


class Cgroupfs:
    """cgroup v1 with kubelet's cgroupfs driver."""

    def make(self, pod: Pod) -> None:
        cgroups.make_pod(pod)

    def remove(self, pod: Pod) -> None:
        cgroups.remove(pod.cgroup_parent)

    def exists(self, pod: Pod, container_id: str) -> bool:
        return cgroups.existing(f"{pod.cgroup_parent}/{container_id}")

    def differences(self, pod: Pod, container_id: str, expected: Expected) -> str:
        try:
            values = cgroups.read(f"{pod.cgroup_parent}/{container_id}")
        except FileNotFoundError as error:
            return str(error)
        return _compared({key: getattr(values, key) for key in expected}, expected)


class Slices:
    """cgroup v2 with the systemd driver; ``mount`` is that of cgroup2. A slice comes with the pod's first scope."""

    def __init__(self, mount: Path = Path("/sys/fs/cgroup")) -> None:
        self._mount = mount

    def make(self, pod: Pod) -> None:
        """Nothing: systemd makes the slice that a scope asks for."""

    def remove(self, pod: Pod) -> None:
        events = self._directory(pod) / "cgroup.events"
        wait_for(lambda: not events.exists() or "populated 0" in events.read_text(), EMPTY_S, f"{events}: no process")
        subprocess.run(["systemctl", "stop", self._directory(pod).name], check=True)

    def exists(self, pod: Pod, container_id: str) -> bool:
        return self._scope(pod, container_id).exists()

    def differences(self, pod: Pod, container_id: str, expected: Expected) -> str:
        files = dict(_as_v2(key, value) for key, value in expected.items())
        scope = self._scope(pod, container_id)
        try:
            shown = {name: (scope / name).read_text().strip() for name in files}
        except OSError as error:
            return str(error)
        return _compared(shown, files)

    def _directory(self, pod: Pod) -> Path:
        return self._mount / pod.cgroup_parent.strip("/")

    def _scope(self, pod: Pod, container_id: str) -> Path:
        return self._directory(pod) / f"cri-containerd-{container_id}.scope"


def _as_v2(key: str, value: object) -> tuple[str, str]:
    """File and text."""
    match key, value:
        case "cpuset_cpus", str():
            return "cpuset.cpus", value
        case "cfs_quota_us", int():
            return "cpu.max", f"{value} {CPU_PERIOD_US}"
        case "cpu_shares", int():
            return "cpu.weight", str(1 + (value - 2) * 9999 // 262142)
        case "memory_limit_bytes", int():
            return "memory.max", str(value)
    raise ValueError(f"{key}={value!r}")


def _compared(shown: Mapping[str, object], expected: Expected) -> str:
    return "" if shown == expected else f"{dict(shown)} instead of {dict(expected)}"
