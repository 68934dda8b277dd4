"""Turns of load on the service: what its clients saw, and what the node's CPUs did meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench import stats
from bench.protection import storms
from bench.protection.node import PORT, TICKS_PER_S, Node, busy_ticks
from integration.harness.processes import HarnessError

SETTLE_S = 0.6
LATE_US = 500.0
"""A turn whose client was later than this at p99 counts for nothing, and is repeated."""
MOST_REPEATS = 5
LATENCY_FILE = Path("/dev/cpu_dma_latency")
CPUS = len(os.sched_getaffinity(0))
IDLE_SPIN = "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"


@dataclass(frozen=True)
class Turn:
    """``latencies_us``: unanswered requests count as infinite. CPU time in CPUs; ``rounds``: of the storm, per second.

    ``waited_ms``: PSI cpu some of the service, per second.
    """

    latencies_us: list[float]
    service_cpus: float
    storm_cpus: float
    node_cpus: float
    rounds: float
    waited_ms: float

    def at(self, percent: float) -> float:
        return stats.percentile(self.latencies_us, percent)

    @property
    def share_of_rest(self) -> float:
        """What the storm got of what the service left."""
        return self.storm_cpus / (CPUS - self.service_cpus)


@dataclass
class Load:
    """The open-loop client. ``repeated``: turns that counted for nothing."""

    rate_per_s: float
    process: subprocess.Popen[str]
    seed: int = 0
    repeated: int = 0

    def turn(self, node: Node, storm: str | None, seconds: float) -> Turn:
        """One turn that counts. Raises HarnessError if the client is late again and again."""
        for _ in range(MOST_REPEATS):
            found = self._turn(node, storm, seconds)
            if found is not None:
                return found
            self.repeated += 1
        raise HarnessError(f"the client was late at {MOST_REPEATS} turns: something else has the CPUs")

    def _turn(self, node: Node, storm: str | None, seconds: float) -> Turn | None:
        jobs = [] if storm is None else [node.jobs[place, storm] for place, kind in node.jobs if kind == storm]

        def counts() -> tuple[float, ...]:
            rounds = 0 if storm is None else node.storms[storm].rounds
            used = sum(job.cpu_ns() for job in jobs) / 1e9
            return (
                time.monotonic(), node.web.cpu_ns() / 1e9, used, busy_ticks() / TICKS_PER_S, rounds,
                node.web.waited_us() / 1000,
            )  # fmt: skip

        before = counts()
        latencies_us, late_us = self.ask(seconds)
        passed, *grown = (after - start for after, start in zip(counts(), before, strict=True))
        if stats.percentile(late_us, 99) > LATE_US:
            return None
        return Turn(latencies_us, *[each / passed for each in grown])

    def ask(self, seconds: float) -> tuple[list[float], list[float]]:
        """(latencies, lateness of the client), in µs."""
        self.seed += 1
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{self.rate_per_s} {seconds} {self.seed}\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        lost = answer["sent"] - len(answer["latencies_us"])
        return [*answer["latencies_us"], *[float("inf")] * lost], answer["late_us"]


@contextlib.contextmanager
def load(rate_per_s: float) -> Iterator[Load]:
    """The client, in the root cgroup, under SCHED_FIFO."""
    command = [sys.executable, "-m", "bench.protection.load", str(PORT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Load(rate_per_s, process)
        finally:
            process.kill()


@dataclass
class Awake:
    """CPUs that do not sleep while they have nothing to do: by the kernel's own means where it has them.

    A request of 0 µs in /dev/cpu_dma_latency makes an idle CPU poll; that is idle time to every account. Without the
    device, or an idle governor that follows it, spinners of the idle class stand in for it.
    """

    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def means(self) -> str:
        return "idle CPUs poll" if LATENCY_FILE.exists() else "SCHED_IDLE spinners"

    def start(self) -> None:
        if LATENCY_FILE.exists():
            file = self._stack.enter_context(LATENCY_FILE.open("wb", buffering=0))
            file.write((0).to_bytes(4, sys.byteorder))
            return
        for _ in range(CPUS):
            spinner = subprocess.Popen([sys.executable, "-c", IDLE_SPIN])
            self._stack.callback(spinner.wait)
            self._stack.callback(spinner.kill)

    def stop(self) -> None:
        self._stack.close()


KINDS = tuple(storms.KINDS)
