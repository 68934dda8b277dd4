"""A real node of a test cluster: a private containerd, our proxy with its hook server, and a kubelet that joins.

The kubelet is a cluster's own: it asks the API server who may call it, its certificate is the cluster authority's, and
its port is on the address that its Node names, so that ``kubectl logs`` and ``exec`` reach it.

Invariant: at the end no process, pod, mount, cgroup or directory of it is left and kernel settings that kubelet changes
have their old values. The Node object stays, as that of a node which is gone. One such node runs on a machine at a
time, because kubelet's kernel settings and some of its directories are the machine's.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from integration import build
from integration.cluster import objects
from integration.cluster.api import Api, ApiError
from integration.cluster.controlplane import ControlPlane
from integration.harness import cgroups, containerd, machine
from integration.harness import proxy as proxy_module
from integration.harness.containerd import Containerd, Release
from integration.harness.kubelet import BOOT_S, Kubelet
from integration.harness.processes import HarnessError, Process
from integration.node.daemon import Daemon
from qosd.frontends import FrontEnd

NO_RULES = ""
Proxy = Callable[[Daemon, Path], AbstractContextManager[None]]
"""A proxy before the runtime of an agent, with its hooks, and the directory of its socket and its logs."""


class JoinedKubelet(Kubelet):
    """A kubelet of node ``name`` in ``plane``'s cluster; otherwise as the standalone one."""

    def __init__(
        self, plane: ControlPlane, name: str, program: Path, runtime: Path, directory: Path, cgroup_root: str
    ) -> None:
        super().__init__(program, runtime, directory, cgroup_root)
        self.name = name
        self.start_s = 0.0
        self._plane = plane
        self._address = machine_address()

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def endpoint(self) -> str:
        return f"https://{self._address}:{self.api.port}"

    def join(self) -> None:
        """Start and wait until the Node is Ready (``start_s``); without controllers its first taint is cleared here."""
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "config.json"
        config.write_text(json.dumps(self._configuration()))
        argv = [
            str(self._program),
            f"--config={config}",
            f"--kubeconfig={self._plane.node_kubeconfig(self.name)}",
            f"--root-dir={self.root}",
            f"--cert-dir={self._directory / 'pki'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self._address}",
            "--v=2",
        ]
        self._process = Process(argv, self.log)
        began = time.monotonic()
        with self._plane.api() as api:
            self._process.wait_for(lambda: self._ready(api), BOOT_S, f"node {self.name} to be Ready")
            self.start_s = time.monotonic() - began
            if not self._plane.options.controllers:
                objects.clear_taints(api, self.name)

    def restart(self) -> None:
        """End only kubelet and start it again; its pods run on. The Node may show Ready from before."""
        self._running().stop()
        self.join()

    def _ready(self, api: Api) -> bool:
        try:
            return objects.ready(api.get(f"{objects.NODES}/{self.name}"))
        except (ApiError, OSError):
            return False

    def _configuration(self) -> dict[str, object]:
        authority = self._plane.authority
        server = authority.issue_server(f"kubelet-{self.name}", (self._address, self.name))
        gates = (gate.partition("=") for gate in self._plane.options.feature_gates)
        configuration = super()._configuration() | {
            "featureGates": {name: value == "true" for name, _, value in gates},
            "address": self._address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "evictionHard": {"memory.available": "100Mi"},
            "tlsCertFile": str(server.certificate),
            "tlsPrivateKeyFile": str(server.key),
        }
        del configuration["staticPodPath"]
        return configuration


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a cluster; ``runtime`` is the CRI socket that kubelet uses, ``logs`` the directory of the proxy's logs.

    ``agent``: a whole koord-qosd, where one was wanted; else one answers hooks and does nothing else.
    """

    name: str
    containerd: Containerd
    runtime: Path
    kubelet: JoinedKubelet
    logs: Path
    agent: Daemon | None = None


@contextlib.contextmanager
def real_node(
    plane: ControlPlane,
    name: str,
    directory: Path,
    release: Release | None = None,
    agent: bool = False,
    front_end: FrontEnd = FrontEnd.PROXY,
    has_policy: bool = True,
    rules: str = NO_RULES,
    proxy: Proxy | None = None,
) -> Iterator[Node]:
    """A node in ``plane``'s cluster, Ready; by default on the machine's own release of containerd.

    ``agent``: with a whole koord-qosd, as a systemd unit would run it: it is to the cluster what kubelet is. Only such
    a node may have another ``front_end`` than the proxy. ``has_policy``: the cluster has a NodeSLO for the agent; where
    it has none, the agent goes by its ``rules``, and knows nothing of the cluster. ``proxy``: another than ours.
    """
    cgroup_root = f"/koordtest-{os.getpid()}-{name}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(machine.only_node())
        backend = stack.enter_context(containerd.private(release or containerd.installed(), directory / "containerd"))
        stack.enter_context(cgroups.root(cgroup_root))
        stack.callback(backend.remove_pods)
        logs = directory / "proxy"
        program = build.program("kubelet")
        socket_path = proxy_module.socket_of(logs) if front_end is FrontEnd.PROXY else backend.socket
        kubelet = JoinedKubelet(plane, name, program, socket_path, directory / "kubelet", cgroup_root)
        qosd = None
        if agent:
            nri = ("--nri-socket", str(backend.layout.nri_socket)) if front_end is FrontEnd.NRI else ()
            more = (*nri, *(() if has_policy else ("--kubeconfig", "")))
            qosd = stack.enter_context(whole_agent(plane, kubelet, backend.socket, directory / "agent", more, rules))
            if front_end is FrontEnd.PROXY:
                stack.enter_context((proxy or proxy_of)(qosd, logs))
        else:
            stack.enter_context(proxy_module.proxy(backend.socket, logs, rules=NO_RULES))
        stack.callback(kubelet.close)
        kubelet.join()
        yield Node(name, backend, socket_path, kubelet, logs, qosd)


@contextlib.contextmanager
def whole_agent(
    plane: ControlPlane,
    kubelet: JoinedKubelet,
    runtime: Path,
    directory: Path,
    more: Sequence[str] = (),
    rules: str = NO_RULES,
) -> Iterator[Daemon]:
    """koord-qosd with kubelet's credential and ``more`` flags; at the end what it set in the kernel is put back."""
    flags = (
        *("--kubeconfig", str(plane.node_kubeconfig(kubelet.name)), "--node-name", kubelet.name),
        *("--kubelet-state-dir", str(kubelet.root)),
        *more,
    )
    agent = Daemon(runtime, directory, rules, flags)
    agent.start()
    try:
        yield agent
    finally:
        agent.stop()
        place = ("--undo-file", str(agent.undo_file), "--runtime", str(runtime))
        agent.run_koordctl("restore", "--yes", *place)


@contextlib.contextmanager
def proxy_of(agent: Daemon, directory: Path) -> Iterator[None]:
    """The proxy before ``agent``'s runtime, with its hooks."""
    directory.mkdir(parents=True, exist_ok=True)
    running = proxy_module.start_proxy(agent.runtime, directory, agent.directory / "hookserver.d")
    try:
        yield
    finally:
        running.stop()


def machine_address() -> str:
    """The address that this machine would send from to another network: what kubelet takes for its Node as well."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError as error:
            raise HarnessError(f"no route to other networks, without which kubelet has no address: {error}") from error
        address: str = probe.getsockname()[0]
        return address
