"""Child processes with a log file, and waiting for a condition with a deadline.

Invariant: a process is ended by the pid it was started with. A process that ends too early, or a condition that never
comes, raises with the tail of the log, because the log is what explains it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


class HarnessError(Exception):
    """A real part did not do what the harness asked of it."""


def tail(path: Path, lines: int = 20) -> str:
    """The last ``lines`` lines of a file; empty if it does not exist."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def wait_for(predicate: Callable[[], Result | None], deadline_s: float, what: str) -> Result:
    """The first true result of ``predicate`` (an empty list is none); raises HarnessError after ``deadline_s``."""
    end = time.monotonic() + deadline_s
    pause_s = 0.002
    while True:
        result = predicate()
        if result:
            return result
        if time.monotonic() > end:
            raise HarnessError(f"{what}: not within {deadline_s:g} s")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.1)


async def until(predicate: Callable[[], object], what: str, deadline_s: float = 30.0) -> None:
    """As ``wait_for``, in a thread: the event loop goes on, and ``predicate`` may ask a server."""
    await asyncio.to_thread(wait_for, lambda: predicate() or None, deadline_s, what)


def descriptors(pid: int) -> list[str]:
    """What each open descriptor leads to: paths, sockets, pipes. One that is closed during the look is not there."""
    links = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return links


def _inherited() -> dict[str, str]:
    """Our environment, but children keep their bytecode, as installed programs have it: it is half of their start."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _give_way(leader: int) -> None:
    """To other sessions, as we do: a new session gets a scheduling group, which does not inherit a nice value."""
    if priority := os.getpriority(os.PRIO_PROCESS, 0):
        with contextlib.suppress(OSError):  # a kernel without such groups, or the process has ended
            Path(f"/proc/{leader}/autogroup").write_text(str(priority))


class Process:
    """One child process; its output goes to ``log``, which is appended to."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.argv = [str(word) for word in argv]
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**_inherited(), **(environment or {})},
                pass_fds=pass_fds,
                start_new_session=True,
            )
        _give_way(self._child.pid)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def wait_for(self, predicate: Callable[[], Result | None], deadline_s: float, what: str) -> Result:
        """As the function of the same name, but fails at once when this process has ended."""

        def check() -> Result | None:
            result = predicate()
            if not result and not self.running:
                raise HarnessError(f"{what}: {' '.join(self.argv[:3])} ended with {self._child.returncode}")
            return result

        try:
            return wait_for(check, deadline_s, what)
        except HarnessError as error:
            raise HarnessError(f"{error}\n{tail(self.log)}") from error

    def wait_until_serving(self, predicate: Callable[[], Result | None], deadline_s: float, what: str) -> None:
        """As ``wait_for``, but stops the process if that fails: the caller who starts it has not returned it yet."""
        try:
            self.wait_for(predicate, deadline_s, what)
        except BaseException:
            self.stop()
            raise

    def signal(self, number: int) -> None:
        if self.running:
            self._child.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and reaps the process."""
        self.signal(signal.SIGKILL)
        self._child.wait()

    def stop(self, grace_s: float = 10.0) -> int:
        """SIGTERM, then SIGKILL after ``grace_s``; returns the exit status (negative: the signal that ended it)."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(grace_s)
        self.kill()
        return self._child.returncode
