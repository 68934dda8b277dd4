"""What one tick of sensing costs: CPU time of this process, on real cgroups with live processes in them.

Makes ``--pods`` cgroups of a sandbox and a container each below ``koord-test-<pid>`` in every hierarchy it needs (as
root), puts a sleeping process into each sandbox and one that wakes four times a second into each container, and samples
once a second: a loop without the pause would find all of the kernel's structures in the CPU's caches and cost a tenth.
Printed per collector: CPU time per run, and the share of a core at its own period. Everything made is removed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from koord.host.cgroup import Tree, detect
from koord.host.reader import KeptFiles
from koord.model.priority import PriorityClass
from koord.model.qos import KubeQoS, QoSClass
from qosd.model.pod import HookStage, PodContext, Resources, RuntimeRequest
from qosd.model.snapshot import ContainerView, PodView
from qosd.sense.host import CollectorHost
from qosd.sense.sampler import Sampler
from qosd.sense.store import SampleStore
from qosd.sense.table import COLLECTORS, PANELS
from qosd.sense.targets import Tiers
from qosd.sense.tick import Batch, Collector, Tick

_CONTROLLERS = ("cpu", "cpuacct", "memory", "cpuset", "perf_event", "blkio", "pids")
_TICKER = "import time\nwhile True:\n  time.sleep(0.25); sum(range(20000)); open('/proc/self/stat').read()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=75)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--idle", action="store_true", help="no process wakes up")
    options = parser.parse_args()
    tree = detect(Path("/sys/fs/cgroup"), Path("/proc/self/mountinfo").read_text())
    root = f"/koord-test-{os.getpid()}"
    with _cgroups(tree, root, options.pods) as pods, _processes(tree, pods, options.idle):
        _measure(tree, pods, root, options.seconds)


def _measure(tree: Tree, pods: Sequence[PodView], root: str, seconds: int) -> None:
    with KeptFiles(60_000, lambda text: print(text, file=sys.stderr)) as files:
        cpus = tuple(range(os.cpu_count() or 1))
        units = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        host = CollectorHost(tree, files, time.monotonic_ns, lambda: cpus, *units)
        timed = [_Timed(collector(host)) for collector in COLLECTORS]
        store = SampleStore(PANELS)
        sampler = Sampler(timed, store, time.monotonic_ns)
        ticks = []
        for _ in range(seconds + 1):
            began, wall = time.thread_time(), time.monotonic()
            sampler.sample(pods, Tiers(root, "", f"{root}/besteffort"))
            ticks.append((time.thread_time() - began) * 1e6)
            time.sleep(max(0.0, 1 - (time.monotonic() - wall)))
        _print_collectors(timed, sampler)
        print(
            f"{len(files)} descriptors, {store.series_count} series, {store.history_bytes / 2**20:.1f} MiB of history"
        )
        _print_ticks(ticks[1:], len(pods))
        sampler.close()


def _print_collectors(timed: Sequence[_Timed], sampler: Sampler) -> None:
    health = sampler.health()
    print(f"{'collector':16} {'every':>6} {'runs':>5} {'µs/run':>9} {'% core':>7}")
    for one in timed:
        runs = one.spent_us[1:] or one.spent_us
        per_run = sum(runs) / len(runs)
        reason = health[one.name].disabled_reason or health[one.name].last_error
        share = per_run / one.period_s / 1e4
        print(f"{one.name:16} {one.period_s:4g} s {len(one.spent_us):5} {per_run:9.0f} {share:7.3f}  {reason}")


def _print_ticks(ticks: Sequence[float], pods: int) -> None:
    """The first tick, which opens all files, is not among them."""
    mean = sum(ticks) / len(ticks)
    print(f"CPU time per tick: mean {mean:.0f} µs, median {statistics.median(ticks):.0f} µs, most {max(ticks):.0f} µs")
    print(
        f"{mean / 1e4:.2f} % of a core; {mean / (2 * pods):.1f} µs per cgroup-sample ({pods} pods, {pods} containers),"
        f" {mean / pods:.1f} µs per container-sample, everything included"
    )


class _Timed:
    """A collector that notes the CPU time of each run."""

    def __init__(self, collector: Collector) -> None:
        self.name, self.period_s, self.panels = collector.name, collector.period_s, collector.panels
        self.close = collector.close
        self._collect = collector.collect
        self.spent_us: list[float] = []

    def collect(self, tick: Tick) -> Batch:
        began = time.thread_time()
        try:
            return self._collect(tick)
        finally:
            self.spent_us.append((time.thread_time() - began) * 1e6)


@contextmanager
def _cgroups(tree: Tree, root: str, count: int) -> Iterator[tuple[PodView, ...]]:
    """``count`` pods in the BestEffort tier of a kubepods of our own."""
    pods = tuple(_pod(f"{root}/besteffort/pod{number}", number) for number in range(count))
    groups = [root, f"{root}/besteffort", *(pod.cgroup for pod in pods)]
    groups += [container.cgroup for pod in pods for container in pod.containers]
    directories = [directory for cgroup in groups for directory in _directories(tree, cgroup)]
    made: list[Path] = []
    try:
        for directory in directories:
            directory.mkdir()
            made.append(directory)
            _inherit_cpuset(directory)
        yield pods
    finally:
        for directory in reversed(made):
            directory.rmdir()


def _inherit_cpuset(directory: Path) -> None:
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (directory / name).exists() and (directory.parent / "cpuset.sched_load_balance").exists():
            (directory / name).write_text((directory.parent / name).read_text())


def _directories(tree: Tree, cgroup: str) -> list[Path]:
    if tree.version == 2:
        return [tree.directory(cgroup)]
    roots = {tree.controllers[name] for name in _CONTROLLERS if name in tree.controllers}
    return [path / cgroup.lstrip("/") for path in [*sorted(roots), *([tree.unified] if tree.unified else [])]]


@contextmanager
def _processes(tree: Tree, pods: Sequence[PodView], idle: bool) -> Iterator[None]:
    running: list[subprocess.Popen[bytes]] = []
    try:
        for pod in pods:
            for container in pod.containers:
                ticks = not (idle or container.is_sandbox)
                argv = [sys.executable, "-S", "-c", _TICKER] if ticks else ["sleep", "86400"]
                running.append(subprocess.Popen(argv))
                for directory in _directories(tree, container.cgroup):
                    (directory / "cgroup.procs").write_text(str(running[-1].pid))
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def _pod(cgroup: str, number: int) -> PodView:
    request = RuntimeRequest(
        HookStage.CREATE, "bench", f"pod{number}", f"uid{number}", {}, {}, cgroup.rpartition("/")[0], Resources()
    )
    containers = tuple(
        ContainerView(
            f"{name}{number}", name, f"{cgroup}/{name or 'sandbox'}", "CONTAINER_RUNNING", Resources(), {}, not name
        )
        for name in ("", "main")
    )
    return PodView(
        uid=f"uid{number}",
        namespace="bench",
        name=f"pod{number}",
        sandbox_id=f"sandbox{number}",
        state="SANDBOX_READY",
        cgroup=cgroup,
        context=PodContext.read(request),
        kube_qos=KubeQoS.BEST_EFFORT,
        qos=QoSClass.LS,
        qos_source="bench",
        priority_class=PriorityClass.BATCH,
        sub_priority=0,
        containers=containers,
    )


if __name__ == "__main__":
    main()
