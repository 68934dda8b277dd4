"""Layers over the machine's own directories: programs with standard paths run, and the machine stays as it is.

    with layered(scratch, ("/etc",), ("/run",), {"/run/containerd": tmp_path / "containerd"}) as layers:
        ...                       # this thread and every process it starts see what they write
        layers.written()          # the paths that exist only there, or differ

Invariant: the machine's other processes see nothing of it, because the layers lie in a mount namespace of the calling
thread's own; that namespace stays the thread's until it ends, with the layers gone. Only the main thread may call it
(/proc/self is that thread), as root; its older threads stay outside. The layers are in memory. The kernel's refusals
raise OSError.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.harness import leftovers

CLONE_NEWNS = 0x0002_0000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000
MS_SHARED = 0x10_0000
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Layers:
    """``upper`` holds, below each directory's own path, what was written to it."""

    upper: Path

    def written(self) -> set[str]:
        """Every path that was made, changed or removed (a removed one is a device 0:0), without the directories."""
        return {
            f"/{path.relative_to(self.upper)}"
            for path in self.upper.rglob("*")
            if not stat.S_ISDIR(path.lstat().st_mode)
        }


@contextlib.contextmanager
def layered(
    scratch: Path, overlaid: Sequence[str], emptied: Sequence[str], bound: Mapping[str, Path]
) -> Iterator[Layers]:
    """A layer over each of ``overlaid``, and an empty tmpfs in place of each of ``emptied``; mounts below these
    directories, which exist, are not seen meanwhile. In them, each path of ``bound``, whether it exists or not, is the
    directory given for it, which everybody sees at its own place."""
    scratch.mkdir(parents=True)
    _check(_LIBC.unshare(CLONE_NEWNS), "unshare")
    _mount("none", "/", "", MS_REC | MS_PRIVATE, "")
    with contextlib.ExitStack() as stack:
        stack.callback(scratch.rmdir)
        stack.callback(leftovers.unmount_below, scratch)
        _mount("tmpfs", str(scratch), "tmpfs", 0, "mode=755")
        layers = Layers(scratch / "upper")
        for top in (*overlaid, *emptied):
            upper, work = layers.upper / top.strip("/"), scratch / "work" / top.strip("/")
            upper.mkdir(parents=True)
            work.mkdir(parents=True)
            stack.callback(leftovers.unmount_below, Path(top))
            if top in overlaid:
                _mount("overlay", top, "overlay", 0, f"lowerdir={top},upperdir={upper},workdir={work}")
            else:
                _mount(str(upper), top, "", MS_BIND, "")
        for path, directory in bound.items():
            Path(path).mkdir(parents=True, exist_ok=True)
            _mount(str(directory), path, "", MS_BIND, "")
        _mount("none", "/", "", MS_REC | MS_SHARED, "")  # as on a node: containers then see later mounts below theirs
        yield layers


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    words = (source.encode(), os.fsencode(target), kind.encode(), flags, options.encode())
    _check(_LIBC.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[4]), f"mount of {kind} on {target}")


def _check(status: int, call: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), call)
