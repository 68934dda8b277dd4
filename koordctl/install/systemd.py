"""systemctl, as little of it as an installation needs.

Every call ends within its time limit; one that fails raises SystemdError with the command and what it said. Units are
never enabled here: the links that ``enable`` would make are files of the plan, so that the record knows them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koordctl.install.errors import InstallError


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str


Run = Callable[[Sequence[str]], Answer]
"""Carries out one command line."""


class SystemdError(InstallError):
    """``systemctl`` failed, or took too long."""


def runner(timeout_s: float) -> Run:
    """Commands of this machine; one that takes longer than ``timeout_s`` is a SystemdError."""

    def run(command: Sequence[str]) -> Answer:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            raise SystemdError(f"{' '.join(command)}: no end after {timeout_s:g} s") from None
        except OSError as error:
            raise SystemdError(f"{' '.join(command)}: {error.strerror}") from error
        return Answer(done.returncode, done.stdout, done.stderr)

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
        """Stop ``unit``; nothing to do if it is unknown."""
        if self.state(unit) != "inactive":
            self._do("stop", unit)

    def restart(self, unit: str) -> None:
        self._do("restart", unit)

    def terminate(self, unit: str) -> None:
        """SIGTERM to every process of ``unit``, those that only drain as well; it may have none."""
        self._run((self._program, "kill", "--signal=TERM", "--kill-whom=all", unit))

    def forget_failure(self, unit: str) -> None:
        """A unit that failed and is gone would be listed for ever; a unit that is not known is fine."""
        self._run((self._program, "reset-failed", unit))

    def state(self, unit: str) -> str:
        """``active``, ``inactive``, ``failed``, ``activating``, …; an unknown unit is inactive."""
        return self._show(unit, "ActiveState") or "inactive"

    def main_pid(self, unit: str) -> int:
        """The unit's main process; 0 if it has none."""
        pid = self._show(unit, "MainPID")
        return int(pid) if pid.isdigit() else 0

    def _show(self, unit: str, name: str) -> str:
        return self._do("show", f"--property={name}", "--value", unit).strip()

    def _do(self, *arguments: str) -> str:
        command = (self._program, *arguments)
        answer = self._run(command)
        if answer.code != 0:
            reason = " ".join(answer.err.split()).rstrip(".") or f"exit status {answer.code}"
            raise SystemdError(f"{' '.join(command)}: {reason}")
        return answer.out
