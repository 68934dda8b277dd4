"""kubelet's systemd unit, and the drop-in that points kubelet at the proxy.

The drop-in repeats the unit's own command as it is written, unexpanded, and adds the two endpoint flags; kubelet takes
the last of several flags, and a flag before its file. Only a unit that starts kubelet itself can be wrapped that way:
``refusal`` says why another cannot. The repeated command grows old when the unit changes: ``stale``.
"""

from __future__ import annotations

import shlex

from koordctl.host.unitfile import Unit, assignments

DROP_IN = "90-koord.conf"
PROXY_SOCKET = "/run/koord-runtimeproxy/runtimeproxy.sock"
PROXY_UNITS = ("koord-runtime-proxy.socket", "koord-runtime-proxy.service")
_FLAGS = tuple(f"--{name}=unix://{PROXY_SOCKET}" for name in ("container-runtime-endpoint", "image-service-endpoint"))
_PREFIXES = "@-:+!"


def drop_in_path(unit: str) -> str:
    return f"/etc/systemd/system/{unit}.d/{DROP_IN}"


def drop_in(command: str) -> str:
    """The drop-in's text; ``command`` is the unit's own ExecStart value."""
    units = " ".join(PROXY_UNITS)
    return (
        "# Written by koordctl install; koordctl uninstall removes it.\n"
        f"[Unit]\nWants={units}\nAfter={units}\n\n"
        f"[Service]\nExecStart=\nExecStart={' '.join((command, *_FLAGS))}\n"
    )


def stale(drop_in_text: str, command: str) -> bool:
    """Does the drop-in start another command than the unit without it, ``command``, would?"""
    said = [value for section, key, value in assignments(drop_in_text) if (section, key) == ("Service", "ExecStart")]
    return said[-1:] != [" ".join((command, *_FLAGS))]


def own_command(unit: Unit) -> str:
    """The unit's ExecStart value without our drop-in; "" unless it has exactly one."""
    commands = unit.without(drop_in_path(unit.name)).values("Service", "ExecStart")
    return commands[0] if len(commands) == 1 else ""


def refusal(unit: Unit) -> str:
    """Why this unit's command cannot be repeated with other endpoints; "" if it can."""
    own = drop_in_path(unit.name)
    commands = unit.without(own).values("Service", "ExecStart")
    if len(commands) != 1:
        return f"{unit.name} has {len(commands)} ExecStart lines, not one"
    words = _words(commands[0])
    if words is None or ";" in words:
        return f"the command of {unit.name} is not understood: {commands[0]}"
    program = words[0].lstrip(_PREFIXES) if words else ""
    if program.rpartition("/")[2] != "kubelet":
        return f"{unit.name} starts {program or 'nothing'}, not kubelet itself"
    for file in unit.files:
        sets = any(each[:2] == ("Service", "ExecStart") for each in assignments(file.text))
        if sets and ".d/" in file.path and file.path.rpartition("/")[2] > DROP_IN:
            return f"{file.path} sets ExecStart and is read after {DROP_IN}"
    return ""


def _words(command: str) -> list[str] | None:
    try:
        return shlex.split(command)
    except ValueError:
        return None
