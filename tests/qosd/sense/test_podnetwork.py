"""What pods send and receive: of their own network namespaces, on both cgroup versions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

import msgspec
import pytest

from qosd.model.snapshot import PodFacts, PodView
from qosd.sense.podnetwork import PodNetworkCollector, PodNetworkRow
from qosd.sense.targets import SampleTargets
from qosd.sense.tick import NotApplicable
from tests.qosd.sense.trees import TIERS, World, named, pod, run

HOST, OWN, OTHER = "net:[4026531840]", "net:[4026532001]", "net:[4026532002]"
A = pod("a")
SANDBOX, CONTAINER = (container.cgroup for container in A.containers)


def process(world: World, pid: int, namespace: str, count: int = 0, drops: int = 0, again: int = 0) -> None:
    """A process in a namespace that has counted ``count`` of everything, on each of two interfaces."""
    link = world.root / f"proc/{pid}/ns/net"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(namespace)
    row = f"{count} {count} 0 {drops} 0 0 0 0 {2 * count} {2 * count} 0 0 0 0 0 0"
    lines = "".join(f"{name}: {row}\n" for name in ("lo", "eth0", "net1"))
    world.put(f"proc/{pid}/net/dev", f"Inter-|\n face |\n{lines}")
    world.put(f"proc/{pid}/net/snmp", f"Tcp: InSegs OutSegs RetransSegs\nTcp: 1 {count} {again}\n")


def put(world: World, cgroup: str, *pids: int) -> None:
    world.put(world.path(cgroup, "cgroup.procs"), "".join(f"{pid}\n" for pid in pids))


def rates(world: World, collector: PodNetworkCollector) -> Mapping[str, Mapping[str, float]]:
    """By pod and figure."""
    world.clock.advance(10)
    rows = run(world, collector)[PodNetworkRow.panel]
    return {
        subject: {
            name.removeprefix("pod_").removesuffix("_per_s"): value
            for name, value in named(PodNetworkRow.panel, row).items()
        }
        for subject, row in rows.items()
    }


@pytest.fixture
def network(world: World) -> PodNetworkCollector:
    (world.root / "proc/self/ns").mkdir(parents=True)
    (world.root / "proc/self/ns/net").symlink_to(HOST)
    world.targets = SampleTargets.of((A,), TIERS, ())
    return PodNetworkCollector(world.host)


def test_rates_of_a_pod_without_loopback(world: World, network: PodNetworkCollector) -> None:
    put(world, SANDBOX, 0, 7, 8)  # 0: not to be seen from here
    process(world, 7, OWN, 100)
    assert rates(world, network) == {A.cgroup: {}}
    process(world, 7, OWN, 600, drops=5, again=20)
    assert rates(world, network) == {
        A.cgroup: {
            "network_received_bytes": 100.0,
            "network_sent_bytes": 200.0,
            "network_received_packets": 100.0,
            "network_sent_packets": 200.0,
            "network_drops": 1.0,
            "tcp_segments_sent": 50.0,
            "tcp_segments_retransmitted": 2.0,
        }
    }


def test_a_counter_that_fell_costs_its_own_figure(world: World, network: PodNetworkCollector) -> None:
    put(world, SANDBOX, 7)
    process(world, 7, OWN, 100, drops=9)
    rates(world, network)
    process(world, 7, OWN, 100)
    assert rates(world, network)[A.cgroup].keys() == {
        "network_received_bytes",
        "network_sent_bytes",
        "network_received_packets",
        "network_sent_packets",
        "tcp_segments_sent",
        "tcp_segments_retransmitted",
    }


def test_where_the_runtime_keeps_no_sandbox_process_a_containers_is_asked(
    world: World, network: PodNetworkCollector
) -> None:
    """CRI-O's default."""
    put(world, CONTAINER, 9)
    process(world, 9, OWN, 100)
    for _ in range(2):
        seen = rates(world, network)
    assert seen[A.cgroup]["network_received_bytes"] == 0.0


@pytest.mark.parametrize("again", ["another namespace", "nobody in between"])
def test_nothing_is_counted_across_two_namespaces(world: World, network: PodNetworkCollector, again: str) -> None:
    """kubelet makes a sandbox again in the pod's cgroup."""
    put(world, SANDBOX, 7)
    process(world, 7, OWN, 100)
    rates(world, network)
    if again == "nobody in between":
        world.path(SANDBOX, "cgroup.procs").unlink()
        assert rates(world, network) == {}
    anew = replace_sandbox(A)
    world.targets = SampleTargets.of((anew,), TIERS, ())
    put(world, anew.containers[0].cgroup, 8)
    process(world, 8, OTHER if again == "another namespace" else OWN, 900)
    assert rates(world, network) == {A.cgroup: {}}
    assert rates(world, network)[A.cgroup]["network_sent_bytes"] == 0.0


def replace_sandbox(view: PodView) -> PodView:
    sandbox, *others = view.containers
    anew = msgspec.structs.replace(sandbox, id="anew", cgroup=f"{view.cgroup}/anew")
    return msgspec.structs.replace(view, containers=(anew, *others))


def test_a_pod_in_the_hosts_network_has_none_of_its_own(world: World, network: PodNetworkCollector) -> None:
    told = msgspec.structs.replace(pod("told"), facts=PodFacts(host_network=True))
    world.targets = SampleTargets.of((A, told), TIERS, ())
    put(world, SANDBOX, 7)
    process(world, 7, HOST, 100)
    put(world, told.containers[0].cgroup, 8)
    process(world, 8, OWN, 100)
    assert rates(world, network) == {}


@pytest.mark.parametrize("lacks", ["", "cgroup.procs", "ns", "net/dev", "net/snmp"])
def test_a_pod_that_vanishes_costs_its_own_samples_only(world: World, network: PodNetworkCollector, lacks: str) -> None:
    other = pod("b")
    world.targets = SampleTargets.of((A, other), TIERS, ())
    for view, pid in ((A, 7), (other, 8)):
        put(world, view.containers[0].cgroup, pid)
        process(world, pid, f"net:[{pid}]", 100)
    vanished = world.path(SANDBOX, lacks) if lacks == "cgroup.procs" else world.root / "proc/7" / lacks
    shutil.rmtree(vanished) if vanished.is_dir() else vanished.unlink()
    assert rates(world, network) == {other.cgroup: {}}


@pytest.mark.parametrize("file", ["dev", "snmp"])
def test_nonsense_costs_its_pod_only(world: World, network: PodNetworkCollector, file: str) -> None:
    put(world, SANDBOX, 7)
    process(world, 7, OWN, 100)
    assert rates(world, network)
    world.put(f"proc/7/net/{file}", "a\nb\nnonsense\n")
    assert rates(world, network) == {}


def test_no_file_stays_open(world: World, network: PodNetworkCollector) -> None:
    """One of a namespace would keep it, and its interfaces, after the pod has gone."""
    put(world, SANDBOX, 7)
    process(world, 7, OWN, 100)
    before = os.listdir("/proc/self/fd")
    rates(world, network)
    assert (os.listdir("/proc/self/fd"), len(world.files)) == (before, 0)


def test_who_may_not_look_into_namespaces_is_told_why(world: World) -> None:
    class Refusing(PodNetworkCollector):
        def _namespace(self, pid: str) -> str:
            raise PermissionError(13, "Permission denied", f"/proc/{pid}/ns/net")

    with pytest.raises(NotApplicable, match=r"CAP_SYS_PTRACE.*/proc/self/ns/net"):
        run(world, Refusing(world.host))
