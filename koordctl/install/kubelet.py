"""Whether kubelet runs, is well, and by which socket it reaches the runtime: what an installation waits for.

Invariant: looking never disturbs kubelet. kubelet is well if systemd calls its unit active, its process is there with
the endpoint that is wanted, and its healthz answers; and on the proxy's socket a connection must have been accepted
since the restart.
"""

from __future__ import annotations

import http.client
from dataclasses import replace
from pathlib import Path

from koord.host import kubelet
from koord.host.doctor import settings
from koord.host.doctor.facts import KubeletFacts
from koord.host.doctor.node import Node
from koord.host.kubelet_unit import PROXY_SOCKET
from koordctl.install.errors import InstallError
from koordctl.install.host import Host

_POLL_S = 0.25
_HEALTHZ_TIMEOUT_S = 5.0
_ACCEPTED = "03"  # SS_CONNECTED; a connection that waits to be accepted is 02


def process(node: Node) -> kubelet.Kubelet:
    """kubelet's process on ``node``; in a recorded tree its files are below the tree itself."""
    found = kubelet.find(node.at("/proc"), node.root)
    return found if found.root.exists() else replace(found, root=node.root)


def facts(node: Node) -> KubeletFacts:
    return settings.kubelet(node, process(node), version="")


def is_proxy(endpoint: str) -> bool:
    """Does this endpoint, as flags and files spell it, mean the proxy's socket?"""
    return endpoint.removeprefix("unix://").removeprefix("/var") == PROXY_SOCKET


def on_proxy(node: Node) -> bool:
    """Does a kubelet run here that reaches the runtime by the proxy?"""
    found = facts(node)
    return found.running and is_proxy(found.runtime_endpoint)


def connections(root: Path) -> frozenset[str]:
    """The inodes of the connections that were accepted on the proxy's socket, from /proc/net/unix."""
    try:
        lines = (root / "proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    fields = (line.split(None, 7) for line in lines)
    return frozenset(
        each[6] for each in fields if len(each) == 8 and each[5] == _ACCEPTED and is_proxy(each[7].strip())
    )


def wait(host: Host, unit: str, healthz: str, proxied: bool, older: frozenset[str] = frozenset()) -> None:
    """Until kubelet is well, by the proxy or not; ``older``: connections from before. Raises InstallError in time."""
    deadline_s = host.now() + host.wait_s
    while problem := _problem(host, unit, healthz, proxied, older):
        if host.now() >= deadline_s:
            raise InstallError(f"{unit} is not well {host.wait_s:g} s after its restart: {problem}")
        host.sleep(_POLL_S)


def _problem(host: Host, unit: str, healthz: str, proxied: bool, older: frozenset[str]) -> str:
    state = host.systemd.state(unit)
    if state != "active":
        return f"it is {state}; see journalctl -u {unit}"
    found = facts(Node(host.disk.root))
    if not found.running:
        return "it has no process named kubelet"
    if is_proxy(found.runtime_endpoint) != proxied:
        return f"its process uses {found.runtime_endpoint or 'the default endpoint'}"
    if proxied and not connections(host.disk.root) - older:
        return f"it has no connection to {PROXY_SOCKET}"
    return "" if not healthz else _unhealthy(healthz)


def _unhealthy(healthz: str) -> str:
    """Why ``host:port`` does not say that kubelet is well; "" if it does."""
    connection = http.client.HTTPConnection(healthz, timeout=_HEALTHZ_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        said = answer.read(200).decode("utf-8", "replace").strip()
        return "" if answer.status == http.HTTPStatus.OK else f"{healthz}/healthz answers {answer.status}: {said}"
    except (OSError, http.client.HTTPException) as error:
        return f"{healthz}/healthz does not answer: {error}"
    finally:
        connection.close()
