"""Finds other agents on a node: those that act between kubelet and the runtime, and what one left in kernel files.

Koord's own programs are Python scripts, so their first argument is an interpreter; upstream's are binaries of the same
names. Leftovers are looked for where koord-qosd does not run: in the files of kubelet's tiers, and of the pods of the
BestEffort one, beside what kubelet writes there. (Of other pods only koord-qosd knows that, which asks kubelet and the
runtime.) Invariant: nothing is written; a file in Koord's own undo record is no leftover; what cannot be read counts as
absent (other users' sockets, without root).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from koord.host import kubeletvalues, undo
from koord.host.cgroup import ReadError, Tree, effective_value
from koord.host.claims import flag
from koord.host.files import ROWS, ParseError, Target, Value
from koord.host.kubeletvalues import FILES, NOT_CERTAIN, OF_BEST_EFFORT, KubeletInputs, Place
from koord.host.notes import Entry
from koord.host.order import CPUS
from koord.host.writer import Writer
from koord.model.locations import HOOK_SERVER_DIRECTORY, HOOK_SERVER_FILE, PROXY_SOCKET, UNDO_RECORD
from koord.model.qos import KubeQoS
from koordctl.node import settings
from koordctl.node.facts import HookFileFacts, OthersFacts
from koordctl.node.files import NodeFiles, unix_sockets

AGENTS = frozenset(
    {
        "koordlet",
        "koord-runtime-proxy",
        "cri-resmgr",
        "nri-resource-policy-balloons",
        "nri-resource-policy-topology-aware",
    }
)
_OUR_PROXY = "koord-runtime-proxy"
_WITH_KUBELET_INSIDE = frozenset({"k3s", "k3s-server", "k3s-agent", "kubelite"})
_HOOK_SUFFIX = "json"  # upstream's proxy takes every name that ends so, with or without a dot
_INIT = 1


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process as /proc shows it."""

    pid: int
    args: tuple[str, ...]

    @property
    def name(self) -> str:
        return PurePosixPath(self.args[0].split(" ", 1)[0]).name

    @property
    def is_our_proxy(self) -> bool:
        return self.name.startswith("python") and any(PurePosixPath(arg).name == _OUR_PROXY for arg in self.args[1:4])

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


def processes(node: NodeFiles) -> tuple[RunningProcess, ...]:
    """Returns every process with arguments (kernel threads have none), by pid."""
    pids = sorted(int(name) for name in node.names("/proc") if name.isdecimal())
    told = ((pid, node.text(f"/proc/{pid}/cmdline") or "") for pid in pids)
    return tuple(RunningProcess(pid, tuple(text.rstrip("\0").split("\0"))) for pid, text in told if text.strip("\0"))


def acting(node: NodeFiles, running: tuple[RunningProcess, ...]) -> OthersFacts:
    """Returns the agents but Koord among ``running``, the node's processes."""
    own = next((process for process in running if process.is_our_proxy), None)
    return OthersFacts(
        agents=tuple(str(process) for process in running if process.name in AGENTS),
        kubelet_inside=next((str(one) for one in running if one.name in _WITH_KUBELET_INSIDE), ""),
        hook_files=tuple(_hook_files(node)),
        proxy_socket_holder=_holder(node, running),
        proxy_backend=(flag(own.args, "remote-runtime-service-endpoint") or "").removeprefix("unix://") if own else "",
    )


def _hook_files(node: NodeFiles) -> Iterator[HookFileFacts]:
    for name in node.names(HOOK_SERVER_DIRECTORY):
        path = f"{HOOK_SERVER_DIRECTORY}/{name}"
        if path == HOOK_SERVER_FILE or not name.endswith(_HOOK_SUFFIX):
            continue
        document = settings.json_file(node, path)
        endpoint = document.text("remote-endpoint").removeprefix("unix://")
        answers = bool(endpoint) and node.exists(endpoint)
        yield HookFileFacts(path, endpoint, answers, fails_calls=document.text("failure-policy") == "Fail")


