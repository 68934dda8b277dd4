"""The kernel's own files (v1), as the collectors of what it counts read them: memory events, tasks, a pod's network."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from integration.harness import cgroups
from integration.harness.processes import wait_for
from koord.host.cgroup import Tree, detect
from koord.host.reader import KeptFiles
from qosd.sense.host import CollectorHost
from qosd.sense.memoryevents import MemoryEventsCollector
from qosd.sense.pids import PidsCollector
from qosd.sense.podnetwork import PodNetworkCollector
from qosd.sense.store import SampleStore
from qosd.sense.table import PANELS
from qosd.sense.targets import SampleTargets, Tiers
from qosd.sense.tick import Collector, Tick
from tests.qosd.sense.trees import pod

TOP = f"/koord-counted-{os.getpid()}"
POD = pod("counted", tier=TOP)
SANDBOX, CONTAINER = (container.cgroup for container in POD.containers)
TARGETS = SampleTargets.of((POD,), Tiers(TOP), ())
SLOW_NS = 10_000_000_000
SENDING = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
while True:
    client.sendall(b"x")
    time.sleep(0.01)
"""


class Sampled:
    """What a collector measures of the pod and its container; each reading as if every panel were due."""

    def __init__(self, make: Callable[[CollectorHost], Collector], host: CollectorHost) -> None:
        self._collector, self._store, self._at_ns = make(host), SampleStore(PANELS), 0

    def read(self) -> Mapping[str, float]:
        self._at_ns += SLOW_NS
        for panel, rows in self._collector.collect(Tick(self._at_ns, TARGETS, self._store)):
            self._store.put(panel, self._at_ns, rows)
        return {metric.name: value for metric, samples in self._store.newest().items() for value in samples.values()}


@pytest.fixture
def host(real_machine: None) -> Iterator[CollectorHost]:
    tree = detect(Path("/sys/fs/cgroup"), Path("/proc/self/mountinfo").read_text())
    with cgroups.root(TOP), KeptFiles(100, lambda text: None) as files:
        for cgroup in (SANDBOX, CONTAINER):
            cgroups.make(cgroup)
        yield CollectorHost(tree, files, time.monotonic_ns, lambda: (0,), 100, 4096)


def directory(tree: Tree, controller: str) -> Path:
    return tree.directory(CONTAINER, controller)


@contextlib.contextmanager
def running(file: Path, *argv: str) -> Iterator[None]:
    """A process that joins ``file``'s cgroup before it runs."""
    process = subprocess.Popen(["sh", "-c", f'echo $$ > {file} && exec "$@"', "sh", *argv])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_an_oom_kill_and_what_came_before_it(host: CollectorHost) -> None:
    events = Sampled(MemoryEventsCollector, host)
    memory = directory(host.tree, "memory")
    cgroups.write(memory / "memory.limit_in_bytes", str(16 << 20))
    for _ in range(2):
        events.read()
    with running(memory / "cgroup.procs", sys.executable, "-c", "bytearray(64 << 20)"):
        wait_for(lambda: b"oom_kill 1" in (memory / "memory.oom_control").read_bytes(), 10, "an OOM kill")
    found = events.read()
    assert found["container_oom_kills_per_s"] > 0 and found["container_memory_max_events_per_s"] > 0


def test_tasks(host: CollectorHost) -> None:
    tasks = Sampled(PidsCollector, host)
    assert tasks.read()["container_pids"] == 0
    with running(directory(host.tree, "pids") / "cgroup.procs", "sleep", "60"):
        wait_for(lambda: tasks.read()["container_pids"] == 1, 5, "the process to be counted")
        assert tasks.read()["pod_pids"] == 1


def test_a_network_of_a_pods_own(host: CollectorHost) -> None:
    network = Sampled(PodNetworkCollector, host)
    sandbox = host.tree.directory(SANDBOX) / "cgroup.procs"
    assert network.read() == {}
    with running(sandbox, "sleep", "60"):
        wait_for(sandbox.read_text, 5, "the process")
        assert network.read() == {}, "of a process in the host's network"
    sending = 'ip link set lo up && exec "$0" -c "$1"'
    with running(sandbox, "unshare", "--net", "sh", "-c", sending, sys.executable, SENDING):
        wait_for(lambda: network.read().get("pod_tcp_segments_sent_per_s", 0) > 1, 10, "segments to be counted")
        found = network.read()
    assert found["pod_network_sent_bytes_per_s"] == 0, "loopback does not count"
    assert found["pod_tcp_segments_retransmitted_per_s"] >= 0
    assert network.read() == {}
