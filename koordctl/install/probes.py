"""Proves that kubelet can be on the proxy, and that it is: a real pod sandbox, and a wait until kubelet is well.

The sandbox is made through the proxy and taken away again. It has the host's network (so no CNI plugin is needed), no
container, and a cgroup of its own where kubelet puts BestEffort pods. A running kubelet takes it for an orphan and may
stop it at any moment; then it is made anew. Invariant: nothing of it stays, also if a call fails in between;
``remove_all`` removes what a kill left behind.

kubelet is well if systemd calls its unit active, its process is there with the endpoint that is wanted, and its healthz
answers; and on the proxy's socket a connection must have been accepted since the restart. Invariant: looking never
disturbs kubelet.
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from google.protobuf.message import Message

from koord.http2.grpc import UnaryError
from koord.model.locations import CGROUP_ROOT, PROXY_SOCKET
from koord.model.slices import SLICE
from koord.pb.cri import api_pb2 as cri
from koordctl.cri import Answer, call
from koordctl.install.machine import InstallError, Machine
from koordctl.node import settings
from koordctl.node.facts import KubeletSettings
from koordctl.node.files import NodeFiles, unix_sockets

LABEL = "koord.io/install-check"
_CALL_TIMEOUT_S = 60.0
_ATTEMPTS = 3
_REMOVALS = 20
_PAUSE_S = 0.1
_POLL_S = 0.25
_HEALTHZ_TIMEOUT_S = 5.0


# --- kubelet ---------------------------------------------------------------------------------------------------------


def _kubelet(node: NodeFiles) -> KubeletSettings:
    return settings.kubelet(node, settings.kubelet_process(node), version="")


def on_proxy(root: Path) -> bool:
    """Returns whether a kubelet runs here that reaches the runtime by the proxy."""
    kubelet = _kubelet(NodeFiles(root))
    return kubelet.running and settings.is_proxy(kubelet.runtime_endpoint)


def connections(root: Path) -> frozenset[str]:
    """Returns the inodes of the connections that were accepted on the proxy's socket."""
    sockets = unix_sockets(NodeFiles(root))
    return frozenset(each.inode for each in sockets if each.accepted and each.is_at(PROXY_SOCKET))


def wait_for_kubelet(
    machine: Machine, unit: str, healthz: str, proxied: bool, older: frozenset[str] = frozenset()
) -> None:
    """Waits until kubelet is well, by the proxy or not; ``older``: connections from before. Raises InstallError."""
    deadline_s = machine.now() + machine.wait_s
    while problem := _problem(machine, unit, healthz, proxied, older):
        if machine.now() >= deadline_s:
            raise InstallError(f"{unit} is not well {machine.wait_s:g} s after its restart: {problem}")
        machine.sleep(_POLL_S)


def _problem(machine: Machine, unit: str, healthz: str, proxied: bool, older: frozenset[str]) -> str:
    state = machine.systemd.state(unit)
    if state != "active":
        return f"it is {state}; see journalctl -u {unit}"
    kubelet = _kubelet(NodeFiles(machine.disk.root))
    if not kubelet.running:
        return "it has no process named kubelet"
    if settings.is_proxy(kubelet.runtime_endpoint) != proxied:
        return f"its process uses {kubelet.runtime_endpoint or 'the default endpoint'}"
    if proxied and not connections(machine.disk.root) - older:
        return f"it has no connection to {PROXY_SOCKET}"
    return "" if not healthz else _unhealthy(healthz)


def _unhealthy(healthz: str) -> str:
    """Returns why ``host:port`` does not say that kubelet is well; "" if it does."""
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


# --- the sandbox -----------------------------------------------------------------------------------------------------


def _ask(socket: Path, method: str, request: Message, answer: type[Answer]) -> Answer:
    """Makes one CRI call; raises InstallError."""
    try:
        return call(str(socket), method, request, answer, _CALL_TIMEOUT_S)
    except UnaryError as error:
        raise InstallError(f"{method} on {socket}: {error.message}") from error


