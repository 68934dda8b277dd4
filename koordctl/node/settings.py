"""Reads how kubelet, the runtime and Koord are configured on a node: their files and flags, as facts.

Invariant: a file that is no YAML, TOML or JSON is a problem said in one line, and counts as empty.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from koord.host.claims import DRIVER, flag, of_runtime
from koord.host.kubelet import RUNTIME_CONFIGS, KubeletProcess
from koord.host.kubelet import find as find_kubelet
from koord.model import documents
from koord.model.kubeletconfig import (
    NO_RESERVATION,
    RESERVATION_POLICY,
    THROTTLING_FACTOR,
    writes_memory_protection,
)
from koord.model.locations import CONTAINERD_SOCKET, CRIO_SOCKET, NRI_SOCKET, PROXY_SOCKET
from koord.model.version import numbers
from koordctl.node import units
from koordctl.node.facts import KubeletSettings, RuntimeFacts
from koordctl.node.files import NodeFiles, same_path
from koordctl.node.units import Unit

CONTAINERD, CRIO, DOCKER = "containerd", "cri-o", "docker"  # as CRI's Version names them; docker is cri-dockerd's
NRI_SOCKETS = (NRI_SOCKET, NRI_SOCKET.removeprefix("/var"))
_CONTAINERD_CONFIG, _CRIO_CONFIG = RUNTIME_CONFIGS
_DOCKER_CONFIG = "/etc/docker/daemon.json"
_DRIVER_OF_DOCKER = "native.cgroupdriver="
_KUBELET_UNIT = "kubelet.service"
_HEALTHZ_PORT = "10248"
_OF_SYSTEMD = re.compile(r"0::|\d+:name=systemd:")  # the hierarchies of /proc/PID/cgroup whose cgroups are units
_SERVICE = re.compile(r"/([^/]+\.service)(?=/|$)")


@dataclass(frozen=True, slots=True)
class Document:
    """A configuration file: ``problem`` says why ``content`` is empty although there is a file."""

    file: str = ""
    content: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    def at(self, *keys: str) -> Any:
        """Returns the value at ``keys``; None if anything on the way is missing or no mapping."""
        return documents.at(self.content, *keys)

    def text(self, *keys: str) -> str:
        found = self.at(*keys)
        return found if isinstance(found, str) else ""

    def truth(self, *keys: str) -> bool | None:
        found = self.at(*keys)
        return found if isinstance(found, bool) else None


def read(node: NodeFiles, file: str, parse: Callable[[str], Any]) -> Document:
    """Returns ``file`` by ``parse`` (which raises ValueError or YAMLError); an absent file is an empty Document."""
    if not node.exists(file):
        return Document()
    text = node.text(file)
    if text is None:
        return Document(file, problem=f"{file} cannot be read")
    try:
        content = parse(text)
    except (ValueError, yaml.YAMLError) as error:
        first = " ".join(str(error).split())
        return Document(file, problem=f"{file}: {first[:160]}")
    if content is not None and not isinstance(content, dict):
        return Document(file, problem=f"{file} is no mapping")
    return Document(file, content or {})


def yaml_file(node: NodeFiles, file: str) -> Document:
    return read(node, file, yaml.safe_load)


def json_file(node: NodeFiles, file: str) -> Document:
    return read(node, file, json.loads)


def kubelet_process(node: NodeFiles) -> KubeletProcess:
    """Returns the running kubelet.

    A recorded tree has no /proc/PID/root, and only root may look there: then its files are looked for below the tree.
    """
    found = find_kubelet(node.at("/proc"), node.root)
    return found if os.path.exists(found.root) else replace(found, root=node.root)


def kubelet(node: NodeFiles, process: KubeletProcess, version: str, unit_name: str = "") -> KubeletSettings:
    """Returns the settings of the kubelet that was ``process``: a flag before a drop-in before the file.

    ``unit_name``: the unit that runs it; found by its cgroup if "".
    """
    configs = [yaml_file(node, node.own(file)) for file in process.config_files()]
    gates: dict[str, bool] = {}
    for config in reversed(configs):
        said = config.at("featureGates")
        gates |= {name: on for name, on in (said if isinstance(said, dict) else {}).items() if isinstance(on, bool)}
    gates |= _gates(flag(process.args, "feature-gates") or "")

    def setting(flag_name: str, key: str, args: Sequence[str] = process.args) -> str:
        said = flag(args, flag_name)
        return said if said is not None else next((text for config in configs if (text := config.text(key))), "")

    def switch(flag_name: str, key: str) -> bool:
        """Returns a setting that is on by default."""
        said = flag(process.args, flag_name)
        in_file = next((truth for config in configs if (truth := config.truth(key)) is not None), True)
        return in_file if said is None else said != "false"

    def number_or_address(flag_name: str, key: str, default: str) -> str:
        said = flag(process.args, flag_name)
        in_file = next((str(value) for config in configs if (value := config.at(key)) is not None), default)
        return in_file if said is None else said

    problem = "; ".join(config.problem for config in configs if config.problem)
    unit_name = unit_name or _kubelet_unit(node, process.pid)
    unit = units.find(node, unit_name) if unit_name else None
    drop_in = node.text(units.kubelet_drop_in_path(unit_name)) if unit_name else None
    own_args = process.args if drop_in is None else [arg for arg in process.args if not _is_our_flag(arg)]
    return KubeletSettings(
        running=process.pid > 0,
        version=version,
        unit=unit_name,
        unit_files=unit,
        drop_in_stale=None if unit is None or drop_in is None else units.is_stale(drop_in, units.own_command(unit)),
        config_file=node.plain(configs[-1].file),
        config_problem=node.plain(problem),
        cgroup_driver=setting("cgroup-driver", "cgroupDriver"),
        cgroup_root=setting("cgroup-root", "cgroupRoot"),
        cgroups_per_qos=switch("cgroups-per-qos", "cgroupsPerQOS"),
        cpu_manager_policy=setting("cpu-manager-policy", "cpuManagerPolicy"),
        container_runtime=flag(process.args, "container-runtime") or "",
        runtime_endpoint=setting("container-runtime-endpoint", "containerRuntimeEndpoint"),
        own_endpoint=setting("container-runtime-endpoint", "containerRuntimeEndpoint", own_args),
        root_dir=flag(process.args, "root-dir") or "",
        healthz=_healthz(
            number_or_address("healthz-bind-address", "healthzBindAddress", "127.0.0.1"),
            number_or_address("healthz-port", "healthzPort", _HEALTHZ_PORT),
        ),
        fail_swap_on=switch("fail-swap-on", "failSwapOn"),
        feature_gates=gates,
        writes_memory_protection=_protection(configs, gates, numbers(version)) if process.pid and not problem else None,
    )


def is_proxy(endpoint: str) -> bool:
    """Returns whether this endpoint, as flags and files spell it, means the proxy's socket."""
    return same_path(endpoint.removeprefix("unix://"), PROXY_SOCKET)


