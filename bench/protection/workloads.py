"""The latency-sensitive services that can be measured, each with the client that loads it.

    own     ``bench.protection.service`` under requests at intended instants: latencies count from these, so that a
            request which waits behind another is late as well
    redis   Debian's redis-server under Debian's redis-benchmark, which sends the next request when it has an answer:
            latencies count from the sending, and a slow service is asked less

Clients run in the root cgroup under SCHED_FIFO, so that they are not what is late.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise

from bench.protection import service
from bench.protection.node import PORT
from integration.harness.processes import HarnessError

RATE_PER_S, WORK_MS, WORKERS = 1500.0, 0.4, 4
CONNECTIONS = 2
_POINT = re.compile(r"^[\d.]+% <= ([\d.]+) milliseconds \(cumulative count (\d+)\)$", re.MULTILINE)
_THINNED = 16
_REDIS_BENCHMARK = (
    "chrt", "-f", str(service.FIFO_PRIORITY),
    "redis-benchmark", "-h", "127.0.0.1", "-p", str(PORT), "-t", "get", "-c", str(CONNECTIONS),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answers:
    """Latencies, and how late each request was sent, in µs. A request without an answer took for ever.

    ``client_cpu_s``: what asking took of the node.
    """

    latencies_us: list[float]
    late_us: list[float]
    answered_per_s: float
    client_cpu_s: float


class Client(ABC):
    """Loads the service. ``rate_per_s``: how many requests it sends; None: as many as are answered."""

    rate_per_s: float | None = None

    @abstractmethod
    def ask(self, seconds: float) -> Answers:
        """The answers to requests of that time."""


class OpenLoop(Client):
    """``bench.protection.load``, which goes on between two turns."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.rate_per_s, self._process, self._seed = RATE_PER_S, process, 0

    def ask(self, seconds: float) -> Answers:
        self._seed += 1
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{self.rate_per_s} {seconds} {self._seed}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        answered = len(answer["latencies_us"])
        lost = [float("inf")] * (answer["sent"] - answered)
        latencies_us = [*answer["latencies_us"], *lost]
        return Answers(latencies_us, answer["late_us"], answered / seconds, answer["cpu_s"])


class RedisBenchmark(Client):
    """One run for each turn, of as many requests as the last one says take ``seconds``."""

    def __init__(self) -> None:
        self._per_s = 20_000.0

    def ask(self, seconds: float) -> Answers:
        requests = max(1000, round(self._per_s * seconds))
        began, cpu_s = time.monotonic(), _children_cpu_s()
        command = [*_REDIS_BENCHMARK, "-n", str(requests)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        self._per_s = requests / (time.monotonic() - began)
        return Answers(latencies_us(done.stdout), [], self._per_s, _children_cpu_s() - cpu_s)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def latencies_us(output: str) -> list[float]:
    """One latency of every sixteen, as far as the percentile distribution of redis-benchmark tells them."""
    by_percentile = output.partition("Latency by percentile distribution:")[2].partition("Cumulative")[0]
    points = [(0.0, 0), *((float(ms), int(count)) for ms, count in _POINT.findall(by_percentile))]
    if len(points) == 1:
        raise HarnessError(f"redis-benchmark said no latencies: {output[-500:]}")
    found: list[float] = []
    for (_, before), (ms, count) in pairwise(points):
        found += [1000 * ms] * (count // _THINNED - before // _THINNED)
    return found


@dataclass(frozen=True, slots=True)
class Workload:
    """``command``: the service's, made when it is needed."""

    command: Callable[[], Sequence[str]]
    client: Callable[[], AbstractContextManager[Client]]


def _own_service() -> Sequence[str]:
    rounds = service.iterations(WORK_MS)
    return (sys.executable, "-m", "bench.protection.service", str(PORT), str(WORKERS), str(rounds))


@contextlib.contextmanager
def _open_loop() -> Iterator[Client]:
    command = [sys.executable, "-m", "bench.protection.load", str(PORT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield OpenLoop(process)
        finally:
            process.kill()


def _redis_server() -> Sequence[str]:
    for program in ("redis-server", "redis-benchmark"):
        if shutil.which(program) is None:
            raise HarnessError(f"{program} is not on PATH: apt-get install redis-server redis-tools")
    return (
        "redis-server", "--bind", "127.0.0.1", "--port", str(PORT), "--save", "", "--appendonly", "no",
        "--logfile", os.devnull,
    )  # fmt: skip


@contextlib.contextmanager
def _redis_benchmark() -> Iterator[Client]:
    yield RedisBenchmark()


WORKLOADS = {
    "own": Workload(_own_service, _open_loop),
    "redis": Workload(_redis_server, _redis_benchmark),
}
