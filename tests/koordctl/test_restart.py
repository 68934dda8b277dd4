"""What a kubelet that restarts would find, as its own credential says it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from koord.model.core import Node, NodeStatus, ObjectMeta
from koordctl.cluster import restart
from koordctl.exits import Refused
from koordctl.nodefacts import ask_restart
from tests.koordctl.clusters import Cluster
from tests.model.overcommit.nodes import amounts, mid, pod

CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"


def node(allocatable: Mapping[str, Any]) -> Node:
    return Node(ObjectMeta(name="n"), status=NodeStatus(allocatable=dict(allocatable)))


PODS = (
    pod("a", amounts((300, "1Gi"), CPU, MEMORY)),
    pod("b", amounts((250, "1Gi"), CPU, MEMORY), phase="Pending"),
    pod("c", amounts((900, "9Gi"), CPU, MEMORY), phase="Failed"),
)


@pytest.mark.parametrize(
    ("allocatable", "pods", "sentences"),
    [
        pytest.param({CPU: "550", MEMORY: "2Gi"}, PODS, [], id="just enough"),
        pytest.param({}, (), [], id="neither"),
        pytest.param(
            {CPU: "475", MEMORY: "2Gi"},
            PODS,
            ["pods that run here request 550m kubernetes.io/batch-cpu, and the Node offers 475m"],
            id="too little CPU",
        ),
        pytest.param(
            {CPU: "550"},
            PODS,
            ["pods that run here request 2Gi kubernetes.io/batch-memory, and the Node offers 0"],
            id="what is not there is 0 to kubelet",
        ),
        pytest.param(
            {},
            (pod("m", mid(5, None)),),
            ["pods that run here request 5m kubernetes.io/mid-cpu, and the Node offers 0m"],
            id="mid",
        ),
    ],
)
def test_what_is_short(allocatable: Mapping[str, Any], pods: tuple[Any, ...], sentences: list[str]) -> None:
    assert list(restart.of(node(allocatable), pods)) == sentences


async def test_only_the_pods_of_the_node_count(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.node("node-1", {CPU: "700", MEMORY: "4Gi"})
    cluster.pod("here", 900, "node-1", "Running")
    cluster.pod("elsewhere", 5000, "node-2", "Running")
    async with cluster.flags(tmp_path):
        file = str(tmp_path / "kubeconfig")
        assert await asyncio.to_thread(restart.shortages, file, "node-1", 5.0) == (
            "pods that run here request 900m kubernetes.io/batch-cpu, and the Node offers 700m",
        )
        with pytest.raises(Refused, match="not found"):
            await asyncio.to_thread(restart.shortages, file, "node-9", 5.0)


def test_a_machine_without_a_kubelet_of_a_cluster(tmp_path: Path) -> None:
    """A tree that is not this machine is not asked about: its kubelet's credential is not here."""
    process = tmp_path / "proc" / "7"
    os.makedirs(process)
    (process / "comm").write_text("kubelet\n")
    for arguments in ("", "--kubeconfig=/etc/kubernetes/kubelet.conf\0"):
        (process / "cmdline").write_text(f"/usr/bin/kubelet\0{arguments}")
        assert ask_restart(tmp_path) is None
