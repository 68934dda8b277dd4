"""Where a cgroup's values are: one row per value, with its file on cgroup v1 and on v2.

``detect`` finds the hierarchies below a root directory (``/sys/fs/cgroup``, or a tree of a test's own). Nothing
here writes. Invariant: a directory or file that vanishes between two calls is an absent value (None), never an
error; any other refusal of the kernel is a ReadError with file and errno.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)
_UNIFIED_ON_HYBRID = "unified"


class ReadError(OSError):
    """The kernel refused to show a cgroup file: ``filename`` and ``errno`` say which and why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One value. ``v1`` is (controller, file), ``v2`` the file; None where that version has no such file."""

    field: str
    unit: str
    v1: tuple[str, str] | None
    v2: str | None
    v2_word: int = 0  # which word of the v2 file is the value (cpu.max holds quota and period)


ROWS: tuple[Row, ...] = (
    Row("cpuset_cpus", "", ("cpuset", "cpuset.cpus"), "cpuset.cpus.effective"),
    Row("cpuset_mems", "", ("cpuset", "cpuset.mems"), "cpuset.mems.effective"),
    Row("cpu_quota", "us", ("cpu", "cpu.cfs_quota_us"), "cpu.max"),
    Row("cpu_period", "us", ("cpu", "cpu.cfs_period_us"), "cpu.max", v2_word=1),
    Row("cpu_shares", "shares", ("cpu", "cpu.shares"), "cpu.weight"),
    Row("memory_limit_in_bytes", "bytes", ("memory", "memory.limit_in_bytes"), "memory.max"),
    Row("cpu.bvt_warp_ns", "", ("cpu", "cpu.bvt_warp_ns"), "cpu.bvt_warp_ns"),
    Row("memory.min", "bytes", None, "memory.min"),
    Row("memory.low", "bytes", None, "memory.low"),
    Row("memory.high", "bytes", None, "memory.high"),
)


@dataclass(frozen=True, slots=True)
class Tree:
    """The node's cgroup hierarchies: ``version`` 1 or 2, and the mount directory of each controller (v1)."""

    version: int
    root: Path
    controllers: Mapping[str, Path]

    def file(self, row: Row, group: str) -> Path | None:
        """The file of ``row`` for the cgroup path ``group`` (``/kubepods/…``); None where this version has none."""
        if self.version == 2:
            return None if row.v2 is None else self.root / group.lstrip("/") / row.v2
        if row.v1 is None:
            return None
        controller, name = row.v1
        return self.controllers.get(controller, self.root / controller) / group.lstrip("/") / name


def detect(root: Path, mountinfo: str) -> Tree:
    """The hierarchies at or below ``root``, from ``mountinfo`` (proc_pid_mountinfo(5)) or else from directories.

    A root with ``cgroup.controllers`` is v2; otherwise v1, with controllers where they are mounted (``cpu,cpuacct``
    counts for both) or in the directories named after them. A hybrid's ``unified`` directory does not make it v2.
    """
    if (root / "cgroup.controllers").is_file():
        return Tree(2, root, {})
    mounted = {controller: path for path, names in _v1_mounts(mountinfo, root) for controller in names}
    return Tree(1, root, _v1_directories(root) | mounted)


def _v1_mounts(mountinfo: str, root: Path) -> list[tuple[Path, list[str]]]:
    """(mount point, controllers) of each v1 hierarchy below ``root``."""
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        words, tail = left.split(), right.split()
        if len(words) < 5 or len(tail) < 3 or tail[0] != "cgroup":
            continue
        point = Path(words[4].replace("\\040", " "))
        if point.is_relative_to(root):
            found.append((point, tail[2].split(",")))
    return found


def _v1_directories(root: Path) -> dict[str, Path]:
    """Controllers by directory name, for trees that are not mounts."""
    try:
        names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError:
        return {}
    return {part: root / name for name in names if name != _UNIFIED_ON_HYBRID for part in name.split(",")}


def read_text(file: Path) -> str | None:
    """The stripped text of a cgroup file; None if file or cgroup do not exist (any more)."""
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise ReadError(error.errno, f"cannot read: {error.strerror}", str(file)) from error
