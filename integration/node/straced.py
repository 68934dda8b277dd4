"""Every write below /sys/fs/cgroup, as strace sees it from outside of the process that makes it.

One trace file per thread, so no line is split; threads are merged by their clocks. Invariant: a system call that
could change a file there and that is not understood here is an error, not an omission.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.harness.processes import HarnessError, wait_for

TOP = "/sys/fs/cgroup/"
_TRACED = (
    *("open", "openat", "openat2", "creat", "write", "pwrite64", "writev", "pwritev", "pwritev2"),
    *("truncate", "ftruncate", "sendfile", "splice", "copy_file_range", "io_uring_setup"),
    *("mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "chmod", "fchmodat"),
)
_LINE = re.compile(
    r"(?P<at>\d+\.\d+) (?P<call>\w+)\((?P<given>.*)\) += (?P<value>-?\d+)(?:<.*>)?(?: (?P<errno>E\w+).*)?"
)
_TO_DESCRIPTOR = re.compile(r"\d+<(?P<path>[^>]*)>, (?P<rest>.*)")
_TEXT = re.compile(r'"(?P<text>[^"]*)", \d+')
_OPENED = re.compile(r'[^<]*(?:<(?P<directory>[^>]*)>)?, "(?P<path>[^"]*)", (?P<flags>[A-Z_|]+).*')
_ENDED = ("+++ exited with", "+++ killed by")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to write: ``text`` as given to the kernel, None if the file could not be opened; ``errno`` or ""."""

    at: str
    path: str
    text: str | None
    errno: str


def prefix(directory: Path) -> Sequence[str]:
    """The command that runs another under strace; the traces come into ``directory``. Raises if there is no strace."""
    strace = shutil.which("strace")
    if strace is None:
        raise HarnessError("strace is not on PATH: apt-get install strace")
    directory.mkdir()
    # -D: the tracer is the grandchild, so that the process started is the traced one itself.
    options = ("-D", "-ff", "-ttt", "-y", "-s", "256", "--seccomp-bpf", "-e", "signal=none")
    without_rings = ("-e", "inject=io_uring_setup:error=ENOSYS")  # what goes through a ring could not be seen
    return [strace, *options, *without_rings, "-e", f"trace={','.join(_TRACED)}", "-o", str(directory / "trace")]


def attempts(directory: Path) -> list[Attempt]:
    """All attempts to write below ``TOP``, in their order, once the traced process has ended."""
    files = list(directory.iterdir())
    wait_for(lambda: all(_has_ended(file) for file in files), 20, "strace to end its traces")
    found = [attempt for file in files for attempt in _of_thread(file)]
    return sorted(found, key=lambda attempt: attempt.at)


def _has_ended(file: Path) -> bool:
    last = file.read_text().rstrip("\n").rpartition("\n")[2]
    return any(sign in last for sign in _ENDED)


def _of_thread(file: Path) -> Iterator[Attempt]:
    for line in file.read_text().splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            if TOP in line or not any(sign in line for sign in _ENDED):
                raise HarnessError(f"not understood: {line}")
            continue
        attempt = _attempt(found["at"], found["call"], found["given"], found["errno"] or "")
        if attempt is not None and attempt.path.startswith(TOP):
            yield attempt


def _attempt(at: str, call: str, given: str, errno: str) -> Attempt | None:
    """What a system call tells of a write anywhere; None if it is none, or will be told by a later one."""
    if call == "openat" and (opened := _OPENED.fullmatch(given)):
        changes = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"} & set(opened["flags"].split("|"))
        path = f"{opened['directory'] or ''}/{opened['path']}" if opened["path"][:1] != "/" else opened["path"]
        return Attempt(at, path, None, errno) if changes and errno else None
    written = _TO_DESCRIPTOR.fullmatch(given)
    if written is None or TOP in written["path"]:
        text = _TEXT.fullmatch(written["rest"]) if written is not None and call == "write" else None
        if written is not None and text is not None:
            return Attempt(at, written["path"].removesuffix(" (deleted)"), text["text"].removesuffix("\\n"), errno)
        if TOP in given:
            raise HarnessError(f"not expected below {TOP}: {call}({given})")
    return None
