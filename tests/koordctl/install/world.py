"""A node in a directory: files, a service manager that reads them, a runtime that makes cgroups, and a kubelet.

Invariant: nothing here is a patched function; the installer works on it as on a real one, through its arguments.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from koord.model.locations import CONTAINERD_SOCKET, PROXY_SOCKET
from koordctl.install.disk import Content, NodeDisk
from koordctl.install.machine import CommandResult, Machine, Systemd
from koordctl.install.plan import Flavour, InstallFacts, Programs
from koordctl.node import grants, units
from koordctl.node.facts import CgroupFacts, Facts, KubeletSettings, RuntimeFacts
from koordctl.node.files import NodeFiles
from koordctl.node.units import UNIT_FILES
from tests.fakes.clock import Clock
from tests.fakes.runtime import FakeRuntime

SYSTEMD_DIRECTORY = Path(__file__).parents[3] / "systemd"
RUNTIME_SOCKET = CONTAINERD_SOCKET
TIER = "/kubepods.slice/kubepods-besteffort.slice"
KUBELET_PID = "200"
FILES = {
    "usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\n",
    "etc/systemd/system/kubelet.service.d/10-kubeadm.conf": (
        '[Service]\nEnvironment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"\n'
        "EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\n"
        "ExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS --node-ip=%i \\\n  $KUBELET_EXTRA_ARGS\n"
    ),
    "etc/systemd/system/multi-user.target.wants/ssh.service": "",
    "etc/containerd/config.toml": "version = 2\n",
    "var/lib/kubelet/config.yaml": "healthzPort: 0\n",
    "proc/1/comm": "systemd\n",
    f"proc/{KUBELET_PID}/comm": "kubelet\n",
    f"proc/{KUBELET_PID}/cmdline": "/usr/bin/kubelet\0--config=/var/lib/kubelet/config.yaml\0",
    "proc/net/unix": "",
    "sys/fs/cgroup/cgroup.controllers": "cpu cpuset memory io\n",
    f"sys/fs/cgroup{TIER}/cgroup.procs": "",
    "usr/bin/true": "",
}
CHANGING = ("etc", "run", "var", "usr", "sys")


class Killed(BaseException):
    """What SIGKILL is to the installer."""


class Hand:
    """Kills whoever comes to the ``at``-th moment; counts them all."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.moments = at, 0

    def moment(self) -> bool:
        self.moments += 1
        return self.moments == self.at


