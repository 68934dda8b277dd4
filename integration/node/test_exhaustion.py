"""Memory that is filled for real, under a limit of the pods' own: who is made to give, how soon, and who is spared.

A best-effort pod fills the root of all pods beside a latency-sensitive one, while every CPU is busy. ``EXHAUSTIONS=50``
runs it so often (5 by default), each time at another speed, from ``SEED`` on. Only cgroups below the test's own root
come under pressure. cgroup v1: what cannot be throttled is frozen, then evicted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from integration.demo import pods
from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.pods import Pod
from integration.harness.processes import Process, wait_for
from integration.node.conftest import MakeDaemon
from integration.node.daemon import Daemon, Row
from integration.node.podlist import PodList
from integration.node.settings import SEED
from koord.pb.cri import api_pb2 as pb

RUNS = int(os.environ.get("EXHAUSTIONS", "5"))
MIB = 1 << 20
LIMIT = 256 * MIB
THRESHOLD, LOWER = 70, 68
FIRST_STEP_S = 4.0
"""From the sample at which the threshold is passed, with every CPU busy."""
RELIEVED_S = 20.0
"""Five seconds for each of two steps that had to be waited for, and the end of the pod."""
RULES = f"""\
spec:
  resourceUsedThresholdWithBE:
    enable: true
    memoryEvictThresholdPercent: {THRESHOLD}
    memoryEvictLowerPercent: {LOWER}
node:
  features: {{BEMemoryEvict: true}}
"""
ANONYMOUS = """\
BEGIN {{ a[n++] = sprintf("%80000000s", "x"); while (1) {{ a[n++] = sprintf("%{chunk}s", "x"); system("sleep 0.1") }} }}
"""
CACHE = "dd if=/dev/zero of=/file bs=1M count=210 2>/dev/null; while :; do cat /file >/dev/null; sleep 0.2; done"
HELD = "x=$(head -c 20000000 /dev/zero | tr '\\0' x); echo ${#x}; while :; do sleep 1; done"
STEPS = ("memory.force_empty", "cpu_quota", "cgroup.freeze", "pod.eviction")


class Memory:
    """The memory cgroup of ``path``."""

    def __init__(self, path: str) -> None:
        self._directory = cgroups.hierarchies()["memory"] / path.strip("/")

    def limit(self, size_bytes: int) -> None:
        cgroups.write(self._directory / "memory.limit_in_bytes", str(size_bytes))

    def unreclaimable_bytes(self) -> int:
        """As the daemon counts it."""
        stat = dict(line.split() for line in (self._directory / "memory.stat").read_text().splitlines())
        cache = int(stat["total_active_file"]) + int(stat["total_inactive_file"])
        return int((self._directory / "memory.usage_in_bytes").read_text()) - cache

    def cache_bytes(self) -> int:
        stat = dict(line.split() for line in (self._directory / "memory.stat").read_text().splitlines())
        return int(stat["total_active_file"]) + int(stat["total_inactive_file"])

    def oom_kills(self) -> int:
        """Of the cgroup itself, not below it; of one that is gone 0."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self._directory / "memory.oom_control").read_text().splitlines()
            return int(dict(line.split() for line in lines)["oom_kill"])
        return 0


class Node:
    """Pods under one limit, kubelet's list of them, and the daemon."""

    def __init__(self, client: Cri, root: str, daemon: Daemon, listed: PodList) -> None:
        self.client, self.root, self.daemon, self.listed = client, root, daemon, listed
        self.memory = Memory(root)
        self.web = _with(pods.latency_sensitive(root), HELD)
        self.web_id = self.start(self.web, 9500)

    def start(self, pod: Pod, priority: int) -> str:
        """The container's id."""
        cgroups.make_pod(pod)
        self.listed.pods += ((pod, priority, ""),)
        (id_,) = self.client.run(pod)[1].values()
        return id_

    def end(self, pod: Pod) -> None:
        for each in self.client.pods():
            if each.metadata.uid == pod.uid:
                self.client.remove(each.id)
        self.listed.pods = tuple(each for each in self.listed.pods if each[0].uid != pod.uid)
        cgroups.remove(pod.cgroup_parent)

    def state(self, id_: str) -> pb.ContainerState:
        return self.client.container_status(id_).status.state

    def percent(self) -> float:
        return self.memory.unreclaimable_bytes() * 100 / LIMIT

    def steps(self, pod: Pod, since: int) -> list[Row]:
        """Of the journal, what eviction has done to the pod after row ``since``."""
        of_pod = f"{pod.namespace}/{pod.name}"
        return [row for row in self.daemon.journal()[since:] if row.pod == of_pod and row.name in STEPS]


