"""CPU suppression on the kernel and a real containerd: who is held and who is not, by each policy, and everything back.

Busy pods of every class on a machine of two CPUs or more. cgroup v1.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest

from integration.demo import pods
from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod
from integration.harness.processes import wait_for
from integration.node.conftest import MakeDaemon
from integration.node.daemon import Daemon, Row
from integration.node.test_held_best_effort import mid
from integration.nri.classes import start

BUSY = ("/bin/sh", "-c", "while :; do :; done")
SOON_S = 15.0
ON = "spec: {resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: %s, cpuSuppressThresholdPercent: %d}}\n"
PRESSURE = ON % ("cpuset", 65) + "node: {cpuSuppress: {policy: pressure}}\n"


def busy(pod: Pod) -> Pod:
    containers = tuple(dataclasses.replace(each, command=BUSY) for each in pod.containers)
    return dataclasses.replace(pod, containers=containers)


def batch_with_requests(root: str) -> Pod:
    """A best-effort pod that kubelet has in the Burstable tier."""
    return Pod(
        "batch", (Container("worker", cpu_request_milli=500, command=BUSY),), labels={pods.QOS: "BE"}, cgroup_root=root
    )


def service_without_requests(root: str) -> Pod:
    """A latency-sensitive pod that kubelet has in the BestEffort tier."""
    return Pod("guest", (Container("main", command=BUSY),), labels={pods.QOS: "LS"}, cgroup_root=root)


class Node:
    """Pods on a containerd, and the daemon."""

    def __init__(self, daemon: Daemon, client: Cri, root: str) -> None:
        self.daemon, self.client, self.root = daemon, client, root
        self.cgroups: dict[str, str] = {}

    def start(self, *wanted: Pod) -> None:
        for pod in wanted:
            self.cgroups[pod.name] = start(self.client, pod)

    def cpu_ns(self, name: str) -> int:
        return int((cgroups.hierarchies()["cpuacct"] / self.cgroups[name].strip("/") / "cpuacct.usage").read_text())

    def cores(self, seconds: float, *names: str) -> Mapping[str, float]:
        before, began = {name: self.cpu_ns(name) for name in names}, time.monotonic()
        time.sleep(seconds)
        passed_ns = (time.monotonic() - began) * 1e9
        return {name: (self.cpu_ns(name) - before[name]) / passed_ns for name in names}

    def throttled_periods(self, cgroup: str) -> int:
        lines = (cgroups.hierarchies()["cpu"] / cgroup.strip("/") / "cpu.stat").read_text().splitlines()
        return int(dict(line.split() for line in lines)["nr_throttled"])

    def quota_us(self, cgroup: str) -> int:
        return cgroups.read(cgroup).cfs_quota_us

    @property
    def tier(self) -> str:
        return f"{self.root}/besteffort"

    def says(self, name: str = "cpuSuppress") -> str:
        strategies = self.daemon.koordctl("node")["strategies"]
        return next(str(each["sentence"]) for each in strategies if each["name"] == name)

    def writes(self, path_part: str) -> list[Row]:
        return [row for row in self.daemon.journal() if path_part in row.path and row.result == "done"]


MakeNode = Callable[[str], Node]


@pytest.fixture
def make_node(kubepods: str, make_daemon: MakeDaemon, containerd1: Containerd) -> Iterator[MakeNode]:
    with ExitStack() as stack:
        stack.callback(containerd1.remove_pods)

        def make(rules: str) -> Node:
            daemon = make_daemon(rules, socket=containerd1.socket)
            return Node(daemon, stack.enter_context(Cri(containerd1.socket)), kubepods)

        yield make


def test_at_best_efforts_floor_others_in_its_tier_keep_what_is_theirs(make_node: MakeNode) -> None:
    """A pod of the mid band is bound by its limit of half a CPU alone, and an LS pod without a limit by nothing."""
    node = make_node(ON % ("cfsQuota", 0))
    node.start(busy(mid(node.root, "mid")), busy(pods.best_effort(node.root, "be")))
    node.daemon.start()
    wait_for(lambda: node.quota_us(node.cgroups["be"]) == 2000, SOON_S, "the batch container to be at its floor")
    wait_for(lambda: node.quota_us(node.tier) == 52_000, SOON_S, "the tier to have room for the limit of the mid pod")
    node.start(service_without_requests(node.root))
    wait_for(lambda: node.quota_us(node.tier) == -1, SOON_S, "the tier to have no bound: the LS pod has no limit")
    cgroups_of_others = (node.tier, node.cgroups["guest"])
    throttled_before = [node.throttled_periods(cgroup) for cgroup in cgroups_of_others]
    be_before = node.throttled_periods(node.cgroups["be"])
    assert node.cores(3.0, "be")["be"] < 0.04
    assert node.throttled_periods(node.cgroups["be"]) > be_before
    assert [node.throttled_periods(cgroup) for cgroup in cgroups_of_others] == throttled_before
    assert [node.quota_us(node.cgroups[name]) for name in ("guest", "mid")] == [-1, 50_000], "their own limits"
    assert "covers default/be" in node.says("bestEffort")
    node.daemon.stop()
    node.daemon.restore()
    assert (node.quota_us(node.tier), node.quota_us(node.cgroups["mid"])) == (-1, -1)


@pytest.mark.parametrize("policy", ["cfsQuota", "cpuset"])
def test_the_formula_on_this_machine(make_node: MakeNode, policy: str) -> None:
    node = make_node(ON % (policy, 60))
    node.start(busy(pods.latency_sensitive(node.root)), busy(pods.best_effort(node.root, "be")))
    node.daemon.start()
    count = len(range(int(cgroups.all_cpus().rpartition("-")[2]) + 1))
    if policy == "cfsQuota":
        most_us = 60_000 * count - 95_000
        wait_for(lambda: 0 < node.quota_us(node.tier) <= max(2000, most_us), SOON_S, "the tier's quota")
        assert "less" in node.says() and "of the system, leave" in node.says()
    else:
        wait_for(lambda: "best-effort pods have CPUs" in node.says(), SOON_S, "a choice of CPUs")
        assert cgroups.read(node.tier).cpuset_cpus == cgroups.all_cpus(), "a tier keeps all: its children may start"
    node.daemon.koordctl("disable", "cpuSuppress")
    wait_for(lambda: node.quota_us(node.tier) == -1, SOON_S, "the tier to be given back")
    assert not [row for row in node.daemon.journal() if row.result.startswith("failed")]


def test_by_pressure_best_effort_has_the_lowest_weight_wherever_kubelet_has_it(make_node: MakeNode) -> None:
    node = make_node(PRESSURE)
    web, batch = busy(pods.latency_sensitive(node.root)), batch_with_requests(node.root)
    node.start(web, batch, busy(pods.best_effort(node.root, "be")))
    before = cgroups.read(batch.cgroup_parent).cpu_shares
    node.daemon.start()
    wait_for(lambda: cgroups.read(batch.cgroup_parent).cpu_shares == 2, SOON_S, "the lowest weight")
    assert (before, cgroups.read(web.cgroup_parent).cpu_shares) == (512, 512)
    assert "lowest weight" in node.says()
    node.daemon.stop()
    assert cgroups.read(batch.cgroup_parent).cpu_shares == 2, "stopping is not disabling"
    node.daemon.restore()
    assert cgroups.read(batch.cgroup_parent).cpu_shares == before


def test_a_foreign_writer_is_no_saw_tooth(make_node: MakeNode) -> None:
    """Another writer puts kubelet's value back into the tier each second for a minute."""
    node = make_node(ON % ("cfsQuota", 0))
    node.start(busy(pods.best_effort(node.root, "be")))
    node.daemon.start()
    file = cgroups.hierarchies()["cpu"] / node.tier.strip("/") / "cpu.cfs_quota_us"
    wait_for(lambda: node.quota_us(node.tier) == 2000, SOON_S, "the floor")
    for _ in range(60):
        cgroups.write(file, "-1")
        time.sleep(1)
    assert node.quota_us(node.cgroups["be"]) == 2000, "enforced where nobody fights"
    assert node.cores(2.0, "be")["be"] < 0.04
    assert "container by container, since another writer keeps setting the tier's quota" in node.says("bestEffort")
    contested = node.daemon.koordctl("node")["contested"]
    assert [each["path"] for each in contested] == [str(file)]
    node.daemon.stop()
    after_first = node.writes("/besteffort/cpu.cfs_quota_us")[1:]
    assert len(after_first) <= 2, "two a minute"
