"""A systemd unit as its files say: the fragment and the drop-ins that apply, found and read as systemd does.

Rules of systemd.unit(5): the first directory that has the fragment wins; drop-ins of all directories apply in the order
of their file names, and of two with the same name only the one in the stronger directory; an empty assignment resets
what was said before it. Values stay as they are written, with ``%`` specifiers, quotes and variables. Nothing here
raises: a file that cannot be read says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from koordctl.host.node import Node

DIRECTORIES = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
"""Where units are, the strongest first."""


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
        """The same unit as if there were no file at ``path``."""
        return Unit(self.name, tuple(file for file in self.files if file.path != path))

    def values(self, section: str, key: str) -> tuple[str, ...]:
        """All values of ``key`` that are in force, in order."""
        found: list[str] = []
        for file in self.files:
            for each in assignments(file.text):
                if each[:2] == (section, key):
                    found = [*found, each[2]] if each[2] else []
        return tuple(found)


def find(node: Node, name: str) -> Unit | None:
    """The unit ``name`` (``kubelet.service``) of ``node``; None if it has no fragment."""
    fragment = next((path for path in _candidates(name) if node.exists(path)), None)
    if fragment is None:
        return None
    paths = [fragment, *_drop_ins(node, name)]
    return Unit(name, tuple(UnitFile(path, node.text(path) or "") for path in paths))


def assignments(text: str) -> Iterator[tuple[str, str, str]]:
    """(section, key, value) of each assignment; a line that ends with a backslash goes on in the next one."""
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


def _candidates(name: str) -> Sequence[str]:
    return [f"{directory}/{name}" for directory in DIRECTORIES]


def _drop_ins(node: Node, name: str) -> list[str]:
    """The unit's own drop-ins are stronger than those of its whole type (``service.d``)."""
    kind = name.rpartition(".")[2]
    chosen: dict[str, str] = {}
    for folder in (f"{name}.d", f"{kind}.d"):
        for directory in DIRECTORIES:
            for file in node.names(f"{directory}/{folder}"):
                if file.endswith(".conf"):
                    chosen.setdefault(file, f"{directory}/{folder}/{file}")
    return [chosen[file] for file in sorted(chosen)]
