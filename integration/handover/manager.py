"""What systemd is to the proxy's processes: it spawns them on a held socket, hears them, and restarts the main one.

As systemd does for the unit (``Restart=always``, ``RestartSec=50ms``, ``KillMode=process``): a message that names the
main process counts while the service runs, and is read before the death of a process is looked at; when the main
process dies a new one is started 50 ms later, and processes that are left over are left alone. Orphans become children
of this process, which is their subreaper as systemd is, so none is lost sight of.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from integration.harness.holder import SocketHolder
from integration.harness.processes import Process

RESTART_S = 0.05  # the unit's RestartSec
LOOK_S = 0.005
PR_SET_CHILD_SUBREAPER = 36
JUNK = b"STATUS=the queue is full"


def become_subreaper() -> None:
    """Orphaned descendants are this process's children from now on."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class Manager:
    """``main`` is the pid of the main process, 0 while it is being restarted; ``struck`` are moments of SIGKILLs."""

    def __init__(self, holder: SocketHolder, backend: Path, hook_files: Path, directory: Path, *flags: str) -> None:
        self.main = 0
        self.restarts = 0
        self.struck: list[float] = []
        self.log = directory / "proxy.log"
        self._holder, self._backend, self._hook_files, self._flags = holder, backend, hook_files, flags
        self._address = directory / "notify"
        self._hears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._hears.bind(str(self._address))
        self._deaf = False
        self._spawned: dict[int, Process] = {}

    def start(self) -> None:
        """Spawn a main process; it serves as soon as it runs."""
        environment = {"NOTIFY_SOCKET": str(self._address)}
        process = self._holder.spawn_proxy(self._backend, self._hook_files, self.log, self._flags, environment)
        self.main = process.pid
        self._spawned[process.pid] = process

    async def run(self) -> None:
        """Do what systemd does, for ever."""
        while True:
            self._hear()
            living = self.living()
            if self.main and self.main not in living:
                self.main = 0
                self.restarts += 1
                await asyncio.sleep(RESTART_S)
                self._hear()  # and ignore it: nothing runs that a message could be about
                self.start()
            await asyncio.sleep(LOOK_S)

    def living(self) -> set[int]:
        """Every process of the proxy's that has not ended; those that have are reaped."""
        return {pid for pid in _children() if not self._reaped(pid)}

    def signal(self, pid: int, number: int) -> None:
        """To a process that may have ended by now. Raises ValueError for pid 0, which is this process's own group."""
        if pid <= 0:
            raise ValueError(f"there is no process {pid}")
        if number == signal.SIGKILL:
            self.struck.append(time.monotonic())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    @contextlib.contextmanager
    def deaf(self) -> Iterator[None]:
        """Its queue is full for the time of the block: nothing can be told to it, as while systemd reloads."""
        self._deaf = True
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as teller:
            with contextlib.suppress(BlockingIOError):
                while True:
                    teller.sendto(JUNK, str(self._address))
            try:
                yield
            finally:
                self._deaf = False

    def close(self) -> None:
        """SIGKILL to all processes that are left."""
        for pid in self.living():
            os.kill(pid, signal.SIGKILL)
        for process in self._spawned.values():
            process.kill()
        self._hears.close()

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while not self._deaf:
                lines = self._hears.recv(4096).decode().split("\n")
                named = [int(line.removeprefix("MAINPID=")) for line in lines if line.startswith("MAINPID=")]
                if self.main and named and named[0] in _children():
                    self.main = named[0]

    def _reaped(self, pid: int) -> bool:
        if pid in self._spawned:
            return not self._spawned[pid].running
        try:
            return os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            return True


def _children() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in _read(task / "children").split()}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


async def until(holds: Callable[[], bool], what: str, deadline_s: float = 20.0) -> None:
    """Raises ``TimeoutError`` that says what did not come."""
    deadline = time.monotonic() + deadline_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {deadline_s:g} s: {what}")
        await asyncio.sleep(LOOK_S)
