"""How a node's report is written, on a real API server: the whole status, one annotation, nothing else, no more often.

The writer is the node itself, by its own credential and rights.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from integration.cluster import manager
from integration.cluster.api import Api, ApiError
from integration.cluster.controlplane import ControlPlane
from integration.cluster.examples import EXAMPLES
from integration.harness.processes import wait_for
from koord.kube import kubeconfig
from koord.kube.client import connected
from koord.kube.credentials import Credentials
from koord.kube.errors import APIError
from koord.kube.kind import NODE_METRIC, Key
from koord.model.nodemetric import NodeMetricStatus, NodeUsage, PodUsage, ResourceMap
from koord.model.nodestate import ANNOTATION, NodeState
from qosd.cluster.objectwriter import ObjectWriter

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
NAME, OTHER = "reporting", "other"
USAGE = ResourceMap({"cpu": "1500m", "memory": "5712464Ki"})
STATUS = NodeMetricStatus(
    update_time="2026-09-21T14:33:20Z",
    node_metric=NodeUsage(node_usage=USAGE, system_usage=USAGE),
    pods_metric=(PodUsage(name="web", namespace="shop", pod_usage=USAGE, priority="koord-prod", qos="LS"),),
)


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """With our kinds and the agent's rights."""
    manager.install(control_plane)
    manager.install_agents(control_plane)
    return control_plane


@pytest.fixture
def reported(plane: ControlPlane, api: Api) -> Iterator[str]:
    """The path of a NodeMetric whose status another program has written, with every field that there is."""
    for name in (NAME, OTHER):
        metadata = {"name": name, "annotations": {"somebody": "else's"}}
        manifest = {"apiVersion": NODE_METRIC.api_version, "kind": "NodeMetric", "metadata": metadata}
        created = api.create(METRICS, {**manifest, "spec": EXAMPLES["NodeMetric"]["spec"]})
        api.replace(f"{METRICS}/{name}/status", {**created, "status": EXAMPLES["NodeMetric"]["status"]})
    yield f"{METRICS}/{NAME}"
    for name in (NAME, OTHER):
        api.delete(f"{METRICS}/{name}")


@asynccontextmanager
async def writing(plane: ControlPlane, name: str = NAME) -> AsyncIterator[ObjectWriter]:
    config = plane.node_kubeconfig(NAME)
    credentials = Credentials(lambda: kubeconfig.read_kubeconfig([config]), {}, time.monotonic, time.time)
    async with connected(credentials, "koord-test/1") as client:
        yield ObjectWriter(client, NODE_METRIC, Key("", name), time.monotonic)


async def test_the_status_is_replaced_as_a_whole_and_nothing_else(plane: ControlPlane, api: Api, reported: str) -> None:
    before = api.get(reported)
    async with writing(plane) as writer:
        await writer.turn()
        await writer.replace_status(STATUS)
        await writer.turn()
        await writer.annotate(ANNOTATION, NodeState(3, 7).encoded())
    after = api.get(reported)
    assert after["status"] == msgspec.json.decode(msgspec.json.encode(STATUS))
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])
    assert after["metadata"]["annotations"] == {
        "somebody": "else's",
        ANNOTATION: '{"heldFiles":3,"nodeSLOGeneration":7}',
    }


async def test_an_object_that_never_had_a_status_gets_one(plane: ControlPlane, api: Api, reported: str) -> None:
    api.delete(reported)
    metadata = {"name": NAME}
    api.create(METRICS, {"apiVersion": NODE_METRIC.api_version, "kind": "NodeMetric", "metadata": metadata})
    async with writing(plane) as writer:
        await writer.replace_status(STATUS)
    assert api.get(reported)["status"] == msgspec.json.decode(msgspec.json.encode(STATUS))


async def test_an_object_that_is_gone_is_not_made(plane: ControlPlane, api: Api, reported: str) -> None:
    api.delete(reported)
    async with writing(plane) as writer:
        with pytest.raises(APIError) as refused:
            await writer.replace_status(STATUS)
        assert refused.value.is_not_found
    assert not api.exists(reported)
    api.create(METRICS, {"apiVersion": NODE_METRIC.api_version, "kind": "NodeMetric", "metadata": {"name": NAME}})


async def test_a_node_writes_no_other_nodes_report(plane: ControlPlane, api: Api, reported: str) -> None:
    """An API server takes a moment to follow a new policy."""
    with plane.node_api(NAME) as node:
        wait_for(lambda: is_refused(node, f"{METRICS}/{OTHER}"), 30, "the policy of reports to be in force")
    before = api.get(f"{METRICS}/{OTHER}")
    async with writing(plane, OTHER) as writer:
        with pytest.raises(APIError, match="node reporting may not report for other"):
            await writer.replace_status(STATUS)
        with pytest.raises(APIError, match="node reporting may not report for other"):
            await writer.annotate(ANNOTATION, NodeState(0, 1).encoded())
    assert api.get(f"{METRICS}/{OTHER}") == before


def test_a_certificate_under_the_accounts_name_counts_by_its_rights_and_a_token_by_its_node(
    plane: ControlPlane, api: Api, reported: str
) -> None:
    """As an agent of another release outside of pods has it; a token without a node is no node's there."""
    account = "/api/v1/namespaces/koordinator-system/serviceaccounts/koordlet"
    token = api.create(f"{account}/token", {"spec": {}})["status"]["token"]
    with plane.anonymous(token) as account_api:
        wait_for(lambda: is_refused(account_api, reported), 30, "the policy of reports to be in force")
        with pytest.raises(ApiError, match="the token does not say which node it is used on"):
            account_api.merge(reported, {"metadata": {"annotations": {"by": "a token"}}})
    with plane.api("system:serviceaccount:koordinator-system:koordlet", ()) as certified:
        certified.merge(f"{reported}/status", {"status": {"updateTime": "2026-11-23T09:00:00Z"}})
    assert api.get(reported)["status"]["updateTime"] == "2026-11-23T09:00:00Z"


def is_refused(node: Api, path: str) -> bool:
    try:
        node.merge(path, {"metadata": {"annotations": {"by": "a stranger"}}})
    except ApiError:
        return True
    return False
