"""A node with Koord in place for tests of faults: kubelet behind the proxy, koord-qosd, static pods that run.

Invariant of every fault (``Node.unharmed``): kubelet stays healthy and never calls a runtime down that answers, the
pods keep their containers, and a pod that comes afterwards is edited.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from integration.guest import kubelet, pods, programs
from integration.guest.guest import Guest
from integration.guest.inside.faults import CONTAINERD, PROXY, QOSD
from integration.harness.processes import HarnessError
from integration.kubelet.staticpods import BATCH, PODS
from integration.storm.ledger import RULES

KUBELET = "kubelet.service"
UNITS = (PROXY, QOSD, CONTAINERD)
PROXY_SOCKET = "koord-runtime-proxy.socket"
NAMES = tuple(pod.name for pod in PODS)
BE = PODS[2]
BE_EDITED = {"cpu.weight": "20", "cpu.max": "50000 100000", "memory.max": str(96 << 20)}
BE_TIER = f"{kubelet.KUBEPODS}/kubepods-besteffort.slice"
KUBELET_DROP_IN = """\
[Unit]
Wants=koord-runtime-proxy.socket koord-runtime-proxy.service
After=koord-runtime-proxy.socket koord-runtime-proxy.service
"""
COMPLAINTS = "container runtime is down|PLEG is not healthy"
STARTING = "pleg has yet to be successful"
"""What every kubelet says of itself once."""
SYNC_S = 5.0
"""kubelet's own period of asking the runtime how it is: it may call one down for so long after it is back."""
BACK_S = 600.0
_JOURNAL = ("journalctl", "--no-pager", "-q", "-o", "json", "--output-fields=MESSAGE")
assert BATCH["kubernetes.io/batch-memory"] == "96Mi"


def set_up(guest: Guest) -> Node:
    """Programs, units and kubelet are enabled and run; the pods are Ready when this returns."""
    programs.put(guest)
    kubelet.configure(guest, programs.SOCKET)
    guest.sh("mkdir -p /etc/systemd/system/kubelet.service.d")
    guest.put("/etc/systemd/system/kubelet.service.d/90-koord.conf", KUBELET_DROP_IN)
    guest.do("systemctl", "enable", "--quiet", *programs.UNITS, KUBELET)
    programs.start(guest)
    pods.put(guest, PODS)
    guest.do("systemctl", "start", KUBELET)
    node = Node(guest)
    node.settle()
    return node


def set_up_for_load(guest: Guest) -> None:
    """Programs and rules for the load client (``inside/load.py``), which plays kubelet; nothing is started.

    kubelet tells the runtime which name servers a pod gets; the load client leaves it to the node's file.
    """
    guest.sh("mkdir -p /etc/koord && touch /etc/resolv.conf")
    guest.put("/etc/koord/qosd-rules.yaml", RULES)
    programs.put(guest)


