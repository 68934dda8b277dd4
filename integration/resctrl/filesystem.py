"""A file system that behaves as the kernel's resctrl does, as far as groups and tasks files go. Emulated.

    python -m integration.resctrl.filesystem MOUNTPOINT

A tasks file takes one thread id per write, moves that thread out of its former group, and lists the living threads of
its group; a new thread or process begins in the group of its leader or parent (seen at the next look into /proc). What
the kernel refuses, this does: ESRCH for a thread that is no more, EINVAL for what is no single id, with
``info/last_cmd_status``. Groups can be made, and stay. Files say size 0 and end in a newline. Nothing is limited by it.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path
from typing import Any

import mfusepy  # type: ignore[import-untyped]

_FILES = ("tasks", "schemata")
_INFO = {"last_cmd_status": "", "L3/cbm_mask": "7ff\n"}
_SCHEMATA = "    L3:0=7ff\n"


class Resctrl(mfusepy.Operations):  # type: ignore[misc]
    """One mount. ``proc``: where the machine's processes are seen."""

    use_ns = True

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._groups = {""}
        self._group_of: dict[int, tuple[str, str]] = {}
        self._status = "ok\n"

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        cgroup, _, name = path.strip("/").rpartition("/")
        if path == "/" or path.strip("/") in self._groups or self._is_info_directory(path):
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        if (cgroup in self._groups and name in _FILES) or path.removeprefix("/info/") in _INFO:
            return {"st_mode": stat.S_IFREG | 0o644, "st_nlink": 1, "st_size": 0}
        raise mfusepy.FuseOSError(errno.ENOENT)

    def readdir(self, path: str, fh: int) -> list[str]:
        if path.startswith("/info"):
            below = path.removeprefix("/info").lstrip("/")
            inside = (name.removeprefix(f"{below}/") for name in _INFO if not below or name.startswith(f"{below}/"))
            return [".", "..", *dict.fromkeys(name.partition("/")[0] for name in inside)]
        groups = ["info", *(name for name in self._groups if name)] if path == "/" else []
        return [".", "..", *_FILES, *groups]

    def open(self, path: str, flags: int) -> int:
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return self._text(path).encode()[offset : offset + size]

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        cgroup, _, name = path.strip("/").rpartition("/")
        if name != "tasks":
            raise self._refused(errno.EINVAL, "this emulation takes no schemata")
        self._status = "ok\n"
        self._move(data.decode("ascii", "replace").strip(), cgroup)
        return len(data)

    def mkdir(self, path: str, mode: int) -> int:
        self._groups.add(path.strip("/"))
        return 0

    def _text(self, path: str) -> str:
        cgroup, _, name = path.strip("/").rpartition("/")
        if path == "/info/last_cmd_status":
            return self._status
        if path.startswith("/info/"):
            return _INFO[path.removeprefix("/info/")]
        if name == "schemata":
            return _SCHEMATA
        self._follow()
        return "".join(f"{task}\n" for task, (its, _) in sorted(self._group_of.items()) if its == cgroup)

    def _move(self, text: str, cgroup: str) -> None:
        if not text.isdigit():
            raise self._refused(errno.EINVAL, f"Task list parsing error pid {text}")
        self._follow()
        task = int(text) or mfusepy.fuse_get_context()[2]
        if task not in self._group_of:
            raise self._refused(errno.ESRCH, f"No task {task}")
        self._group_of[task] = cgroup, self._group_of[task][1]

    def _refused(self, number: int, status: str) -> OSError:
        self._status = f"{status}\n"
        error: OSError = mfusepy.FuseOSError(number)
        return error

    def _follow(self) -> None:
        """Who lives now, in which group: a thread that is new is where the one that it came from is."""
        before, self._group_of = self._group_of, {}
        leaders = {int(name): self._stat(f"{name}/stat") for name in os.listdir(self._proc) if name.isdigit()}
        for process, (parent, began) in sorted(leaders.items(), key=lambda item: int(item[1][1])):
            known = before.get(process)
            if not began or began == "0":
                continue
            inherited = self._group_of.get(parent, ("", ""))[0]
            cgroup = known[0] if known is not None and known[1] == began else inherited
            self._group_of[process] = cgroup, began
            self._follow_threads(process, cgroup, before)

    def _follow_threads(self, process: int, cgroup: str, before: dict[int, tuple[str, str]]) -> None:
        try:
            threads = [int(name) for name in os.listdir(self._proc / str(process) / "task")]
        except OSError:
            return
        for thread in threads:
            began = self._stat(f"{process}/task/{thread}/stat")[1]
            known = before.get(thread)
            if thread != process:
                self._group_of[thread] = known if known is not None and known[1] == began else (cgroup, began)

    def _stat(self, file: str) -> tuple[int, str]:
        """Parent and start time, in clock ticks; (0, "0") if it is gone."""
        try:
            fields = (self._proc / file).read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            return 0, "0"
        return int(fields[1]), fields[19]

    def _is_info_directory(self, path: str) -> bool:
        name = path.strip("/")
        return name == "info" or any(f"info/{known}".startswith(f"{name}/") for known in _INFO if name)


if __name__ == "__main__":
    mfusepy.FUSE(Resctrl(), sys.argv[1], foreground=True, nothreads=True, direct_io=True, fsname="emulated-resctrl")
