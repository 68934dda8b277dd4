"""What the node daemon costs: 75 pods run by a real containerd, all collectors, 1 Hz. ``python -m bench.agent``.

CPU comes from the scheduler's own account of every thread (``schedstat``), memory from ``VmRSS``. With ``--soak`` the
run lasts 16 minutes and memory's slope from minute 6 to 16 is fitted. Exits with 0 only if it ran to the end; a missed
target is printed, not an error. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.table import Line, summary
from integration.harness import cgroups, containerd
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod
from integration.harness.processes import HarnessError, Process
from integration.harness.proxy import start_qosd

CORES_TARGET, RSS_TARGET_MIB, SLOPE_TARGET_MIB, EXPLAIN_TARGET_MS = 0.012, 55, 0.2, 200
LABELS = ("LS", "LSR", "BE")
SETTLE_S = 15.0
EXPLAINS = 20
SOAK_S, SLOPE_FROM_S, SLOPE_EVERY_S = 16 * 60.0, 6 * 60.0, 10.0


@contextlib.contextmanager
def node(directory: Path, pods: int) -> Iterator[tuple[Path, list[str]]]:
    """A private containerd that runs ``pods`` idle pods: its socket, and the pods' names."""
    release, cgroup = containerd.installed(), f"/koord-bench-{os.getpid()}"
    with (
        containerd.private(release, directory / "c") as runtime,
        cgroups.root(cgroup) as root,
        Cri(runtime.socket) as client,
    ):
        made = [_pod(number, f"{root}/kubepods") for number in range(pods)]
        try:
            for pod in made:
                cgroups.make_pod(pod)
                client.run(pod)
            yield runtime.socket, [pod.name for pod in made]
        finally:
            client.remove_all()
            for pod in made:
                cgroups.remove(pod.cgroup_parent)


def _pod(number: int, root: str) -> Pod:
    label = LABELS[number % len(LABELS)]
    limits = (0, 0) if label == "BE" else (500, 64 << 20)
    container = Container("main", cpu_limit_milli=limits[0], memory_limit_bytes=limits[1], command=("sleep", "86400"))
    return Pod(f"pod-{number}", (container,), labels={"koordinator.sh/qosClass": label}, cgroup_root=root)


def cpu_s(pid: int) -> float:
    """CPU time of all threads so far."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


def measure(daemon: Process, directory: Path, pods: Sequence[str], seconds: float) -> list[Line]:
    """Cost over ``seconds``, then the time of ``koordctl explain``."""
    before, began = cpu_s(daemon.pid), time.monotonic()
    time.sleep(seconds)
    cores = (cpu_s(daemon.pid) - before) / (time.monotonic() - began)
    per_sample_us = cores * 1e6 / (2 * len(pods))
    mib = rss_mib(daemon.pid)
    what = f"CPU at 1 Hz, {len(pods)} pods, {2 * len(pods)} containers"
    took_ms = [_explain_ms(directory / "inspect.sock", pods[number % len(pods)]) for number in range(EXPLAINS)]
    explain_ms = statistics.median(took_ms)
    return [
        Line(
            what,
            f"{cores:.4f} core = {per_sample_us:.0f} µs per container-sample",
            f"<= {CORES_TARGET}",
            cores <= CORES_TARGET,
        ),
        Line(
            f"resident memory after {seconds:.0f} s",
            f"{mib:.1f} MiB",
            f"<= {RSS_TARGET_MIB} MiB",
            mib <= RSS_TARGET_MIB,
        ),
        Line(
            "koordctl explain pod, the whole process",
            f"{explain_ms:.0f} ms (max {max(took_ms):.0f}, of {EXPLAINS})",
            f"<= {EXPLAIN_TARGET_MS} ms",
            explain_ms <= EXPLAIN_TARGET_MS,
        ),
    ]


def measured(socket: Path) -> int:
    """How many containers have a CPU sample: a daemon that measures nothing would cost little."""
    argv = [
        sys.executable,
        "-m",
        "koordctl",
        "metrics",
        "container_cpu_usage_cores",
        "-o",
        "json",
        "--socket",
        str(socket),
    ]
    answer = json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout)
    return sum(len(metric["samples"]) for metric in answer["metrics"])


def _explain_ms(socket: Path, pod: str) -> float:
    argv = [sys.executable, "-m", "koordctl", "explain", "pod", pod, "--socket", str(socket)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=environment)
    return (time.perf_counter() - started) * 1e3


def slope(daemon: Process) -> Line:
    """Least-squares slope of resident memory from minute 6 to 16."""
    began = time.monotonic()
    points: list[tuple[float, float]] = []
    while (now := time.monotonic() - began) < SOAK_S:
        if now >= SLOPE_FROM_S:
            points.append((now / 60, rss_mib(daemon.pid)))
        time.sleep(SLOPE_EVERY_S)
    minutes, sizes = zip(*points, strict=True)
    fitted = statistics.linear_regression(minutes, sizes).slope
    figure = f"{fitted:+.3f} MiB/min; {sizes[0]:.1f} -> {sizes[-1]:.1f} MiB"
    return Line("slope of resident memory, minutes 6 to 16", figure, f"< {SLOPE_TARGET_MIB}", fitted < SLOPE_TARGET_MIB)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.agent", description="Measure the node daemon.")
    parser.add_argument("--pods", type=int, default=75)
    parser.add_argument("--seconds", type=float, default=60, help="length of the measurement (default 60)")
    parser.add_argument("--soak", action="store_true", help="then 16 minutes for the slope of resident memory")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as name:
        directory = Path(name)
        with node(directory, chosen.pods) as (runtime, pods):
            hook_files = directory / "hookserver.d"
            hook_files.mkdir()
            daemon = start_qosd(runtime, directory, hook_files, rules="", acts=True)
            try:
                time.sleep(SETTLE_S)
                found = measured(directory / "inspect.sock")
                if found != chosen.pods:
                    raise HarnessError(f"{found} of {chosen.pods} containers are measured")
                lines = measure(daemon, directory, pods, chosen.seconds)
                lines += [slope(daemon)] if chosen.soak else []
            finally:
                daemon.stop()
    for line in lines:
        print(line.text())
    print(summary("bench-agent", lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
