"""The proxy's flags: upstream's names and defaults first, then ours; the same names are the keys of ``--config``.

One table, ``Options``: each field carries its flag, its reader and its help. Order of precedence: command line, file,
default. Go's spellings are understood (``-flag=value``, ``--flag value``, ``300ms``, ``--bypass=false``), so that an
existing unit file keeps working. Everything wrong is an ``OptionError`` that names flag or file and key, and the value.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, NoReturn

import koord

MODES = ("Containerd", "Docker")
LOG_LEVELS = ("debug", "info", "warning", "error")

_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "true", "True", "TRUE"), True),
    **dict.fromkeys(("0", "f", "F", "false", "False", "FALSE"), False),
}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_BYTES = re.compile(r"(\d+)(?:([KMG])i?B?)?")
_BYTES_UNIT = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class OptionError(ValueError):
    """A flag or a key of the configuration file that cannot be used; the text says where, what and why."""


def duration_s(text: str) -> float:
    """Go's duration syntax in seconds: ``300ms``, ``1.5h``, ``2m30s``, ``0``; never negative."""
    if text == "0":
        return 0.0
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("not a duration such as 300ms, 3s or 1m30s")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def positive_duration_s(text: str) -> float:
    seconds = duration_s(text)
    if seconds == 0:
        raise ValueError("must be more than 0")
    return seconds


def size_bytes(text: str) -> int:
    """Bytes: ``1048576``, ``64MiB``, ``64Mi``, ``64M`` (the last three are the same number)."""
    match = _BYTES.fullmatch(text)
    if match is None:
        raise ValueError("not a size such as 67108864 or 64MiB")
    return int(match[1]) * _BYTES_UNIT[match[2] or ""]


def boolean(text: str) -> bool:
    if text not in _BOOLS:
        raise ValueError("neither true nor false")
    return _BOOLS[text]


def socket_path(text: str) -> str:
    """A unix socket's absolute path; the ``unix://`` that kubelet's flags have is tolerated."""
    path = text.removeprefix("unix://")
    if not path.startswith("/"):
        raise ValueError("not an absolute path of a unix socket")
    return path


def optional_path(text: str) -> str:
    if text and not text.startswith("/"):
        raise ValueError("not an absolute path")
    return text


def status_endpoint(text: str) -> str:
    """Empty (off), a unix socket's absolute path, or ``host:port`` on the loopback interface."""
    if text == "" or text.startswith(("/", "unix://")):
        return text and socket_path(text)
    host, _, port = text.rpartition(":")
    if host not in ("127.0.0.1", "[::1]", "localhost") or not port.isdigit() or int(port) > 65535:
        raise ValueError("neither an absolute path nor a loopback host:port")
    return text


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return read


def names(text: str) -> tuple[str, ...]:
    """Comma-separated; blanks around names and empty names do not count."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def flag(name: str, default: str, read: Callable[[str], Any], text: str, live: bool = False) -> Any:
    """A field of ``Options``; ``live`` flags take effect at a reload, others at the next start."""
    return field(
        default=read(default), metadata={"flag": name, "read": read, "help": text, "shown": default, "live": live}
    )


@dataclass(frozen=True, slots=True)
class Options:
    """What the process was asked to do. Units are in the names; an empty string or tuple means "none"."""

    endpoint: str = flag(
        "koord-runtimeproxy-endpoint",
        "/var/run/koord-runtimeproxy/runtimeproxy.sock",
        socket_path,
        "the socket that kubelet connects to; sockets handed over by systemd come first",
    )
    backend: str = flag(
        "remote-runtime-service-endpoint",
        "/var/run/containerd/containerd.sock",
        socket_path,
        "the runtime's CRI socket, for the runtime and the image service",
    )
    mode: str = flag(
        "backend-runtime-mode",
        "Containerd",
        one_of(MODES),
        "Containerd: any CRI runtime; Docker: the backend is the CRI endpoint of cri-dockerd (never dockerd's own API)",
    )
    skip_key: str = flag(
        "runtime-hook-server-key",
        "runtimeproxy.koordinator.sh/skip-hookserver",
        str,
        "label or annotation that exempts a pod from the hooks",
        live=True,
    )
    skip_value: str = flag("runtime-hook-server-val", "true", str, "the value of that label or annotation", live=True)
    hook_directory: str = flag(
        "hookserver-dir", "/etc/runtime/hookserver.d", optional_path, "directory of hook server files; empty: no hooks"
    )
    hook_timeout_s: float = flag(
        "hook-timeout",
        "3s",
        positive_duration_s,
        "longest wait for a hook server; never more than half of the caller's deadline",
        live=True,
    )
    skip_namespaces: tuple[str, ...] = flag(
        "skip-namespaces", "", names, "namespaces whose pods are exempt, separated by commas", live=True
    )
    privileged_namespaces: tuple[str, ...] = flag(
        "privileged-namespaces",
        "kube-system,koordinator-system",
        names,
        "namespaces whose pods may exempt themselves from hook servers under policy Fail; *: all namespaces",
        live=True,
    )
    skip_static_pods: bool = flag("skip-static-pods", "false", boolean, "exempt kubelet's static pods", live=True)
    skip_critical_pods: bool = flag(
        "skip-critical-pods",
        "false",
        boolean,
        "exempt pods of privileged namespaces that say in a label or annotation that they are critical",
        live=True,
    )
    foreign_parents: bool = flag(
        "allow-foreign-cgroup-parents",
        "false",
        boolean,
        "let a hook server move a pod out of its own part of the cgroup tree",
        live=True,
    )
    bypass: bool = flag(
        "bypass", "false", boolean, "relay everything and edit nothing; SIGUSR1 switches it off too", live=True
    )
    bypass_file: str = flag(
        "bypass-file",
        "/run/koord/bypass",
        optional_path,
        "edit nothing for as long as this file exists; SIGUSR1 makes or removes it",
    )
    held_budget_bytes: int = flag(
        "held-bytes-budget", "64MiB", size_bytes, "most bytes of requests kept back; the rest goes on unedited"
    )
    backend_wait_s: float = flag(
        "backend-wait", "10s", duration_s, "how long a new connection is held while the backend is missing"
    )
    drain_timeout_s: float = flag(
        "drain-timeout", "10m", duration_s, "how long calls in flight may last after a successor took over", live=True
    )
    stop_timeout_s: float = flag(
        "stop-timeout", "10s", duration_s, "how long calls in flight may last after SIGTERM", live=True
    )
    status_endpoint: str = flag(
        "metrics-endpoint",
        "/run/koord/runtime-proxy-metrics.sock",
        status_endpoint,
        "unix socket or loopback host:port of /metrics, /healthz, /readyz and /dump; empty: off",
    )
    metrics_token_file: str = flag(
        "metrics-token-file",
        "",
        optional_path,
        "file of the bearer token that /metrics and /dump want on a port; without it a port has the health pages only",
    )
    log_level: str = flag("log-level", "info", one_of(LOG_LEVELS), "debug, info, warning or error", live=True)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Its flags as text, and the two that are not ``Options``; kept to be merged again at a reload."""

    flags: Mapping[str, str]
    config_file: str = ""


