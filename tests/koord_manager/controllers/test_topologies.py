"""The CPU model that a node's topology names, and what of that object is nothing to the manager."""

from __future__ import annotations

import json

import pytest

from koord.model.topologyannotations import CPU_BASIC_INFO
from koord.overcommit import ratios
from tests.koord_manager.support import ENABLED, Cluster
from tests.support.cluster import NODES

TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
RATIOS = {"Xeon": {"baseRatio": 1.5}, "EPYC": {"baseRatio": 1.2}}
CONFIG = {**ENABLED, "cpu-normalization-config": json.dumps({"enable": True, "ratioModel": RATIOS})}


def put_topology(cluster: Cluster, model: str, **annotations: str) -> None:
    info = {"cpuModel": model, "hyperThreadEnabled": False, "turboEnabled": False}
    cluster.server.put(
        TOPOLOGIES,
        "",
        "n1",
        metadata={"annotations": {CPU_BASIC_INFO: json.dumps(info), **annotations}},
        zones=[{"name": "node-0", "type": "Node"}],
    )


def ratio(cluster: Cluster) -> str | None:
    node = cluster.object(NODES, "n1")
    assert node is not None
    found: str | None = node["metadata"].get("annotations", {}).get(ratios.NORMALIZATION)
    return found


async def test_the_ratio_follows_the_model(cluster: Cluster) -> None:
    cluster.put_config(CONFIG)
    cluster.put_node()
    put_topology(cluster, "Xeon")
    await cluster.lead()
    await cluster.settled(lambda: ratio(cluster) == "1.50")
    put_topology(cluster, "EPYC")
    await cluster.settled(lambda: ratio(cluster) == "1.20")
    cluster.server.delete(TOPOLOGIES, "", "n1")
    await cluster.settled(lambda: cluster.events("CPUNormalizationUnknown"))
    assert ratio(cluster) == "1.20", "the last that could be told"


async def test_what_schedulers_write_there_is_neither_kept_nor_looked_at(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put_config(CONFIG)
    cluster.put_node()
    put_topology(cluster, "Xeon")
    await cluster.lead()
    await cluster.settled(lambda: ratio(cluster) == "1.50")
    await cluster.quiet()
    told: list[str] = []
    monkeypatch.setattr(cluster.controllers, "node_changed", told.append)
    changes = cluster.view.topologies.counts.changes
    put_topology(cluster, "Xeon", allocations="0-3")
    await cluster.settled(lambda: cluster.view.topologies.counts.changes == changes + 1)
    await cluster.quiet()
    assert told == []
    put_topology(cluster, "EPYC", allocations="0-3")
    await cluster.settled(lambda: told == ["n1"])
    (kept,) = cluster.view.topologies.objects.values()
    assert kept.metadata.name == "n1"
    assert not kept.metadata.annotations
