"""``make demo``: pods of three QoS classes through the proxy, what the kernel then holds for them, and CPU suppression.

Exits 0 only if every value that an edit asked for was read back from the kernel's files, before and after the proxy
was killed, and if suppression held best-effort work and left nothing behind.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.demo import pods, suppression
from integration.demo.stage import CGROUP_ROOT, Stage, stage
from integration.harness.cgroups import Values
from integration.harness.pods import Pod, container_resources
from koord.pb.cri import api_pb2 as pb

COLUMNS = ("POD", "QOS", "VALUE", "KUBELET ASKED", "RUNTIME GOT")
UNLIMITED_BYTES = 1 << 62
ASKED = (("pods",), ("explain", "pod", "batch-after"), ("plan",), ("journal", "--limit", "8"))


@dataclass(frozen=True, slots=True)
class Row:
    pod: str
    qos: str
    value: str
    asked: str
    edited: str
    kernel: str

    @property
    def holds(self) -> bool:
        """Does the kernel hold what the runtime was told? Nothing told (0 or empty) is the kernel's own default."""
        return self.edited in ("-", self.kernel)

    def cells(self) -> tuple[str, ...]:
        return (self.pod, self.qos, self.value, self.asked, self.edited, self.kernel, "ok" if self.holds else "DIFFERS")


def main() -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="koord-demo-") as name, stage(Path(name)) as played:
        print(f"Node: {played.node.description}. The pods are created as kubelet creates them, through the proxy.\n")
        rows = _run(played, [pods.latency_sensitive_reserved, pods.latency_sensitive, pods.best_effort])
        killed, took_ms = played.kill_proxy()
        print(f"\nSIGKILL of koord-runtime-proxy (pid {killed}): the next call was answered after {took_ms:.0f} ms.\n")
        rows += _run(played, [lambda root: pods.best_effort(root, "batch-after")])
        for command in ASKED:
            _koordctl(played.inspect_socket, command)
        problems = _suppress(played)
        played.cri.remove_all()
    differing = sum(not row.holds for row in rows)
    took_s = time.monotonic() - began
    where = "in simulated files" if played.node.simulated else "in the kernel"
    held = f"{len(rows) - differing} of {len(rows)} values hold {where}"
    for problem in problems:
        print(f"\nDIFFERS: {problem}")
    print(f"\n{held}; everything was removed; {took_s:.1f} s.")
    return 1 if differing or problems else 0


def _suppress(played: Stage) -> Sequence[str]:
    if played.node.simulated:
        print("\nCPU suppression is left out: simulated pods use no CPU.")
        return []
    return suppression.play(played, lambda command: _koordctl(played.inspect_socket, command))


def _koordctl(socket: Path, command: Sequence[str]) -> None:
    """Ask the daemon as an operator would."""
    print(f"\n$ koordctl {' '.join(command)}", flush=True)
    subprocess.run([sys.executable, "-m", "koordctl", *command, "--socket", str(socket)], check=True)


def _run(played: Stage, makers: Sequence[Callable[[str], Pod]]) -> list[Row]:
    rows = [row for make in makers for row in _start(played, make(CGROUP_ROOT))]
    columns = (*COLUMNS, "SIMULATED FILE" if played.node.simulated else "KERNEL HOLDS", "")
    widths = [max(len(column), *(len(row.cells()[i]) for row in rows)) for i, column in enumerate(columns)]
    for cells in (columns, *(row.cells() for row in rows)):
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    return rows


def _start(played: Stage, pod: Pod) -> list[Row]:
    """Start one pod through the proxy; returns kubelet's values, the runtime's and the kernel's."""
    made = played.start(pod)
    rows = []
    for container in pod.containers:
        cgroup = made[container.name]
        asked = container_resources(pod, container)
        got = played.runtime.container_status(cgroup.rpartition("/")[2]).status.resources.linux
        kernel = played.node.read(cgroup)
        rows += _rows(pod, asked, got, kernel)
    return rows


def _rows(pod: Pod, asked: pb.LinuxContainerResources, got: pb.LinuxContainerResources, kernel: Values) -> list[Row]:
    told = (pod.name, pod.labels[pods.QOS])
    memory = "-1" if kernel.memory_limit_bytes > UNLIMITED_BYTES else str(kernel.memory_limit_bytes)
    return [
        Row(*told, "cpuset.cpus", asked.cpuset_cpus or "-", got.cpuset_cpus or "-", kernel.cpuset_cpus),
        Row(*told, "cpu.shares", str(asked.cpu_shares), str(got.cpu_shares), str(kernel.cpu_shares)),
        Row(*told, "cpu.cfs_quota_us", _or_dash(asked.cpu_quota), _or_dash(got.cpu_quota), str(kernel.cfs_quota_us)),
        Row(*told, "memory.limit_in_bytes", _or_dash(asked.memory_limit_in_bytes),
            _or_dash(got.memory_limit_in_bytes), memory),
    ]  # fmt: skip


def _or_dash(number: int) -> str:
    return str(number) if number else "-"


if __name__ == "__main__":
    sys.exit(main())
