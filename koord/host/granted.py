"""Which of the grants that a feature needs this process has, and which kernel files they are about.

``/proc/self/status`` shows the capabilities. A file is looked at with the rights of the process that writes it: the
unit binds what it does not allow read-only, which no capability overcomes. A file that this kernel lacks needs no
grant. What cannot be told counts as granted, because the kernel tells the writer then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from koord.host.cgroup import ReadError, Tree, read_text
from koord.host.files import Target
from koord.model.grants import GRANTS, Capability, Grant

_EFFECTIVE = re.compile(r"^CapEff:\s*([0-9a-fA-F]+)$", re.MULTILINE)
MayWrite = Callable[[Path], bool]


def may_write(path: Path) -> bool:
    """Would the kernel let this process open ``path`` for writing, as far as one can tell without doing it?"""
    return os.access(path, os.W_OK)


def path_of(row: str, tree: Tree) -> Path:
    """Returns the path of a row's file outside cgroups, whether it is there or not."""
    path = tree.path(Target("", row))
    assert path is not None, f"{row} is one of many files"
    return path


def files_of(grant: Grant, tree: Tree) -> tuple[Path, ...]:
    """Returns those of the grant's files that this kernel has."""
    return tuple([path for name in grant.rows if (path := path_of(name, tree)).exists()])


def capabilities(status: str) -> frozenset[Capability] | None:
    """Returns the capabilities in force, by the text of ``/proc/<pid>/status``; None if it does not tell."""
    found = _EFFECTIVE.search(status)
    if found is None:
        return None
    mask = int(found.group(1), 16)
    return frozenset(each for each in Capability if mask & 1 << each)


def lacking(tree: Tree, writable: MayWrite = may_write) -> Mapping[str, tuple[str, ...]]:
    """Returns by feature the capabilities and files that the feature needs and this process may not use; None: not
    listed."""
    try:
        own = capabilities(read_text(tree.proc / "self/status") or "")
    except ReadError:
        own = None
    found = {name: tuple(_lacking(grant, tree, own, writable)) for name, grant in GRANTS.items()}
    return {name: parts for name, parts in found.items() if parts}


def _lacking(grant: Grant, tree: Tree, own: frozenset[Capability] | None, writable: MayWrite) -> Iterator[str]:
    if own is not None:
        yield from (each.name for each in grant.capabilities if each not in own)
    yield from (str(path) for path in files_of(grant, tree) if not writable(path))
