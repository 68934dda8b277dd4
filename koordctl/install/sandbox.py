"""A real pod sandbox, made through the proxy and taken away again: the proof that kubelet can be put on the proxy.

It has the host's network (so no CNI plugin is needed), no container, and a cgroup of its own where kubelet puts
BestEffort pods. A running kubelet takes it for an orphan and may stop it at any moment; then it is made anew.
Invariant: nothing of it stays, also if a call fails in between; ``remove_all`` removes what a kill left behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from google.protobuf.message import Message

from koord.http2.grpc import UnaryError
from koord.model.slices import SLICE
from koord.pb.cri import api_pb2 as cri
from koordctl.cri import Answer, call
from koordctl.install.errors import InstallError
from koordctl.install.host import Host

LABEL = "koord.io/install-check"
_CGROUPS = "/sys/fs/cgroup"
_CALL_TIMEOUT_S = 60.0
_ATTEMPTS = 3
_REMOVALS = 20
_PAUSE_S = 0.1


def ask(socket: Path, method: str, request: Message, answer: type[Answer]) -> Answer:
    """One CRI call; raises InstallError."""
    try:
        return call(str(socket), method, request, answer, _CALL_TIMEOUT_S)
    except UnaryError as error:
        raise InstallError(f"{method} on {socket}: {error.message}") from error


def check_runtime(socket: Path) -> str:
    """Name and version of the runtime behind ``socket``, which must call itself ready."""
    version = ask(socket, "Version", cri.VersionRequest(), cri.VersionResponse)
    status = ask(socket, "Status", cri.StatusRequest(), cri.StatusResponse).status
    for condition in status.conditions:
        if condition.type == "RuntimeReady" and condition.status:
            return f"{version.runtime_name} {version.runtime_version}"
    raise InstallError(f"the runtime behind {socket} does not call itself ready")


def check_sandbox(host: Host, socket: Path, uid: str, parent: str, cgroup: str) -> None:
    """Make a sandbox, see it in ``cgroup`` (named ``parent`` to the runtime), and remove it."""
    problem = ""
    for _ in range(_ATTEMPTS):
        problem = _attempt(host, socket, uid, parent, cgroup)
        if not problem:
            return
    raise InstallError(f"a pod sandbox through {socket}: {problem}")


def remove_all(host: Host, socket: Path, uid: str, cgroup: str) -> None:
    """Remove every sandbox of the check ``uid``, and its cgroup. Raises InstallError if the runtime does not answer."""
    labelled = cri.PodSandboxFilter(label_selector={LABEL: uid})
    answer = ask(socket, "ListPodSandbox", cri.ListPodSandboxRequest(filter=labelled), cri.ListPodSandboxResponse)
    for sandbox in answer.items:
        _remove(socket, sandbox.id)
    remove_group(host, cgroup)


def remove_group(host: Host, cgroup: str) -> None:
    """Remove the check's own cgroup in every hierarchy; it is empty by now, or about to be."""
    if cgroup.endswith(SLICE) and any(True for _ in _directories(host, cgroup)):
        host.systemd.stop(cgroup.rpartition("/")[2])
    if not _until(host, lambda: [here for here in _directories(host, cgroup) if not _emptied(here)] == []):
        raise InstallError(f"cgroup {cgroup} cannot be removed: it is in use")


def _attempt(host: Host, socket: Path, uid: str, parent: str, cgroup: str) -> str:
    """One attempt; why it proves nothing, or ""."""
    request = cri.RunPodSandboxRequest(config=_config(uid, parent))
    sandbox = ask(socket, "RunPodSandbox", request, cri.RunPodSandboxResponse).pod_sandbox_id
    try:
        status = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox)
        state = ask(socket, "PodSandboxStatus", status, cri.PodSandboxStatusResponse).status.state
        if state != cri.SANDBOX_READY:
            return "it was stopped by somebody else"
        if not any(sandbox in name for each in _directories(host, cgroup) for name in os.listdir(each)):
            return f"it is not in cgroup {cgroup}"
        return ""
    except (InstallError, OSError) as error:
        return str(error)
    finally:
        _remove(socket, sandbox)
        remove_group(host, cgroup)


def _remove(socket: Path, sandbox: str) -> None:
    ask(socket, "StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=sandbox), cri.StopPodSandboxResponse)
    ask(socket, "RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox), cri.RemovePodSandboxResponse)


def _config(uid: str, parent: str) -> cri.PodSandboxConfig:
    host_network = cri.LinuxSandboxSecurityContext(namespace_options=cri.NamespaceOption(network=cri.NODE))
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name="koord-install-check", uid=uid, namespace="koord-install-check"),
        dns_config=cri.DNSConfig(servers=["127.0.0.1"]),  # without any, the runtime copies a file that may be missing
        labels={LABEL: uid},
        linux=cri.LinuxPodSandboxConfig(cgroup_parent=parent, security_context=host_network),
    )


def _directories(host: Host, cgroup: str) -> Iterator[Path]:
    """The cgroup's directories: one on v2, one for each hierarchy of v1."""
    top = host.disk.at(_CGROUPS)
    for base in (top, *sorted(each for each in top.glob("*") if each.is_dir() and not each.is_symlink())):
        here = base / cgroup.lstrip("/")
        if here.is_dir():
            yield here


def _emptied(directory: Path) -> bool:
    """Remove ``directory`` and what is below it; False if something there is still in use."""
    for here, _, _ in os.walk(directory, topdown=False):
        try:
            os.rmdir(here)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _until(host: Host, condition: Callable[[], bool]) -> bool:
    for _ in range(_REMOVALS):
        if condition():
            return True
        host.sleep(_PAUSE_S)
    return condition()
