"""NodeLink on a real API server: identities that it knows, two replicas, and what one node may not do to another."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from integration.cluster import controlplane, manager, objects
from integration.cluster.api import Api, ApiError
from integration.cluster.controlplane import ControlPlane, Options
from integration.cluster.manager import LEASE, NAMESPACE, Replica
from integration.harness.processes import until, wait_for
from koord.kube import kubeconfig
from koord.kube.client import CallLimits, Client
from koord.kube.clientkey import key_and_request
from koord.kube.credentials import Credentials
from koord.kube.errors import APIError
from koord.kube.kind import Key
from koord.kube.transport import Transport
from koord.model.nodelink import CA_ANNOTATION, SIGNER
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.report import FreshUsage
from qosd.cluster import freshfigures
from qosd.cluster.freshfigures import Level
from qosd.cluster.nodelink import NodeLinkClient
from qosd.clusterstatus import PartState
from qosd.metrics import Metrics

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
PODS = objects.pods_of("default")
NAMES = ("manager-a", "manager-b")
SOON_S = 30.0
GIB = 1 << 30
BATCH_CPU = "kubernetes.io/batch-cpu"


@dataclass
class Managed:
    plane: ControlPlane
    api: Api
    replicas: dict[str, Replica]

    def leader(self) -> Replica:
        return wait_for(lambda: self.replicas.get(manager.leader(self.api)), SOON_S, "a leader")

    def start(self, name: str) -> None:
        self.replicas[name] = Replica(self.plane, name, "--feature-gates=WebhookFramework=false")
        self.replicas[name].wait_ready()

    def new_pod(self, name: str, node: str) -> str:
        """On ``node``; its UID."""
        created = self.api.create(PODS, objects.pod(name, {"cpu": "1"}, nodeName=node))
        return str(created["metadata"]["uid"])

    def token(self, node: str) -> str:
        """The agent's pod's on ``node``, as kubelet gets it."""
        name = f"koordlet-{node}"
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        if not self.api.exists(f"{path}/{name}"):
            self.api.create(path, objects.pod(name, {}, nodeName=node, serviceAccountName="koordlet"))
        pod = self.api.get(f"{path}/{name}")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
        request = {"spec": {"boundObjectRef": bound, "expirationSeconds": 3600}}
        return str(self.api.create(f"{ACCOUNTS}/koordlet/token", request)["status"]["token"])


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    """Two replicas and two nodes."""
    directory = tmp_path_factory.mktemp("nodelink") / "plane"
    with controlplane.private(directory, Options()) as plane, plane.api() as api:
        manager.install(plane)
        manager.configure(api, {"colocation-config": '{"enable": true}'})
        manager.install_agents(plane)
        nodes = [objects.node(name, {"cpu": "8", "memory": "16Gi", "pods": "110"}) for name in ("n1", "n2")]
        objects.create_nodes(plane.api, nodes)
        cluster = Managed(plane, api, {})
        try:
            for name in NAMES:
                cluster.start(name)
            wait_for(lambda: api.get(LEASE)["metadata"].get("annotations", {}).get(CA_ANNOTATION), SOON_S, "the CA")
            yield cluster
        finally:
            for replica in cluster.replicas.values():
                replica.process.stop()


class FakeNode:
    """What a node measures: only the system uses something. ``tick``: a second."""

    def __init__(self) -> None:
        self.metrics, self.after_tick = Metrics(), list[Callable[[], None]]()
        self.sense: Any = SimpleNamespace(store=None)
        self.loop: Any = SimpleNamespace(report=SimpleNamespace(snapshot=self))
        self.wall_ns, self.sampled_ns, self.capacity_cpu_milli = 0, 0, 8000
        self.cores = 1.0

    def value(self, metric: object) -> float:
        return 16.0 * GIB

    def tick(self, cores: float) -> None:
        self.cores = cores
        self.sampled_ns += 1_000_000_000
        for look in self.after_tick:
            look()


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fresh_usage(snapshot: Any, store: object, memory: object) -> FreshUsage:
        used = CPUMemory(int(snapshot.cores * 1000), 2 * GIB)
        return FreshUsage(used, used)

    monkeypatch.setattr(freshfigures, "fresh_usage", fresh_usage)
    monkeypatch.setattr(freshfigures, "level", lambda snapshot: Level(snapshot.cores, 2.0 * GIB))


@asynccontextmanager
async def client(managed: Managed, node: str, token: str) -> AsyncIterator[Client]:
    """With kubelet's credential of ``node``, or with ``token`` if there is one."""
    settings = kubeconfig.read_kubeconfig([managed.plane.node_kubeconfig(node)])
    if token:
        settings = replace(settings, token=token, certificate=None, key=None)
    credentials = Credentials(lambda: settings, {}, time.monotonic, time.time)
    async with Transport(credentials, "test") as transport:
        yield Client(transport, CallLimits())


@asynccontextmanager
async def linked(
    managed: Managed, node: str, claimed: str = "", token: str = ""
) -> AsyncIterator[tuple[NodeLinkClient, FakeNode]]:
    """A link of ``node`` that says it is ``claimed``."""
    async with client(managed, node, token) as api:
        fake = FakeNode()
        link = NodeLinkClient(api, claimed or node, fake, lambda: None)
        running = asyncio.create_task(link.run())
        try:
            yield link, fake
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def offered(managed: Managed, node: str) -> int:
    with managed.plane.api() as api:
        text: str = api.get(f"{objects.NODES}/{node}")["status"]["allocatable"].get(BATCH_CPU, "-1")
    return int(text.replace("k", "000"))


