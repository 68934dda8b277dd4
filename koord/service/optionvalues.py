"""Reads the text of an option as Go's and Kubernetes' programs read theirs; each function raises ValueError.

The error says why; ``koord.service.options`` puts flag or key, and the text, before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "true", "True", "TRUE"), True),
    **dict.fromkeys(("0", "f", "F", "false", "False", "FALSE"), False),
}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
"""The hosts that only this machine itself reaches, as ``host_port`` gives them."""
_LAST_PORT = 65535
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_BYTES = {
    letter + rest: 1 << shift for letter, shift in (("K", 10), ("M", 20), ("G", 30)) for rest in ("", "B", "i", "iB")
}


def duration_s(text: str) -> float:
    """Reads Go's duration syntax, as seconds: ``300ms``, ``1.5h``, ``2m30s``, ``0``; never negative."""
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
    """Reads bytes: ``1048576``, ``64MiB``, ``64Mi``, ``64M`` (the last three are the same number)."""
    digits = text.rstrip("KMGiB")
    unit = text[len(digits) :]
    if not digits.isdecimal() or (unit and unit not in _BYTES):
        raise ValueError("not a size such as 67108864 or 64MiB")
    return int(digits) * _BYTES.get(unit, 1)


def boolean(text: str) -> bool:
    if text not in _BOOLS:
        raise ValueError("neither true nor false")
    return _BOOLS[text]


def socket_path(text: str) -> str:
    """Reads a unix socket's absolute path; the ``unix://`` that kubelet's flags have is tolerated."""
    path = text.removeprefix("unix://")
    if not path.startswith("/"):
        raise ValueError("not an absolute path of a unix socket")
    return path


def host_port(text: str) -> tuple[str, int]:
    """Reads ``host:port`` or ``[address]:port``; also ``fd00::1:port``, which ``$(POD_IP):port`` makes."""
    host, port = _host_port(text, "must be host:port")
    if not host:
        raise ValueError("must be host:port")
    return host, port


def optional_host_port(text: str) -> str:
    if text:
        host_port(text)
    return text


def listen_address(text: str) -> tuple[str, int]:
    """Reads a server's address: as ``host_port``, or ``:port`` for every address of the machine, which is host ""."""
    return _host_port(text, "must be host:port or :port")


def optional_listen_address(text: str) -> str:
    if text:
        listen_address(text)
    return text


def _host_port(text: str, complaint: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > _LAST_PORT:
        raise ValueError(complaint)
    return host.strip("[]"), int(port)


def optional_path(text: str) -> str:
    if text and not text.startswith("/"):
        raise ValueError("not an absolute path")
    return text


def names(text: str) -> tuple[str, ...]:
    """Reads comma-separated names; blanks around names and empty names do not count."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def switches(text: str) -> dict[str, bool]:
    """Reads Kubernetes' ``Name=true,Other=false``; the last entry of a name counts."""
    found = {}
    for entry in names(text):
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{entry!r} is not Name=true or Name=false")
        if value.strip() not in _BOOLS:
            raise ValueError(f"{entry!r} is neither true nor false")
        found[name.strip()] = _BOOLS[value.strip()]
    return found


def number(kind: type[int] | type[float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            return kind(text)
        except (ValueError, OverflowError) as error:
            raise ValueError("is no number") from error

    return read


def check_kind(value: object, kinds: tuple[type, ...]) -> None:
    """Raises ValueError unless a value of YAML is of one of these types; the last one's name is for people."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(f"must be {kinds[-1].__name__}")


def text(value: object) -> str:
    """Returns a value of YAML in the spelling of the command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError("must be a string, a number, a boolean or a list of strings")