def _is_our_flag(arg: str) -> bool:
    return arg.startswith("--") and is_proxy(arg.partition("=")[2])


def _healthz(address: str, port: str) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(address, f"[{address}]" if ":" in address else address)
    return "" if port == "0" else f"{host}:{port}"


def _protection(configs: Sequence[Document], gates: Mapping[str, bool], minor: tuple[int, int] | None) -> bool | None:
    """Returns ``KubeletSettings.writes_memory_protection``. Files lack defaults; the policy has one from 1.36 on."""
    members: dict[str, Any] = {} if minor is not None and minor < (1, 36) else {RESERVATION_POLICY: NO_RESERVATION}
    for config in reversed(configs):
        said = {key: config.at(key) for key in (RESERVATION_POLICY, THROTTLING_FACTOR)}
        members |= {key: value for key, value in said.items() if value not in (None, "")}
    return writes_memory_protection(members, gates)


def _gates(text: str) -> dict[str, bool]:
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {name.strip(): value.strip().lower() == "true" for name, _, value in pairs}


def _kubelet_unit(node: NodeFiles, pid: int) -> str:
    """Returns the unit whose cgroup kubelet is in, else kubelet.service if there is one (kubelet may move itself)."""
    cgroups = (node.text(f"/proc/{pid}/cgroup") or "").splitlines() if pid else []
    own = [name for cgroup in cgroups if _OF_SYSTEMD.match(cgroup) for name in _SERVICE.findall(cgroup)]
    return own[-1] if own else _KUBELET_UNIT if units.find(node, _KUBELET_UNIT) else ""


