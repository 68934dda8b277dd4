"""Desired against actual, one Value per row of the cgroup table.

Both texts are in CRI's spelling, so equal texts mean equal effect; ``raw`` keeps the file's own. A CPU set that is
desired to be empty means "the parent's": it is reported as met when the kernel's set is the parent's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koord.host.cgroup import ReadError, Tree, read_text
from koord.host.files import ROWS, KernelFile, Target
from koord.host.values import normalise
from koord.host.writer import Writer
from koord.model.crifields import Field
from koord.pb.koord import inspect_pb2 as inspect
from qosd.hooks.edits import Edits

_ALWAYS = ("cpuset_cpus", "cpu_quota", "cpu_period", "cpu_shares", "memory_limit_in_bytes")


@dataclass(frozen=True, slots=True)
class Wish:
    """The text that a file shall hold, in CRI's spelling, and why."""

    text: str
    why: str


def wishes_of(edits: Edits) -> dict[str, Wish]:
    """Returns by row the values that the hooks want in a container's files."""
    kept = [edit for edit in edits.items if edit.field is not Field.ANNOTATION]
    return {edit.name: Wish(str(edit.value), f"{edit.hook}: {edit.why}") for edit in kept}


def compare(writer: Writer, cgroup: str, wishes: Mapping[str, Wish], page_bytes: int) -> list[inspect.Value]:
    """Returns the values of ``cgroup`` ("" = unknown): the common ones, and those in ``wishes``."""
    named = {name.partition("@")[0] for name in wishes}
    shown = [row for row in ROWS.values() if row.name in _ALWAYS or row.name in named]
    return [_value(writer, row, cgroup, wishes.get(row.name), page_bytes) for row in shown]


def _value(writer: Writer, row: KernelFile, cgroup: str, wish: Wish | None, page_bytes: int) -> inspect.Value:
    value = inspect.Value(field=row.name, unit=row.unit)
    if wish is not None:
        value.desired = normalise(row, 1, wish.text, None, 1) if row.name.startswith("cpuset_") else wish.text
        value.why = wish.why
    target, tree = Target(cgroup, row.name), writer.tree
    file = tree.path(target) if cgroup else None
    if file is None:
        return value
    value.file = str(file)
    try:
        text = read_text(file)
    except ReadError as error:
        value.why = f"{value.why} ({error.strerror})".strip()
        return value
    if text is not None:
        value.raw = text
        desired = None if wish is None else wish.text
        parents = desired == "" and _is_parents(tree, row, cgroup, text)
        text = writer.as_made(target, file, text)
        value.actual = "" if parents else normalise(row, tree.version, text, desired, page_bytes, writer.weights)
    return value


def _is_parents(tree: Tree, row: KernelFile, cgroup: str, text: str) -> bool:
    """Returns whether ``cgroup`` holds the CPU set of the cgroup above it."""
    parent = tree.path(Target(cgroup.rpartition("/")[0] or "/", row.name))
    return parent is not None and read_text(parent) == text
