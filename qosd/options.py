"""koord-qosd's options: flags, and the same names as keys of ``--config`` (YAML); a flag wins over the file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from koord.model import featuregates, locations
from koord.service import optionvalues
from koord.service.log import LEVELS
from koord.service.options import Program, option

FAILURE_POLICIES = ("Ignore", "Fail")
IN_CLUSTER = "in-cluster"
"""``kubeconfig`` of a pod: its service account."""

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253
_SECONDS = (lambda seconds: 0 < seconds <= 60, "must be more than 0 and at most 60 seconds")


def feature_gates(text: str) -> Mapping[str, bool]:
    return featuregates.checked(optionvalues.switches(text))


def is_node_name(text: str) -> bool:
    """May a Node have this name?"""
    return len(text) <= _LONGEST_NAME and _NODE_NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Options:
    """The help names the units; an empty string means none."""

    # fmt: off
    rules_file: Path = option(Path(locations.RULES_FILE),
        "YAML rules (see manifests/qosd-rules.yaml); reloaded on change; never one = built-in defaults")
    feature_gates: Mapping[str, bool] = option("",
        "Name=true,Other=false: Koordinator's feature gates; node.features of the rules win", parse=feature_gates)
    hook_socket: Path = option(Path(locations.HOOK_SOCKET), "unix socket (0660) of RuntimeHookService")
    inspect_socket: Path = option(Path(locations.INSPECT_SOCKET),
        "unix socket (0600) of NodeInspect, which koordctl asks")
    hookserver_dir: str = option(locations.HOOK_SERVER_DIRECTORY,
        "where koord-qosd.json is written for the runtime proxy; '' = write none")
    failure_policy: str = option("Ignore",
        "what the proxy does when qosd does not answer: Ignore forwards unedited, Fail refuses",
        choices=FAILURE_POLICIES)
    remove_hookserver_file: bool = option(False,
        "take koord-qosd.json away on SIGTERM (stopping is not disabling, so: off)")
    runtime_endpoint: str = option(f"unix://{locations.CONTAINERD_SOCKET}",
        "CRI socket of the container runtime, which tells of pods; '' = pods from kubelet alone")
    runtime_timeout: float = option(3.0, "seconds that one CRI call may take", bounds=_SECONDS, metavar="SECONDS")
    kubelet_endpoint: str = option("",
        "kubelet's port for /pods (https://127.0.0.1:10250); '' = pods from the runtime and any cluster")
    kubelet_token_file: str = option("", "bearer token for kubelet's https port")
    kubelet_cert_file: str = option("",
        "client certificate for kubelet's https port, of somebody who may get nodes/pods")
    kubelet_key_file: str = option("", "its private key; '' = in the certificate's file")
    kubelet_ca_file: str = option("", "certificate authority of kubelet's https port; '' = the system's")
    kubelet_insecure_tls: bool = option(False,
        "kubelet's certificate is of no authority: it must be the one in pki of --kubelet-state-dir")
    kubelet_state_dir: Path = option(Path("/var/lib/kubelet"),
        "where kubelet keeps cpu_manager_state and its certificates")
    kubeconfig: str = option("",
        "the cluster: a kubeconfig file (kubelet's own will do), or in-cluster for a pod's account; '' = no cluster")
    node_name: str = option("", "this node's name in the cluster; '' = $NODE_NAME, else the host's name",
        bounds=(lambda name: not name or is_node_name(name), "must be a Node's name: a-z, 0-9, '-' and '.'"))
    nri_socket: str = option(locations.NRI_SOCKET,
        "the runtime's NRI socket, used when no proxy is attached; '' = never")
    nri_plugin_index: str = option("10", "two digits: the place among NRI plugins",
        bounds=(partial(re.fullmatch, "[0-9]{2}"), "must be two digits"))
    cgroup_root: Path = option(Path(locations.CGROUP_ROOT), "where cgroups are mounted")
    resctrl_root: Path = option(Path(locations.RESCTRL_ROOT), "where resctrl is mounted")
    proc_root: Path = option(Path("/proc"), "where procfs is mounted")
    sys_root: Path = option(Path("/sys"), "where sysfs is mounted")
    run_dir: Path = option(Path(locations.RUN_DIRECTORY), "the undo record; must be on a tmpfs")
    state_dir: Path = option(Path(locations.STATE_DIRECTORY),
        "the journal, the last good policy and the prediction's checkpoint")
    tick_interval: float = option(1.0, "seconds between two ticks", bounds=_SECONDS, metavar="SECONDS")
    dry_run: bool = option(False, "decide and say what would be written, but write no kernel file")
    journal_rows: int = option(100_000, "how many writes the journal remembers",
        bounds=(lambda rows: rows > 0, "must be more than 0"))
    metrics_endpoint: str = option("127.0.0.1:9316",
        "/metrics, /healthz and /readyz: unix:///path or host:port; '' = none")
    metrics_token_file: str = option("",
        "bearer token that /metrics wants; needed (or TLS) where other machines reach the port")
    metrics_cert_file: str = option("", "TLS certificate chain of the metrics endpoint")
    metrics_key_file: str = option("", "its private key; '' = in the certificate's file")
    log_level: str = option("info", "debug, info, warning or error", choices=LEVELS)
    # fmt: on


PROGRAM = Program("koord-qosd", "Koord's node daemon: answers runtime hooks and koordctl.", Options)


def node_name(options: Options, environ: Mapping[str, str]) -> str:
    """Returns the node's name; like kubelet, it writes a host's name in small letters."""
    return options.node_name or environ.get("NODE_NAME") or os.uname().nodename.lower()