def report(managed: Managed, node: str) -> None:
    """A NodeMetric: the system uses 1 CPU and 2 GiB."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    usage = {"resources": {"cpu": "1", "memory": "2Gi"}}
    wait_for(lambda: managed.api.exists(f"{METRICS}/{node}"), SOON_S, f"the NodeMetric of {node}")
    status = {"updateTime": now, "nodeMetric": {"nodeUsage": usage, "systemUsage": usage}}
    managed.api.merge(f"{METRICS}/{node}/status", {"status": status})


async def test_a_step_of_use_is_in_the_offer_within_seconds(managed: Managed, figure: Callable[[str], None]) -> None:
    await asyncio.to_thread(report, managed, "n1")
    await until(lambda: offered(managed, "n1") == 3800, "the averaged offer")
    async with linked(managed, "n1") as (link, node):
        await until(lambda: link.status().state is PartState.OK, f"the link: {link.status().says}")
        began_s = time.monotonic()
        for _ in range(3):
            node.tick(cores=3.0)
        await until(lambda: offered(managed, "n1") == 1800, "the smaller offer", 10)
        figure(f"a step of use was in batch-cpu after {time.monotonic() - began_s:.2f} s (aim 10 s)")
        for _ in range(3):
            node.tick(cores=1.0)
        await asyncio.sleep(2)
        assert offered(managed, "n1") == 1800, "no averaged report has come in since"
        await asyncio.to_thread(report, managed, "n1")
        await until(lambda: offered(managed, "n1") == 3800, "the offer to grow again")


async def test_a_node_is_not_certified_as_another(managed: Managed) -> None:
    async with linked(managed, "n1", claimed="n2") as (link, _):
        await until(lambda: "may not be certified as system:node:n2" in link.status().says, "the refusal")


def test_no_one_but_the_manager_signs_and_nobody_but_nodes_is_signed(managed: Managed) -> None:
    """The administrator requests a node's certificate: denied. A node cannot approve its own request."""
    _, request = key_and_request("system:node:n1", "system:nodes")
    spec = {"request": base64.b64encode(request).decode(), "signerName": SIGNER, "usages": ["client auth"]}
    body = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "spec": spec}
    managed.api.create(REQUESTS, {**body, "metadata": {"name": "admins"}})
    wait_for(lambda: conditions(managed, "admins") == ["Denied"], SOON_S, "the denial")
    with managed.plane.node_api("n1") as own:
        own.create(REQUESTS, {**body, "metadata": {"name": "n1s"}})
        with pytest.raises(ApiError, match="403"):
            own.merge(f"{REQUESTS}/n1s/approval", {"status": {"conditions": [{"type": "Approved", "status": "True"}]}})
    wait_for(lambda: managed.api.get(f"{REQUESTS}/n1s")["status"].get("certificate"), SOON_S, "the certificate")


def conditions(managed: Managed, name: str) -> list[str]:
    return [each["type"] for each in managed.api.get(f"{REQUESTS}/{name}").get("status", {}).get("conditions", ())]


async def test_the_agents_pod_is_its_node(managed: Managed) -> None:
    token = await asyncio.to_thread(managed.token, "n2")
    async with linked(managed, "n2", token=token) as (link, _):
        await until(lambda: link.status().state is PartState.OK, f"the link: {link.status().says}")
    async with linked(managed, "n2", claimed="n1", token=token) as (link, _):
        await until(lambda: "may not be certified as system:node:n1" in link.status().says, "the refusal")


async def test_a_node_evicts_its_own_pods_alone(managed: Managed) -> None:
    uids = {name: managed.new_pod(name, node) for name, node in (("own", "n2"), ("other", "n1"))}
    token = await asyncio.to_thread(managed.token, "n2")
    async with linked(managed, "n2", token=token) as (link, _):
        await until(lambda: link.status().state is PartState.OK, "the link")
        with pytest.raises(APIError, match="pod default/other is not on node n2") as refused:
            await link.evict(Key("default", "other"), uids["other"], "memory is short")
        assert refused.value.status == 403
        await link.evict(Key("default", "own"), uids["own"], "memory is short")
    gone = managed.api.items(PODS, fieldSelector="metadata.name=own")
    assert not gone or gone[0]["metadata"].get("deletionTimestamp")
    assert managed.api.exists(f"{PODS}/other")
    with managed.plane.node_api("n2") as own, pytest.raises(ApiError, match="403"):
        own.create(
            f"{PODS}/other/eviction",
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other", "namespace": "default"}},
        )


def test_a_node_reads_one_lease_and_no_secret(managed: Managed) -> None:
    with managed.plane.node_api("n1") as own:
        assert own.get(LEASE)["metadata"]["annotations"][CA_ANNOTATION]
        for path in (LEASE.rpartition("/")[0], f"/api/v1/namespaces/{NAMESPACE}/secrets/koordinator-nodelink-certs"):
            with pytest.raises(ApiError, match="403"):
                own.get(path)
        with pytest.raises(ApiError, match="403"):
            own.merge(LEASE, {"spec": {"holderIdentity": "me@10.0.0.1:1"}})


async def test_a_leader_that_is_killed_is_followed_by_the_next(managed: Managed, figure: Callable[[str], None]) -> None:
    async with linked(managed, "n1") as (link, node):
        await until(lambda: link.status().state is PartState.OK, "the link")
        before = await asyncio.to_thread(managed.leader)
        reported = node.metrics.cluster_reports["NodeLink", "written"]
        began_s = time.monotonic()
        before.process.kill()
        await until(
            lambda: (
                node.metrics.cluster_reports["NodeLink", "written"] > reported + 1
                and link.status().state is PartState.OK
                and manager.leader(managed.api) != before.name
            ),
            "reports to the next leader",
            60,
        )
        figure(f"reports went on {time.monotonic() - began_s:.1f} s after SIGKILL of the leader")
    before.process.stop()
    await asyncio.to_thread(managed.start, before.name)
