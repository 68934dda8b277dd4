"""koord-qosd's options: flags, and the same names as keys of ``--config`` (YAML); a flag wins over the file."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import koord
from koord.service.config import ConfigError, read_yaml
from koord.service.log import LEVELS
from koord.service.unixsocket import without_scheme

FAILURE_POLICIES = ("Ignore", "Fail")


@dataclass(frozen=True, slots=True)
class Options:
    """Every option with its default; the flag is the name with dashes."""

    rules_file: Path = Path("/etc/koord/qosd-rules.yaml")
    hook_socket: Path = Path("/run/koord/qosd-hooks.sock")
    inspect_socket: Path = Path("/run/koord/qosd-inspect.sock")
    hookserver_dir: str = "/etc/runtime/hookserver.d"
    failure_policy: str = "Ignore"
    remove_hookserver_file: bool = False
    runtime_endpoint: str = "unix:///run/containerd/containerd.sock"
    runtime_timeout: float = 3.0
    kubelet_endpoint: str = ""
    kubelet_token_file: str = ""
    kubelet_ca_file: str = ""
    kubelet_insecure_tls: bool = False
    kubelet_state_dir: Path = Path("/var/lib/kubelet")
    nri_socket: str = "/var/run/nri/nri.sock"
    nri_plugin_index: str = "10"
    cgroup_root: Path = Path("/sys/fs/cgroup")
    resctrl_root: Path = Path("/sys/fs/resctrl")
    proc_root: Path = Path("/proc")
    sys_root: Path = Path("/sys")
    run_dir: Path = Path("/run/koord")
    state_dir: Path = Path("/var/lib/koord")
    tick_interval: float = 1.0
    dry_run: bool = False
    journal_rows: int = 100_000
    metrics_endpoint: str = "127.0.0.1:9316"
    metrics_token_file: str = ""
    metrics_cert_file: str = ""
    metrics_key_file: str = ""
    log_level: str = "info"


_HELP = {
    "rules_file": "YAML rules (see manifests/qosd-rules.yaml); reloaded on change; never one = built-in defaults",
    "hook_socket": "unix socket (0660) of RuntimeHookService",
    "inspect_socket": "unix socket (0600) of NodeInspect, which koordctl asks",
    "hookserver_dir": "where koord-qosd.json is written for the runtime proxy; '' = write none",
    "failure_policy": "what the proxy does when qosd does not answer: Ignore forwards unedited, Fail refuses",
    "remove_hookserver_file": "take koord-qosd.json away on SIGTERM (stopping is not disabling, so: off)",
    "runtime_endpoint": "CRI socket of the container runtime, which tells of pods; '' = pods from kubelet alone",
    "runtime_timeout": "seconds that one CRI call may take",
    "kubelet_endpoint": "kubelet's port for /pods (https://127.0.0.1:10250); '' = pods from the runtime alone",
    "kubelet_token_file": "bearer token for kubelet's https port",
    "kubelet_ca_file": "certificate authority of kubelet's https port; '' = the system's",
    "kubelet_insecure_tls": "do not verify kubelet's certificate",
    "kubelet_state_dir": "where kubelet keeps cpu_manager_state",
    "nri_socket": "the runtime's NRI socket, used when no proxy is attached; '' = never",
    "nri_plugin_index": "two digits: the place among NRI plugins",
    "cgroup_root": "where cgroups are mounted",
    "resctrl_root": "where resctrl is mounted",
    "proc_root": "where procfs is mounted",
    "sys_root": "where sysfs is mounted",
    "run_dir": "the undo record; must be on a tmpfs",
    "state_dir": "the journal, the last good policy and the prediction's checkpoint",
    "tick_interval": "seconds between two ticks",
    "dry_run": "decide and say what would be written, but write no kernel file",
    "journal_rows": "how many writes the journal remembers",
    "metrics_endpoint": "/metrics, /healthz and /readyz: unix:///path or host:port; '' = none",
    "metrics_token_file": "bearer token that /metrics wants; needed (or TLS) where other machines reach the port",
    "metrics_cert_file": "TLS certificate chain of the metrics endpoint",
    "metrics_key_file": "its private key; '' = in the certificate's file",
    "log_level": "debug, info, warning or error",
}
_CHOICES = {"failure_policy": FAILURE_POLICIES, "log_level": LEVELS}
_BOUNDS: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "runtime_timeout": (lambda seconds: 0 < seconds <= 60, "must be more than 0 and at most 60 seconds"),
    "tick_interval": (lambda seconds: 0 < seconds <= 60, "must be more than 0 and at most 60 seconds"),
    "journal_rows": (lambda rows: rows > 0, "must be more than 0"),
    "nri_plugin_index": (lambda index: re.fullmatch("[0-9]{2}", index), "must be two digits"),
}


def parse(arguments: Sequence[str]) -> Options:
    """Options from the command line and ``--config``; a bad flag exits with 2, a bad file is a ConfigError."""
    given = vars(_parser().parse_args(arguments))
    file = given.pop("config", None)
    values = _from_file(Path(file)) if file else {}
    return Options(**{**values, **given})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="koord-qosd", description="Koord's node daemon: answers runtime hooks and koordctl.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"koord-qosd {koord.__version__}")
    parser.add_argument("--config", default=argparse.SUPPRESS, metavar="FILE", help="YAML with any of these options")
    defaults = Options()
    for option in fields(Options):
        default = getattr(defaults, option.name)
        help_text = f"{_HELP[option.name]} (default: {default if default != '' else 'none'})"
        if isinstance(default, bool):
            parser.add_argument(
                _flag(option.name), action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=help_text
            )
        else:
            parser.add_argument(
                _flag(option.name),
                default=argparse.SUPPRESS,
                type=partial(_read_flag, option.name),
                choices=_CHOICES.get(option.name),
                metavar=option.name.upper(),
                help=help_text,
            )
    return parser


def _reader(default: object) -> Any:
    return (lambda text: Path(without_scheme(text))) if isinstance(default, Path) else type(default)


def _read_flag(name: str, text: str) -> object:
    try:
        value = _reader(getattr(Options(), name))(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error
    if why := _out_of_bounds(name, value):
        raise argparse.ArgumentTypeError(f"{text!r} {why}")
    return value


def _out_of_bounds(name: str, value: object) -> str:
    is_fine, why = _BOUNDS.get(name, (lambda _: True, ""))
    return "" if is_fine(value) else why


def _from_file(file: Path) -> Mapping[str, Any]:
    try:
        document = read_yaml(file)
    except FileNotFoundError as error:
        raise ConfigError(file, "", None, "does not exist") from error
    known = {_flag(option.name)[2:]: option.name for option in fields(Options)}
    for key in document:
        if key not in known:
            raise ConfigError(file, str(key), None, f"is no option; there are {', '.join(sorted(known))}")
    return {known[key]: _value(file, key, known[key], value) for key, value in document.items()}


def _value(file: Path, key: str, name: str, value: object) -> object:
    default = getattr(Options(), name)
    wanted: tuple[type, ...] = (str,) if isinstance(default, Path) else (type(default),)
    if isinstance(default, float):
        wanted = (int, float)
    if not isinstance(value, wanted) or (isinstance(value, bool) and not isinstance(default, bool)):
        raise ConfigError(file, key, value, f"must be {wanted[-1].__name__}")
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ConfigError(file, key, value, f"must be one of {', '.join(_CHOICES[name])}")
    if why := _out_of_bounds(name, value):
        raise ConfigError(file, key, value, why)
    return _reader(default)(value) if not isinstance(default, bool) else value
