"""What koordlet leaves on a node is taken back on the real kernel, and best-effort containers start meanwhile.

cgroup v1 refuses a container with more CPUs than the tier has (EACCES), and a parent narrowed below its child. So the
values are left in the order in which koordlet writes them, and the tier is widened before all that is below it. Through
each front end, and where the reconciler is alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from integration.demo import pods
from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.processes import wait_for
from integration.harness.proxy import RULES, socket_of, start_proxy
from integration.node.conftest import MakeDaemon
from integration.node.daemon import Daemon
from integration.nri.classes import start

SOON_S = 60.0  # that only a broken daemon takes, also on a machine that is full
NARROW, TIER_US = "1", 118_100


@dataclass(frozen=True)
class Node:
    """``tier``: the BestEffort one; koord-qosd does not run yet."""

    tier: str
    daemon: Daemon
    containerd: Containerd
    front_end: str

    def leave(self, cgroup: str, files: Mapping[str, str]) -> None:
        for name, value in files.items():
            mount = cgroups.hierarchies()[name.partition(".")[0]]
            cgroups.write(mount / cgroup.lstrip("/") / name, value)


@pytest.fixture(params=["proxy", "nri", "reconciler"])
def node(request: pytest.FixtureRequest, kubepods: str, make_daemon: MakeDaemon) -> Iterator[Node]:
    containerd: Containerd = request.getfixturevalue("containerd2" if request.param == "nri" else "containerd1")
    nri = ("--nri-socket", str(containerd.layout.nri_socket)) if request.param == "nri" else ()
    daemon = make_daemon(RULES, nri, socket=containerd.socket)
    yield Node(f"{kubepods}/besteffort", daemon, containerd, request.param)
    containerd.remove_pods()


def test_best_effort_pods_have_all_again_and_newcomers_start(node: Node) -> None:
    root, everything = node.tier.rpartition("/")[0], cgroups.all_cpus()
    with Cri(node.containerd.socket) as client:
        running = start(client, pods.best_effort(root, "be-before"))
    pod = running.rpartition("/")[0]
    below = (cgroups.hierarchies()["cpuset"] / pod.lstrip("/")).iterdir()
    for cgroup in (*(f"{pod}/{each.name}" for each in below if each.is_dir()), pod, node.tier):
        node.leave(cgroup, {"cpuset.cpus": NARROW})
    node.leave(pod, {"cpu.shares": "1024", "cpu.cfs_quota_us": "80000"})
    node.leave(node.tier, {"cpu.cfs_quota_us": str(TIER_US)})
    with ExitStack() as stack:
        node.daemon.start()
        socket = node.containerd.socket
        if node.front_end == "proxy":
            directory = node.daemon.directory
            stack.callback(start_proxy(node.daemon.runtime, directory, directory / "hookserver.d").stop)
            socket = socket_of(directory)
        elif node.front_end == "nri":
            node.daemon.process.wait_for(lambda: "attached to containerd" in node.daemon.log, 20, "NRI")
        client = stack.enter_context(Cri(socket))
        newcomers = [start(client, pods.best_effort(root, f"be-{number}")) for number in range(3)]
        every = [node.tier, running, *newcomers]

        def is_whole() -> bool:
            tier = cgroups.read(node.tier)
            return tier.cfs_quota_us == -1 and {cgroups.read(each).cpuset_cpus for each in every} == {everything}

        wait_for(is_whole, SOON_S, "the tier and all below it to have everything")
        newcomers.append(start(client, pods.best_effort(root, "be-after")))
        wait_for(lambda: cgroups.read(newcomers[-1]).cpuset_cpus == everything, SOON_S, "the newcomer's CPUs")
    node.daemon.stop()
    rows = node.daemon.journal()
    left = {(row.cgroup, row.name, row.before, row.after) for row in rows if row.result == "leftover"}
    assert {
        (node.tier, "cpu_quota", -1, TIER_US),
        (node.tier, "cpuset_cpus", everything, NARROW),
        (pod, "cpuset_cpus", everything, NARROW),
        (pod, "cpu_shares", 2, 1024),
    } <= left
    assert not [row for row in rows if row.result.startswith("failed")], "the order is the kernel's"
    assert not node.daemon.complaints()
