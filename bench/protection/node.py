"""A node for the measurement: a private containerd with real pods, and the processes of service and storms in them.

    kubepods              1024 shares for each CPU, as kubelet gives it
      burstable           the service's pod; and batch pods with requests, where batch work comes as such
      besteffort          2 shares; batch pods without requests

The pods are real ones, so that koord-qosd sees them as on any node; their containers sleep, and the processes of the
bench join the containers' cgroups. Invariant: at the end, however it comes, processes, pods and cgroups are gone.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.protection import storms
from integration.demo import pods as demo
from integration.harness import cgroups, containerd
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod, cpu_shares
from integration.nri.classes import start

SLEEPING = ("sleep", "86400")
SERVICE_MILLI, BATCH_MILLI = 1000, 500
STORM = 16
"""Processes of a storm."""
PORT = 17_317
PLACES = ("besteffort", "burstable")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A container's cgroup, in every hierarchy."""

    path: str

    def join(self, pids: Sequence[int]) -> None:
        for mount in cgroups.hierarchies().values():
            directory = mount / self.path.strip("/")
            if directory.exists():
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        cgroups.write(directory / "cgroup.procs", str(pid))

    def cpu_ns(self) -> int:
        return int((cgroups.hierarchies()["cpuacct"] / self.path.strip("/") / "cpuacct.usage").read_text())

    def waited_us(self) -> int:
        """PSI cpu some, in total."""
        text = (cgroups.hierarchies()["unified"] / self.path.strip("/") / "cpu.pressure").read_text()
        return int(text.partition("total=")[2].split()[0])


class Storm:
    """Processes of one kind of best-effort work, stopped or running; its work is counted in shared memory."""

    def __init__(self, kind: str, directory: Path, stack: contextlib.ExitStack) -> None:
        counter = directory / f"{kind}.count"
        counter.write_bytes(bytes(storms.WORD.size * STORM))
        command = [sys.executable, "-m", "bench.protection.storms", kind, str(STORM), str(counter)]
        self._process = subprocess.Popen(command)
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)
        file = stack.enter_context(counter.open("r+b"))
        self._words = stack.enter_context(mmap.mmap(file.fileno(), storms.WORD.size * STORM))
        self.kind = kind
        time.sleep(0.3)
        self.stop()

    @property
    def pids(self) -> list[int]:
        return family(self._process.pid)

    @property
    def rounds(self) -> int:
        return sum(struct.unpack(f"@{STORM}Q", self._words[:]))

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def run(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@dataclass
class Node:
    """``jobs``: by place and kind, the cgroup of a batch pod's container."""

    runtime: Path
    directory: Path
    root: str
    web: Cgroup
    jobs: Mapping[tuple[str, str], Cgroup]
    storms: Mapping[str, Storm] = field(default_factory=dict)

    def place(self, where: str) -> None:
        """All storms into the pods of that tier."""
        for kind, storm in self.storms.items():
            self.jobs[where, kind].join(storm.pids)

    def blow(self, kind: str | None) -> None:
        """That storm alone; None: none of them."""
        for name, storm in self.storms.items():
            if name != kind:
                storm.stop()
        if kind is not None:
            self.storms[kind].run()

    def tier(self, name: str) -> Cgroup:
        return Cgroup(f"{self.root}/{name}")


def family(pid: int) -> list[int]:
    """The process with all that descend from it."""
    found = [pid]
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += family(int(child))
    return found


def busy_ticks() -> int:
    """Of all CPUs, as koord-qosd counts them: user, nice, system, irq, softirq."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(words[place]) for place in (0, 1, 2, 5, 6))


@contextlib.contextmanager
def node(directory: Path, command: Sequence[str]) -> Iterator[Node]:
    """The node, with the service that ``command`` starts, and all storms stopped."""
    root = f"/koord-protect-{os.getpid()}/kubepods"
    release = containerd.installed()
    with contextlib.ExitStack() as stack:
        runtime = stack.enter_context(containerd.private(release, directory / "c"))
        stack.enter_context(cgroups.root(root.rpartition("/")[0]))
        for tier in ("", "/burstable", "/besteffort"):
            cgroups.make(root + tier)
        _share(root, {"": 1024 * (os.cpu_count() or 1), "/besteffort": 2})
        client = stack.enter_context(Cri(runtime.socket))
        stack.callback(client.remove_all)
        web = Cgroup(start(client, _service(root)))
        jobs = {
            (place, kind): Cgroup(start(client, _batch(root, place, kind))) for place in PLACES for kind in storms.KINDS
        }
        _share(root, {"/burstable": cpu_shares(SERVICE_MILLI + BATCH_MILLI * len(storms.KINDS))})
        made = Node(runtime.socket, directory, root, web, jobs)
        served = subprocess.Popen(command)
        stack.callback(served.wait)
        stack.callback(served.kill)
        time.sleep(0.3)
        web.join(family(served.pid))
        made.storms = {kind: Storm(kind, directory, stack) for kind in storms.KINDS}
        made.place("besteffort")
        yield made


def _service(root: str) -> Pod:
    container = Container("web", cpu_request_milli=SERVICE_MILLI, command=SLEEPING)
    labels = {demo.QOS: "LS", "koordinator.sh/priority-class": "koord-prod"}
    return Pod("web", (container,), labels=labels, cgroup_root=root)


def _batch(root: str, place: str, kind: str) -> Pod:
    milli = BATCH_MILLI if place == "burstable" else 0
    container = Container("worker", cpu_request_milli=milli, command=SLEEPING)
    labels = {demo.QOS: "BE", "koordinator.sh/priority-class": "koord-batch"}
    return Pod(f"{kind}-{place}", (container,), labels=labels, cgroup_root=root)


def _share(root: str, shares: Mapping[str, int]) -> None:
    for below, value in shares.items():
        cgroups.write(cgroups.hierarchies()["cpu"] / f"{root}{below}".strip("/") / "cpu.shares", str(value))
