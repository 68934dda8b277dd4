"""While best-effort pods are held to one CPU, every container that is created meanwhile starts, and is held as well.

Through each front end, and where the reconciler is alone; across a SIGKILL; and back. cgroup v1 refuses a container
with more CPUs than the group above it has: a tier that were narrowed would let none start. It refuses one with a larger
quota as well, so under a tier that has less no container has one of its own. Pods of the mid band live in the same tier
and keep all that is theirs: beside them best-effort containers are held one by one. N=50 in the soak, 5 in CI.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from integration.demo import pods
from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.pods import Pod
from integration.harness.processes import wait_for
from integration.harness.proxy import RULES, socket_of, start_proxy
from integration.node.conftest import MakeDaemon
from integration.node.daemon import Daemon
from integration.node.toys import HOLDS, LAST, SLICE_US
from integration.nri.classes import start
from koord.host import sched

COUNT = 50 if os.environ.get("SOAK") else 5
HELD = "1"
SOON_S = 60.0  # that only a broken daemon takes, also on a machine that is full


class Held:
    """The daemon with the toy, a client of its runtime, and the cgroups of all pods that were started."""

    def __init__(self, daemon: Daemon, client: Cri, root: str, edits: bool) -> None:
        self.daemon, self.client, self.root, self.edits = daemon, client, root, edits
        self.best_effort: list[str] = []
        self.others: list[str] = []

    @property
    def file(self) -> Path:
        return self.daemon.directory / "state" / HOLDS

    def write(self, text: str) -> None:
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(text)

    def hold(self, cpus: str) -> None:
        self.write(cpus)
        wait_for(lambda: self.pool() == (cpus or cgroups.all_cpus()), SOON_S, f"the BE pool to be {cpus or 'whole'}")

    def pool(self) -> str:
        """What best-effort pods have of the BE pool, as ``koordctl node`` has it."""
        found = {pool["name"]: pool["cpus"] for pool in self.daemon.koordctl("node").get("pools", ())}
        return str(found.get("best-effort", found.get("BE", "")))

    def restart(self) -> None:
        """Another daemon, once it knows the BE pool."""
        self.daemon.kill()
        self.daemon.start()
        wait_for(self.pool, SOON_S, "the BE pool to be known")

    def start(self, name: str, with_mid: bool = True) -> None:
        """One best-effort pod and one of the mid band; neither may fail to start."""
        cgroup = start(self.client, pods.best_effort(self.root, f"be-{name}"))
        if self.edits:
            assert self.cpus(cgroup) == self.pool(), "a newcomer has what the pool has"
        self.best_effort.append(cgroup)
        if with_mid:
            self.others.append(start(self.client, mid(self.root, f"mid-{name}")))

    @staticmethod
    def cpus(cgroup: str) -> str:
        return cgroups.read(cgroup).cpuset_cpus

    def settle(self, cpus: str) -> None:
        def rest() -> dict[str, str]:
            return {cgroup: found for cgroup in self.best_effort if (found := self.cpus(cgroup)) != cpus}

        wait_for(lambda: not rest(), SOON_S, f"all best-effort containers to have CPUs {cpus}: {rest()}")


def mid(root: str, name: str) -> Pod:
    """kubelet has it in the BestEffort tier as well; it is no best-effort pod to Koord."""
    pod = pods.best_effort(root, name)
    labels = {pods.QOS: "LS", "koordinator.sh/priority-class": "koord-mid"}
    spec = pod.annotations[pods.EXTENDED_RESOURCES].replace("batch-", "mid-")
    return dataclasses.replace(pod, labels=labels, annotations={pods.EXTENDED_RESOURCES: spec})


@pytest.fixture(params=["proxy", "nri", "reconciler"])
def held(request: pytest.FixtureRequest, kubepods: str, make_daemon: MakeDaemon) -> Iterator[Held]:
    """The reconciler alone is what there is while neither proxy nor NRI is."""
    runtime: Containerd = request.getfixturevalue("containerd2" if request.param == "nri" else "containerd1")
    nri = ("--nri-socket", str(runtime.layout.nri_socket)) if request.param == "nri" else ()
    daemon = make_daemon(RULES, nri, socket=runtime.socket, module="integration.node.toys")
    with ExitStack() as stack:
        stack.callback(runtime.remove_pods)
        daemon.start()
        socket = runtime.socket
        if request.param == "proxy":
            stack.callback(start_proxy(daemon.runtime, daemon.directory, daemon.directory / "hookserver.d").stop)
            socket = socket_of(daemon.directory)
        elif request.param == "nri":
            daemon.process.wait_for(lambda: "attached to containerd" in daemon.log, 20, "NRI")
        client = stack.enter_context(Cri(socket))
        yield Held(daemon, client, kubepods, edits=request.param != "reconciler")


def test_newcomers_start_and_are_held(held: Held) -> None:
    everything = cgroups.all_cpus()
    held.start("before")
    held.settle(everything)
    held.hold(HELD)
    held.settle(HELD)
    for number in range(COUNT):
        held.start(str(number))
    held.settle(HELD)
    wait_for(lambda: {held.cpus(cgroup) for cgroup in held.others} == {"1"}, SOON_S, "mid pods to have the LS pool")
    assert held.cpus(f"{held.root}/besteffort") == everything, "a tier is kubelet's"

    held.daemon.kill()
    held.daemon.start()
    wait_for(lambda: held.pool() == HELD, SOON_S, "the BE pool to be what it was")
    held.start("after")
    held.settle(HELD)
    newcomers = [row for row in held.daemon.journal() if row.pod != "default/be-before" and row.name == "cpuset_cpus"]
    assert not [row for row in newcomers if row.after == everything], "never wider in between"

    held.hold("")
    held.settle(everything)
    held.start("free")
    held.settle(everything)
    assert not held.daemon.complaints()


class Quotas:
    """Of the tier, of best-effort containers and of those of the mid band."""

    def __init__(self, held: Held) -> None:
        self.held, self.tier = held, f"{held.root}/besteffort"

    def read(self) -> tuple[int, list[int], set[int]]:
        best_effort = [cgroups.read(cgroup).cfs_quota_us for cgroup in self.held.best_effort]
        others = {cgroups.read(cgroup).cfs_quota_us for cgroup in self.held.others}
        return cgroups.read(self.tier).cfs_quota_us, best_effort, others

    def settle(self, tier_us: int, own_us: int, mid_us: int | None = None) -> None:
        expected = (tier_us, [own_us] * len(self.held.best_effort), {mid_us} if mid_us is not None else set())
        wait_for(lambda: self.read() == expected, SOON_S, f"{expected}: {self.read()}")

    def settle_divided(self) -> None:
        """A fifth of a CPU among all best-effort containers, and room for every limit of the mid band."""
        count = len(self.held.best_effort)

        def is_divided() -> bool:
            tier_us, best_effort, others = self.read()
            has_room = tier_us == 20_000 + 50_000 * len(self.held.others) and others == {50_000}
            return has_room and min(best_effort) > 0 and sum(best_effort) <= max(20_000, 1000 * count)

        wait_for(is_divided, SOON_S, f"quotas to be divided: {self.read()}")


def test_newcomers_start_under_a_small_quota(held: Held) -> None:
    """Each is made for half a CPU, and the tier has a fifth: there it is the tier's quota that bounds them."""
    quotas = Quotas(held)
    held.start("before", with_mid=False)
    quotas.settle(-1, 50_000)
    held.write("200m")
    quotas.settle(20_000, -1)
    for number in range(COUNT):
        held.start(str(number), with_mid=False)
    quotas.settle(20_000, -1)
    held.restart()
    held.start("after", with_mid=False)
    quotas.settle(20_000, -1)
    held.write("")
    quotas.settle(-1, 50_000)
    held.start("free", with_mid=False)
    quotas.settle(-1, 50_000)
    assert not [row for row in held.daemon.journal() if row.result.startswith("failed")], "the order is the kernel's"
    assert not held.daemon.complaints()


