"""koord-qosd's options: flags, and the same names as keys of ``--config`` (YAML); a flag wins over the file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

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
    cgroup_root: Path = Path("/sys/fs/cgroup")
    resctrl_root: Path = Path("/sys/fs/resctrl")
    metrics_endpoint: str = ""
    log_level: str = "info"


_HELP = {
    "rules_file": "YAML rules (see manifests/qosd-rules.yaml); reloaded on change; absent = built-in defaults",
    "hook_socket": "unix socket (0660) of RuntimeHookService",
    "inspect_socket": "unix socket (0600) of NodeInspect, which koordctl asks",
    "hookserver_dir": "where koord-qosd.json is written for the runtime proxy; '' = write none",
    "failure_policy": "what the proxy does when qosd does not answer: Ignore forwards unedited, Fail refuses",
    "remove_hookserver_file": "take koord-qosd.json away on SIGTERM (stopping is not disabling, so: off)",
    "runtime_endpoint": "CRI socket that NodeInspect asks for pods",
    "runtime_timeout": "seconds that one CRI call may take",
    "cgroup_root": "where cgroups are mounted",
    "resctrl_root": "where resctrl is mounted",
    "metrics_endpoint": "Prometheus: unix:///path or a loopback host:port; '' = none",
    "log_level": "debug, info, warning or error",
}
_CHOICES = {"failure_policy": FAILURE_POLICIES, "log_level": LEVELS}


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
                type=_reader(default),
                choices=_CHOICES.get(option.name),
                metavar=option.name.upper(),
                help=help_text,
            )
    return parser


def _reader(default: object) -> Any:
    return (lambda text: Path(without_scheme(text))) if isinstance(default, Path) else type(default)


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
    return _reader(default)(value) if not isinstance(default, bool) else value
