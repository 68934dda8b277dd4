"""CPU burst on the kernel's own files (v1): its counters say who is throttled, and it takes every write."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from integration.harness import cgroups
from koord.host.cgroup import detect
from koord.host.files import Target, Value
from koord.host.reader import KeptFiles
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from koord.model.qos import KubeQoS
from qosd.act.actuator import Actuator
from qosd.loop import NodeLoop, TickInputs
from qosd.model.metric import Scope
from qosd.model.policy import HostFacts
from qosd.model.snapshot import PodView
from qosd.predict.predictor import Predictor
from qosd.sense.build import Sense
from qosd.sense.host import CollectorHost
from qosd.sense.node import NodeCollector
from qosd.sense.sampler import Sampler
from qosd.sense.store import SampleStore
from qosd.sense.system import SystemCollector
from qosd.sense.table import PANELS
from qosd.sense.usage import USAGE, UsageCollector
from qosd.strategies import STRATEGIES
from tests.qosd.act.rig import Recorded
from tests.qosd.podviews import machine
from tests.qosd.strategies.burst.scenes import bursting, limited
from tests.support.opened import opened

TOP = f"/koord-burst-{os.getpid()}"
HOST = HostFacts(1, files=frozenset({"cpu.max.burst"}))
BASE_US = 5_000
"""So little that a busy loop runs into it, whatever else this machine does."""
CLIMB = [6_000, 7_200, 8_640, 10_368, 12_441, 14_929, 15_000]
FALL = [12_000, 9_600, 7_680, 6_144, 5_000]
PATIENCE = 30
"""Seconds."""


class Kernel:
    """A pod with one container, in which a process runs all the time, and the daemon's loop around them.

    It is told of 64 CPUs, so that no other process of this machine makes it busy.
    """

    def __init__(self, directory: Path) -> None:
        tree = detect(Path("/sys/fs/cgroup"), Path("/proc/self/mountinfo").read_text())
        self.pod = _below(limited(quota_us=BASE_US))
        self.main = self.pod.containers[1].cgroup
        self.writer = Writer(tree)
        for cgroup in (self.pod.cgroup, self.main):
            cgroups.make(cgroup)
            self.writer.write(Target(cgroup, "cpu_quota"), BASE_US)
        self.before = self.holds()
        self.files = KeptFiles(100, lambda text: None)
        host = CollectorHost(
            tree, self.files, time.monotonic_ns, lambda: (0,), os.sysconf("SC_CLK_TCK"), resource.getpagesize()
        )
        store = SampleStore(PANELS)
        sampler = Sampler([NodeCollector(host), UsageCollector(host)], store, time.monotonic_ns)
        sense = Sense(sampler, store, SystemCollector(host))
        self.actuator = Actuator(self.writer, opened(UndoRecord(directory / "undo", "boot")), Recorded())
        self.loop = NodeLoop(
            sense, STRATEGIES, self.actuator, Predictor(lambda bank: None),
            wall=time.time_ns, monotonic=time.monotonic_ns,
        )  # fmt: skip
        self.procs = [tree.directory(self.main, controller) / "cgroup.procs" for controller in ("cpu", "cpuacct")]

    def second(self, threshold_percent: int, policy: str = "auto") -> int:
        """A second and a beat; the container's quota then."""
        time.sleep(1)
        by = bursting(policy, HOST, sharePoolThresholdPercent=threshold_percent)
        inputs = TickInputs((self.pod,), by, machine(64), {KubeQoS.GUARANTEED: TOP}, {}, {"pods": 0.0})
        result = self.loop.tick(inputs)
        assert result is not None and set(result.results) <= {"done"}, result
        quota_us = self.writer.read(Target(self.main, "cpu_quota"))
        assert isinstance(quota_us, int)
        assert self.writer.read(Target(self.pod.cgroup, "cpu_quota")) == quota_us, "it has the pod for itself"
        return quota_us

    def used_cores(self) -> float:
        assert self.loop.snapshot is not None
        return self.loop.snapshot.value(USAGE[Scope.CONTAINER].cpu_usage_cores, self.main) or 0.0

    def holds(self) -> list[Value | None]:
        cgroups_, rows = (self.pod.cgroup, self.main), ("cpu_quota", "cpu.max.burst")
        return [self.writer.read(Target(cgroup, row)) for cgroup in cgroups_ for row in rows]


def _below(pod: PodView) -> PodView:
    """The pod, below the test's own cgroup."""
    cgroup = f"{TOP}/{pod.name}"
    containers = [structs.replace(each, cgroup=f"{cgroup}/{each.name or 'sandbox'}") for each in pod.containers]
    return structs.replace(pod, cgroup=cgroup, containers=tuple(containers))


@pytest.fixture
def kernel(real_machine: None, tmp_path: Path) -> Iterator[Kernel]:
    with cgroups.root(TOP):
        made = Kernel(tmp_path)
        joins = "".join(f"echo $$ > {procs}; " for procs in made.procs)
        spinning = subprocess.Popen(["sh", "-c", f"{joins} while :; do :; done"])
        try:
            yield made
        finally:
            spinning.kill()
            spinning.wait()
            made.files.close()


def test_up_while_the_kernel_throttles_it_and_down_when_the_cpu_is_wanted(kernel: Kernel) -> None:
    found, used = [kernel.second(50)], []
    while found[-1] != CLIMB[-1] and len(found) < PATIENCE:
        found.append(kernel.second(50))
        used.append(kernel.used_cores())
    assert sorted(set(found) - {BASE_US}) == CLIMB and found == sorted(found)
    kernel.second(50)
    assert kernel.used_cores() > 2 * BASE_US / 100_000 > used[0], "it has what it was given"
    assert kernel.holds() == [15_000, BASE_US, 15_000, BASE_US]
    assert [kernel.second(0) for _ in FALL] == FALL
    assert kernel.holds() == [BASE_US] * 4
    kernel.second(0, "none")
    assert (kernel.holds(), kernel.actuator.files.report.owned) == (kernel.before, {})
