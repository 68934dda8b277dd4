"""Memory of NUMA nodes from sysfs trees: huge pages of every size, gaps, no memory, no NUMA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from koord.host import numamemory
from koord.host.kernelfile import ParseError
from koord.host.numamemory import NUMAMemory

NODE = "sys/devices/system/node"
MIB, GIB = 1 << 20, 1 << 30


def fill(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


def read(root: Path) -> tuple[NUMAMemory, ...]:
    return numamemory.read(root / "sys", root / "proc")


@pytest.mark.parametrize(
    ("name", "text"),
    [("node0/meminfo", "Node 0 MemFree: 1 kB"), ("node0/meminfo", "Node 0 MemTotal: much"),
     ("node0/hugepages/hugepages-2048kB/nr_hugepages", "some")],
)  # fmt: skip
def test_a_broken_file_is_named(tmp_path: Path, name: str, text: str) -> None:
    fill(tmp_path, {f"{NODE}/node0/meminfo": "Node 0 MemTotal: 1024 kB", f"{NODE}/{name}": text})
    with pytest.raises(ParseError) as caught:
        read(tmp_path)
    assert caught.value.file == f"{tmp_path}/{NODE}/{name}"


def test_two_nodes_with_huge_pages(tmp_path: Path) -> None:
    meminfo = "Node {0} MemTotal:       {1} kB\nNode {0} MemFree:        {2} kB"
    fill(
        tmp_path,
        {
            f"{NODE}/node0/meminfo": meminfo.format(0, 8 << 20, 99),
            f"{NODE}/node1/meminfo": meminfo.format(1, 4 << 20, 99),
            f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages": "512",
            f"{NODE}/node0/hugepages/hugepages-1048576kB/nr_hugepages": "2",
            f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages": "0",
            f"{NODE}/node1/hugepages/hugepages-64kB/nr_hugepages": "16",
        },
    )
    first, second = read(tmp_path)
    assert first == NUMAMemory(0, 8 * GIB, {2 * MIB: GIB, GIB: 2 * GIB})
    assert first.plain_bytes == 5 * GIB
    assert second == NUMAMemory(1, 4 * GIB, {64 << 10: MIB, 2 * MIB: 0})
    assert second.plain_bytes == 4 * GIB - MIB


def test_numbers_with_gaps_and_a_node_without_memory(tmp_path: Path) -> None:
    fill(tmp_path, {f"{NODE}/node{n}/meminfo": f"Node {n} MemTotal: {kb} kB" for n, kb in ((10, 8), (2, 0), (0, 4))})
    (tmp_path / NODE / "node3").mkdir()
    fill(tmp_path, {f"{NODE}/has_cpu": "0"})
    assert read(tmp_path) == (
        NUMAMemory(0, 4096, {}), NUMAMemory(2, 0, {}), NUMAMemory(3, 0, {}), NUMAMemory(10, 8192, {}),
    )  # fmt: skip


def test_more_huge_pages_than_memory_leave_none(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {
            f"{NODE}/node0/meminfo": "Node 0 MemTotal: 1024 kB",
            f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages": "1",
        },
    )
    assert read(tmp_path)[0].plain_bytes == 0


def test_a_kernel_without_numa_is_one_node(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {
            "proc/meminfo": "MemTotal:        2048 kB\nMemFree: 1 kB",
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0",
        },
    )
    assert read(tmp_path) == (NUMAMemory(0, 2 * MIB, {2 * MIB: 0}),)


def test_nothing_at_all(tmp_path: Path) -> None:
    assert read(tmp_path) == (NUMAMemory(0, 0, {}),)


def test_this_machine() -> None:
    assert sum(one.total_bytes for one in numamemory.read(Path("/sys"), Path("/proc"))) > 0
