"""Memory exhaustions on this node, under koord-qosd: ``python -m integration.guest.inside.exhaust PORT COUNT SEED``.

kubelet must not run: pods are made directly at the runtime, and this serves kubelet's list of them on PORT, which
koord-qosd reads. systemd limits the slice of all pods meanwhile, and every CPU is busy. Exits with 0 and prints JSON:
``summary``, ``courses`` of fast fillers, ``busy``, the course of a slow one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

from integration.harness.cri import Cri
from integration.harness.processes import Process, wait_for
from integration.node import exhaustion
from integration.node.exhaustion import LIMIT, Memory, Node
from integration.node.podlist import PodList
from integration.storm.groups import Slices

CONTAINERD = Path("/run/containerd/containerd.sock")
JOURNAL = Path("/var/lib/koord/journal.db")
MOUNT = Path("/sys/fs/cgroup")
SLICE = "kubepods.slice"
METRICS = "http://127.0.0.1:9316/metrics"
LISTED = b'koord_qosd_kubelet_seconds_count{path="/pods",status="200"}'
KNOWN_S = 120.0
"""As long as an emulated daemon may take to see the first pod."""


def main(port: str, count: str, seed: str) -> int:
    with ExitStack() as stack:
        listed = PodList()
        stack.enter_context(listed.served(int(port)))
        client = stack.enter_context(Cri(CONTAINERD, timeout_s=120))
        client.remove_all()
        stack.callback(client.remove_all)
        stack.enter_context(limited())
        node = Node(client, Slices(), f"/{SLICE}", Memory(MOUNT / SLICE, 2), listed, JOURNAL)
        wait_for(lambda: _is_known(node), KNOWN_S, "koord-qosd to know the latency-sensitive pod")
        stack.enter_context(every_cpu_busy(Path("/run/busy.log")))
        web = Memory(MOUNT / node.web.cgroup_parent.strip("/") / f"cri-containerd-{node.web_id}.scope", 2)
        courses = exhaustion.exhaust_often(node, int(count), int(seed), web)
        busy = exhaustion.exhaust(node, exhaustion.busy_filler(node.root))
        assert node.runs(node.web_id)
        found = {
            "summary": exhaustion.summary(courses, int(seed)),
            "courses": [dataclasses.asdict(each) for each in courses],
            "busy": dataclasses.asdict(busy),
        }
    json.dump(found, sys.stdout)
    return 0


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """The slice of all pods, by systemd, which would give back what is written behind its back."""
    _set_memory_max(str(LIMIT))
    try:
        yield
    finally:
        _set_memory_max("infinity")


def _set_memory_max(value: str) -> None:
    subprocess.run(["systemctl", "set-property", "--runtime", SLICE, f"MemoryMax={value}"], check=True)


@contextlib.contextmanager
def every_cpu_busy(log: Path) -> Iterator[None]:
    spinning = [Process(["/bin/sh", "-c", "while :; do :; done"], log) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()


def _is_known(node: Node) -> bool:
    """Has the runtime told of it, and the list of its priority?"""
    argv = ("koordctl", "explain", "pod", node.web.name, "-o", "json")
    is_told = subprocess.run(argv, capture_output=True, check=False).returncode == 0
    with contextlib.suppress(OSError), urlopen(METRICS) as page:
        return is_told and LISTED in page.read()
    return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
