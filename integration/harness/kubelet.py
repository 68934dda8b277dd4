"""A kubelet in standalone mode: static pods from a folder, no API server, its own port on loopback.

Invariant: after ``close()`` its pods are gone, the kernel settings it changes have their old values, and directories
that it made outside of its root directory are removed. It must have a containerd of its own: kubelet removes every
pod that it does not know.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from integration.harness import cgroups, leftovers
from integration.harness.cri import Cri
from integration.harness.kubelet_api import KubeletApi, free_port
from integration.harness.processes import HarnessError, Process
from koord.pb.cri import api_pb2 as pb

BOOT_S = 40.0
PODS_S = 60.0
# What kubelet sets at start (its container manager's kernel tunables).
SYSCTLS = tuple(
    Path("/proc/sys", name)
    for name in (
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys",
        "kernel/keys/root_maxbytes",
    )
)
# Paths that kubelet has no option for.
DIRECTORIES = (Path("/var/lib/kubelet"), Path("/var/log/containers"), Path("/var/log/pods"))

Manifest = Mapping[str, object]


class Kubelet:
    """A kubelet whose runtime is the CRI socket ``runtime`` and whose cgroups are below ``cgroup_root``."""

    def __init__(self, program: Path, runtime: Path, directory: Path, cgroup_root: str) -> None:
        self.log = directory / "kubelet.log"
        self.api = KubeletApi(free_port())
        self.root = directory / "root"
        self._program = program
        self._runtime = runtime
        self._directory = directory
        self._cgroup_root = cgroup_root
        self._manifests = directory / "manifests"
        self._made = leftovers.absent(DIRECTORIES)
        self._sysctls = {path: path.read_text() for path in SYSCTLS if path.exists()}
        self._process: Process | None = None

    def start(self, manifests: Mapping[str, Manifest]) -> None:
        """Start with static pods by name and wait until its API answers."""
        self._manifests.mkdir(parents=True)
        self.add_pods(manifests)
        config = self._directory / "config.json"
        config.write_text(json.dumps(self._configuration()))
        argv = [
            str(self._program),
            f"--config={config}",
            f"--root-dir={self.root}",
            f"--cert-dir={self._directory / 'pki'}",
            "--hostname-override=node",
            "--v=2",
        ]
        self._process = Process(argv, self.log)
        self._process.wait_for(self.api.healthy, BOOT_S, "kubelet to be healthy")

    def add_pods(self, manifests: Mapping[str, Manifest]) -> None:
        """Write the manifests of static pods, by name; each appears whole."""
        for name, manifest in manifests.items():
            draft = self._manifests / f".{name}"
            draft.write_text(json.dumps(manifest))
            draft.rename(self._manifests / f"{name}.json")

    def wait_ready(self, names: set[str]) -> None:
        """Wait until exactly the static pods ``names`` are Ready."""
        self._running().wait_for(lambda: set(self.api.ready_pods()) == names, PODS_S, f"{sorted(names)} to be Ready")

    def remove_pods(self, cri: Cri) -> None:
        """Take the manifests away and wait until kubelet has stopped the pods, as ``cri`` shows."""
        for file in self._manifests.glob("*.json"):
            file.unlink()
        self._running().wait_for(
            lambda: all(item.state == pb.SANDBOX_NOTREADY for item in cri.pods()), PODS_S, "kubelet to stop its pods"
        )

    def close(self) -> None:
        if self._process is not None:
            self._process.stop()
        for directory in (self._directory, self.root):
            leftovers.unmount_below(directory)
        for path, value in self._sysctls.items():
            if path.read_text() != value:
                cgroups.write(path, value)
        for path in self._made:
            leftovers.unmount_below(path)
            shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.root, ignore_errors=True)

    def _running(self) -> Process:
        if self._process is None:
            raise HarnessError("kubelet was not started")
        return self._process

    def _configuration(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": self.api.port,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._cgroup_root,
            "containerRuntimeEndpoint": f"unix://{self._runtime}",
            "enforceNodeAllocatable": ["pods"],
            "failCgroupV1": False,
            "failSwapOn": False,
            "fileCheckFrequency": "1s",
            "healthzPort": 0,
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(self._directory / "logs"),
            "resolvConf": "",
            "staticPodPath": str(self._manifests),
            "volumePluginDir": str(self._directory / "plugins"),
        }


@contextlib.contextmanager
def standalone(
    program: Path, runtime: Path, directory: Path, cgroup_root: str, manifests: Mapping[str, Manifest]
) -> Iterator[Kubelet]:
    """A started kubelet, closed at the end; ``directory`` must not exist yet."""
    directory.mkdir(parents=True)
    kubelet = Kubelet(program, runtime, directory, cgroup_root)
    try:
        kubelet.start(manifests)
        yield kubelet
    finally:
        kubelet.close()
