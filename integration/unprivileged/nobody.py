"""A process of a user without any right, which tries things one after the other and says how each ended.

Invariant: only system calls are made in the child, so that it needs nothing that its user may not read. It is a fork of
a process with gRPC's threads, whose handlers cannot always run then; one that dies before it has said anything is
started again, and that is said. Fails with HarnessError, which has the child's error or how it ended.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from integration.harness.processes import HarnessError

UID = 65534
FORKS = 3
DONE, ERROR = "done", "error"
Attempt = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Nobody:
    """A child that has made its attempts, and still holds what they opened."""

    pid: int
    outcomes: Mapping[str, str]

    @property
    def succeeded(self) -> list[str]:
        return sorted(name for name, outcome in self.outcomes.items() if outcome == DONE)


@contextmanager
def trying(attempts: Mapping[str, Attempt]) -> Iterator[Nobody]:
    """The child lives, with its descriptors and locks, until the block ends."""
    nobody = _started(attempts)
    try:
        yield nobody
    finally:
        os.kill(nobody.pid, signal.SIGKILL)
        os.waitpid(nobody.pid, 0)


def _started(attempts: Mapping[str, Attempt]) -> Nobody:
    for number in range(1, FORKS + 1):
        pid, line = _fork(attempts)
        if line:
            outcomes = json.loads(line)
            if error := outcomes.get(ERROR):
                os.waitpid(pid, 0)
                raise HarnessError(f"the unprivileged child: {error}")
            return Nobody(pid, outcomes)
        _, status = os.waitpid(pid, 0)
        print(f"  unprivileged child {number} ended with {os.waitstatus_to_exitcode(status)} and no word")
    raise HarnessError(f"{FORKS} unprivileged children ended before they said anything")


def _fork(attempts: Mapping[str, Attempt]) -> tuple[int, str]:
    """The child, and its line; "" if it ended without one."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_nobody(attempts, writer)
    os.close(writer)
    with open(reader, encoding="utf-8") as said:
        return pid, said.readline()


def _be_nobody(attempts: Mapping[str, Attempt], writer: int) -> None:
    try:
        os.setgroups([])
        os.setgid(UID)
        os.setuid(UID)
        outcomes = {name: _outcome(attempt) for name, attempt in attempts.items()}
        os.write(writer, json.dumps(outcomes).encode() + b"\n")
        signal.pause()
    except BaseException as error:  # noqa: BLE001 - the child's end: whoever started it is told
        os.write(writer, json.dumps({ERROR: repr(error)}).encode() + b"\n")
    finally:
        os._exit(1)


def _outcome(attempt: Attempt) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return DONE


def against(path: Path) -> dict[str, Attempt]:
    """All attempts against one path, by name."""
    here, beside = str(path), f"{path}.nobody"
    tries: dict[str, Attempt] = {
        "write": lambda: os.open(here, os.O_WRONLY | os.O_NONBLOCK),
        "chmod": lambda: os.chmod(here, 0o777),
        "remove": lambda: os.rmdir(here) if os.path.isdir(here) else os.unlink(here),
        "rename": lambda: os.rename(here, beside),
        "replace by a link": lambda: _replace_by_a_link(here, beside),
        "link": lambda: os.link(here, beside),
    }
    if path.is_dir():
        tries |= {
            "make a file in": lambda: os.close(os.open(f"{here}/nobody.json", os.O_CREAT | os.O_WRONLY, 0o644)),
            "make a directory in": lambda: os.mkdir(f"{here}/nobody"),
            "make a link in": lambda: os.symlink("/etc/passwd", f"{here}/nobody.link"),
        }
    if path.is_socket():
        tries |= {"connect to": lambda: _connect(here)}
    return {f"{name} {path}": attempt for name, attempt in tries.items()}


def locks(path: Path) -> dict[str, Attempt]:
    """Locks that are kept, of every file that can be opened."""
    return {f"flock {path}": lambda: fcntl.flock(os.open(path, os.O_RDONLY | os.O_NONBLOCK), fcntl.LOCK_EX)}


def signals(pid: int) -> dict[str, Attempt]:
    numbers = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL)
    return {f"{number.name} to {pid}": partial(os.kill, pid, number) for number in numbers}


def _replace_by_a_link(here: str, beside: str) -> None:
    os.symlink("/etc/passwd", beside)
    os.rename(beside, here)


def _connect(path: str) -> None:
    socket.socket(socket.AF_UNIX).connect(path)
