"""What a container runtime can leave behind after a crash, and its removal.

Invariant: only things that carry a name or path of ours are touched: shims by the socket address in their command line,
mounts below our directory, an interface by its name, and shared directories that did not exist before us and are empty.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from integration.harness.processes import wait_for

MNT_DETACH = 2
# Directories that containerd, its shims, CNI and kubelet create outside of the directories they are configured with.
SHARED = (
    Path("/run/containerd/s"),
    Path("/run/containerd/fifo"),
    Path("/run/containerd"),
    Path("/var/lib/cni/results"),
    Path("/var/lib/cni/networks"),
    Path("/var/lib/cni"),
    Path("/etc/nri"),
    Path("/var/run/nri"),
)


def absent(paths: Iterable[Path]) -> list[Path]:
    """Those of ``paths`` that do not exist now: what may be removed later."""
    return [path for path in paths if not path.exists()]


def remove_empty(paths: Sequence[Path]) -> None:
    """Remove directories that are empty; the others, and those that are gone, are left alone."""
    for path in paths:
        with contextlib.suppress(OSError):
            path.rmdir()


def shims(address: Path) -> list[int]:
    """Pids of the containerd shims that serve the containerd at ``address``."""
    return [pid for pid in _pids() if _is_shim(_command_line(pid), address)]


def kill_shims(address: Path) -> None:
    """SIGKILL shims and their children (the containers' first processes), and wait until they are gone."""
    found = shims(address)
    doomed = [*(child for shim in found for child in _children(shim)), *found]
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not shims(address), 10, f"shims of {address} to end")


def unlink_shim_sockets(state: Path) -> None:
    """Remove the sockets in /run/containerd/s that killed shims left; each bundle's ``address`` file names one."""
    for file in state.glob("io.containerd.runtime.v2.task/*/*/address"):
        socket = Path(file.read_text().removeprefix("unix://"))
        if socket.parent == Path("/run/containerd/s"):
            socket.unlink(missing_ok=True)


def mounts_below(directory: Path) -> list[Path]:
    """Mount points at or below ``directory``, the deepest first (octal escapes of mountinfo undone)."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        points = [Path(line.split()[4].encode().decode("unicode_escape")) for line in file]
    return [point for point in reversed(points) if point == directory or directory in point.parents]


def unmount_below(directory: Path) -> None:
    """Unmount everything below ``directory``; lazily, since an ended container may still hold a file."""
    libc = ctypes.CDLL(None, use_errno=True)
    for point in mounts_below(directory):
        if libc.umount2(os.fsencode(point), MNT_DETACH) != 0 and ctypes.get_errno() not in (errno.EINVAL, errno.ENOENT):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(point))


def delete_interface(name: str) -> None:
    if Path("/sys/class/net", name).exists():
        subprocess.run(["ip", "link", "delete", name], check=True, capture_output=True)


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _is_shim(words: list[str], address: Path) -> bool:
    return bool(words) and "containerd-shim" in words[0] and str(address) in words


def _children(pid: int) -> list[int]:
    children: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += [int(word) for word in file.read_text().split()]
    return children
