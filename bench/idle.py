"""What ``cpu.idle`` brings a latency-sensitive process beside CPU hogs, against weights. ``python -m bench.idle``.

A probe in a group of its own (1024 shares) sleeps a millisecond, notes how late it wakes, works a fixed amount and
starts again: wake-ups give the latency, completed rounds the throughput. One hog per CPU spins in ``be/pod``, under:

    alone        hogs stopped
    nothing      be: 1024 shares
    weights      be: 2 shares, as kubelet's BestEffort tier has
    pod idle     be: 2 shares, be/pod: cpu.idle = 1 (Koord leaves tiers to kubelet)
    tier idle    be: cpu.idle = 1, for comparison

The settings alternate in short turns, because the machine's speed varies by the minute. Exits with 0 only if it ran to
the end; the groups are removed in any case. Needs root, and Linux 5.15; cgroup v1, or v2 with the cpu controller on.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from bench import stats
from koord.host.cgroup import Tree, detect
from koord.host.files import Target
from koord.host.order import Change, order
from koord.host.writer import Writer

SLEEP_NS = 1_000_000
WORK_ITERATIONS = 40_000
SETTLE_S = 0.1
PR_SET_TIMERSLACK = 29
# (shares of be, cpu.idle of be, cpu.idle of be/pod); None: hogs stopped
SETTINGS: Mapping[str, tuple[int, int, int] | None] = {
    "alone": None,
    "nothing": (1024, 0, 0),
    "weights": (2, 0, 0),
    "pod idle": (2, 0, 1),
    "tier idle": (2, 1, 0),
}


@dataclass(slots=True)
class Turns:
    """What one setting gave: all wake-up latencies, and per turn their p99 and the rounds per second."""

    latencies_us: list[float] = field(default_factory=list)
    p99_us: list[float] = field(default_factory=list)
    rounds_per_s: list[float] = field(default_factory=list)

    def add(self, latencies_us: Sequence[float], seconds: float) -> None:
        self.latencies_us += latencies_us
        self.p99_us.append(stats.percentile(latencies_us, 99))
        self.rounds_per_s.append(len(latencies_us) / seconds)

    def text(self, name: str) -> str:
        percentiles = "".join(f"{stats.percentile(self.latencies_us, q):>10.0f}" for q in (50, 99, 99.9))
        return f"{name:<12}{percentiles}{statistics.median(self.rounds_per_s):>12.0f}{len(self.latencies_us):>10}"


def probe(commands: Connection, cpus: Sequence[int]) -> None:
    """Child: for each number of seconds received, answers with (latencies in µs, seconds that it took); ends on 0."""
    os.sched_setaffinity(0, cpus)
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    gc.disable()
    while seconds := commands.recv():
        latencies_us = []
        began = time.monotonic_ns()
        until = began + int(seconds * 1e9)
        while (now := time.monotonic_ns()) < until:
            time.sleep(SLEEP_NS / 1e9)
            latencies_us.append((time.monotonic_ns() - now - SLEEP_NS) / 1000)
            for _ in range(WORK_ITERATIONS):
                pass
        commands.send((latencies_us, (time.monotonic_ns() - began) / 1e9))


def hog(cpu: int) -> None:
    os.sched_setaffinity(0, [cpu])
    while True:
        pass


class Stage:
    """The groups ``top/ls`` and ``top/be/pod``, the probe in the one and the hogs in the other."""

    def __init__(self, writer: Writer, top: str, cpus: Sequence[int]) -> None:
        self._writer, self._top = writer, top
        context = multiprocessing.get_context("fork")
        self._probe, theirs = context.Pipe()
        self._hogs = [context.Process(target=hog, args=(cpu,), daemon=True) for cpu in cpus]
        self._prober = context.Process(target=probe, args=(theirs, cpus), daemon=True)
        for process in (*self._hogs, self._prober):
            process.start()

    def populate(self) -> None:
        for cgroup, processes in (("ls", [self._prober]), ("be/pod", self._hogs)):
            for process in processes:
                procs = self._writer.tree.directory(f"{self._top}/{cgroup}") / "cgroup.procs"
                procs.write_text(str(process.pid), encoding="ascii")

    def turn(self, setting: tuple[int, int, int] | None, seconds: float) -> tuple[list[float], float]:
        """The probe's answer under ``setting``."""
        self._signal(signal.SIGSTOP if setting is None else signal.SIGCONT)
        if setting is not None:
            self._set(*setting)
        time.sleep(SETTLE_S)
        self._probe.send(seconds)
        answer: tuple[list[float], float] = self._probe.recv()
        return answer

    def _set(self, shares: int, tier_idle: int, pod_idle: int) -> None:
        tier, pod = f"{self._top}/be", f"{self._top}/be/pod"
        wanted = {
            Target(tier, "cpu_shares"): shares,
            Target(tier, "cpu.idle"): tier_idle,
            Target(pod, "cpu.idle"): pod_idle,
        }
        changes = [Change(target, self._writer.read(target), value) for target, value in wanted.items()]
        for step in order(changes, self._writer.version):
            self._writer.write(step.target, step.value)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._hogs:
            if process.pid is not None:
                os.kill(process.pid, number)

    def close(self) -> None:
        for process in (*self._hogs, self._prober):
            process.kill()
            process.join()