def runtime_kind(socket: str, answer: tuple[str, str] | None = None) -> str:
    """Returns which runtime it is: by its answer, else by its socket's name."""
    if answer is not None:
        return answer[0]
    name = socket.rpartition("/")[2]
    return CRIO if name == "crio.sock" else DOCKER if "dockerd" in name else CONTAINERD


def runtime_config(kind: str) -> str:
    """Returns the configuration file of a runtime of this kind."""
    return {CRIO: _CRIO_CONFIG, DOCKER: _DOCKER_CONFIG}.get(kind, _CONTAINERD_CONFIG)


def runtime(node: NodeFiles, socket: str, answer: tuple[str, str] | None, can_be_asked: bool) -> RuntimeFacts:
    """Returns the runtime at ``socket``; ``answer``: name and version, if it answered CRI's Version."""
    kind = runtime_kind(socket, answer)
    config = read(node, runtime_config(kind), json.loads if kind == DOCKER else tomllib.loads)
    name, version = answer or ("", "")
    return RuntimeFacts(
        name=name,
        version=version,
        socket=socket,
        socket_exists=node.exists(socket),
        config_file=config.file,
        config_problem=config.problem,
        nri_disabled=_nri_disabled(config, kind == CRIO),
        nri_socket_exists=any(node.exists(path) for path in NRI_SOCKETS),
        cgroup_driver=_driver(node, kind, config),
        can_be_asked=can_be_asked,
        socket_group=_group_of(node, socket),
    )


def _group_of(node: NodeFiles, socket: str) -> str:
    """Returns ``RuntimeFacts.socket_group``."""
    try:
        status = node.at(socket).stat()
    except OSError:
        return ""
    if not stat.S_ISSOCK(status.st_mode) or status.st_gid == 0:
        return ""
    groups = (line.split(":") for line in (node.text("/etc/group") or "").splitlines())
    return next((each[0] for each in groups if each[2:3] == [str(status.st_gid)]), str(status.st_gid))


def _driver(node: NodeFiles, kind: str, config: Document) -> str:
    """Returns the runtime's cgroup driver as configured, else its default; "" if other files may say."""
    if config.problem:
        return ""
    if kind == DOCKER:
        options = config.at("exec-opts")
        said = [one for one in options if str(one).startswith(_DRIVER_OF_DOCKER)] if isinstance(options, list) else []
        return str(said[-1]).removeprefix(_DRIVER_OF_DOCKER) if said else ""
    claimed = of_runtime(config.file, node.text(config.file) or "").of(DRIVER) if config.file else []
    if claimed:
        return claimed[-1].value
    elsewhere = bool(config.at("imports")) or bool(node.names(f"{_CRIO_CONFIG}.d") if kind == CRIO else ())
    return "" if elsewhere else "systemd" if kind == CRIO else "cgroupfs" if kind == CONTAINERD else ""


def runtime_socket(node: NodeFiles, kubelet_endpoint: str, proxy_backend: str) -> str:
    """Returns kubelet's socket; if that is our proxy's, the proxy's backend, else whichever usual one exists."""
    path = kubelet_endpoint.removeprefix("unix://")
    if path and "koord" not in path:
        return path
    if proxy_backend:
        return proxy_backend
    return CRIO_SOCKET if node.exists(CRIO_SOCKET) and not node.exists(CONTAINERD_SOCKET) else CONTAINERD_SOCKET


def _nri_disabled(config: Document, is_crio: bool) -> bool | None:
    if is_crio:
        enabled = config.truth("crio", "nri", "enable_nri")
        return None if enabled is None else not enabled
    return config.truth("plugins", "io.containerd.nri.v1.nri", "disable")


def slice_memory_min(node: NodeFiles) -> str | None:
    """Returns what koord.slice says of MemoryMin=, drop-ins considered; None = not installed."""
    found = units.find(node, units.SLICE)
    return None if found is None else ("", *found.values("Slice", "MemoryMin"))[-1]


def open_files(unit: Unit) -> int | None:
    """Returns the soft LimitNOFILE= of koord-qosd's ``unit``; None if it says none."""
    limits = (said.partition(":")[0] for said in unit.values("Service", "LimitNOFILE"))
    soft = [int(limit) for limit in limits if limit.isdecimal()]
    return soft[-1] if soft else None
