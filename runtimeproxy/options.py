"""The proxy's flags: upstream's names and defaults first, then ours; the same names are the keys of ``--config``.

Go's spellings are understood (``-flag=value``, ``--flag value``, ``300ms``, ``--bypass=false``), so that an existing
unit file keeps working. ``koord.service.options`` says how they are read and merged.
"""

from __future__ import annotations

from dataclasses import dataclass

from koord.model import locations
from koord.service.log import LEVELS
from koord.service.options import Program, Style, option
from koord.service.optionvalues import (
    LOOPBACK,
    duration_s,
    host_port,
    names,
    optional_path,
    positive_duration_s,
    size_bytes,
    socket_path,
)

MODES = ("Containerd", "Docker")


def status_endpoint(text: str) -> str:
    """Reads "" (off), a unix socket's absolute path, or ``host:port`` on the loopback interface."""
    if text == "" or text.startswith(("/", "unix://")):
        return text and socket_path(text)
    try:
        if host_port(text)[0] in LOOPBACK:
            return text
    except ValueError:
        pass
    raise ValueError("neither an absolute path nor a loopback host:port")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the process. Units are in the names; an empty string or tuple means "none"."""

    # fmt: off
    endpoint: str = option(f"/var{locations.PROXY_SOCKET}",
        "the socket that kubelet connects to; sockets handed over by systemd come first", parse=socket_path,
        flag="koord-runtimeproxy-endpoint")
    backend: str = option(f"/var{locations.CONTAINERD_SOCKET}",
        "the runtime's CRI socket, for the runtime and the image service", parse=socket_path,
        flag="remote-runtime-service-endpoint")
    mode: str = option("Containerd",
        "Containerd: any CRI runtime; Docker: the backend is the CRI endpoint of cri-dockerd (never dockerd's own API)",
        choices=MODES, flag="backend-runtime-mode")
    skip_key: str = option("runtimeproxy.koordinator.sh/skip-hookserver",
        "label or annotation that exempts a pod from the hooks", flag="runtime-hook-server-key", live=True)
    skip_value: str = option("true", "the value of that label or annotation", flag="runtime-hook-server-val", live=True)
    hook_directory: str = option(locations.HOOK_SERVER_DIRECTORY, "directory of hook server files; empty: no hooks",
        parse=optional_path, flag="hookserver-dir")
    hook_timeout_s: float = option("3s",
        "longest wait for a hook server; never more than half of the caller's deadline", parse=positive_duration_s,
        flag="hook-timeout", live=True)
    skip_namespaces: tuple[str, ...] = option("", "namespaces whose pods are exempt, separated by commas", parse=names,
        live=True)
    privileged_namespaces: tuple[str, ...] = option(f"kube-system,{locations.NAMESPACE}",
        "namespaces whose pods may exempt themselves from hook servers under policy Fail; *: all namespaces",
        parse=names, live=True)
    skip_static_pods: bool = option(False, "exempt kubelet's static pods", live=True)
    skip_critical_pods: bool = option(False,
        "exempt pods of privileged namespaces that say in a label or annotation that they are critical", live=True)
    foreign_parents: bool = option(False, "let a hook server move a pod out of its own part of the cgroup tree",
        flag="allow-foreign-cgroup-parents", live=True)
    bypass: bool = option(False, "relay everything and edit nothing; SIGUSR1 switches it off too", live=True)
    bypass_file: str = option(locations.BYPASS_FILE,
        "edit nothing for as long as this file exists; SIGUSR1 makes or removes it", parse=optional_path)
    requested_directory: str = option(f"{locations.PROXY_DIRECTORY}/requested",
        "directory for what kubelet requested of containers that it updated; empty: forgotten at a restart",
        parse=optional_path, flag="requested-dir")
    held_budget_bytes: int = option("64MiB", "most bytes of requests kept back; the rest goes on unedited",
        parse=size_bytes, flag="held-bytes-budget")
    backend_wait_s: float = option("10s", "how long a new connection is held while the backend is missing",
        parse=duration_s, flag="backend-wait")
    drain_timeout_s: float = option("10m", "how long calls in flight may last after a successor took over",
        parse=duration_s, flag="drain-timeout", live=True)
    stop_timeout_s: float = option("10s", "how long calls in flight may last after SIGTERM", parse=duration_s,
        flag="stop-timeout", live=True)
    status_endpoint: str = option(locations.PROXY_STATUS_SOCKET,
        "unix socket or loopback host:port of /metrics, /healthz, /readyz and /dump; empty: off", parse=status_endpoint,
        flag="metrics-endpoint")
    metrics_token_file: str = option("",
        "file of the bearer token that /metrics and /dump want on a port; without it a port has the health pages only",
        parse=optional_path)
    log_level: str = option("info", "debug, info, warning or error", choices=LEVELS, live=True)
    # fmt: on


PROGRAM = Program(
    "koord-runtime-proxy",
    "Relays CRI between kubelet and the container runtime and lets hook servers edit a few calls.",
    Options,
    Style.GO,
)