def check_runtime(socket: Path) -> str:
    """Returns name and version of the runtime behind ``socket``, which must call itself ready."""
    version = _ask(socket, "Version", cri.VersionRequest(), cri.VersionResponse)
    status = _ask(socket, "Status", cri.StatusRequest(), cri.StatusResponse).status
    for condition in status.conditions:
        if condition.type == "RuntimeReady" and condition.status:
            return f"{version.runtime_name} {version.runtime_version}"
    raise InstallError(f"the runtime behind {socket} does not call itself ready")


def check_sandbox(machine: Machine, socket: Path, uid: str, parent: str, cgroup: str) -> None:
    """Makes a sandbox, sees it in ``cgroup`` (named ``parent`` to the runtime), and removes it."""
    problem = ""
    for _ in range(_ATTEMPTS):
        problem = _attempt(machine, socket, uid, parent, cgroup)
        if not problem:
            return
    raise InstallError(f"a pod sandbox through {socket}: {problem}")


def remove_all(machine: Machine, socket: Path, uid: str, cgroup: str) -> None:
    """Removes every sandbox of the check ``uid``, and its cgroup. Raises InstallError if the runtime is silent."""
    labelled = cri.PodSandboxFilter(label_selector={LABEL: uid})
    answer = _ask(socket, "ListPodSandbox", cri.ListPodSandboxRequest(filter=labelled), cri.ListPodSandboxResponse)
    for sandbox in answer.items:
        _remove(socket, sandbox.id)
    _remove_group(machine, cgroup)


def _remove_group(machine: Machine, cgroup: str) -> None:
    """Removes the check's own cgroup in every hierarchy; it is empty by now, or about to be."""
    if cgroup.endswith(SLICE) and any(True for _ in _directories(machine, cgroup)):
        machine.systemd.stop(cgroup.rpartition("/")[2])
    if not _until(machine, lambda: [here for here in _directories(machine, cgroup) if not _emptied(here)] == []):
        raise InstallError(f"cgroup {cgroup} cannot be removed: it is in use")


def _attempt(machine: Machine, socket: Path, uid: str, parent: str, cgroup: str) -> str:
    """Makes one attempt; returns why it proves nothing, or ""."""
    request = cri.RunPodSandboxRequest(config=_config(uid, parent))
    sandbox = _ask(socket, "RunPodSandbox", request, cri.RunPodSandboxResponse).pod_sandbox_id
    try:
        status = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox)
        state = _ask(socket, "PodSandboxStatus", status, cri.PodSandboxStatusResponse).status.state
        if state != cri.SANDBOX_READY:
            return "another process stopped it"
        if not any(sandbox in name for each in _directories(machine, cgroup) for name in os.listdir(each)):
            return f"it is not in cgroup {cgroup}"
        return ""
    except (InstallError, OSError) as error:
        return str(error)
    finally:
        _remove(socket, sandbox)
        _remove_group(machine, cgroup)


def _remove(socket: Path, sandbox: str) -> None:
    _ask(socket, "StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=sandbox), cri.StopPodSandboxResponse)
    _ask(socket, "RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox), cri.RemovePodSandboxResponse)


def _config(uid: str, parent: str) -> cri.PodSandboxConfig:
    host_network = cri.LinuxSandboxSecurityContext(namespace_options=cri.NamespaceOption(network=cri.NODE))
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name="koord-install-check", uid=uid, namespace="koord-install-check"),
        dns_config=cri.DNSConfig(servers=["127.0.0.1"]),  # without any, the runtime copies a file that may be missing
        labels={LABEL: uid},
        linux=cri.LinuxPodSandboxConfig(cgroup_parent=parent, security_context=host_network),
    )


def _directories(machine: Machine, cgroup: str) -> Iterator[Path]:
    """Yields the cgroup's directories: one on v2, one for each hierarchy of v1."""
    top = machine.disk.at(CGROUP_ROOT)
    for base in (top, *sorted(each for each in top.glob("*") if each.is_dir() and not each.is_symlink())):
        here = base / cgroup.lstrip("/")
        if here.is_dir():
            yield here


def _emptied(directory: Path) -> bool:
    """Removes ``directory`` and what is below it; returns False if something there is still in use."""
    for here, _, _ in os.walk(directory, topdown=False):
        try:
            os.rmdir(here)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _until(machine: Machine, condition: Callable[[], bool]) -> bool:
    for _ in range(_REMOVALS):
        if condition():
            return True
        machine.sleep(_PAUSE_S)
    return condition()
