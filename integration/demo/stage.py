"""Where the demo plays: a container runtime, koord-qosd and koord-runtime-proxy, all private and removed at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from integration.demo import pods
from integration.harness import cgroups, containerd, machine
from integration.harness.cri import Cri
from integration.harness.holder import SocketHolder
from integration.harness.pods import Pod
from integration.harness.processes import Process
from integration.harness.proxy import start_qosd
from integration.harness.simulated import SimulatedRuntime

KUBELET_ROOT = "/koord-demo"
CGROUP_ROOT = f"{KUBELET_ROOT}/kubepods"


@dataclass(frozen=True, slots=True)
class Node:
    """A container runtime and where its cgroup files are. ``made_by_kubelet`` makes a pod's own cgroup."""

    description: str
    backend: Path
    cgroup_mount: Path
    made_by_kubelet: Callable[[Pod], None]
    read: Callable[[str], cgroups.Values]
    simulated: bool = False


class Stage:
    """A node with Koord on it, by ``rules``. ``cri`` speaks to the proxy, ``runtime`` to the runtime itself."""

    def __init__(self, node: Node, rules: str, directory: Path, holder: SocketHolder, inspect_socket: Path) -> None:
        self.node = node
        self.rules = rules
        self.inspect_socket = inspect_socket
        self.cri = Cri(holder.path)
        self.runtime = Cri(node.backend)
        self._directory = directory
        self._holder = holder
        self._proxy = self._spawn()

    def start(self, pod: Pod) -> Mapping[str, str]:
        """Run ``pod`` through the proxy: the cgroup of each of its containers."""
        self.node.made_by_kubelet(pod)
        _, ids = self.cri.run(pod)
        return {name: f"{pod.cgroup_parent}/{container_id}" for name, container_id in ids.items()}

    def set_rules(self, rules: str) -> None:
        """Give koord-qosd other rules, which it reads as soon as the file is there."""
        new = self._directory / "rules.new"
        new.write_text(rules)
        new.rename(self._directory / "rules.yaml")

    def kill_proxy(self) -> tuple[int, float]:
        """SIGKILL the proxy and start it again on the held socket, as systemd would: (old pid, milliseconds until
        the next call through it was answered)."""
        killed = self._proxy.pid
        self._proxy.signal(signal.SIGKILL)
        began = time.monotonic()
        self._proxy.kill()
        self._proxy = self._spawn()
        self.cri.close()
        self.cri = Cri(self._holder.path)
        self.cri.version()
        return killed, (time.monotonic() - began) * 1000

    def close(self) -> None:
        self.cri.close()
        self.runtime.close()
        self._proxy.stop()

    def _spawn(self) -> Process:
        flags = ("--metrics-endpoint", str(self._directory / "metrics.sock"))
        return self._holder.spawn_proxy(
            self.node.backend, self._directory / "hookserver.d", self._directory / "proxy.log", flags
        )


@contextlib.contextmanager
def stage(directory: Path) -> Iterator[Stage]:
    """The real thing where this machine has it, else a simulated one."""
    cpus = os.cpu_count() or 1
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(_real(directory) if not machine.missing() else _simulated(directory, cpus))
        hook_files = directory / "hookserver.d"
        hook_files.mkdir()
        flags = ("--cgroup-root", str(node.cgroup_mount))
        rules = pods.rules(max(cpus - 1, 0))
        stack.callback(start_qosd(node.backend, directory, hook_files, rules, flags, acts=True).stop)
        holder = stack.enter_context(SocketHolder(directory / "runtimeproxy.sock"))
        played = Stage(node, rules, directory, holder, directory / "inspect.sock")
        stack.callback(played.close)
        yield played


@contextlib.contextmanager
def _real(directory: Path) -> Iterator[Node]:
    with containerd.private(containerd.installed(), directory / "containerd") as runtime, cgroups.root(KUBELET_ROOT):
        with Cri(runtime.socket) as cri:
            release = cri.version().runtime_version
        yield Node(
            f"containerd {release}, cgroup v1", runtime.socket, Path("/sys/fs/cgroup"), cgroups.make_pod, cgroups.read
        )


@contextlib.contextmanager
def _simulated(directory: Path, cpus: int) -> Iterator[Node]:
    tree = directory / "cgroup"
    runtime = SimulatedRuntime(tree, f"0-{cpus - 1}" if cpus > 1 else "0")
    mounts = {name: tree / name for name in ("cpu", "cpuset", "memory")}
    socket = directory / "runtime.sock"
    with runtime.serving(socket):
        yield Node(
            f"simulated ({'; '.join(machine.missing())})", socket, tree, lambda pod: None,
            lambda path: cgroups.read(path, mounts), simulated=True,
        )  # fmt: skip
