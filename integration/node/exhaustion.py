"""Memory that is filled for real, under a limit of the pods' own, on either version of cgroups.

A best-effort pod fills the root of all pods beside a latency-sensitive one; what the test sees of that it reads from
the kernel, and what was done about it from the daemon's journal. It runs inside the guest too, so it knows no pytest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import shlex
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from integration.demo import pods
from integration.harness.cri import Cri
from integration.harness.pods import Pod
from integration.harness.processes import HarnessError, wait_for
from integration.node.podlist import PodList
from integration.storm.groups import Groups
from koord.pb.cri import api_pb2 as pb

MIB = 1 << 20
LIMIT = 256 * MIB
THRESHOLD, LOWER = 70, 68
RULES = f"""\
spec:
  resourceUsedThresholdWithBE:
    enable: true
    memoryEvictThresholdPercent: {THRESHOLD}
    memoryEvictLowerPercent: {LOWER}
node:
  features: {{BEMemoryEvict: true}}
"""
WEB_PRIORITY, BATCH_PRIORITY = 9500, 5500
_ANONYMOUS = """\
BEGIN {{ a[n++] = sprintf("%80000000s", "x"); while (1) {{ a[n++] = sprintf("%{chunk}s", "x"); system("sleep 0.1") }} }}
"""
_CACHE = "dd if=/dev/zero of=/file bs=1M count=210 2>/dev/null; while :; do cat /file >/dev/null; sleep 0.2; done"
_HELD = "x=$(head -c 20000000 /dev/zero | tr '\\0' x); echo ${#x}; while :; do sleep 1; done"
STEPS = ("memory.reclaim", "memory.force_empty", "memory.high", "cpu_quota", "cgroup.freeze", "pod.eviction")
_GIVEN_UP_S = 120.0


class Memory:
    """The memory cgroup whose directory is ``directory``; ``version`` of cgroups."""

    def __init__(self, directory: Path, version: int) -> None:
        self._directory, self._is_v1 = directory, version == 1

    def cache_bytes(self) -> int:
        """Page cache that the kernel can take back."""
        prefix = "total_" if self._is_v1 else ""
        stat = self._table("memory.stat")
        return stat[f"{prefix}active_file"] + stat[f"{prefix}inactive_file"]

    def percent(self) -> float:
        """The part of the limit that cannot be taken back, as the daemon counts it."""
        charged = int((self._directory / ("memory.usage_in_bytes" if self._is_v1 else "memory.current")).read_text())
        return (charged - self.cache_bytes()) * 100 / LIMIT

    def oom_kills(self) -> int:
        """By the kernel, in this cgroup; of one that is gone 0."""
        with contextlib.suppress(FileNotFoundError):
            return self._table("memory.oom_control" if self._is_v1 else "memory.events")["oom_kill"]
        return 0

    def _table(self, name: str) -> dict[str, int]:
        lines = (self._directory / name).read_text().splitlines()
        return {key: int(value) for key, value in map(str.split, lines)}


class Node:
    """Pods below ``root``, whose memory is ``memory``; kubelet's list of them; what the daemon has journaled."""

    def __init__(
        self, client: Cri, groups: Groups, root: str, memory: Memory, listed: PodList, journal_file: Path
    ) -> None:
        self.client, self.groups, self.root, self.memory = client, groups, root, memory
        self.listed, self._journal_file = listed, journal_file
        self.web = _with(pods.latency_sensitive(root), _HELD)
        self.web_id = self.start(self.web, WEB_PRIORITY)

    def start(self, pod: Pod, priority: int = BATCH_PRIORITY) -> str:
        """The container's id."""
        self.groups.make(pod)
        self.listed.pods += ((pod, priority, ""),)
        (id_,) = self.client.run(pod)[1].values()
        return id_

    def end(self, pod: Pod) -> None:
        for each in self.client.pods():
            if each.metadata.uid == pod.uid:
                self.client.remove(each.id)
        self.listed.pods = tuple(each for each in self.listed.pods if each[0].uid != pod.uid)
        self.groups.remove(pod)

    def runs(self, id_: str) -> bool:
        return self.client.container_status(id_).status.state == pb.CONTAINER_RUNNING

    def steps(self, pod: Pod, since_s: float) -> list[tuple[float, str]]:
        """What eviction has done to the pod, each with its time by the wall clock."""
        database = sqlite3.connect(f"{self._journal_file.as_uri()}?mode=ro", uri=True)
        query = "SELECT wall_ns, name FROM entries WHERE pod = ? AND wall_ns >= ? AND who LIKE '%eviction%' ORDER BY id"
        with contextlib.closing(database):
            rows = database.execute(query, (f"{pod.namespace}/{pod.name}", int(since_s * 1e9)))
            return [(wall_ns / 1e9, name) for wall_ns, name in rows if name in STEPS]


