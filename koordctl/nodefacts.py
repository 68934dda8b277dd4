"""The doctor's facts of a node, for every command that needs them: this node, a host mount, or a recorded tree.

A tree that remembers answers (``koordctl.doctor.recording``) is never mixed with this machine's: neither its runtime
nor its daemon is asked, nor its disk looked at.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koord.host.claims import flag
from koordctl.client import IN_POD
from koordctl.doctor import recording, settings
from koordctl.doctor.collect import collect, free_bytes
from koordctl.doctor.facts import RestartFacts
from koordctl.host.node import Node

if TYPE_CHECKING:
    from koordctl.doctor.facts import DaemonFacts, Facts

_RUNTIME_TIMEOUT_S = 2.0
_KUBELET_TIMEOUT_S = 30.0
_CLUSTER_TIMEOUT_S = 5.0
_KUBELET_SAYS = "Kubernetes "
_THIS_NODE = Path("/")


def gather(
    root: Path,
    offline: bool = False,
    runtime: str = "",
    daemon: tuple[DaemonFacts | None, str] = (None, "not asked"),
) -> Facts:
    """The facts of the node at ``root``; ``offline``: by its files only.

    ``daemon``: what koord-qosd says of itself, and why if it says nothing. Raises ClickException for a bad recording.
    """
    answers, says = daemon
    try:
        recorded = recording.read(root)
    except recording.RecordingError as error:
        raise click.ClickException(str(error)) from error
    if recorded is not None:
        return collect(
            root,
            lambda socket: recorded.runtime,
            lambda path: recorded.state_free_bytes,
            runtime,
            daemon_says="not asked (recorded)",
            ask_kubelet=lambda program: recorded.kubelet,
            recorded=True,
        )
    if offline:
        return collect(root, None, free_bytes, runtime, answers, says, recorded=root.resolve() != _THIS_NODE)
    found = collect(root, ask_runtime, free_bytes, runtime, answers, says, ask_kubelet)
    in_pod = bool(os.environ.get(IN_POD))
    return replace(found, in_pod=in_pod, restart=None if in_pod else ask_restart(root))


def ask_runtime(socket: str) -> tuple[str, str] | None:
    """Name and version of the runtime that listens on ``socket``; None if it does not answer."""
    from koord.http2.grpc import UNIMPLEMENTED, UnaryError  # noqa: PLC0415
    from koord.pb.cri import api_pb2 as cri  # noqa: PLC0415
    from koordctl.cri import call  # noqa: PLC0415

    request = cri.VersionRequest()
    for package in ("runtime.v1", "runtime.v1alpha2"):  # the old one only to learn the name of an old runtime
        try:
            version = call(socket, "Version", request, cri.VersionResponse, _RUNTIME_TIMEOUT_S, package)
        except UnaryError as error:
            if error.code == UNIMPLEMENTED:
                continue
            return None
        return version.runtime_name, version.runtime_version
    return None


def ask_restart(root: Path) -> RestartFacts | None:
    """What the kubelet that runs at ``root`` would find if it restarted; None where it is in no cluster."""
    node = Node(root)
    process = settings.kubelet_process(node)
    kubeconfig = flag(process.args, "kubeconfig")
    if not process.pid or not kubeconfig:
        return None
    from koordctl.cluster import restart  # noqa: PLC0415

    name = flag(process.args, "hostname-override") or os.uname().nodename
    try:
        return RestartFacts(restart.shortages(str(node.at(kubeconfig)), name.strip().lower(), _CLUSTER_TIMEOUT_S))
    except click.ClickException as error:
        return RestartFacts(problem=error.message)


def ask_kubelet(program: Path) -> str:
    """The version (``v1.30.2``) that kubelet's ``program`` says; "" if it says none."""
    try:
        done = subprocess.run(
            [str(program), "--version"], check=False, capture_output=True, text=True, timeout=_KUBELET_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    output = done.stdout.strip()
    return output.removeprefix(_KUBELET_SAYS) if output.startswith(_KUBELET_SAYS) else ""