@contextlib.contextmanager
def staged(tree: Tree, cpus: Sequence[int]) -> Iterator[Stage]:
    """A stage that is gone afterwards, with its processes and groups."""
    top = f"/koord-bench-idle-{os.getpid()}"
    stage = Stage(Writer(tree), top, cpus)
    groups = [tree.directory(cgroup) for cgroup in (top, f"{top}/ls", f"{top}/be", f"{top}/be/pod")]
    try:
        for cgroup in groups:
            cgroup.mkdir()
            if tree.version == 2 and cgroup.name not in ("ls", "pod"):
                (cgroup / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
        stage.populate()
        yield stage
    finally:
        stage.close()
        for cgroup in reversed(groups):
            if cgroup.exists():
                cgroup.rmdir()


def compared(turns: Mapping[str, Turns], name: str) -> str:
    """``name`` against weights: paired by round, medians with 95 % intervals."""
    base, other = turns["weights"], turns[name]
    late = stats.paired(stats.added, base.p99_us, other.p99_us)
    done = stats.paired(stats.added_percent, base.rounds_per_s, other.rounds_per_s)
    tail = stats.percentile(other.latencies_us, 99.9) - stats.percentile(base.latencies_us, 99.9)
    return (
        f"{name}: p99 {late.value:+.0f} µs [{late.low:+.0f}, {late.high:+.0f}], p99.9 {tail:+.0f} µs,"
        f" throughput {done.value:+.1f} % [{done.low:+.1f}, {done.high:+.1f}]"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.idle", description="Measure cpu.idle against weights.")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each setting (default 10)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn (default 1)")
    parser.add_argument("--cpus", type=int, default=0, help="how many CPUs to use, the last ones (default all)")
    chosen = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))[-chosen.cpus :]
    turns = {name: Turns() for name in SETTINGS}
    tree = detect(Path("/sys/fs/cgroup"), Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    with staged(tree, cpus) as stage:
        for number in range(chosen.rounds):
            names = list(SETTINGS)
            for name in names if number % 2 == 0 else names[::-1]:
                turns[name].add(*stage.turn(SETTINGS[name], chosen.seconds))
    print(f"{'wake-up':<12}{'p50 µs':>10}{'p99 µs':>10}{'p99.9 µs':>10}{'rounds/s':>12}{'samples':>10}")
    for name, found in turns.items():
        print(found.text(name))
    figures = "; ".join(compared(turns, name) for name in ("pod idle", "tier idle"))
    print(f"bench-idle, cgroup v{tree.version}, {len(cpus)} CPUs, against weights alone: {figures}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
