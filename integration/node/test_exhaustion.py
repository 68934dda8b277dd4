"""Memory that is filled for real: who is made to give, how soon, and who is spared (cgroup v1).

``EXHAUSTIONS=50`` runs it so often (5 by default), each time at another speed, from ``SEED`` on, while every CPU is
busy. Only cgroups below the test's own root come under pressure.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.processes import Process, wait_for
from integration.node import exhaustion
from integration.node.conftest import MakeDaemon
from integration.node.daemon import Daemon
from integration.node.exhaustion import LIMIT, LOWER, MIB, Memory, Node
from integration.node.podlist import PodList
from integration.node.settings import SEED
from integration.storm.groups import Cgroupfs

RUNS = int(os.environ.get("EXHAUSTIONS", "5"))
FIRST_STEP_S = 4.0
"""From the moment at which the threshold is passed, with every CPU busy."""
RELIEVED_S = 15.0
"""After the first step: five seconds for the freeze, and the end of the pod."""


@dataclass
class Rig:
    daemon: Daemon
    node: Node

    @property
    def web(self) -> Memory:
        return _memory(f"{self.node.web.cgroup_parent}/{self.node.web_id}")


def _memory(path: str) -> Memory:
    return Memory(_directory("memory", path), 1)


def _directory(controller: str, path: str) -> Path:
    return cgroups.hierarchies()[controller] / path.strip("/")


@contextlib.contextmanager
def every_cpu_busy(root: str, log: Path) -> Iterator[None]:
    """In a cgroup beside the pods'."""
    path = f"{root.rpartition('/')[0]}/busy"
    cgroups.make(path)
    spinning = [Process(["/bin/sh", "-c", "while :; do :; done"], log) for _ in range(os.cpu_count() or 1)]
    try:
        for each in spinning:
            cgroups.write(_directory("cpu", path) / "cgroup.procs", str(each.pid))
        yield
    finally:
        for each in spinning:
            each.kill()
        cgroups.remove(path)


@pytest.fixture
def rig(kubepods: str, make_daemon: MakeDaemon, containerd1: Containerd, tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        stack.callback(containerd1.remove_pods)
        client = stack.enter_context(Cri(containerd1.socket))
        listed = PodList()
        endpoint = stack.enter_context(listed.served())
        daemon = make_daemon(exhaustion.RULES, ("--kubelet-endpoint", endpoint), socket=containerd1.socket)
        cgroups.write(_directory("memory", kubepods) / "memory.limit_in_bytes", str(LIMIT))
        node = Node(client, Cgroupfs(), kubepods, _memory(kubepods), listed, daemon.journal_file)
        daemon.start()
        stack.enter_context(every_cpu_busy(kubepods, tmp_path / "busy.log"))
        yield Rig(daemon, node)


def test_who_fills_memory_goes_and_nobody_else(rig: Rig, figure: Callable[[str], None]) -> None:
    warnings = rig.daemon.koordctl("node").get("warnings", ())
    assert not [warning for warning in warnings if "no urgent wake-up" in warning], "the kernel wakes the daemon"
    courses = exhaustion.exhaust_often(rig.node, RUNS, SEED, rig.web)
    figure(exhaustion.summary(courses, SEED))
    assert max(each.first_s for each in courses) <= FIRST_STEP_S
    assert max(each.relieved_s for each in courses) <= RELIEVED_S
    assert not rig.daemon.complaints()


def test_where_nothing_throttles_memory_a_busy_filler_is_held_to_little_cpu_first(
    rig: Rig, figure: Callable[[str], None]
) -> None:
    course = exhaustion.exhaust(rig.node, exhaustion.busy_filler(rig.node.root))
    assert list(dict.fromkeys(course.steps)) == ["cpu_quota", "cgroup.freeze", "pod.eviction"]
    assert rig.node.runs(rig.node.web_id)
    figure(f"a busy filler: {', '.join(dict.fromkeys(course.steps))}; {course.worst_percent:.0f} % at the worst")


def test_page_cache_is_reclaimed_and_nobody_goes_for_it(rig: Rig, figure: Callable[[str], None]) -> None:
    """What reads its file again afterwards may do so."""
    node, since_s = rig.node, time.time()
    pod = exhaustion.reader(node.root)
    id_ = node.start(pod)
    wait_for(lambda: node.steps(pod, since_s), 60, "its page cache to be reclaimed")
    cached = node.memory.cache_bytes()
    time.sleep(8)  # longer than the step is waited for
    assert {name for _, name in node.steps(pod, since_s)} == {"memory.force_empty"}
    assert (node.runs(id_), node.runs(node.web_id)) == (True, True)
    assert rig.web.oom_kills() == 0
    assert node.memory.percent() < LOWER
    (row,) = (row for row in rig.daemon.journal() if row.name == "memory.force_empty")
    assert row.result == "done" and "in use with page cache, which can be reclaimed" in row.why
    figure(f"page cache: reclaimed, {cached // MIB} MiB of it left just after; nobody throttled, frozen or evicted")
