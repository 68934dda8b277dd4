"""``make cluster``: a whole cluster with one real node on this machine, until Ctrl-C, SIGTERM or the terminal's end.

It is the one that the quick-start guides run on: ``helm install`` works there. Prints how to use it. Invariant: nothing
is left afterwards, however often the signal comes: the first one ends the start or the stay at the next step, further
ones find the clean-up under way and are only answered.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from integration import build, toolchain
from integration.cluster.controlplane import ControlPlane
from integration.cluster.quickstart import cluster, images
from integration.cluster.quickstart.cluster import Cluster
from integration.harness import machine
from integration.harness.processes import HarnessError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet", "helm")


class Ending:
    """Takes the signals that end the program, from ``listen`` on."""

    def __init__(self) -> None:
        self._arrived = threading.Event()

    def listen(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._take)

    def arrived(self) -> bool:
        return self._arrived.is_set()

    def wait(self) -> None:
        self._arrived.wait()

    def _take(self, number: int, frame: FrameType | None) -> None:
        """A handler may run inside of a write to the same stream, and a terminal that hung up refuses one."""
        text = b"still removing everything\n" if self.arrived() else b"removing everything\n"
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), text)
        self._arrived.set()


def main() -> int:
    if reasons := machine.missing():
        print(f"a cluster cannot run here: {'; '.join(reasons)}", file=sys.stderr)
        return 1
    try:
        programs = {name: build.program(name) for name in PROGRAMS}
        kept = [images.python(), *images.ours()]
    except (build.BuildError, toolchain.ToolchainError) as error:
        print(error, file=sys.stderr)
        return 1
    ending = Ending()
    ending.listen()
    try:
        _run(ending, sorted({path.parent for path in programs.values()}), kept)
    except HarnessError as error:
        print(error, file=sys.stderr)
        return 1
    print("everything was removed", flush=True)
    return 0


def _run(ending: Ending, path: Sequence[Path], archives: Sequence[Path]) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="koord-cluster-") as name, contextlib.ExitStack() as stack:
        plane = ControlPlane(Path(name) / "plane", cluster.PLANE)
        stack.callback(plane.close)
        plane.start()
        if ending.arrived():
            return
        own = images.stand_ins(Path(name))
        running = stack.enter_context(cluster.node(plane, Path(name), [*archives, *own]))
        if ending.arrived():
            return
        print(_description(running, path, time.monotonic() - began), flush=True)
        ending.wait()


def _description(running: Cluster, path: Sequence[Path], took_s: float) -> str:
    plane, kubelet = running.plane, running.kubelet
    rows = [(part.name, str(part.pid), f"{part.start_s:.1f} s", str(part.log)) for part in plane.parts]
    rows += [
        ("containerd", str(running.containerd.pid), "", str(running.containerd.log)),
        ("koord-runtime-proxy", str(running.proxy.pid), "", str(running.proxy.log)),
        (f"kubelet {kubelet.endpoint}", str(kubelet.pid), "", str(kubelet.log)),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(
        [
            f"node {kubelet.name} is Ready after {took_s:.0f} s; API server at {plane.server_url}",
            *table,
            "",
            f"export KUBECONFIG={plane.admin}",
            f"export PATH={':'.join(map(str, path))}:$PATH",
            "",
            "helm install koordinator charts/koordinator",
            "",
            f"Images that there are: {', '.join(running.images)}, localhost/busybox:1 (imagePullPolicy Never).",
            f"The node's own files: nsenter --target {os.getpid()} --mount. Ctrl-C removes everything.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
