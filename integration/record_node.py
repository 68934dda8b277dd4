"""Record this node: the files that doctor and install read, copied into a directory, as a tree for their ``--root``.

    python -m integration.record_node DIRECTORY [--runtime SOCKET]

Needs root, else other users' processes and some of kubelet's files stay unknown. It imports nothing but Koord, so that
the file alone can be run where Koord is installed. Invariant: nothing of the node is changed, and no file outside the
lists below is read: no kubeconfig, no certificate, no environment, and only the command lines of the programs named.
A file that cannot be read is left out, as doctor would take it; one of a cgroup is empty, since some are for writing.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from koord.host import kubelet
from koord.model.locations import CGROUP_ROOT, CONTAINERD_SOCKET, CRIO_SOCKET
from koordctl.node import others, settings
from koordctl.node.collect import RECORDING_FILE, Answers, Recording, ask_kubelet, ask_runtime, collect
from koordctl.node.facts import Facts
from koordctl.node.files import NodeFiles
from koordctl.node.units import DIRECTORIES as UNIT_DIRECTORIES

NODE = Path("/")
FILES = (
    "/etc/containerd/config.toml",
    "/etc/crio/crio.conf",
    "/etc/docker/daemon.json",
    "/etc/koord/qosd-rules.yaml",
    "/etc/os-release",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/net/unix",
    "/proc/pressure/cpu",
    "/proc/pressure/io",
    "/proc/pressure/memory",
    "/proc/self/mountinfo",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/perf_event_paranoid",
    "/sys/devices/system/cpu/online",
    "/sys/fs/resctrl/schemata",
    "/usr/bin/kubelet",
    "/var/lib/kubelet/config.yaml",
    "/var/lib/kubelet/cpu_manager_state",
    "/var/lib/kubelet/kubeadm-flags.env",
)
DIRECTORIES = ("/etc/crio/crio.conf.d", "/etc/runtime/hookserver.d", "/sys/bus/event_source/devices")
LINKS = ("/var/run", "/lib")
SOCKETS = (CONTAINERD_SOCKET, CRIO_SOCKET, "/run/cri-dockerd.sock", *settings.NRI_SOCKETS)
PROGRAMS = frozenset({"kubelet", "containerd", "crio", "dockerd", "cri-dockerd"})
_UNITS = re.compile(r"(?:[\w.-]*kubelet|koord)[\w.-]*\.(?:service|socket)")
_OF_PROCESS = ("comm", "cmdline", "cgroup")
_MOST_BYTES = 1 << 20
_KUBEPODS, _DEPTH = "kubepods", 4


class Recorder:
    """Copies of ``node``'s files below ``target``."""

    def __init__(self, node: NodeFiles, target: Path) -> None:
        self._node, self._target = node, target

    def file(self, path: str) -> None:
        """A file's beginning; a socket, a program or a device as an empty file."""
        data = self._content(path)
        if data is None:
            return
        place = self._target / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)

    def _content(self, path: str) -> bytes | None:
        here = self._node.at(path)
        try:
            kind = here.stat().st_mode
        except OSError:
            return None
        if stat.S_ISDIR(kind):
            return None
        if not stat.S_ISREG(kind) or kind & 0o111:
            return b""
        try:
            with here.open("rb") as file:
                return file.read(_MOST_BYTES)
        except OSError:
            return b"" if path.startswith(CGROUP_ROOT) else None

    def link(self, path: str) -> None:
        """A symbolic link, made relative, so that it stays below the tree."""
        here = self._node.at(path)
        if not here.is_symlink():
            return
        goal = os.readlink(here)
        if goal.startswith("/"):
            goal = os.path.relpath(goal, os.path.dirname(path))
        self._put_link(path, goal)

    def _put_link(self, path: str, goal: str) -> None:
        place = self._target / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(goal)

    def socket(self, path: str) -> None:
        """A descriptor that is a socket, as the link that it is."""
        try:
            goal = os.readlink(self._node.at(path))
        except OSError:
            return
        if goal.startswith("socket:["):
            self._put_link(path, goal)

    def directory(self, path: str) -> None:
        """The files in ``path``, and its subdirectories without theirs."""
        for name in self._node.names(path):
            inner = f"{path}/{name}"
            place = self._target / inner.lstrip("/")
            if place.is_symlink():
                continue
            if self._node.at(inner).is_dir():
                place.mkdir(parents=True, exist_ok=True)
            else:
                self.file(inner)