def test_beside_pods_of_the_mid_band_newcomers_start_and_are_held_one_by_one(held: Held) -> None:
    quotas = Quotas(held)
    held.start("before")
    quotas.settle(-1, 50_000, 50_000)
    held.write("200m")
    quotas.settle_divided()
    for number in range(COUNT):
        held.start(str(number))
    quotas.settle_divided()
    held.restart()
    held.start("after")
    quotas.settle_divided()
    held.write("")
    quotas.settle(-1, 50_000, 50_000)
    assert not [row for row in held.daemon.journal() if row.result.startswith("failed")], "the order is the kernel's"
    assert not held.daemon.complaints()


class Last:
    """How best-effort pods of two tiers, and other pods, run: shares, idle, slices of all threads."""

    def __init__(self, held: Held) -> None:
        self.held, self.cpu = held, cgroups.hierarchies()["cpu"]

    def read(self, cgroup: str) -> tuple[bool, int, set[int | None]]:
        pod = self.cpu / os.path.dirname(cgroup.strip("/"))
        threads = (self.cpu / cgroup.strip("/") / "tasks").read_text().split()
        idle = int((pod / "cpu.idle").read_text()) if (pod / "cpu.idle").exists() else 0
        return int((pod / "cpu.shares").read_text()) <= 3, idle, {sched.slice_us(int(each)) for each in threads}

    def settle(self, is_last: bool) -> None:
        own_us = sched.slice_us(0)
        longest_us = SLICE_US if sched.has_slices() else own_us
        expected = (True, 1, {longest_us}) if is_last else (False, 0, {own_us})

        def rest() -> dict[str, object]:
            found = {cgroup: self.read(cgroup) for cgroup in self.held.best_effort}
            return {cgroup: each for cgroup, each in found.items() if each != expected}

        wait_for(lambda: not rest(), SOON_S, f"all best-effort pods to be {expected}: {rest()}")
        assert {self.read(cgroup)[1:] == (0, {own_us}) for cgroup in self.held.others} <= {True}, "nobody else is"


def test_newcomers_start_last_and_in_long_slices(held: Held) -> None:
    """With the lowest weight beside pods of the mid band, ``cpu.idle``, and slices of their threads."""
    last = Last(held)
    held.start("before")
    last.settle(False)
    held.write(LAST)
    last.settle(True)
    for number in range(COUNT):
        held.start(str(number))
    last.settle(True)
    held.restart()
    held.start("after")
    last.settle(True)
    held.write("")
    last.settle(False)
    held.start("free")
    last.settle(False)
    assert not [row for row in held.daemon.journal() if row.result.startswith("failed")]
    assert not held.daemon.complaints()
