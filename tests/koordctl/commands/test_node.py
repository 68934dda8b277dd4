"""``koordctl node`` shows the machine, the daemon, its loops and its connection to a cluster."""

from __future__ import annotations

import re
from pathlib import Path

from qosd.clusterstatus import ClusterPart, ClusterStatus, PartState
from tests.koordctl.commands.fullnode import full_scene, lines_of
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import inspecting


async def test_node(tmp_path: Path) -> None:
    lines = await lines_of(tmp_path, "node")
    for line in (
        "CPU 16 CPUs, 16 cores, 1 sockets, 0 NUMA nodes; requested 0",
        "memory 16.0 GiB; requested 0.0 GiB",
        "node_cpu_usage_cores 1.25 cores",
        "cpu.idle yes",
        "proxy acts /node/h.sock: 1 connections",
        "burst burst disabled 0 disabled by configuration",
        "node ok 0.9 s 0 850",
    ):
        assert line in lines
    for pattern in (
        r"koord-qosd \S+, pid \d+, up 0\.0 s, \d+ MiB, \d+ of \d+ files",
        r"pods waiting never 0 0",
    ):
        assert [line for line in lines if re.fullmatch(pattern, line)], pattern


CLUSTER = ClusterStatus(
    "https://10.0.0.1:6443",
    "worker-1",
    is_reachable=False,
    silent_s=180.0,
    parts=(
        ClusterPart("NodeSLO", PartState.FAILING, 180.0, 4, "Connection refused"),
        ClusterPart("NodeMetric", PartState.WAITING),
    ),
)


async def test_the_connection_to_a_cluster(tmp_path: Path) -> None:
    node = full_scene(tmp_path)
    async with inspecting(tmp_path / "alone.sock", node) as path:
        _, out, _ = await koordctl("node", "--socket", path)
        assert "CLUSTER" not in out
        _, out, _ = await koordctl("node", "--section", "cluster", "--socket", path)
        assert out == "cluster: none\n"
    node.cluster = CLUSTER
    async with inspecting(tmp_path / "i.sock", node) as path:
        _, out, _ = await koordctl("node", "--socket", path)
        assert "cluster     https://10.0.0.1:6443 as node worker-1: silent for 180 s\n" in out
        _, out, _ = await koordctl("node", "--section", "cluster", "--socket", path)
        assert [line.split() for line in out.splitlines()] == [
            ["PART", "STATE", "AGE", "FAILURES", "SAYS"],
            ["NodeSLO", "failing", "3", "min", "4", "Connection", "refused"],
            ["NodeMetric", "waiting", "never", "0"],
        ]
