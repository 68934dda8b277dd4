"""One server of the control plane: started, ended in every way a fault ends it, and started again on the same data.

Invariant: the process is ended by its own pid, also when it is stopped at that moment. A part that does not become
ready raises HarnessError with the tail of its log.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from integration.harness.processes import HarnessError, Process

READY_S = 60.0
GRACE_S = 10.0


class Part:
    """A server that runs ``argv`` and serves once ``ready`` says so; ``log`` is appended to over all its starts."""

    def __init__(self, argv: Sequence[str | Path], log: Path, ready: Callable[[], bool]) -> None:
        self.argv = argv
        self.log = log
        self.start_s = 0.0
        self._ready = ready
        self._process: Process | None = None
        self._spawned_s = 0.0

    @property
    def name(self) -> str:
        return Path(self.argv[0]).name

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        return self._child().pid

    def start(self) -> None:
        """Start and wait until it serves; ``start_s`` is then how long that took."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Start without waiting."""
        if self.running:
            raise HarnessError(f"{self.name} runs already (pid {self.pid})")
        self._process = Process(self.argv, self.log)
        self._spawned_s = time.monotonic()

    def wait_ready(self) -> None:
        self._child().wait_for(self._ready, READY_S, f"{self.name} to be ready")
        self.start_s = time.monotonic() - self._spawned_s

    def stop(self) -> None:
        """SIGTERM and wait; SIGKILL after GRACE_S."""
        if self._process is not None:
            self.resume()
            self._process.stop(GRACE_S)
            self._process = None

    def kill(self) -> None:
        """SIGKILL and wait."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: its connections stay open and nothing answers."""
        self._child().signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._child().signal(signal.SIGCONT)

    def _child(self) -> Process:
        if self._process is None:
            raise HarnessError(f"{self.name} is not running")
        return self._process