def record(target: Path, runtime: str = "", node: Path = NODE) -> Facts:
    """Write the tree, and return the facts that the running node gave."""
    answers: dict[str, tuple[str, str] | None] = {}

    def ask(socket: str) -> tuple[str, str] | None:
        answers["runtime"] = ask_runtime(socket)
        return answers["runtime"]

    facts = collect(node, Answers(ask, ask_kubelet), runtime)
    here = NodeFiles(node)
    place = Recorder(here, target)
    for path in (*LINKS, *(f"{CGROUP_ROOT}/{name}" for name in here.names(CGROUP_ROOT))):
        place.link(path)
    for path in dict.fromkeys((*FILES, *SOCKETS, *_named(here, facts))):
        place.file(path)
    for path in (*DIRECTORIES, *_unit_directories(here), *dict.fromkeys(_cgroups(here))):
        place.directory(path)
    for path in _units(here):
        place.file(path)
    _record_processes(here, place, facts)
    told = Recording(facts.kubelet.version, answers.get("runtime"), facts.koord.state_free_bytes)
    (target / RECORDING_FILE).write_text(told.text())
    return facts


def _named(node: NodeFiles, facts: Facts) -> Iterator[str]:
    """Files that this node's own settings name."""
    yield from (facts.runtime.socket, facts.koord.hook_endpoint)
    yield from (one.endpoint for one in facts.others.hook_files)
    yield from (node.plain(str(file)) for file in kubelet.find(node.at("/proc"), node.root).config_files())


def _units(node: NodeFiles) -> Iterator[str]:
    for directory in UNIT_DIRECTORIES:
        yield from (f"{directory}/{name}" for name in node.names(directory) if _UNITS.fullmatch(name))


def _unit_directories(node: NodeFiles) -> Iterator[str]:
    for directory in UNIT_DIRECTORIES:
        for name in node.names(directory):
            if name.endswith(".d") and _UNITS.fullmatch(name.removesuffix(".d")):
                yield f"{directory}/{name}"


def _record_processes(node: NodeFiles, place: Recorder, facts: Facts) -> None:
    odd = (facts.others.proxy_socket_holder, facts.others.kubelet_inside)
    for process in others.processes(node):
        known = process.name in PROGRAMS | others.AGENTS or process.is_our_proxy
        if known or process.pid == 1 or str(process) in odd:
            for name in _OF_PROCESS:
                place.file(f"/proc/{process.pid}/{name}")
            for name in node.names(f"/proc/{process.pid}/fd"):
                place.socket(f"/proc/{process.pid}/fd/{name}")


def _cgroups(node: NodeFiles) -> Iterator[str]:
    """The hierarchies' tops, and kubelet's cgroups with everything above and below them."""
    top = node.at(CGROUP_ROOT)
    for directory, names, _ in os.walk(top):
        inner = Path(directory).relative_to(top)
        is_kubelets = _KUBEPODS in str(inner)
        if is_kubelets or len(inner.parts) <= 1:
            yield from (f"{CGROUP_ROOT}/{path}".removesuffix("/.") for path in (inner, *inner.parents))
        names[:] = [name for name in names if is_kubelets or len(inner.parts) < _DEPTH]


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--runtime", default="", metavar="SOCKET", help="The container runtime's socket.  [default: as kubelet has it]"
)
def main(directory: Path, runtime: str) -> None:
    """Record this node into DIRECTORY, which must not exist."""
    directory.mkdir(parents=True)
    record(directory, runtime)
    files = sum(1 for path in directory.rglob("*") if path.is_file())
    click.echo(f"{files} files; look at them with: koordctl doctor --root {directory} --offline")


if __name__ == "__main__":
    sys.exit(main())
