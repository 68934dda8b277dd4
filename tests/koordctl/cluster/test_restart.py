"""What a kubelet that restarts would find, as its own credential says it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from koord.model.core import Node
from koord.model.locations import PROXY_SOCKET
from koordctl.cluster import restart
from koordctl.doctor import CheckStatus
from koordctl.exits import Refused
from koordctl.install.disk import Before, PlacedFile
from koordctl.install.prepare import restart_of
from koordctl.install.record import Begun
from koordctl.install.steps import PointKubelet
from koordctl.node.collect import ask_restart
from koordctl.node.files import NodeFiles
from koordctl.node.settings import kubelet_process
from tests.koordctl.clusters import Cluster
from tests.overcommit.nodes import amounts, mid, pod
from tests.support import kubernetes

CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"


def node(allocatable: Mapping[str, Any]) -> Node:
    return kubernetes.read(Node, kubernetes.node("n", allocatable))


PODS = (
    pod("a", amounts((300, "1Gi"), CPU, MEMORY)),
    pod("b", amounts((250, "1Gi"), CPU, MEMORY), phase="Pending", start_time="2026-11-23T09:00:00Z"),
    pod("c", amounts((900, "9Gi"), CPU, MEMORY), phase="Failed"),
    pod("d", amounts((900, "9Gi"), CPU, MEMORY), phase="Pending"),
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


def kubelet(root: Path, *flags: str) -> Path:
    """A tree in which it runs with ``flags``."""
    process = root / "proc" / "7"
    os.makedirs(process)
    (process / "comm").write_text("kubelet\n")
    (process / "cmdline").write_text("".join(f"{word}\0" for word in ("/usr/bin/kubelet", *flags)))
    return root


PROXIED = f"--container-runtime-endpoint=unix://{PROXY_SOCKET}"
OF_CLUSTER = ("--kubeconfig=/kubeconfig", "--hostname-override=Node-1")
STEP = Begun(PointKubelet("kubelet.service", PlacedFile("/drop-in", ""), ""), Before())
SHORT = "a kubelet that restarts now ends pods: pods that run here request 900m kubernetes.io/batch-cpu, and the Node"


@pytest.mark.parametrize(
    ("flags", "steps", "status", "says"),
    [
        pytest.param((PROXIED, *OF_CLUSTER), (STEP,), CheckStatus.WARN, SHORT, id="pods would end"),
        pytest.param(
            (PROXIED, OF_CLUSTER[0], "--hostname-override=other"), (STEP,), CheckStatus.INFO, "not known", id="no Node"
        ),
        pytest.param(
            (PROXIED, "--kubeconfig=/gone"), (STEP,), CheckStatus.INFO, "not known: no cluster", id="no credential"
        ),
        pytest.param((PROXIED,), (STEP,), None, "", id="a kubelet of no cluster"),
        pytest.param(OF_CLUSTER, (STEP,), None, "", id="a kubelet that stays as it is"),
        pytest.param((PROXIED, *OF_CLUSTER), (), None, "", id="kubelet was not touched"),
    ],
)
async def test_what_uninstalling_finds(
    tmp_path: Path, flags: tuple[str, ...], steps: tuple[Begun, ...], status: CheckStatus | None, says: str
) -> None:
    cluster = Cluster()
    cluster.node("node-1", {CPU: "700", MEMORY: "4Gi"})
    cluster.pod("here", 900, "node-1", "Running")
    async with cluster.flags(tmp_path):
        found = await asyncio.to_thread(restart_of, kubelet(tmp_path, *flags), steps)
    assert (found.status if found else None) == status
    assert found is None or says in found.sentence


def test_a_machine_without_a_kubelet(tmp_path: Path) -> None:
    node = NodeFiles(tmp_path)
    assert ask_restart(node, kubelet_process(node)) is None
