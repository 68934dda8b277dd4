"""The memory of one process: what it needs at rest, what it may grow to, and that it comes back."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from integration.harness.processes import Process

LOOK_S = 0.05
CALM_S = 0.5
CALM_MIB = 0.5
GROWTH_MIB = 32.0  # over what it needs at rest and the held bytes
REMAINS_MIB = 32.0  # what an allocator may keep of it once everybody is gone
BACK_S = 10.0


class Violation(Exception):
    """The proxy did what it must not."""


@dataclass(slots=True)
class Memory:
    """Resident memory in MiB; ``peak_mib`` is the kernel's own mark, which misses no moment."""

    process: Process
    held_mib: float
    idle_mib: float = 0.0
    samples: int = 0
    peak_mib: float = field(default=0.0)
    after_mib: float = 0.0

    @property
    def limit_mib(self) -> float:
        return self.idle_mib + self.held_mib + GROWTH_MIB

    async def settle(self) -> None:
        """Wait until the process grows no more by itself, and take that as its need at rest."""
        calm_since = time.monotonic()
        while time.monotonic() - calm_since < CALM_S:
            now_mib = self._status("VmRSS")
            if abs(now_mib - self.idle_mib) > CALM_MIB:
                self.idle_mib, calm_since = now_mib, time.monotonic()
            await asyncio.sleep(LOOK_S)

    async def watch(self) -> None:
        """Raises ``Violation`` when the process dies or grows beyond its limit."""
        while True:
            if not self.process.running:
                raise Violation("the proxy died")
            self.samples += 1
            self.peak_mib = self._status("VmHWM")
            if self.peak_mib > self.limit_mib:
                raise Violation(
                    f"the proxy has grown to {self.peak_mib:.0f} MiB: {self.idle_mib:.0f} at rest, "
                    f"{self.held_mib:.0f} of held bytes and {GROWTH_MIB:.0f} are allowed"
                )
            await asyncio.sleep(LOOK_S)

    async def come_back(self) -> None:
        """Raises ``Violation`` unless the memory is given back, now that the attacks have ended."""
        deadline = time.monotonic() + BACK_S
        while (after_mib := self._status("VmRSS")) > self.idle_mib + REMAINS_MIB:
            if time.monotonic() > deadline:
                raise Violation(f"the proxy keeps {after_mib:.0f} MiB, {self.idle_mib:.0f} at rest before")
            await asyncio.sleep(LOOK_S)
        self.after_mib = after_mib

    def _status(self, name: str) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition(f"{name}:")[2].split()[0]) / 1024
