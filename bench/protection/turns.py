"""Turns of load on the service: what its clients saw, and what the node's CPUs did meanwhile."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bench import stats
from bench.protection import storms
from bench.protection.node import TICKS_PER_S, Node, busy_ticks
from bench.protection.workloads import Client
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
    """What clients saw in one turn, in µs: a request without an answer took for ever. CPU time is in CPUs.

    ``rounds``: of the storm, per second. ``waited_ms``: PSI cpu some of the service, per second.
    """

    latencies_us: list[float]
    answered_per_s: float
    client_cpus: float
    service_cpus: float
    storm_cpus: float
    node_cpus: float
    rounds: float
    waited_ms: float

    def at(self, percent: float) -> float:
        return stats.percentile(self.latencies_us, percent)

    @property
    def share_of_rest(self) -> float:
        """What the storm got of what the service and its client left."""
        return self.storm_cpus / (CPUS - self.service_cpus - self.client_cpus)


@dataclass
class Bench:
    """``node`` under ``client``. ``repeated``: turns that counted for nothing."""

    node: Node
    client: Client
    repeated: int = 0

    def turn(self, storm: str | None, seconds: float) -> Turn:
        """One turn that counts. Raises HarnessError if the client is late again and again."""
        for _ in range(MOST_REPEATS):
            found = self._turn(storm, seconds)
            if found is not None:
                return found
            self.repeated += 1
        raise HarnessError(f"the client was late at {MOST_REPEATS} turns: something else has the CPUs")

    def _turn(self, storm: str | None, seconds: float) -> Turn | None:
        node = self.node
        jobs = [cgroup for (_, kind), cgroup in node.jobs.items() if kind == storm]

        def counts() -> tuple[float, ...]:
            rounds = 0 if storm is None else node.storms[storm].rounds
            used = sum(job.cpu_ns() for job in jobs) / 1e9
            return (
                time.monotonic(), node.web.cpu_ns() / 1e9, used, busy_ticks() / TICKS_PER_S, rounds,
                node.web.waited_us() / 1000,
            )  # fmt: skip

        before = counts()
        answers = self.client.ask(seconds)
        passed, *grown = (after - start for after, start in zip(counts(), before, strict=True))
        if answers.late_us and stats.percentile(answers.late_us, 99) > LATE_US:
            return None
        per_s = [each / passed for each in (answers.client_cpu_s, *grown)]
        return Turn(answers.latencies_us, answers.answered_per_s, *per_s)


@contextlib.contextmanager
def polling() -> Iterator[None]:
    """Idle CPUs poll instead of sleeping: the kernel's own means, by a request of 0 µs."""
    with LATENCY_FILE.open("wb", buffering=0) as file:
        file.write((0).to_bytes(4, sys.byteorder))
        yield


@contextlib.contextmanager
def spinning() -> Iterator[None]:
    """A spinner of the idle class on each CPU: no CPU sleeps, and both threads of a core are busy."""
    with contextlib.ExitStack() as stack:
        for _ in range(CPUS):
            spinner = subprocess.Popen([sys.executable, "-c", IDLE_SPIN])
            stack.callback(spinner.wait)
            stack.callback(spinner.kill)
        yield


KINDS = tuple(storms.KINDS)
BASELINES: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "spinners": spinning,
    **({"polling": polling} if LATENCY_FILE.exists() else {}),
}
"""The means that keeps CPUs awake in the turns without a storm."""
