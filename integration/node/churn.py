"""Pods that come and go at random on a real containerd, and a writer that knows nothing of Koord.

Every slot holds a pod or none, and a step makes of the one the other, as kubelet would: the pod's cgroup, the sandbox,
its containers; and back. Invariants: a slot belongs to one thread; an error in a thread is raised when the churn ends;
at the end no pod and no cgroup of one is left.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc

from integration.harness import cgroups
from integration.harness.cri import Cri
from integration.harness.pods import Pod, container_resources
from integration.node import kinds

WORKERS = 3
Result = TypeVar("Result")
QUOTA = "cpu.cfs_quota_us"
ForeignFile = tuple[str, str, Sequence[str]]
"""Controller, file, and the values to choose from."""
FOREIGN: Sequence[ForeignFile] = (
    ("cpu", "cpu.shares", ("2", "100", "1024", "3000")),
    ("cpu", QUOTA, ("-1", "5000", "10000", "15000")),
    ("cpuset", "cpuset.cpus", ("0", "1", "0-1")),
    ("memory", "memory.limit_in_bytes", ("-1", "67108864", "134217728")),
)


@dataclass(slots=True)
class Tally:
    """What happened, counted under a lock of its own."""

    created: int = 0
    removed: int = 0
    resized: int = 0
    foreign: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str) -> None:
        with self.lock:
            setattr(self, name, getattr(self, name) + 1)

    def text(self) -> str:
        besides = f"{self.resized} resized, {self.foreign} foreign writes"
        return f"{self.created} pods created, {self.removed} removed, {besides}"


class Node:
    """A node as kubelet fills it. ``root``: its cgroup for pods. ``foreign``: another program's writes there."""

    def __init__(self, runtime: Path, root: str, seed: int, foreign: Sequence[ForeignFile] = FOREIGN) -> None:
        self.runtime, self.root, self.seed, self.foreign = runtime, root, seed, foreign
        self.tally = Tally()
        self.living: dict[str, tuple[Pod, str]] = {}
        """Pods with their sandbox ids, by ``namespace/name``."""

    def create(self, cri: Cri, pod: Pod) -> None:
        cgroups.make_pod(pod)
        sandbox_id = _as_kubelet(lambda: _run(cri, pod))
        self.living[f"{pod.namespace}/{pod.name}"] = pod, sandbox_id
        self.tally.add("created")

    def remove(self, cri: Cri, key: str) -> None:
        """The pod with its cgroups, unless another thread removes it already."""
        pod, sandbox_id = self.living.pop(key, (None, ""))
        if pod is not None:
            cri.remove(sandbox_id)
            cgroups.remove(pod.cgroup_parent)
            self.tally.add("removed")

    def resize(self, cri: Cri, key: str, chance: random.Random) -> None:
        """Kubelet resizes a container in place; the runtime writes its values anew."""
        pod, _ = self.living[key]
        found = cri.containers({"io.kubernetes.pod.uid": pod.uid})
        if found:
            resources = container_resources(pod, pod.containers[0])
            resources.cpu_shares = chance.randint(2, 2048)
            _as_kubelet(lambda: cri.update_container(found[0].id, resources))
            self.tally.add("resized")

    def clear(self, cri: Cri) -> None:
        """Remove every pod."""
        for key in list(self.living):
            self.remove(cri, key)


def _as_kubelet(call: Callable[[], Result], attempts: int = 3) -> Result:
    """runc reads shares back (v1), and fails if another program wrote in between; then kubelet makes the call again."""
    try:
        return call()
    except grpc.RpcError as error:
        if attempts == 1 or "allowed cpu-shares" not in str(error):
            raise
        return _as_kubelet(call, attempts - 1)


def _run(cri: Cri, pod: Pod) -> str:
    """The pod's sandbox; of one that does not come about nothing is left."""
    try:
        return cri.run(pod)[0]
    except grpc.RpcError:
        for item in cri.pods({"io.kubernetes.pod.uid": pod.uid}):
            cri.remove(item.id)
        raise


@contextlib.contextmanager
def churning(node: Node, slots: int, foreign_hz: float = 0.0, pause_s: float = 0.0) -> Iterator[None]:
    """Pods come and go while the block runs; then all are removed. ``foreign_hz``: rate of another program's writes."""
    until = threading.Event()
    with ThreadPoolExecutor(WORKERS + 1) as threads:
        running: list[Future[None]] = [
            threads.submit(_work, node, number, range(number, slots, WORKERS), pause_s, until)
            for number in range(WORKERS)
        ]
        if foreign_hz:
            running.append(threads.submit(_write, node, foreign_hz, until))
        try:
            yield
        finally:
            until.set()
        for future in running:
            future.result()
    with Cri(node.runtime) as cri:
        node.clear(cri)


def _work(node: Node, worker: int, slots: range, pause_s: float, until: threading.Event) -> None:
    chance = random.Random(f"{node.seed}/{worker}")
    with Cri(node.runtime) as cri:
        for step in _steps(until):
            key = f"default/slot-{chance.choice(slots)}"
            if key not in node.living:
                node.create(cri, kinds.any_pod(chance, key.removeprefix("default/"), node.root))
            elif chance.random() < 0.15:
                node.resize(cri, key, chance)
            else:
                node.remove(cri, key)
            if pause_s and step % 2:
                time.sleep(chance.random() * pause_s)


def _steps(until: threading.Event) -> Iterator[int]:
    step = 0
    while not until.is_set():
        yield step
        step += 1


def _write(node: Node, hz: float, until: threading.Event) -> None:
    """Writes random values into random files; refusals of the kernel and missing files do not matter."""
    chance = random.Random(f"{node.seed}/foreign")
    mounts = cgroups.hierarchies()
    while not until.wait(chance.random() * 2 / hz):
        controller, name, values = chance.choice(node.foreign)
        groups = _groups(mounts[controller] / node.root.strip("/"), not_pods=name == QUOTA)
        with contextlib.suppress(OSError, IndexError):
            cgroups.write(chance.choice(groups) / name, chance.choice(values))
            node.tally.add("foreign")


def _groups(top: Path, not_pods: bool) -> list[Path]:
    """The directories of containers and pods; with a pod's quota lowered no container of it could start (v1)."""
    found = [Path(directory) for directory, _, _ in os.walk(top)]
    below = [path for path in found if any(part.startswith("pod") for part in path.relative_to(top).parts)]
    return [path for path in below if not (not_pods and path.name.startswith("pod"))]