def parse_command_line(arguments: Sequence[str]) -> CommandLine:
    """``arguments`` without the program's name. ``--help`` and ``--version`` print and raise SystemExit(0)."""
    values = vars(_parser().parse_args(list(arguments)))
    if values.pop("version", False):
        _print_version()
    config_file = values.pop("config", "")
    return CommandLine(values, config_file)


def load(command_line: CommandLine) -> Options:
    """Command line over file over defaults. Raises OptionError; a named file that does not exist is one too."""
    flags = {entry.metadata["flag"]: entry for entry in fields(Options)}
    values: dict[str, Any] = {}
    if command_line.config_file:
        for key, value in _read_config(command_line.config_file).items():
            if key not in flags:
                raise OptionError(f"{command_line.config_file}: unknown key {key!r}")
            where = f"{command_line.config_file}: {key}"
            values[flags[key].name] = _read(where, _config_text(where, value), flags[key])
    for key, text in command_line.flags.items():
        values[flags[key].name] = _read(f"--{key}", text, flags[key])
    return Options(**values)


def fixed_changes(old: Options, new: Options) -> list[str]:
    """The flags that differ but take effect only at the next start."""
    return [
        entry.metadata["flag"]
        for entry in fields(Options)
        if not entry.metadata["live"] and getattr(old, entry.name) != getattr(new, entry.name)
    ]


def _read(where: str, text: str, entry: Field[Any]) -> Any:
    try:
        return entry.metadata["read"](text)
    except ValueError as error:
        raise OptionError(f"{where}={text!r}: {error}") from error


def _config_text(where: str, value: object) -> str:
    """A YAML value in the spelling of the command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if isinstance(value, str | int | float):
        return str(value)
    raise OptionError(f"{where}={value!r}: must be a string, a number, a boolean or a list of strings")


def _read_config(path: str) -> Mapping[str, object]:
    from pathlib import Path  # noqa: PLC0415 - not needed, and not paid for, without a file

    from koord.service.config import ConfigError, read_yaml  # noqa: PLC0415

    try:
        return read_yaml(Path(path))
    except FileNotFoundError as error:
        raise OptionError(f"--config={path!r}: no such file") from error
    except ConfigError as error:
        raise OptionError(str(error)) from error


def _print_version() -> NoReturn:
    print(f"koord-runtime-proxy {koord.__version__}")
    raise SystemExit(0)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}; see --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="koord-runtime-proxy",
        allow_abbrev=False,
        add_help=False,
        argument_default=argparse.SUPPRESS,
        usage="%(prog)s [--flag=value …]",
        description="Relays CRI between kubelet and the container runtime and lets hook servers edit a few calls.",
    )
    parser.add_argument("--help", "-help", "-h", action="help", help="print this and exit")
    parser.add_argument("--version", "-version", action="store_true", help="print the version and exit")
    _add(parser, "config", "", "YAML file with the same names as keys; the command line wins", {})
    for entry in fields(Options):
        switch = {"nargs": "?", "const": "true"} if entry.metadata["read"] is boolean else {}
        _add(parser, entry.metadata["flag"], entry.metadata["shown"], entry.metadata["help"], switch)
    return parser


def _add(parser: argparse.ArgumentParser, name: str, default: str, text: str, extra: Mapping[str, Any]) -> None:
    shown = f" (default {default})" if default else ""
    parser.add_argument(f"--{name}", f"-{name}", dest=name, metavar="VALUE", help=text + shown, **extra)