def _with(pod: Pod, *command: str) -> Pod:
    name = pod.containers[0].name
    argv = ("/bin/sh", "-c", *command) if len(command) == 1 else command
    return dataclasses.replace(pod, containers=(dataclasses.replace(pod.containers[0], name=name, command=argv),))


@contextlib.contextmanager
def every_cpu_busy(root: str, log: Path) -> Iterator[None]:
    """In a cgroup beside the pods'."""
    path = f"{root.rpartition('/')[0]}/busy"
    cgroups.make(path)
    spinning = [Process(["/bin/sh", "-c", "while :; do :; done"], log) for _ in range(os.cpu_count() or 1)]
    try:
        for each in spinning:
            cgroups.write(cgroups.hierarchies()["cpu"] / path.strip("/") / "cgroup.procs", str(each.pid))
        yield
    finally:
        for each in spinning:
            each.kill()
        cgroups.remove(path)


@pytest.fixture
def node(kubepods: str, make_daemon: MakeDaemon, containerd1: Containerd, tmp_path: Path) -> Iterator[Node]:
    with ExitStack() as stack:
        stack.callback(containerd1.remove_pods)
        client = stack.enter_context(Cri(containerd1.socket))
        listed = PodList()
        endpoint = stack.enter_context(listed.served())
        daemon = make_daemon(RULES, ("--kubelet-endpoint", endpoint), socket=containerd1.socket)
        made = Node(client, kubepods, daemon, listed)
        made.memory.limit(LIMIT)
        daemon.start()
        stack.enter_context(every_cpu_busy(kubepods, tmp_path / "busy.log"))
        yield made


def best_effort(root: str, name: str) -> Pod:
    """As the demo's, but for its memory, of which it requests more than there is."""
    amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
    spec = {"containers": {"worker": {"requests": amounts}}}
    return dataclasses.replace(pods.best_effort(root, name), annotations={pods.EXTENDED_RESOURCES: json.dumps(spec)})


def filler(root: str, number: int, chance: random.Random) -> Pod:
    chunk = chance.randrange(300_000, 1_800_000)
    pod = best_effort(root, f"filler-{number}")
    return _with(pod, "/bin/busybox", "awk", ANONYMOUS.format(chunk=chunk))


def exhaust(node: Node, pod: Pod) -> tuple[float, float, float]:
    """Until it is over; seconds from the lower percent to the first step and to relief, and the highest percent.

    A fast filler is met before the threshold, but never below the lower percent.
    """
    since = len(node.daemon.journal())
    id_ = node.start(pod, 5500)
    wait_for(lambda: node.percent() >= LOWER, 120, "the limit to be near")
    assert not node.steps(pod, since)
    passed_s, worst, first_s = time.monotonic(), 0.0, None
    while first_s is None or node.percent() > LOWER:
        now_s = time.monotonic()
        worst = max(worst, node.percent())
        if first_s is None and node.steps(pod, since):
            first_s = now_s - passed_s
        assert now_s - passed_s < RELIEVED_S, (first_s, worst, node.steps(pod, since))
        time.sleep(0.05)
    relieved_s = time.monotonic() - passed_s
    wait_for(lambda: node.state(id_) == pb.CONTAINER_EXITED, 20, "the filler to have exited")
    return first_s, relieved_s, worst


def test_who_fills_memory_goes_and_nobody_else(node: Node, figure: Callable[[str], None]) -> None:
    web = Memory(f"{node.web.cgroup_parent}/{node.web_id}")
    seen = []
    for number in range(RUNS):
        pod = filler(node.root, number, random.Random(SEED + number))
        seen.append(exhaust(node, pod))
        assert node.state(node.web_id) == pb.CONTAINER_RUNNING
        assert web.oom_kills() == 0
        node.end(pod)
        wait_for(lambda: node.percent() < 40, 20, "its memory to be free")
    firsts, reliefs, worsts = zip(*seen, strict=True)
    figure(
        f"{RUNS} memory exhaustions (seed {SEED}): first step after {max(firsts):.1f} s at most, relieved after "
        f"{max(reliefs):.1f} s at most, {max(worsts):.0f} % of the limit at the worst, no OOM kill of the LS container"
    )
    assert max(firsts) <= FIRST_STEP_S
    assert not node.daemon.complaints()