class MortalDisk(NodeDisk):
    """A disk on which every small act is a moment to die at; a write may die in its middle."""

    def __init__(self, root: Path, hand: Hand) -> None:
        super().__init__(root)
        self._hand = hand

    def _reach(self) -> None:
        if self._hand.moment():
            raise Killed

    def stage(self, path: str, new: Content) -> None:
        self._reach()
        if self._hand.moment():
            super().stage(path, Content(new.content[: len(new.content) // 2], 0o600, new.uid, new.gid))
            raise Killed
        super().stage(path, new)

    def append(self, path: str, line: bytes) -> None:
        self._reach()
        if self._hand.moment():
            super().append(path, line[: len(line) // 2])
            raise Killed
        super().append(path, line)

    def link(self, path: str, target: str) -> None:
        self._reach()
        super().link(path, target)

    def rename(self, old: str, new: str) -> None:
        self._reach()
        super().rename(old, new)

    def make_directory(self, path: str, mode: int = 0o755) -> None:
        self._reach()
        super().make_directory(path, mode)

    def unlink(self, path: str) -> None:
        self._reach()
        super().unlink(path)

    def remove_directory(self, path: str) -> bool:
        self._reach()
        return super().remove_directory(path)

    def remove_tree(self, path: str) -> None:
        self._reach()
        if self._hand.moment():
            for name in self.names(path)[:1]:
                super().remove_tree(f"{path}/{name}")
            raise Killed
        super().remove_tree(path)

    def sync(self, descriptor: int) -> None:
        """Not needed: the kernel lives on."""


class World:
    """The node at ``root``. ``fails``: commands (without ``systemctl``) that fail, and what they say.

    ``sick_on_proxy``: kubelet ends at once when it is pointed at the proxy; ``sick_with``: or when this is in its
    command. ``kernel_restored``: the runtime's socket, each time that kernel files were put back. ``runs``: by unit,
    what its files said when it was started.
    """

    def __init__(self, root: Path, files: Mapping[str, str] = FILES) -> None:
        self.root = root
        self.clock = Clock()
        self.commands: list[str] = []
        self.said: list[str] = []
        self.fails: dict[str, str] = {}
        self.sick_on_proxy = False
        self.sick_with = ""
        self.failed: set[str] = set()
        self.active = {"kubelet.service", "containerd.service"}
        self.kernel_restored: list[str] = []
        self.runs: dict[str, tuple[str, ...]] = {}
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name in ("etc/systemd/system", "var/lib", "run/containerd", "usr/bin"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def machine(self, hand: Hand | None = None) -> Machine:
        mortal = hand or Hand()

        def run(command: Sequence[str]) -> CommandResult:
            if mortal.moment():
                raise Killed
            return self.systemctl(command)

        return Machine(
            disk=MortalDisk(self.root, mortal),
            systemd=Systemd(run),
            restore_kernel=self._restore_kernel,
            say=self.said.append,
            now=self.clock.now,
            sleep=self.clock.advance,
            wait_s=5,
        )

    def systemctl(self, command: Sequence[str]) -> CommandResult:
        verb, *rest = command[1:]
        line = " ".join(command[1:])
        if verb != "show":
            self.commands.append(line)
        if line in self.fails:
            return CommandResult(1, "", self.fails[line])
        unit = rest[-1] if rest else ""
        if verb == "show":
            state = "active" if unit in self.active else "failed" if unit in self.failed else "inactive"
            return CommandResult(0, f"{state}\n", "")
        if verb in ("start", "restart") and unit == "kubelet.service":
            self._start_kubelet()
        elif verb in ("start", "restart"):
            self._start(unit)
        elif verb == "stop":
            self.active.discard(unit)
        return CommandResult(0, "", "")

    def stop_kubelet(self) -> None:
        self.active.discard("kubelet.service")
        (self.root / f"proc/{KUBELET_PID}/comm").unlink()

    def kubelet_arguments(self) -> str:
        return (self.root / f"proc/{KUBELET_PID}/cmdline").read_text()

    def snapshot(self) -> dict[str, tuple[object, ...]]:
        """Path → type, mode, owner and content of everything that an installation could change."""
        found = {}
        for top in CHANGING:
            for here, directories, names in os.walk(self.root / top):
                for name in (*directories, *names):
                    path = f"{here}/{name}"
                    found[path.removeprefix(f"{self.root}/")] = _described(path)
        return found

    def _restore_kernel(self, runtime: str) -> tuple[str, ...]:
        self.kernel_restored.append(runtime)
        return ()

    def _start(self, unit: str) -> None:
        found = units.find(NodeFiles(self.root), unit)
        if found is None:
            raise AssertionError(f"{unit} is started without a unit file")
        self.runs[unit] = tuple(file.text for file in found.files)
        if unit == "koord-qosd.service":
            for name in ("run/koord", "etc/koord", "etc/runtime/hookserver.d"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
            (self.root / "run/koord/undo.jsonl").write_text("{}\n")
            (self.root / "etc/runtime/hookserver.d/koord-qosd.json").write_text("{}\n")
            (self.root / "var/lib/koord/journal.sqlite").write_text("journal")
        elif unit.endswith(".socket"):
            socket = self.root / PROXY_SOCKET.lstrip("/")
            socket.parent.mkdir(exist_ok=True)
            socket.unlink(missing_ok=True)
            os.symlink("../containerd/containerd.sock", socket)
        self.active.add(unit)

    def _start_kubelet(self) -> None:
        unit = units.find(NodeFiles(self.root), "kubelet.service")
        assert unit is not None
        (command,) = unit.values("Service", "ExecStart")
        (self.root / f"proc/{KUBELET_PID}/comm").write_text("kubelet\n")
        (self.root / f"proc/{KUBELET_PID}/cmdline").write_text("\0".join([*command.split(), ""]))
        on_proxy = PROXY_SOCKET in command
        line = f"0000: 00000003 00000000 00000000 0001 03 {4000 + len(self.commands)} {PROXY_SOCKET}\n"
        (self.root / "proc/net/unix").write_text(line if on_proxy else "")
        if (on_proxy and self.sick_on_proxy) or (self.sick_with and self.sick_with in command):
            self.active.discard("kubelet.service")
            self.failed.add("kubelet.service")
        else:
            self.active.add("kubelet.service")


def _described(path: str) -> tuple[object, ...]:
    found = os.lstat(path)
    kind = stat.S_IFMT(found.st_mode)
    if stat.S_ISLNK(kind):
        return kind, os.readlink(path)
    content = b""
    if stat.S_ISREG(kind):
        with open(path, "rb") as file:
            content = file.read()
    return kind, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, content


class Runtime(FakeRuntime):
    """In a thread; a sandbox's cgroup is where runc would make it, or below ``parent``."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, version=("containerd", "2.1.0"))
        self.socket, self.parent = directory / "cri.sock", ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._served_here = self.serving(self.socket)

    def __enter__(self) -> Runtime:
        self.socket.parent.mkdir(parents=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._served_here.__aenter__(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._served_here.__aexit__(None, None, None), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def forget(self) -> None:
        """Remove the cgroups that a test's own ``parent`` made."""
        if self.parent:
            shutil.rmtree(f"{self.tree}{self.parent}")

    def cgroup(self, id_: str) -> str:
        parent = self.parents[id_]
        above = self.parent or (f"{TIER}/{parent}" if parent.endswith(".slice") else parent)
        return f"{above}/cri-containerd-{id_}.scope"


def facts(root: Path, flavour: Flavour = Flavour.VENV, **changed: object) -> InstallFacts:
    """What would be found of the node at ``root``; the verification pod has a fixed uid.

    ``root_dir``, ``socket_group``: of kubelet and of the runtime's socket.
    """
    where = "/etc/systemd/system" if flavour is Flavour.VENV else "/usr/lib/systemd/system"
    texts = {name: (SYSTEMD_DIRECTORY / name).read_text() for name in UNIT_FILES}
    node: Any = changed.pop("node", node_facts())
    unit = units.find(NodeFiles(root), "kubelet.service")
    node = replace(
        node,
        kubelet=replace(node.kubelet, unit_files=unit, root_dir=changed.pop("root_dir", "")),
        runtime=replace(node.runtime, socket_group=changed.pop("socket_group", "")),
        koord=replace(node.koord, grants=grants.drop_in(grants.wanted(NodeFiles(root)))),
    )
    found: dict[str, object] = {"programs": Programs(flavour, "/opt/koord/bin", where, texts), "uid": "11-22"}
    return InstallFacts(node, **{**found, **changed})  # type: ignore[arg-type]


def node_facts(**kubelet: object) -> Facts:
    """A node that the doctor likes."""
    kubelet = {"running": True, "unit": "kubelet.service", "version": "v1.30.0", "cgroup_driver": "systemd", **kubelet}
    controllers = frozenset({"cpu", "cpuset", "memory", "io"})
    return Facts(
        kernel_release="6.1.0",
        systemd=True,
        psi=True,
        cgroup=CgroupFacts(
            2, False, controllers, "/kubepods.slice", True, "systemd", enabled_for_pods=controllers, best_effort=TIER
        ),
        kubelet=KubeletSettings(**kubelet),  # type: ignore[arg-type]
        runtime=RuntimeFacts("containerd", "2.1.0", RUNTIME_SOCKET, True, cgroup_driver="systemd"),
    )
