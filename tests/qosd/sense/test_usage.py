"""Usage of node, groups and system: vectors, what is missing, and whose use is whose."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from koord.model.qos import QoSClass
from koord.model.slo import CgroupBase, CgroupPath, HostApplication
from qosd.model.metric import Scope
from qosd.sense.node import NodeCollector, NodeRow, NumaRow
from qosd.sense.row import Row
from qosd.sense.system import SystemCollector, SystemRow, numa_memory
from qosd.sense.targets import SampleTargets, Tiers
from qosd.sense.tick import NotApplicable
from qosd.sense.usage import USAGE, UsageCollector
from tests.qosd.sense.trees import MEMORY, TIERS, World, named, pod, run

NAN = math.nan
MEMINFO = (
    "MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 600 kB\nActive(file): 100 kB\nInactive(file): 50 kB\n"
    "SReclaimable: 20 kB\n"
)


def node_of(world: World) -> NodeCollector:
    return NodeCollector(world.host)


def stat(*per_cpu: str) -> str:
    total = [sum(column) for column in zip(*(map(int, line.split()) for line in per_cpu), strict=True)]
    lines = ["cpu  " + " ".join(map(str, total)), *(f"cpu{cpu} {line}" for cpu, line in enumerate(per_cpu))]
    return "\n".join([*lines, "intr 1 2", ""])


def test_node_cpu_leaves_out_idle_iowait_and_steal(v2: World) -> None:
    v2.put("proc/meminfo", MEMINFO)
    v2.put("proc/stat", stat("10 10 10 1000 50 10 10 70 0 0"))
    node = node_of(v2)
    first = named(NodeRow.panel, run(v2, node)[NodeRow.panel][""])
    assert "node_cpu_usage_cores" not in first and first["node_memory_usage_bytes"] == 400 * 1024
    v2.clock.advance(2)
    v2.put("proc/stat", stat("110 20 30 9000 90 20 20 90 0 0"))
    assert named(NodeRow.panel, run(v2, node)[NodeRow.panel][""]) == {
        "node_cpu_usage_cores": 0.75,
        "node_cpu_steal_cores": 0.1,
        "node_cpu_iowait_cores": 0.2,
        "node_memory_usage_bytes": 400 * 1024,
        "node_memory_with_page_cache_bytes": 700 * 1024,
        "node_page_cache_bytes": 150 * 1024,
        "node_memory_total_bytes": 1000 * 1024,
        "node_swap_free_bytes": 0,
    }


def test_swap_that_is_free(v2: World) -> None:
    v2.put("proc/meminfo", MEMINFO + "SwapCached: 5 kB\nSwapTotal: 90 kB\nSwapFree: 70 kB\n")
    v2.put("proc/stat", stat("0 0 0 0 0 0 0 0"))
    assert named(NodeRow.panel, run(v2, node_of(v2))[NodeRow.panel][""])["node_swap_free_bytes"] == 70 * 1024


def numa_meminfo(node: int) -> str:
    return "".join(f"Node {node} {line}\n" for line in MEMINFO.splitlines())


def test_numa_nodes_with_gaps_without_cpus_and_without_meminfo(v2: World) -> None:
    v2.put("proc/meminfo", MEMINFO)
    v2.put("sys/devices/system/node/has_generic_initiator", "5\n")
    for number, cpus in ((0, "0"), (2, "1-2"), (4, ""), (5, "")):
        v2.put(f"sys/devices/system/node/node{number}/meminfo", numa_meminfo(number))
        v2.put(f"sys/devices/system/node/node{number}/cpulist", cpus + "\n")
    v2.put("sys/devices/system/node/node7/cpulist", "9\n")
    v2.put("proc/stat", stat(*["0 0 0 0 0 0 0 0"] * 3))
    node = node_of(v2)
    run(v2, node)
    v2.clock.advance(1)
    v2.put("proc/stat", stat("50 0 0 0 0 0 0 0", "100 0 0 0 0 0 0 0", "0 0 25 0 0 0 0 0"))
    v2.put("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal: nonsense\n")
    rows = run(v2, node)[NumaRow.panel]
    used = (1000 - 300 - 100 - 50 - 20) * 1024.0
    assert {name: list(row) for name, row in rows.items()} == {
        "0": pytest.approx([0.5, used]),
        "2": pytest.approx([1.25, NAN], nan_ok=True),
        "4": pytest.approx([NAN, used], nan_ok=True),
    }


def test_the_only_numa_node_is_the_node(v2: World) -> None:
    v2.put("proc/meminfo", MEMINFO)
    v2.put("proc/stat", stat("0 0 0 0 0 0 0 0"))
    v2.put("sys/devices/system/node/node0/meminfo", "unread")
    assert list(run(v2, node_of(v2))[NumaRow.panel]["0"]) == pytest.approx([NAN, 530 * 1024.0], nan_ok=True)


def test_a_node_without_proc_is_not_applicable(v2: World) -> None:
    with pytest.raises(NotApplicable, match="proc/stat"):
        run(v2, node_of(v2))


def fill(world: World, seconds: int, usage: Mapping[str, tuple[float, int]]) -> None:
    """Groups by (cores, bytes of anonymous memory) after ``seconds``."""
    for cgroup, (cores, anon) in usage.items():
        world.usage(cgroup, int(cores * seconds * 1_000_000), MEMORY | {"active_anon": anon - 1003}, charged=anon)


def node_uses(world: World, seconds: int, cores: float, used_kb: int) -> None:
    world.put("proc/stat", stat(f"{int(cores * seconds * 100)} 0 0 0 0 0 0 0"))
    world.put("proc/meminfo", MEMINFO.replace("MemAvailable: 600", f"MemAvailable: {1000 - used_kb}"))


A, B = pod("a"), pod("b", QoSClass.BE, tier="/kubepods/besteffort")
DAEMON = HostApplication(name="daemon", qos="LS")
INSIDE = HostApplication(name="in", cgroup_path=CgroupPath(base=CgroupBase.KUBEPODS, relative_path="in"))
USED = {
    "/kubepods": (2.0, 400_000),
    "/kubepods/burstable": (1.0, 200_000),
    "/kubepods/besteffort": (0.75, 150_000),
    A.cgroup: (1.0, 200_000),
    A.containers[1].cgroup: (1.0, 200_000),
    B.cgroup: (0.75, 150_000),
    B.containers[1].cgroup: (0.75, 150_000),
    "/host-latency-sensitive/daemon": (0.5, 100_000),
    "/kubepods/in": (0.25, 50_000),
}


def system_after(
    world: World, usage: Mapping[str, tuple[float, int]], tiers: Tiers = TIERS
) -> tuple[SystemCollector, Row]:
    """Two batches of node, groups and system, a second apart; the node uses 4 cores and 800 kB."""
    world.targets = SampleTargets.of((A, B), tiers, (DAEMON, INSIDE))
    node, groups = node_of(world), UsageCollector(world.host)
    system = SystemCollector(world.host)
    for second in (1, 2):
        node_uses(world, second, 4.0, 800)
        fill(world, second, usage)
        run(world, node)
        run(world, groups)
        row = run(world, system)[SystemRow.panel][""]
        world.clock.advance(1)
    return system, row


def test_system_is_what_neither_kubepods_nor_applications_use(world: World) -> None:
    system, row = system_after(world, USED)
    memory = 800 * 1024 - 400_000 - 100_000
    assert list(row) == pytest.approx([1.5, memory, 0.25, 50_000, 0, 1.0])
    assert system.unreadable_pods == ()


def test_what_an_unreadable_pod_uses_is_unattributed_not_the_systems(world: World) -> None:
    system, row = system_after(world, {cgroup: use for cgroup, use in USED.items() if cgroup != A.cgroup})
    assert list(row) == pytest.approx([1.5, 800 * 1024 - 500_000, 1.25, 250_000, 1, 0.0])
    assert system.unreadable_pods == ("default/a",)


def test_without_a_kubepods_root_the_pods_stand_in_for_it(world: World) -> None:
    _, row = system_after(world, {cgroup: use for cgroup, use in USED.items() if cgroup != "/kubepods"})
    assert list(row) == pytest.approx([4 - 1.75 - 0.5, 800 * 1024 - 450_000, NAN, NAN, 0, 1.0], nan_ok=True)


def test_system_is_never_below_zero(world: World) -> None:
    _, row = system_after(world, USED | {"/kubepods": (9.0, 4_000_000)})
    assert list(row[:2]) == [0.0, 0.0]


def test_ended_pods_are_not_missed(world: World) -> None:
    world.targets = SampleTargets.of((pod("x", state="SANDBOX_NOTREADY"),), TIERS, ())
    system = SystemCollector(world.host)
    run(world, system)
    assert system.unreadable_pods == ()


def test_samples_of_another_batch_are_not_subtracted(world: World) -> None:
    system_after(world, USED)
    row = run(world, SystemCollector(world.host))[SystemRow.panel][""]
    assert list(row) == pytest.approx([NAN, NAN, NAN, NAN, 2, 0.0], nan_ok=True)


V1_NUMA = b"total=1 N0=1 N1=0\nanon=1 N0=1 N1=0\nhierarchical_total=90 N0=60 N1=30\nhierarchical_file=60 N0=50 N1=10\n"
V1_NUMA += b"hierarchical_anon=25 N0=5 N1=20\nhierarchical_unevictable=5 N0=5 N1=0\n"
V2_NUMA = (
    b"anon N0=9 N1=9\nfile N0=70 N1=70\ninactive_anon N0=4096 N1=0\nactive_anon N0=1 N1=2\nunevictable N0=0 N1=3\n"
)


@pytest.mark.parametrize(
    ("version", "text", "page_bytes", "expected"),
    [
        (1, V1_NUMA, 4096, {"0": 10 * 4096, "1": 20 * 4096}),
        (1, V1_NUMA, 65536, {"0": 10 * 65536, "1": 20 * 65536}),
        (2, V2_NUMA, 65536, {"0": 4097, "1": 5}),
    ],
)
def test_memory_of_a_cgroup_by_numa_node(version: int, text: bytes, page_bytes: int, expected: object) -> None:
    assert numa_memory(text, version, page_bytes) == expected


def test_one_nonsensical_group_costs_its_own_sample_only(world: World) -> None:
    world.targets = SampleTargets.of((A, B), TIERS, ())
    fill(world, 1, USED)
    world.put(world.path(A.cgroup, "memory.usage_in_bytes" if world.version == 1 else "memory.current"), "much\n")
    rows = run(world, UsageCollector(world.host))[USAGE[Scope.POD].panel]
    assert set(rows) == {B.cgroup}
