"""What a running koord-qosd costs: CPU time by the scheduler's own account of every thread, memory by ``VmRSS``."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.node.daemon import Daemon

SOAK_S, SLOPE_FROM_S, SLOPE_EVERY_S = 16 * 60.0, 6 * 60.0, 10.0
EXPLAINS = 20
_WRITES = 'koord_qosd_writes_total{result="done"} '


@dataclass(frozen=True, slots=True)
class Cost:
    """Over a time: CPU in cores, memory at its end, and how many kernel files were written in it."""

    cores: float
    rss_mib: float
    writes: int


def cost(daemon: Daemon, seconds: float) -> Cost:
    before = _writes(daemon)
    cores = cores_of(daemon.pid, seconds)
    return Cost(cores, rss_mib(daemon.pid), _writes(daemon) - before)


def cores_of(pid: int, seconds: float) -> float:
    """CPU time of all threads over so long, as a share of one core."""
    before_s, began = _cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return (_cpu_s(pid) - before_s) / (time.monotonic() - began)


def explain_ms(daemon: Daemon, pods: Sequence[str]) -> list[float]:
    """How long ``koordctl explain pod`` takes, from the start of the process until it ends, again and again."""
    return [_explain_ms(daemon.socket, pods[number % len(pods)]) for number in range(EXPLAINS)]


def measured(daemon: Daemon) -> int:
    """How many containers have a CPU sample: a daemon that measures nothing would cost little."""
    answer = daemon.koordctl("metrics", "container_cpu_usage_cores")
    return sum(len(metric["samples"]) for metric in answer["metrics"])


def slope(daemon: Daemon) -> tuple[float, float, float]:
    """Least-squares slope of resident memory from minute 6 to 16, in MiB a minute; MiB at both ends."""
    began = time.monotonic()
    points: list[tuple[float, float]] = []
    while (now := time.monotonic() - began) < SOAK_S:
        if now >= SLOPE_FROM_S:
            points.append((now / 60, rss_mib(daemon.pid)))
        time.sleep(SLOPE_EVERY_S)
    minutes, sizes = zip(*points, strict=True)
    return statistics.linear_regression(minutes, sizes).slope, sizes[0], sizes[-1]


def _cpu_s(pid: int) -> float:
    """CPU time of all threads so far."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def rss_mib(pid: int) -> float:
    """Resident memory."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


def _writes(daemon: Daemon) -> int:
    _, page = daemon.page("/metrics")
    return sum(int(float(line.removeprefix(_WRITES))) for line in page.splitlines() if line.startswith(_WRITES))


def _explain_ms(socket: Path, pod: str) -> float:
    argv = [sys.executable, "-m", "koordctl", "explain", "pod", pod, "--socket", str(socket)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=environment)
    return (time.perf_counter() - started) * 1e3
