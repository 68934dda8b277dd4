"""Where this node keeps its cgroup files: v1, v2, or v1 with a v2 tree beside it (hybrid).

``detect`` finds the hierarchies below a root directory (``/sys/fs/cgroup``, or a tree of a test's own); which file
holds which value is a row of ``files``. Nothing here writes. Invariant: a directory or file that vanishes between
two calls is an absent value (None), never an error; any other refusal of the kernel is a ReadError with file and
errno. No path leads out of the hierarchies: a cgroup with ``..`` in it is a ValueError.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from koord.host.files import KernelFile, ParseError, Target, Value, row

GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ESRCH)
"""The errnos with which the kernel answers for an object that is gone."""
_UNIFIED_ON_HYBRID = "unified"
_V2_MARK = "cgroup.controllers"


class ReadError(OSError):
    """The kernel refused to show a file: ``filename`` and ``errno`` say which and why."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The node's hierarchies: cgroup ``version`` 1 or 2, and where v1 mounts each controller.

    ``unified`` is the v2 tree of a hybrid (no controllers, but pressure and cgroup.events), None elsewhere. ``proc``,
    ``sys`` and ``resctrl`` are the roots of files outside cgroups.
    """

    version: int
    root: Path
    controllers: Mapping[str, Path]
    unified: Path | None = None
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    resctrl: Path = Path("/sys/fs/resctrl")

    def path(self, target: Target, for_write: bool = False) -> Path | None:
        """Returns the file of ``target``, whether it exists or not; None where this cgroup version has no such file.

        Raises UnknownRow for a name that no row has, ValueError for a cgroup that leaves the tree.
        """
        found = row(target.name)
        if found.system is not None:
            return self._system(found)
        name = found.file_name(self.version, for_write)
        if self.version == 1 and found.unified and self.unified is not None:
            return self.unified / _inside(target.cgroup) / str(found.v2)
        if name is None:
            return None
        controller = found.v1[0] if self.version == 1 and found.v1 is not None else ""
        return self.directory(target.cgroup, controller) / name

    def directory(self, cgroup: str, controller: str = "cpu") -> Path:
        """The directory of ``cgroup``, on v1 in the hierarchy of ``controller``."""
        if self.version == 2:
            return self.root / _inside(cgroup)
        return self.controllers.get(controller, self.root / controller) / _inside(cgroup)

    def exists(self, cgroup: str) -> bool:
        """Is there such a cgroup (on v1: for the CPU controller)?"""
        return self.directory(cgroup).is_dir()

    def _system(self, kernel_file: KernelFile) -> Path | None:
        """A file outside cgroups; None if its path needs a qualifier that is not there."""
        if kernel_file.system is None or ("{}" in kernel_file.system[1] and not kernel_file.qualifier):
            return None
        root, path = kernel_file.system
        base = {"proc": self.proc, "sys": self.sys, "resctrl": self.resctrl}[root]
        newer = base / path.replace("{}", kernel_file.qualifier.partition("/")[0]).lstrip("/")
        older = base / kernel_file.system_before
        return older if kernel_file.system_before and not newer.exists() and older.exists() else newer


def _inside(cgroup: str) -> str:
    if ".." in cgroup and ".." in cgroup.split("/"):
        raise ValueError(f"cgroup path {cgroup!r} leaves the tree")
    return cgroup.lstrip("/")


def detect(root: Path, mountinfo: str) -> Tree:
    """The hierarchies at or below ``root``, from ``mountinfo`` (proc_pid_mountinfo(5)) or else from directories.

    A root with ``cgroup.controllers`` is v2; otherwise v1, with controllers where they are mounted (``cpu,cpuacct``
    counts for both) or in the directories named after them. A hybrid's ``unified`` directory does not make it v2.
    """
    if (root / _V2_MARK).is_file():
        return Tree(2, root, {})
    mounts = _mounts(mountinfo, root)
    v1 = {name: path for path, kind, options in mounts if kind == "cgroup" for name in options.split(",")}
    v2 = [path for path, kind, _ in mounts if kind == "cgroup2"] + [root / _UNIFIED_ON_HYBRID]
    unified = next((path for path in v2 if (path / _V2_MARK).is_file()), None)
    return Tree(1, root, _v1_directories(root) | {name: v1[name] for name in v1 if name not in ("rw", "ro")}, unified)


def tree_at(root: Path, proc: Path, sys: Path, resctrl: Path) -> Tree:
    """The hierarchies at or below ``root`` by the mounts that ``proc`` shows, with the roots of other files."""
    try:
        mountinfo = (proc / "self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        mountinfo = ""  # then the directories' names tell
    return replace(detect(root, mountinfo), proc=proc, sys=sys, resctrl=resctrl)


def _mounts(mountinfo: str, root: Path) -> list[tuple[Path, str, str]]:
    """Returns (mount point, file system type, super options) of each mount below ``root`` that shows a whole hierarchy;
    the mount of the outermost cgroup namespace comes last.

    A container's own part of a hierarchy is a mount of the same kind, whose root (the fourth word) is a cgroup. In a
    cgroup namespace the root of a mount from above that namespace begins with ``/..``.
    """
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        words, tail = left.split(), right.split()
        if len(words) < 5 or len(tail) < 3:
            continue
        point = Path(words[4].replace("\\040", " "))
        above = words[3].removesuffix("/").split("/")[1:]
        if all(part == ".." for part in above) and point.is_relative_to(root):
            found.append((len(above), (point, tail[0], tail[2])))
    return [mount for _, mount in sorted(found, key=lambda each: each[0])]


def _v1_directories(root: Path) -> dict[str, Path]:
    """Controllers by directory name, for trees that are not mounts."""
    try:
        names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError:
        return {}
    return {part: root / name for name in names if name != _UNIFIED_ON_HYBRID for part in name.split(",")}


def read_text(file: Path) -> str | None:
    """The stripped text of a kernel file; None if file or cgroup do not exist (any more)."""
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        if error.errno in GONE:
            return None
        raise ReadError(error.errno, f"cannot read: {error.strerror}", str(file)) from error


def effective_value(tree: Tree, target: Target) -> Value | None:
    """Returns the value of ``target`` that takes effect, such as the CPUs of a v2 CPU set that was never written; None
    if no file tells it."""
    try:
        file = tree.path(target)
        text = None if file is None else read_text(file)
        return None if text is None else row(target.name).parse(text, tree.version)
    except (ReadError, ValueError):
        return None


def read_number(file: Path, missing: int) -> int:
    """The whole number in ``file``; ``missing`` if it does not exist. Raises ReadError or ParseError."""
    text = read_text(file)
    if text is None:
        return missing
    try:
        return int(text)
    except ValueError as error:
        raise ParseError(str(file), text, error) from error
