"""systemd units as their files say, found and read as systemd does; and the drop-in that puts kubelet on the proxy.

Rules of systemd.unit(5): the first directory that has the fragment wins; drop-ins of all directories apply in the order
of their file names, and of two with the same name only the one in the stronger directory; an empty assignment resets
what was said before it. Values stay as they are written, with ``%`` specifiers, quotes and variables. Nothing here
raises: a file that cannot be read says nothing.

kubelet's drop-in repeats the unit's own command as it is written, unexpanded, and adds the two endpoint flags; kubelet
takes the last of several flags, and a flag before its file. Only a unit that starts kubelet itself can be wrapped that
way: ``refusal`` says why another cannot. The repeated command grows old when the unit changes: ``is_stale``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from koord.model.locations import PROXY_SOCKET
from koordctl.node.files import NodeFiles

QOSD = "koord-qosd.service"
PROXY_UNITS = ("koord-runtime-proxy.socket", "koord-runtime-proxy.service")
SLICE = "koord.slice"
UNITS = (QOSD, *PROXY_UNITS)
UNIT_FILES = (*UNITS, SLICE)
"""The slice comes and goes with the services in it: it is neither started nor enabled."""
LOCAL = "/etc/systemd/system"
"""Where an administrator's units are, and those of an installation from a virtual environment."""
DIRECTORIES = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    LOCAL,
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
"""Where units are, the strongest first."""
_KUBELET_DROP_IN = "90-koord.conf"
_FLAGS = tuple(f"--{name}=unix://{PROXY_SOCKET}" for name in ("container-runtime-endpoint", "image-service-endpoint"))
_PREFIXES = "@-:+!"


@dataclass(frozen=True, slots=True)
class UnitFile:
    """One file and its text."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Unit:
    """The files that make the unit ``name``: its fragment first, then the drop-ins in the order they are read."""

    name: str
    files: tuple[UnitFile, ...]

    def without(self, path: str) -> Unit:
        """Returns the same unit as if there were no file at ``path``."""
        return Unit(self.name, tuple(file for file in self.files if file.path != path))

    def values(self, section: str, key: str) -> tuple[str, ...]:
        """Returns all values of ``key`` that are in force, in order."""
        found: list[str] = []
        for file in self.files:
            for each in assignments(file.text):
                if each[:2] == (section, key):
                    found = [*found, each[2]] if each[2] else []
        return tuple(found)


def find(node: NodeFiles, name: str) -> Unit | None:
    """Returns the unit ``name`` (``kubelet.service``) of ``node``; None if it has no fragment."""
    candidates = (f"{directory}/{name}" for directory in DIRECTORIES)
    fragment = next((path for path in candidates if node.exists(path)), None)
    if fragment is None:
        return None
    paths = [fragment, *_drop_ins(node, name)]
    return Unit(name, tuple(UnitFile(path, node.text(path) or "") for path in paths))


def assignments(text: str) -> Iterator[tuple[str, str, str]]:
    """Yields (section, key, value) of each assignment; a line that ends with a backslash goes on in the next one."""
    section = ""
    for line in _lines(text):
        if line.startswith("["):
            section = line.strip("[]")
            continue
        key, equals, value = line.partition("=")
        if equals:
            yield section, key.rstrip(), value.strip()


def _lines(text: str) -> Iterator[str]:
    begun = ""
    for raw in text.split("\n"):
        line = raw.lstrip()
        if line.startswith(("#", ";")):
            continue
        joined = begun + line
        if joined.endswith("\\"):
            begun = f"{joined[:-1]} "
            continue
        begun = ""
        if joined.strip():
            yield joined.rstrip()
    if begun.strip():
        yield begun.rstrip()


def _drop_ins(node: NodeFiles, name: str) -> list[str]:
    """Returns the drop-ins in the order they are read; the unit's own are stronger than its type's (``service.d``)."""
    kind = name.rpartition(".")[2]
    chosen: dict[str, str] = {}
    for folder in (f"{name}.d", f"{kind}.d"):
        for directory in DIRECTORIES:
            for file in node.names(f"{directory}/{folder}"):
                if file.endswith(".conf"):
                    chosen.setdefault(file, f"{directory}/{folder}/{file}")
    return [chosen[file] for file in sorted(chosen)]


def kubelet_drop_in_path(unit: str) -> str:
    return f"{LOCAL}/{unit}.d/{_KUBELET_DROP_IN}"


def kubelet_drop_in(command: str) -> str:
    """Returns the drop-in's text; ``command`` is the unit's own ExecStart value."""
    units = " ".join(PROXY_UNITS)
    return (
        "# Written by koordctl install; koordctl uninstall removes it.\n"
        f"[Unit]\nWants={units}\nAfter={units}\n\n"
        f"[Service]\nExecStart=\nExecStart={' '.join((command, *_FLAGS))}\n"
    )


def is_stale(drop_in: str, command: str) -> bool:
    """Returns whether the drop-in starts another command than ``command``, that of the unit without it."""
    said = [value for section, key, value in assignments(drop_in) if (section, key) == ("Service", "ExecStart")]
    return said[-1:] != [" ".join((command, *_FLAGS))]


def own_command(unit: Unit) -> str:
    """Returns the unit's ExecStart value without our drop-in; "" unless it has exactly one."""
    commands = _own_commands(unit)
    return commands[0] if len(commands) == 1 else ""


def refusal(unit: Unit) -> str:
    """Returns why this unit's command cannot be repeated with other endpoints; "" if it can."""
    commands = _own_commands(unit)
    if len(commands) != 1:
        return f"{unit.name} has {len(commands)} ExecStart lines, not one"
    try:
        words = shlex.split(commands[0])
    except ValueError:
        words = [";"]
    if ";" in words:
        return f"the command of {unit.name} is not understood: {commands[0]}"
    program = words[0].lstrip(_PREFIXES) if words else ""
    if program.rpartition("/")[2] != "kubelet":
        return f"{unit.name} starts {program or 'nothing'}, not kubelet itself"
    for file in unit.files:
        sets = any(each[:2] == ("Service", "ExecStart") for each in assignments(file.text))
        if sets and ".d/" in file.path and file.path.rpartition("/")[2] > _KUBELET_DROP_IN:
            return f"{file.path} sets ExecStart and is read after {_KUBELET_DROP_IN}"
    return ""


def _own_commands(unit: Unit) -> tuple[str, ...]:
    return unit.without(kubelet_drop_in_path(unit.name)).values("Service", "ExecStart")