def _holder(node: NodeFiles, running: tuple[RunningProcess, ...]) -> str:
    """Returns the process that listens on the proxy's socket; "" for systemd, Koord's proxy or one that is not seen."""
    inodes = {each.inode for each in unix_sockets(node) if each.listens and each.is_at(PROXY_SOCKET)}
    holders = [process for process in running if inodes and inodes & _sockets(node, process.pid)]
    if any(process.pid == _INIT or process.is_our_proxy for process in holders):
        return ""
    return str(holders[0]) if holders else ""


def _sockets(node: NodeFiles, pid: int) -> frozenset[str]:
    """Returns the inodes of a process's sockets."""
    directory = f"/proc/{pid}/fd"
    links = (_link(node, f"{directory}/{name}") for name in node.names(directory))
    return frozenset(link[8:-1] for link in links if link.startswith("socket:["))


def _link(node: NodeFiles, path: str) -> str:
    try:
        return os.readlink(node.at(path))
    except OSError:
        return ""


def leftovers(
    node: NodeFiles, tree: Tree, tiers: Mapping[KubeQoS, str], has_memory_qos: bool | None
) -> tuple[str, ...]:
    """Returns one sentence a file. ``has_memory_qos``: kubelet's feature MemoryQoS is on; None: not known."""
    if not tiers:
        return ()
    writer, root = Writer(tree), tiers[KubeQoS.GUARANTEED]
    ours = {each.target for each in undo.held(node.at(UNDO_RECORD)) if isinstance(each, Entry)}
    pods_cpus = "" if tree.version == 2 else _holds(writer, Target(root, CPUS))
    kubelet = KubeletInputs(tree.version, None if pods_cpus is None else str(pods_cpus), None, has_memory_qos)
    everywhere = effective_value(tree, Target(root, CPUS)) if tree.version == 2 else None  # holds no pod back
    return tuple(
        node.plain(f"{writer.path(target)} holds {found}, and kubelet writes {base!s}")
        for target, base in _expected(node, tree, tiers, kubelet)
        if target not in ours and (found := _holds(writer, target)) is not None
        if not ROWS[target.name].same(base, found, mmap.PAGESIZE, tree.version)
        if target.name != CPUS or found != everywhere
    )


def _expected(
    node: NodeFiles, tree: Tree, tiers: Mapping[KubeQoS, str], kubelet: KubeletInputs
) -> Iterator[tuple[Target, Value]]:
    for qos, tier in tiers.items():
        place = Place.ROOT if qos is KubeQoS.GUARANTEED else Place.TIER
        yield from _of(tier, place, qos, kubelet)
    tier = tiers[KubeQoS.BEST_EFFORT]
    for pod in _below(node, tree, tier):
        if "pod" in pod.rpartition("/")[2]:
            yield from _of(pod, Place.POD, KubeQoS.BEST_EFFORT, kubelet)
            for container in _below(node, tree, pod):
                yield from _of(container, Place.CONTAINER, KubeQoS.BEST_EFFORT, kubelet)


def _of(cgroup: str, place: Place, qos: KubeQoS, kubelet: KubeletInputs) -> Iterator[tuple[Target, Value]]:
    asked = OF_BEST_EFFORT if place in (Place.POD, Place.CONTAINER) else NOT_CERTAIN
    for row in FILES[place]:
        base = kubeletvalues.value(row, place, qos, asked, kubelet)
        if base is not None:
            yield Target(cgroup, row), base


def _below(node: NodeFiles, tree: Tree, cgroup: str) -> Iterator[str]:
    top = node.own(tree.directory(cgroup))
    return (f"{cgroup}/{name}" for name in node.names(top) if tree.exists(f"{cgroup}/{name}"))


def _holds(writer: Writer, target: Target) -> Value | None:
    try:
        return writer.read(target)
    except (ReadError, ParseError):
        return None
