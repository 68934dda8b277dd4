"""What the steps of an installation work on: disk, service manager, clock and kernel values, all given from outside.

Every systemctl call ends within its time limit; one that fails raises SystemdError with the command and what it said.
Units are never enabled here: the links that ``enable`` would make are files of the plan, so that the record knows them.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from koord.host.undo import UndoError
from koord.model.locations import UNDO_RECORD
from koordctl.install.disk import NodeDisk
from koordctl.restoring import UnknownBoot, restore_node

_STOPS = (signal.SIGTERM, signal.SIGHUP)
_IN_USE_S = 5.0
_POLL_S = 0.05


class InstallError(Exception):
    """A step cannot be done, or did not have the effect that it is for."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    code: int
    out: str
    err: str


Run = Callable[[Sequence[str]], CommandResult]
"""Carries out one command line."""


class SystemdError(InstallError):
    """``systemctl`` failed, or took too long."""


def runner(timeout_s: float) -> Run:
    """Returns a Run on this machine; a command that takes longer than ``timeout_s`` is a SystemdError."""

    def run(command: Sequence[str]) -> CommandResult:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            raise SystemdError(f"{' '.join(command)}: no end after {timeout_s:g} s") from None
        except OSError as error:
            raise SystemdError(f"{' '.join(command)}: {error.strerror}") from error
        return CommandResult(done.returncode, done.stdout, done.stderr)

    return run


class Systemd:
    """The service manager of this node, asked with ``program`` (systemctl)."""

    def __init__(self, run: Run, program: str = "systemctl") -> None:
        self._run, self._program = run, program

    def reload(self) -> None:
        self._do("daemon-reload")

    def start(self, unit: str) -> None:
        self._do("start", unit)

    def stop(self, unit: str) -> None:
        """Stops ``unit``; does nothing if it is unknown."""
        if self.state(unit) != "inactive":
            self._do("stop", unit)

    def restart(self, unit: str) -> None:
        self._do("restart", unit)

    def terminate(self, unit: str) -> None:
        """Sends SIGTERM to every process of ``unit``, those that only drain as well; it may have none."""
        self._run((self._program, "kill", "--signal=TERM", "--kill-whom=all", unit))

    def forget_failure(self, unit: str) -> None:
        """Makes systemd forget that ``unit`` failed, or it would list a unit that is gone for ever."""
        self._run((self._program, "reset-failed", unit))

    def state(self, unit: str) -> str:
        """Returns ``active``, ``inactive``, ``failed``, ``activating``, …; an unknown unit is inactive."""
        return self._do("show", "--property=ActiveState", "--value", unit).strip() or "inactive"

    def _do(self, *arguments: str) -> str:
        command = (self._program, *arguments)
        answer = self._run(command)
        if answer.code != 0:
            reason = " ".join(answer.err.split()).rstrip(".") or f"exit status {answer.code}"
            raise SystemdError(f"{' '.join(command)}: {reason}")
        return answer.out


@dataclass(frozen=True, slots=True)
class Machine:
    """What a step works on. ``restore_kernel`` puts back all kernel values that Koord holds, with the runtime at the
    socket that it is given, and returns what it could not put back.

    ``now`` is monotonic, in seconds; ``sleep`` takes seconds; ``say`` prints one line; ``wait_s`` is how long kubelet
    may take to be well again after a restart.
    """

    disk: NodeDisk
    systemd: Systemd
    restore_kernel: Callable[[str], tuple[str, ...]]
    say: Callable[[str], None]
    now: Callable[[], float]
    sleep: Callable[[float], None]
    wait_s: float


def this_machine(wait_s: float, root: Path = Path("/")) -> Machine:
    """Returns this node. ``wait_s``: how long kubelet may take to be well, and a service to start or stop."""
    return Machine(
        disk=NodeDisk(root),
        systemd=Systemd(runner(wait_s)),
        restore_kernel=lambda runtime: _restore_kernel(root, runtime),
        say=_say,
        now=time.monotonic,
        sleep=time.sleep,
        wait_s=wait_s,
    )


def _say(line: str) -> None:
    """Prints ``line``; a terminal that has gone away is no reason to stop half-way."""
    with contextlib.suppress(OSError):
        click.echo(line)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turns SIGTERM and a lost terminal (but under nohup) into a KeyboardInterrupt: what was begun is undone."""
    heard = [number for number in _STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, signal.default_int_handler) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _restore_kernel(root: Path, runtime: str) -> tuple[str, ...]:
    """Restores the node below ``root`` by its undo record, with the runtime at ``runtime``; returns what could not be.

    koord-qosd may hold the record a moment longer than systemd takes it for stopped. Raises InstallError if the record
    cannot be had.
    """
    record, socket = (root / f"{path}".lstrip("/") for path in (UNDO_RECORD, runtime))
    deadline_s = time.monotonic() + _IN_USE_S
    while True:
        try:
            return restore_node(record, socket, root=root).failures
        except UnknownBoot as error:
            raise InstallError(f"{error}, so it is not known whether {record} is of this boot") from error
        except UndoError as error:
            if error.errno != errno.EAGAIN or time.monotonic() > deadline_s:
                raise InstallError(f"{error.filename}: {error.strerror}") from error
        time.sleep(_POLL_S)