class Node:
    """``running``: container and restart count of each pod, as they were when the node was last settled."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.running: dict[str, tuple[str, int]] = {}
        self._complained: frozenset[str] = frozenset()
        self._runtime_back_s = 0.0
        self._numbers = itertools.count()
        self._newcomer = ""

    def settle(self) -> None:
        """Wait for the pods, and take them as what must stay."""
        self.guest.wait(lambda: set(self._running()) >= set(NAMES), "the static pods", BACK_S)
        self.running = self._running()
        self._runtime_back_s = 0.0  # the boot may be another
        self.forget_complaints()

    def unharmed(self, within_s: float = BACK_S) -> None:
        """The invariant; at most ``within_s`` for a new pod. The newcomer is removed again, without waiting for it."""
        took_s = self.newcomer(within_s)
        assert self._running() == self.running
        assert self.guest.get(10248, "/healthz") == "ok"
        assert self.complaints() == []
        print(f"  a new pod was edited after {took_s:.1f} s")

    def newcomer(self, within_s: float = BACK_S) -> float:
        """Seconds until a BE pod that is made now holds edited values."""
        before, began_s = self.edited(), time.monotonic()
        self.dismiss()
        suffix = f"-{next(self._numbers)}"
        pods.put(self.guest, [BE], suffix)
        self._newcomer = BE.name + suffix
        self.guest.wait(lambda: self.edited() - before, "a new pod with edited values", within_s)
        return time.monotonic() - began_s

    def dismiss(self) -> None:
        if self._newcomer:
            pods.remove(self.guest, [self._newcomer])
            self._newcomer = ""

    def edited(self) -> set[str]:
        """The containers of BE pods that hold what Koord makes of them."""
        conditions = " && ".join(f'[ "$(cat $s/{name} 2>/dev/null)" = "{text}" ]' for name, text in BE_EDITED.items())
        loop = f"for s in {BE_TIER}/*/cri-containerd-*.scope; do {conditions} && echo $s; done; true"
        return set(self.guest.do("sh", "-c", loop).split())

    def complaints(self) -> list[str]:
        """What kubelet has said of the runtime since ``forget_complaints``, and would make it NotReady.

        An emulated containerd takes so long to start that kubelet says it without Koord as well; see ``wait_runtime``.
        """
        excused_until_s = self._runtime_back_s + SYNC_S
        said = [line for at_s, line in self.logged(KUBELET, COMPLAINTS) if at_s > excused_until_s]
        return [line for line in said if line not in self._complained and STARTING not in line]

    def forget_complaints(self) -> None:
        """What kubelet has said so far is not this test's doing."""
        self._complained |= set(self.complaints())

    def wait_runtime(self) -> None:
        """Until containerd answers on its own socket. What kubelet said of it meanwhile is containerd's own doing."""
        self.guest.wait(lambda: self.answers(socket=kubelet.CONTAINERD), "an answer of containerd itself", BACK_S)
        self._runtime_back_s = float(self.guest.text("/proc/uptime").split()[0])

    def answers(self, connect_s: float = 3.0, socket: str = programs.SOCKET) -> bool:
        """Whether a new connection to the socket is served (the proxy passes any gRPC call, also containerd's)."""
        argv = ("ctr", "-a", socket, "--connect-timeout", f"{connect_s:g}s", "version")
        return self.guest.run("timeout", f"{connect_s + 10:g}", *argv).returncode == 0

    def wait_answer(self, timeout_s: float = BACK_S) -> None:
        self.guest.wait(self.answers, "an answer through the proxy", timeout_s)

    def signal(self, name: str, *units: str) -> None:
        self.guest.do("systemctl", "kill", f"--signal={name}", "--kill-whom=main", *units)

    def wait_replaced(self, unit: str, pid: int) -> None:
        """Until the unit's main process is another one, and active."""
        self.guest.wait(
            lambda: self.guest.main_pid(unit) not in (0, pid) and self.guest.active(unit), f"{unit} anew", BACK_S
        )

    def wait_active(self, *units: str) -> None:
        for unit in units:
            self.guest.wait(lambda unit=unit: self.guest.active(unit), f"{unit} active", BACK_S)  # type: ignore[misc]

    def logged(self, unit: str, pattern: str) -> Iterator[tuple[float, str]]:
        """The lines with ``pattern`` that the unit has logged since its last start, with seconds since the boot."""
        invocation = self.guest.do("systemctl", "show", "--property=InvocationID", "--value", unit).strip()
        of_it = f"_SYSTEMD_INVOCATION_ID={invocation}"
        for entry in map(json.loads, self.guest.run(*_JOURNAL, f"--grep={pattern}", of_it).stdout.splitlines()):
            yield int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6, entry["MESSAGE"]

    @contextmanager
    def full(self, mount: str) -> Iterator[None]:
        """The file system at ``mount`` has not one free block in the block."""
        file = f"{mount}/koord-filler"
        try:
            self.guest.do("python3", "-c", _FILL, file)
            yield
        finally:
            self.guest.do("rm", "-f", file)

    def _running(self) -> dict[str, tuple[str, int]]:
        """Of the pods that stay: newcomers come and go."""
        try:
            running = kubelet.running(self.guest)
        except (HarnessError, ValueError):
            return {}
        return {name: (each.container_id, each.restarts) for name, each in running.items() if name in NAMES}


_FILL = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
end = 0
for size in (1 << 28, 1 << 24, 1 << 20, 1 << 16, 1 << 12):
    while True:
        try:
            os.posix_fallocate(file, end, size)
        except OSError:
            break
        end += size
"""
