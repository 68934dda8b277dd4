"""Whether kubelet runs, is well, and by which socket it reaches the runtime: what an installation waits for.

Invariant: looking never disturbs kubelet. kubelet is well if systemd calls its unit active, its process is there with
the endpoint that is wanted, and its healthz answers; and on the proxy's socket a connection must have been accepted
since the restart.
"""

from __future__ import annotations

import http.client

from koordctl.doctor import settings
from koordctl.doctor.facts import KubeletFacts
from koordctl.host import unixsockets
from koordctl.host.kubelet_unit import PROXY_SOCKET
from koordctl.host.node import Node
from koordctl.install.errors import InstallError
from koordctl.install.host import Host

_POLL_S = 0.25
_HEALTHZ_TIMEOUT_S = 5.0


def facts(node: Node) -> KubeletFacts:
    return settings.kubelet(node, settings.kubelet_process(node), version="")


def is_proxy(endpoint: str) -> bool:
    """Does this endpoint, as flags and files spell it, mean the proxy's socket?"""
    return unixsockets.same_path(endpoint.removeprefix("unix://"), PROXY_SOCKET)


def on_proxy(node: Node) -> bool:
    """Does a kubelet run here that reaches the runtime by the proxy?"""
    kubelet = facts(node)
    return kubelet.running and is_proxy(kubelet.runtime_endpoint)


def connections(node: Node) -> frozenset[str]:
    """The inodes of the connections that were accepted on the proxy's socket."""
    return frozenset(each.inode for each in unixsockets.sockets(node) if each.accepted and each.is_at(PROXY_SOCKET))


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
    node = Node(host.disk.root)
    kubelet = facts(node)
    if not kubelet.running:
        return "it has no process named kubelet"
    if is_proxy(kubelet.runtime_endpoint) != proxied:
        return f"its process uses {kubelet.runtime_endpoint or 'the default endpoint'}"
    if proxied and not connections(node) - older:
        return f"it has no connection to {PROXY_SOCKET}"
    return "" if not healthz else _unhealthy(healthz)


def _unhealthy(healthz: str) -> str:
    """Why ``host:port`` does not say that kubelet is well; "" if it does."""
    connection = http.client.HTTPConnection(healthz, timeout=_HEALTHZ_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        body = answer.read(200).decode("utf-8", "replace").strip()
        return "" if answer.status == http.HTTPStatus.OK else f"{healthz}/healthz answers {answer.status}: {body}"
    except (OSError, http.client.HTTPException) as error:
        return f"{healthz}/healthz does not answer: {error}"
    finally:
        connection.close()
