"""How kubelet, the runtime and Koord are configured on a node: their files and flags, as facts.

Invariant: a file that is no YAML, TOML or JSON is a problem said in one line, and counts as empty.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from koord.host.claims import flag
from koord.host.doctor.facts import KubeletFacts, RuntimeFacts
from koord.host.doctor.node import Node
from koord.host.kubelet import RUNTIME_CONFIGS, Kubelet

RULES_FILE = "/etc/koord/qosd-rules.yaml"
HOOK_FILE = "/etc/runtime/hookserver.d/koord-qosd.json"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CRIO_SOCKET = "/run/crio/crio.sock"
NRI_SOCKETS = ("/var/run/nri/nri.sock", "/run/nri/nri.sock")
UNIT = "koord-qosd.service"
_CONTAINERD_CONFIG, _CRIO_CONFIG = RUNTIME_CONFIGS
_UNIT_DIRECTORIES = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


@dataclass(frozen=True, slots=True)
class Document:
    """A configuration file: ``problem`` says why ``content`` is empty although there is a file."""

    file: str = ""
    content: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    def at(self, *keys: str) -> Any:
        """What stands at ``keys``; None if anything on the way is missing or no mapping."""
        found: Any = self.content
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def text(self, *keys: str) -> str:
        found = self.at(*keys)
        return found if isinstance(found, str) else ""

    def truth(self, *keys: str) -> bool | None:
        found = self.at(*keys)
        return found if isinstance(found, bool) else None


def read(node: Node, file: str, parse: Callable[[str], Any]) -> Document:
    """``file`` by ``parse`` (which raises ValueError or YAMLError); an absent file is an empty Document."""
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


def yaml_file(node: Node, file: str) -> Document:
    return read(node, file, yaml.safe_load)


def json_file(node: Node, file: str) -> Document:
    return read(node, file, json.loads)


def toml_file(node: Node, file: str) -> Document:
    return read(node, file, tomllib.loads)


def kubelet(node: Node, found: Kubelet) -> KubeletFacts:
    """Settings of the kubelet that was ``found``: a flag before a drop-in before the file."""
    configs = [yaml_file(node, node.own(file)) for file in found.config_files()]
    gates: dict[str, bool] = {}
    for config in reversed(configs):
        said = config.at("featureGates")
        gates |= {name: on for name, on in (said if isinstance(said, dict) else {}).items() if isinstance(on, bool)}

    def setting(flag_name: str, key: str) -> str:
        said = flag(found.args, flag_name)
        return said if said is not None else next((text for config in configs if (text := config.text(key))), "")

    fail_swap_on = flag(found.args, "fail-swap-on")
    in_file = next((said for config in configs if (said := config.truth("failSwapOn")) is not None), True)
    return KubeletFacts(
        running=found.pid > 0,
        config_file=node.plain(configs[-1].file),
        config_problem=node.plain("; ".join(config.problem for config in configs if config.problem)),
        cpu_manager_policy=setting("cpu-manager-policy", "cpuManagerPolicy"),
        runtime_endpoint=setting("container-runtime-endpoint", "containerRuntimeEndpoint"),
        fail_swap_on=in_file if fail_swap_on is None else fail_swap_on != "false",
        feature_gates=gates | _gates(flag(found.args, "feature-gates") or ""),
    )


def _gates(text: str) -> dict[str, bool]:
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {name.strip(): value.strip().lower() == "true" for name, _, value in pairs}


def runtime(node: Node, socket: str, told: tuple[str, str] | None) -> RuntimeFacts:
    """The runtime at ``socket``; ``told``: name and version, if it answered CRI's Version."""
    is_crio = (told is not None and told[0] == "cri-o") or socket.endswith("crio.sock")
    config = toml_file(node, _CRIO_CONFIG if is_crio else _CONTAINERD_CONFIG)
    name, version = told or ("", "")
    return RuntimeFacts(
        name=name,
        version=version,
        socket=socket,
        socket_exists=node.exists(socket),
        config_file=config.file,
        config_problem=config.problem,
        nri_disabled=_nri_disabled(config, is_crio),
        nri_socket_exists=any(node.exists(path) for path in NRI_SOCKETS),
    )


def runtime_socket(node: Node, kubelet_endpoint: str) -> str:
    """The runtime's socket: kubelet's, unless that is our proxy's, else whichever usual one exists."""
    path = kubelet_endpoint.removeprefix("unix://")
    if path and "koord" not in path:
        return path
    return CRIO_SOCKET if node.exists(CRIO_SOCKET) and not node.exists(CONTAINERD_SOCKET) else CONTAINERD_SOCKET


def _nri_disabled(config: Document, is_crio: bool) -> bool | None:
    if is_crio:
        enabled = config.truth("crio", "nri", "enable_nri")
        return None if enabled is None else not enabled
    return config.truth("plugins", "io.containerd.nri.v1.nri", "disable")


def unit(node: Node) -> tuple[str, int | None]:
    """(file, LimitNOFILE) of koord-qosd's systemd unit, drop-ins considered; "" = not installed."""
    file = next((f"{where}/{UNIT}" for where in _UNIT_DIRECTORIES if node.exists(f"{where}/{UNIT}")), "")
    drop_ins = [
        f"{where}/{UNIT}.d/{name}" for where in reversed(_UNIT_DIRECTORIES) for name in node.names(f"{where}/{UNIT}.d")
    ]
    limit: int | None = None
    for each in (file, *drop_ins) if file else ():
        for line in (node.text(each) or "").splitlines():
            name, _, value = line.partition("=")
            soft = value.strip().partition(":")[0]
            if name.strip() == "LimitNOFILE" and soft.isdecimal():
                limit = int(soft)
    return file, limit
