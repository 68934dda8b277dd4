"""Topologies from sysfs trees: SMT, sockets, sparse and CPU-less memory nodes, CPUs that are offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from koord.host import topology
from koord.host.kernelfile import ParseError
from koord.host.topology import CPU, NO_L3, MemoryNode
from koord.model import cpuset


def fill(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


def cpu(sys: Path, number: int, siblings: str, socket: int, l3: tuple[str, str] | None) -> None:
    """``l3``: (the CPUs that share it, its id, "" = the kernel gives none)."""
    base = f"devices/system/cpu/cpu{number}"
    fill(
        sys,
        {
            f"{base}/topology/core_cpus_list": siblings,
            f"{base}/topology/physical_package_id": str(socket),
            f"{base}/cache/index0/level": "1",
            f"{base}/cache/index0/shared_cpu_list": siblings,
        },
    )
    if l3 is not None:
        shared, number_text = l3
        fill(sys, {f"{base}/cache/index3/level": "3", f"{base}/cache/index3/shared_cpu_list": shared})
        if number_text:
            fill(sys, {f"{base}/cache/index3/id": number_text})


def lists(sys: Path, online: str, present: str, nodes: Mapping[int, str], memory: str) -> None:
    fill(sys, {"devices/system/cpu/online": online, "devices/system/cpu/present": present})
    for node, cpus in nodes.items():
        fill(sys, {f"devices/system/node/node{node}/cpulist": cpus})
    if nodes:
        fill(sys, {"devices/system/node/has_memory": memory})


@pytest.mark.parametrize("online", [None, "", "0-x"])
def test_without_any_cpu_there_is_no_topology(tmp_path: Path, online: str | None) -> None:
    if online is not None:
        fill(tmp_path, {"devices/system/cpu/online": online})
    with pytest.raises(ParseError) as caught:
        topology.read(tmp_path)
    assert caught.value.file.endswith("cpu/online")


@pytest.mark.parametrize("online", [None, "", "0-x"])
@pytest.mark.parametrize(("present", "directories"), [("0-3", ()), (None, (0, 1, 2, 3)), ("0-x", (0, 1, 2, 3))])
def test_which_cpus_are_online_other_files_tell_as_well(
    tmp_path: Path, online: str | None, present: str | None, directories: tuple[int, ...]
) -> None:
    texts = {"online": online, "present": present, "cpu3/online": "0", "cpu2/online": "1"}
    fill(tmp_path, {f"devices/system/cpu/{name}": text for name, text in texts.items() if text is not None})
    for number in directories:
        (tmp_path / f"devices/system/cpu/cpu{number}").mkdir(exist_ok=True)
    found = topology.read(tmp_path)
    assert (str(found.online), str(found.offline)) == ("0-2", "3" if present == "0-3" else "")
    said = f"{tmp_path}/devices/system/cpu/online names no CPU: those that are present and not switched off"
    assert [problem for problem in found.problems if said in problem]


@pytest.mark.parametrize(
    ("name", "text"),
    [("cpu/cpu0/topology/physical_package_id", "first"), ("cpu/cpu0/topology/physical_package_id", ""),
     ("cpu/cpu0/topology/core_cpus_list", "0;1"), ("cpu/cpu0/cache/index0/level/", ""), ("cpu/isolated", "some"),
     ("cpu/present", "-"), ("node/node0/cpulist", "all"), ("node/has_memory", "none")],
)  # fmt: skip
def test_what_cannot_be_read_is_a_problem_and_as_if_it_were_not_there(tmp_path: Path, name: str, text: str) -> None:
    cpu(tmp_path, 0, "0", 0, None)
    lists(tmp_path, "0", "0", {0: "0"}, "0")
    whole = topology.read(tmp_path)
    file = tmp_path / "devices/system" / name
    if name.endswith("/"):
        file.unlink()
        file.mkdir()
    else:
        fill(tmp_path, {f"devices/system/{name}": text})
    found = topology.read(tmp_path)
    assert (found.cpus, found.offline, found.isolated) == (whole.cpus, whole.offline, whole.isolated)
    assert [str(file) in problem for problem in found.problems] == [True]


@pytest.mark.parametrize(("text", "isolated"), [(None, ""), ("", ""), ("1-3", "1-2"), ("7", "")])
def test_isolated_cpus_are_those_that_are_online(tmp_path: Path, text: str | None, isolated: str) -> None:
    fill(tmp_path, {"devices/system/cpu/online": "0-2"})
    if text is not None:
        fill(tmp_path, {"devices/system/cpu/isolated": text})
    found = topology.read(tmp_path)
    assert (str(found.isolated), found.problems) == (isolated, ())


def test_two_sockets_with_smt_where_siblings_are_apart(tmp_path: Path) -> None:
    for number in range(8):
        socket = number % 4 // 2
        first = 2 * socket
        shared = f"{first}-{first + 1},{first + 4}-{first + 5}"
        cpu(tmp_path, number, f"{number % 4},{number % 4 + 4}", socket, (shared, str(socket)))
    lists(tmp_path, "0-7", "0-7", {0: "0-1,4-5", 1: "2-3,6-7"}, "0-1")
    found = topology.read(tmp_path)
    assert found.cpus[6] == CPU(id=6, core=2, socket=1, node=1, l3=1)
    assert {core: str(cpus) for core, cpus in found.cores.items()} == {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7"}
    assert found.smt
    assert str(found.online) == "0-7"
    assert found.by_id[3].node == 1
    assert found == topology.read(tmp_path)


def test_sparse_nodes_one_without_cpus_and_one_without_memory(tmp_path: Path) -> None:
    for number in range(4):
        cpu(tmp_path, number, str(number), 0, None)
    lists(tmp_path, "0-3", "0-3", {0: "0-1", 2: "2-3", 10: ""}, "0,10")
    found = topology.read(tmp_path)
    assert found.nodes == (
        MemoryNode(0, cpuset.parse("0-1"), True),
        MemoryNode(2, cpuset.parse("2-3"), False),
        MemoryNode(10, cpuset.EMPTY, True),
    )
    assert [one.node for one in found.cpus] == [0, 0, 2, 2]
    assert {one.l3 for one in found.cpus} == {NO_L3}
    assert not found.smt


def test_offline_cpus_are_named_and_their_sibling_stays(tmp_path: Path) -> None:
    cpu(tmp_path, 0, "0", 0, ("0,2-3", ""))
    cpu(tmp_path, 2, "2-3", 0, ("0,2-3", ""))
    cpu(tmp_path, 3, "2-3", 0, ("0,2-3", ""))
    lists(tmp_path, "0,2-3", "0-3", {0: "0-3"}, "0")
    found = topology.read(tmp_path)
    assert str(found.offline) == "1"
    assert [one.id for one in found.cpus] == [0, 2, 3]
    assert found.nodes[0].cpus == found.online
    assert [one.l3 for one in found.cpus] == [0, 0, 0]


def test_a_kernel_without_numa_or_topology_is_one_node_of_single_cores(tmp_path: Path) -> None:
    lists(tmp_path, "0-1", "0-1", {}, "")
    found = topology.read(tmp_path)
    assert found.cpus == (CPU(0, 0, 0, 0, NO_L3), CPU(1, 1, 0, 0, NO_L3))
    assert found.nodes == (MemoryNode(0, cpuset.parse("0-1"), True),)


def test_this_machine() -> None:
    found = topology.read(Path("/sys"))
    assert found.cpus
    assert found.online <= found.online | found.offline
