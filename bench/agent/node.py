"""The node that the daemon is measured on: a private containerd with sleeping pods, some of which can be made busy."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.protection.node import Cgroup
from integration.harness import cgroups, containerd
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod
from integration.harness.processes import HarnessError
from integration.nri.classes import start

LABELS = ("LS", "LSR", "BE")
SERVING = ("/bin/sh", "-c", "while :; do i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done; sleep 0.1; done")
"""A twentieth of a CPU."""
SPINNING = ("/bin/sh", "-c", "while :; do :; done")
"""As much as a CPU has, or the quota lets it."""
SPINNING_SERVICES = 5
"""One service of so many spins."""
BATCH_PRIORITY = 5500


@dataclass(frozen=True, slots=True)
class Running:
    """A pod and the cgroup of its container."""

    pod: Pod
    cgroup: Cgroup

    @property
    def is_best_effort(self) -> bool:
        return self.pod.labels["koordinator.sh/qosClass"] == "BE"

    @property
    def priority(self) -> int:
        return BATCH_PRIORITY if self.is_best_effort else 2 * BATCH_PRIORITY


@dataclass(frozen=True, slots=True)
class Node:
    """``runtime``: the CRI socket. Services have a limit of a tenth of a CPU."""

    runtime: Path
    pods: Sequence[Running]

    @property
    def names(self) -> Sequence[str]:
        return [each.pod.name for each in self.pods]

    def check_measured(self, containers: int, daemon: str) -> None:
        """Raises HarnessError, which names the ``daemon``, unless so many containers are all of them."""
        if containers != len(self.pods):
            raise HarnessError(f"{daemon}: {containers} of {len(self.pods)} containers are measured")

    @contextlib.contextmanager
    def busy(self, count: int) -> Iterator[None]:
        """So many pods have something to do: best-effort pods always, services now and then."""
        with contextlib.ExitStack() as stack:
            for number, each in enumerate(self.pods[:count]):
                spins = each.is_best_effort or number % SPINNING_SERVICES == 0
                process = subprocess.Popen(SPINNING if spins else SERVING)
                stack.callback(process.wait)
                stack.callback(process.kill)
                each.cgroup.join([process.pid])
            yield


@contextlib.contextmanager
def node(directory: Path, pods: int) -> Iterator[Node]:
    """``pods`` pods of all classes in turn; all of it is gone at the end."""
    release, cgroup = containerd.installed(), f"/koord-bench-{os.getpid()}"
    with (
        containerd.private(release, directory / "c") as runtime,
        cgroups.root(cgroup) as root,
        Cri(runtime.socket) as client,
    ):
        made = [_pod(number, f"{root}/kubepods") for number in range(pods)]
        try:
            yield Node(runtime.socket, [Running(pod, Cgroup(start(client, pod))) for pod in made])
        finally:
            client.remove_all()
            for pod in made:
                cgroups.remove(pod.cgroup_parent)


def _pod(number: int, root: str) -> Pod:
    label = LABELS[number % len(LABELS)]
    limits = (0, 0) if label == "BE" else (100, 64 << 20)
    container = Container("main", cpu_limit_milli=limits[0], memory_limit_bytes=limits[1], command=("sleep", "86400"))
    return Pod(f"pod-{number}", (container,), labels={"koordinator.sh/qosClass": label}, cgroup_root=root)
