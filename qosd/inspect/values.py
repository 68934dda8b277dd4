"""Desired against actual, one Value per row of the cgroup table.

Both texts are in CRI's spelling, so equal texts mean equal effect; ``raw`` keeps the file's own. A CPU set that is
desired to be empty means "the parent's": it is reported as met when the kernel's set is the parent's.
"""

from __future__ import annotations

from koord.host import cgroup, paths
from koord.host.cgroup import Row, Tree
from koord.host.values import normalise
from koord.pb.koord import inspect_pb2 as inspect
from qosd.hooks.edits import Edit, Edits, Field

_ALWAYS = ("cpuset_cpus", "cpu_quota", "cpu_period", "cpu_shares", "memory_limit_in_bytes")
_SCOPE_PREFIXES = ("cri-containerd", "crio", "docker")


def compare(tree: Tree, group: str, edits: Edits, page_bytes: int) -> list[inspect.Value]:
    """The values of cgroup ``group`` ("" = unknown): the common ones, and whatever else a hook wants."""
    found = []
    for row in cgroup.ROWS:
        edit = _edit_of(edits, row.field)
        if edit is not None or row.field in _ALWAYS:
            found.append(_value(tree, row, group, edit, page_bytes))
    return found


def likely_path(tree: Tree, parent: str, container_id: str) -> str:
    """The container's cgroup below ``parent`` when the runtime does not tell: the first that exists, else ""."""
    if not parent:
        return ""
    for candidate in dict.fromkeys(paths.container_path(parent, container_id, prefix) for prefix in _SCOPE_PREFIXES):
        file = tree.file(cgroup.ROWS[0], candidate)
        if file is not None and file.parent.is_dir():
            return candidate
    return ""


def _edit_of(edits: Edits, field: str) -> Edit | None:
    return next((edit for edit in edits.items if edit.field is not Field.ANNOTATION and edit.name == field), None)


def _value(tree: Tree, row: Row, group: str, edit: Edit | None, page_bytes: int) -> inspect.Value:
    value = inspect.Value(field=row.field, unit=row.unit)
    if edit is not None:
        value.desired = _canonical(row, str(edit.value))
        value.why = f"{edit.hook}: {edit.why}"
    file = tree.file(row, group) if group else None
    if file is None:
        return value
    value.file = str(file)
    try:
        text = cgroup.read_text(file)
    except cgroup.ReadError as error:
        value.why = f"{value.why} ({error.strerror})".strip()
        return value
    if text is not None:
        value.raw = text
        desired = None if edit is None else str(edit.value)
        parents = desired == "" and _is_parents(tree, row, group, text)
        value.actual = "" if parents else normalise(row, tree.version, text, desired, page_bytes)
    return value


def _canonical(row: Row, text: str) -> str:
    return normalise(row, 1, text, None, 1) if row.field.startswith("cpuset_") else text


def _is_parents(tree: Tree, row: Row, group: str, text: str) -> bool:
    """Does ``group`` hold the CPU set of the cgroup above it?"""
    parent = tree.file(row, group.rpartition("/")[0])
    return parent is not None and cgroup.read_text(parent) == text
