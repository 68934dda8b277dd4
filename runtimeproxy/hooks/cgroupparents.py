"""Compares cgroup parents in kubelet's two styles: ``/kubepods/besteffort/pod1`` and ``kubepods-pod1.slice``.

cgroupfs: an absolute path. To the runtime a relative path lies below the runtime's own cgroup, so it does not count.
systemd: slices nest by their names, and runtimes look at the last one only. So a path counts if each directory of it is
the slice that the last one's name calls for; the last one alone, systemd's short form, stands for that path. Invariant:
``components`` returns the directory in which the runtime will make the container.
"""

from __future__ import annotations

import re

from koord.model.slices import SLICE, ancestry

MAX_NAME_BYTES = 255  # of a directory
_UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\@]+(?:-[A-Za-z0-9:_.\\@]+)*\.slice", re.ASCII)  # systemd.unit(5)


def components(path: str) -> list[str] | None:
    """Returns the directories of a cgroup path, from the root; of a lone slice all that it is nested in.

    Returns None for a path that the runtime would refuse, or take for another directory.
    """
    parts = [part for part in path.split("/") if part]
    if not parts or any(not _is_directory_name(part) for part in parts):
        return None
    if is_slice(path):
        return _nested(path, parts)
    return parts if path.startswith("/") else None


def is_slice(path: str) -> bool:
    """Returns whether this is a path in systemd's style."""
    return path.rstrip("/").endswith(SLICE)


def same_style(path: str, other: str) -> bool:
    """Returns whether both paths belong to the same cgroup driver."""
    return is_slice(path) == is_slice(other)


def within(parent: str, tree: str) -> bool:
    """Returns whether the cgroup ``parent`` is the cgroup ``tree`` or below it, in the same style."""
    inner, outer = components(parent), components(tree)
    if inner is None or outer is None or not same_style(parent, tree):
        return False
    return inner[: len(outer)] == outer


def _nested(path: str, parts: list[str]) -> list[str] | None:
    if not _UNIT_NAME.fullmatch(parts[-1]):
        return None
    full = ancestry(parts[-1])
    return full if (parts == full and path.startswith("/")) or path == parts[-1] else None


def _is_directory_name(name: str) -> bool:
    """Returns whether the kernel takes this as a cgroup's name: no newline in it."""
    size = len(name.encode("utf-8", "surrogatepass"))
    return name not in (".", "..") and size <= MAX_NAME_BYTES and "\0" not in name and "\n" not in name
