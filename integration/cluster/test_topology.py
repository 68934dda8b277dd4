"""The NodeResourceTopology that a node's agent keeps on a real API server, under a node's own credential and rights.

The reporter is the product's; what it looks at is a node of a test's own, so that its state can be any.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from integration.cluster import controlplane, manager, objects, topologycrd
from integration.cluster.api import Api
from integration.cluster.controlplane import ControlPlane
from koord.host.cpumodel import CPUModel
from koord.kube import kubeconfig
from koord.kube.client import connected
from koord.kube.credentials import Credentials
from koord.model import core
from koord.model.noderesourcetopology import NodeResourceTopology
from qosd.cluster import nodetopology, topologyobject
from qosd.clusterstatus import PartState
from tests.qosd.cluster.topologies import NODE, inputs
from tests.qosd.cluster.topologyrig import Rig, reporting
from tests.qosd.podviews import view
from tests.support.waiting import until

OBJECT = f"{topologycrd.PATH}/{NODE.name}"
BATCH = {"name": "kubernetes.io/batch-cpu", "capacity": "5k", "allocatable": "5k", "available": "5k"}
LSR = view("lsr", "LSR", "Guaranteed", cpus="0")
LONGEST_S = 30.0


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with controlplane.private(tmp_path_factory.mktemp("topology") / "plane") as plane, plane.api() as api:
        manager.install_agents(plane)
        api.create(objects.NODES, objects.node(NODE.name))
        topologycrd.install(api)
        yield plane


@pytest.fixture
def admin(plane: ControlPlane) -> Iterator[Api]:
    """Without a NodeResourceTopology at the beginning."""
    with plane.api() as api:
        if api.exists(OBJECT):
            api.delete(OBJECT)
        yield api


@contextlib.asynccontextmanager
async def agent(config: Path, root: Path, admin: Api) -> AsyncIterator[Rig]:
    """One that reports with that kubeconfig, as the Node that is there."""
    credentials = Credentials(lambda: kubeconfig.read_kubeconfig([config]), {}, time.monotonic, time.time)
    async with connected(credentials, "koord-test/1") as client:
        rig = Rig(root, client)
        uid = admin.get(f"{objects.NODES}/{NODE.name}")["metadata"]["uid"]
        rig.cluster_policy.node = structs.replace(NODE, uid=uid)
        async with reporting(rig):
            yield rig


def pools(admin: Api) -> str:
    return str(admin.get(OBJECT)["metadata"]["annotations"]["node.koordinator.sh/cpu-shared-pools"])


async def test_it_is_made_and_nothing_of_it_is_lost(plane: ControlPlane, admin: Api, tmp_path: Path) -> None:
    async with agent(plane.node_kubeconfig(NODE.name), tmp_path, admin) as rig:
        await until(lambda: admin.exists(OBJECT))
        stored = admin.get(OBJECT)
        wanted = nodetopology.desired(inputs(node=rig.cluster_policy.node, model=CPUModel()))
        made = topologyobject.document(NODE.name, wanted)
        assert stored["zones"] == made["zones"]
        assert stored["topologyPolicies"] == made["topologyPolicies"]
        assert stored["metadata"]["annotations"] == made["metadata"]["annotations"]
        assert stored["metadata"]["ownerReferences"] == made["metadata"]["ownerReferences"]
        read = core.read(NodeResourceTopology, json.dumps(stored).encode())
        assert topologyobject.patch(read, wanted) == {}
        rig.feed()
        await until(lambda: rig.count("unchanged"))
        assert admin.get(OBJECT)["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]


async def test_what_others_add_stays_and_what_they_spoil_is_mended(
    plane: ControlPlane, admin: Api, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    async with agent(plane.node_kubeconfig(NODE.name), tmp_path, admin) as rig:
        await until(lambda: admin.exists(OBJECT))
        zones = admin.get(OBJECT)["zones"]
        zones[0]["resources"] = [BATCH]
        admin.merge(OBJECT, {"zones": [*zones, {"name": "node-7", "type": "Node"}], "topologyPolicies": ["None"]})
        rig.feed(LSR)
        began = time.monotonic()
        await until(lambda: len(admin.get(OBJECT)["zones"]) == 1)
        figure(f"a spoilt NodeResourceTopology was mended within {time.monotonic() - began:.1f} s")
        await until(lambda: '"1-3"' in pools(admin))
        (zone,) = admin.get(OBJECT)["zones"]
        assert [each["name"] for each in zone["resources"]] == [
            "cpu", "hugepages-1Gi", "hugepages-2Mi", BATCH["name"], "memory",
        ]  # fmt: skip
        assert BATCH in zone["resources"]
        assert rig.count("failed") == 0


async def test_one_that_is_deleted_comes_back(plane: ControlPlane, admin: Api, tmp_path: Path) -> None:
    async with agent(plane.node_kubeconfig(NODE.name), tmp_path, admin):
        await until(lambda: admin.exists(OBJECT))
        first = admin.get(OBJECT)["metadata"]["uid"]
        admin.delete(OBJECT)
        await until(lambda: admin.exists(OBJECT))
        assert admin.get(OBJECT)["metadata"]["uid"] != first


async def test_through_a_restart_of_the_api_server(plane: ControlPlane, admin: Api, tmp_path: Path) -> None:
    async with agent(plane.node_kubeconfig(NODE.name), tmp_path, admin) as rig:
        await until(lambda: admin.exists(OBJECT))
        await asyncio.to_thread(plane.api_server.kill)
        rig.feed(LSR)
        await until(lambda: rig.reporter.status().state is PartState.FAILING)
        await asyncio.to_thread(plane.api_server.start)
        await until(lambda: '"1-3"' in pools(admin))


@pytest.mark.parametrize("name", ["n2", "nobody"])
async def test_with_another_nodes_credential_it_is_refused_and_says_so(
    plane: ControlPlane, admin: Api, tmp_path: Path, name: str
) -> None:
    config = plane.node_kubeconfig(name) if name == "n2" else plane.kubeconfig(name)
    async with agent(config, tmp_path, admin) as rig:
        await until(lambda: rig.reporter.status().state is PartState.FAILING)
        assert "403" in rig.reporter.status().says
        assert not admin.exists(OBJECT)


async def test_a_cluster_without_the_kind(plane: ControlPlane, admin: Api, tmp_path: Path) -> None:
    """The last test of this file, since it takes the kind away."""
    topologycrd.remove(admin)
    async with agent(plane.node_kubeconfig(NODE.name), tmp_path, admin) as rig:
        await until(lambda: "404" in rig.reporter.status().says)
        topologycrd.install(admin)
        await until(lambda: admin.exists(OBJECT))
