"""Who else acts between kubelet and the runtime: by their processes, their hook-server files and the proxy's socket.

Koord's own programs are Python scripts, so their first argument is an interpreter; upstream's are binaries of the same
names. Invariant: what cannot be read counts as absent (other users' sockets, without root).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from koord.host.claims import flag
from koordctl.doctor import settings
from koordctl.doctor.facts import HookFileFacts, OthersFacts
from koordctl.host import unixsockets
from koordctl.host.kubelet_unit import PROXY_SOCKET
from koordctl.host.node import Node

HOOK_DIRECTORY = PurePosixPath(settings.HOOK_FILE).parent
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
class Process:
    """One process by what /proc says of it."""

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


def processes(node: Node) -> tuple[Process, ...]:
    """Every process with arguments (kernel threads have none), by pid."""
    pids = sorted(int(name) for name in node.names("/proc") if name.isdecimal())
    told = ((pid, node.text(f"/proc/{pid}/cmdline") or "") for pid in pids)
    return tuple(Process(pid, tuple(text.rstrip("\0").split("\0"))) for pid, text in told if text.strip("\0"))


def look(node: Node, running: tuple[Process, ...]) -> OthersFacts:
    """Everybody but Koord among ``running``, the node's processes."""
    own = next((process for process in running if process.is_our_proxy), None)
    return OthersFacts(
        agents=tuple(str(process) for process in running if process.name in AGENTS),
        kubelet_inside=next((str(one) for one in running if one.name in _WITH_KUBELET_INSIDE), ""),
        hook_files=tuple(_hook_files(node)),
        proxy_socket_holder=_holder(node, running),
        proxy_backend=(flag(own.args, "remote-runtime-service-endpoint") or "").removeprefix("unix://") if own else "",
    )


def _hook_files(node: Node) -> Iterator[HookFileFacts]:
    for name in node.names(f"{HOOK_DIRECTORY}"):
        path = f"{HOOK_DIRECTORY}/{name}"
        if path == settings.HOOK_FILE or not name.endswith(_HOOK_SUFFIX):
            continue
        document = settings.json_file(node, path)
        endpoint = document.text("remote-endpoint").removeprefix("unix://")
        answers = bool(endpoint) and node.exists(endpoint)
        yield HookFileFacts(path, endpoint, answers, fails_calls=document.text("failure-policy") == "Fail")


def _holder(node: Node, running: tuple[Process, ...]) -> str:
    """Who listens on the proxy's socket, unless it is systemd, Koord's proxy or nobody that can be seen."""
    inodes = {each.inode for each in unixsockets.sockets(node) if each.listens and each.is_at(PROXY_SOCKET)}
    holders = [process for process in running if inodes and inodes & _sockets(node, process.pid)]
    if any(process.pid == _INIT or process.is_our_proxy for process in holders):
        return ""
    return str(holders[0]) if holders else ""


def _sockets(node: Node, pid: int) -> frozenset[str]:
    """The inodes of a process's sockets."""
    directory = f"/proc/{pid}/fd"
    links = (_link(node, f"{directory}/{name}") for name in node.names(directory))
    return frozenset(link[8:-1] for link in links if link.startswith("socket:["))


def _link(node: Node, path: str) -> str:
    try:
        return os.readlink(node.at(path))
    except OSError:
        return ""