@dataclass
class Course:
    """Of one exhaustion, in seconds of the wall clock from the moment at which the threshold was passed.

    ``first_s``: to the first step, below 0 where it came before; ``relieved_s``: until usage was down again.
    """

    first_s: float
    relieved_s: float
    worst_percent: float
    steps: tuple[str, ...]


def exhaust(node: Node, pod: Pod) -> Course:
    """Fill memory until a pod has had to give it back; that pod has exited then."""
    id_, since_s = node.start(pod), time.time()
    passed_s = relieved_s = 0.0
    worst = 0.0
    while not relieved_s:
        now_s, percent = time.time(), node.memory.percent()
        worst = max(worst, percent)
        if not passed_s and percent >= THRESHOLD:
            passed_s = now_s
        if percent < LOWER and worst >= LOWER and node.steps(pod, since_s):
            relieved_s = now_s
        if now_s - since_s > _GIVEN_UP_S:
            status = node.client.container_status(id_).status
            end = f"{status.reason} {status.exit_code}" if status.state == pb.CONTAINER_EXITED else "running"
            raise HarnessError(f"{pod.name}: {worst:.0f} %, now {percent:.0f} %; {end}; {node.steps(pod, since_s)}")
        time.sleep(0.02)
    wait_for(lambda: not node.runs(id_), 30, "the filler to have exited")
    steps = node.steps(pod, since_s)
    first_s = steps[0][0]
    passed_s = passed_s or first_s
    return Course(first_s - passed_s, relieved_s - max(passed_s, first_s), worst, tuple(name for _, name in steps))


def exhaust_often(node: Node, count: int, seed: int, web: Memory) -> list[Course]:
    """One filler after the other, each at another speed; ``web``: that of the latency-sensitive pod's container."""
    courses = []
    for number in range(count):
        pod = filler(node.root, number, random.Random(seed + number))
        courses.append(exhaust(node, pod))
        assert node.runs(node.web_id), f"the latency-sensitive pod has ended, with filler {number} of seed {seed}"
        assert web.oom_kills() == 0, f"the kernel killed in it, with filler {number} of seed {seed}"
        node.end(pod)
        wait_for(lambda: node.memory.percent() < 40, 60, "its memory to be free")
    return courses


def summary(courses: list[Course], seed: int) -> str:
    first_s = max(each.first_s for each in courses)
    relieved_s = max(each.relieved_s for each in courses)
    worst = max(each.worst_percent for each in courses)
    return (
        f"{len(courses)} memory exhaustions (seed {seed}): first step {first_s:.1f} s after the threshold at the "
        f"latest, relieved {relieved_s:.1f} s later at the latest, {worst:.0f} % of the limit at the worst, no OOM "
        "kill of the latency-sensitive container"
    )


# the pods


def best_effort(root: str, name: str, *command: str) -> Pod:
    """As the demo's, but for its memory, of which it requests more than there is."""
    amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
    spec = {"containers": {"worker": {"requests": amounts}}}
    pod = dataclasses.replace(pods.best_effort(root, name), annotations={pods.EXTENDED_RESOURCES: json.dumps(spec)})
    return _with(pod, *command)


def filler(root: str, number: int, chance: random.Random) -> Pod:
    """At 3 to 30 MB a second."""
    return best_effort(root, f"filler-{number}", *_filling(chance.randrange(300_000, 3_000_000)))


def busy_filler(root: str) -> Pod:
    """It needs CPU for something else too, and fills so slowly that every step is waited for."""
    return best_effort(root, "busy", f"(while :; do :; done) & exec {shlex.join(_filling(250_000))}")


def reader(root: str) -> Pod:
    """Its file is read again and again, so that page cache counts as in use."""
    return best_effort(root, "reader", _CACHE)


def _filling(chunk: int) -> tuple[str, str, str]:
    """80 MB at once, and then so many bytes ten times a second."""
    return "/bin/busybox", "awk", _ANONYMOUS.format(chunk=chunk)


def _with(pod: Pod, *command: str) -> Pod:
    """One argument is a shell's script."""
    argv = ("/bin/sh", "-c", *command) if len(command) == 1 else command
    return dataclasses.replace(pod, containers=(dataclasses.replace(pod.containers[0], command=argv),))
