"""A node's link to the manager: real TLS to the manager's own server, and all that is wrong with one or the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from koord.kube.backoff import Backoff
from koord.kube.errors import APIError, Unreachable
from koord.kube.kind import POD, Key
from koord.model.locations import NAMESPACE
from koord.model.nodelink import CA_ANNOTATION, LEASE_NAME, SERVER_NAME
from koord.model.nodemetric import MemoryCollectPolicy
from koord.model.priority import PriorityClass
from koord.model.qos import QoSClass
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.report import FreshPod
from koord.tls import certificates
from koord.tls.context import LiveContext
from koord_manager.nodelink import server as nodelink_server
from koord_manager.nodelink.signer import Signer
from koord_manager.nodelink.signing import Agents
from qosd.cluster import freshfigures, nodeidentity, nodelink
from qosd.cluster.freshfigures import Level
from qosd.cluster.nodelink import NodeLinkClient, NodeLinkEvictions, has_moved
from qosd.clusterstatus import PartState
from qosd.metrics import Metrics
from tests.koord_manager.nodelink.rig import AGENT, APIServer, Rig, pods_token, rig
from tests.kube.server import Fault
from tests.kube.support import LEASES
from tests.qosd.cluster.history import GIB, History, Use, pod
from tests.support.waiting import until

WEB, JOB = pod("web"), pod("job", "batch", QoSClass.BE, PriorityClass.BATCH, tier="BestEffort")
QUICK = Backoff(base_s=0.01, max_s=0.05)


class MeasuredNode:
    """A node of two pods; ``tick`` is a second of it, or ``beat_s``."""

    def __init__(self) -> None:
        self.history = History(WEB, JOB)
        self.sense: Any = SimpleNamespace(store=self.history.store)
        self.loop: Any = SimpleNamespace(report=SimpleNamespace(snapshot=None))
        self.metrics = Metrics()
        self.after_tick: list[Callable[[], None]] = []
        for _ in range(3):
            self.tick()

    def tick(self, web_cores: float = 1.0, web_gib: float = 2.0, beat_s: float = 1.0) -> None:
        self.history.beat_s = beat_s
        self.history.tick(Use(0.5, 1.0), web=Use(web_cores, web_gib), job=Use(0.75, 0.5))
        self.loop.report = SimpleNamespace(snapshot=self.history.snapshot())
        self.tick_without_samples()

    def tick_without_samples(self) -> None:
        for look in self.after_tick:
            look()


class Cluster:
    """A manager that leads, a node, and the node's link."""

    def __init__(self, made: Rig) -> None:
        self.rig, self.node = made, MeasuredNode()
        self.lead(f"m_1@127.0.0.1:{made.link.port}")
        self.link = NodeLinkClient(made.api, "n1", self.node, lambda: None)

    def lead(self, holder: str, ca: str | None = None) -> None:
        """What the Lease says."""
        metadata = {"annotations": {CA_ANNOTATION: self.rig.ca if ca is None else ca}}
        self.rig.server.put(LEASES, NAMESPACE, LEASE_NAME, metadata=metadata, spec={"holderIdentity": holder})

    @property
    def reported(self) -> int:
        return self.rig.service.results["reported"]

    @property
    def told_milli(self) -> int:
        """Of the pod "web", by the newest report."""
        usage = self.rig.fresh.usage("n1")
        return 0 if usage is None else usage.pods[0].usage.cpu_milli

    async def more(self, reports: int = 2) -> None:
        """Returns after so many more of them."""
        enough = self.reported + reports
        await until(lambda: self.reported >= enough)

    @property
    def requests(self) -> int:
        """For certificates."""
        collection = self.rig.server.objects.get(("/apis/certificates.k8s.io/v1", "certificatesigningrequests"), {})
        return len(collection)

    async def says(self, part: str) -> None:
        await until(lambda: part in self.link.status().says)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodelink, "_BACKOFF", QUICK)
    monkeypatch.setattr(nodelink, "REPORT_INTERVAL_S", 0.05)


@asynccontextmanager
async def linked(server: APIServer | None = None) -> AsyncIterator[Cluster]:
    """The node's link runs; certificates are signed."""
    server = server or APIServer()
    server.requester = server.requester or {"username": "system:node:n1", "groups": ["system:nodes"]}
    async with rig(server=server) as made:
        cluster = Cluster(made)
        agents = Agents(AGENT, made.view.pods.get)
        signer = Signer(made.api, made.link.read_ca, agents, time.monotonic, lambda: datetime.now(UTC))
        tasks = [asyncio.create_task(signer.run()), asyncio.create_task(cluster.link.run())]
        try:
            yield cluster
            assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
    assert cluster.node.after_tick == []


async def test_a_node_requests_a_certificate_and_reports_with_it() -> None:
    async with linked() as cluster:
        await cluster.more()
        usage = cluster.rig.fresh.usage("n1")
        assert usage is not None
        assert usage.system == CPUMemory(500, GIB)
        assert usage.pods == (FreshPod("shop", "web", "koord-prod", CPUMemory(1000, 2 * GIB)),), "no batch pods"
        assert usage.node == CPUMemory(2250, 3 * GIB + GIB // 2)
        assert cluster.requests == 1
        await cluster.says("")
        status = cluster.link.status()
        assert (status.name, status.state, status.failures) == ("NodeLink", PartState.OK, 0)
        counts = cluster.node.metrics.cluster_reports
        await until(lambda: counts["NodeLink", "written"] == cluster.reported)  # it knows by the answer


async def test_a_step_of_use_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodelink, "REPORT_INTERVAL_S", 3600)
    async with linked() as cluster:
        await until(lambda: cluster.reported == 1)
        cluster.node.tick()
        cluster.node.tick()
        await asyncio.sleep(0.1)
        assert cluster.reported == 1, "nothing has moved"
        cluster.node.tick(web_cores=2.0)
        await until(lambda: cluster.reported == 2)
        cluster.node.tick_without_samples()
        await asyncio.sleep(0.1)
        assert cluster.reported == 2, "half of the step is all that is known"
        cluster.node.tick(web_cores=2.0)
        await until(lambda: cluster.reported == 3)
        assert cluster.told_milli == 2000
        cluster.node.tick(web_cores=2.0)
        cluster.node.tick(web_cores=2.0)
        await asyncio.sleep(0.1)
        assert cluster.reported == 3


@pytest.mark.parametrize(
    "beats_s",
    [(1.0,) * 3, (0.9995,) * 3, (1.0005,) * 3, (0.3, 0.7, 1.0), (0.2, 0.2, 0.6, 1.0), (0.7, 0.3, 1.0), (1.4, 0.6, 1.0)],
    ids=str,
)
async def test_a_step_is_told_whole_however_its_samples_come(
    beats_s: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat comes a little early or late, and what is urgent is sampled between two of them."""
    monkeypatch.setattr(nodelink, "REPORT_INTERVAL_S", 3600)
    async with linked() as cluster:
        await until(lambda: cluster.reported == 1)
        cluster.node.tick()
        for beat_s in beats_s:
            cluster.node.tick(web_cores=2.0, beat_s=beat_s)
            await asyncio.sleep(0.05)
        least_milli = 2000 - 4000 * nodelink.MOVED_PERCENT // 100
        await until(lambda: cluster.told_milli >= least_milli)


@pytest.mark.parametrize(
    ("now", "moved"),
    [
        (Level(1.2, 0), False),
        (Level(1.21, 0), True),
        (Level(0.79, 0), True),
        (Level(1.0, 0.05), False),
        (Level(1.0, 0.06), True),
    ],
)
def test_what_is_worth_a_report(now: Level, moved: bool) -> None:
    """Of 4 CPUs and 1 byte: 5 %."""
    assert has_moved(Level(1.0, 0.0), now, Level(4.0, 1.0)) is moved
    assert not has_moved(Level(1.0, 0.0), now, Level(0.0, 0.0))


async def test_the_agents_pod() -> None:
    server = APIServer()
    server.requester = pods_token(node_name="n1")
    async with linked(server) as cluster:
        await cluster.more()
        assert cluster.requests == 1


async def test_another_nodes_certificate_is_not_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeidentity, "RETRY_S", 0.3)
    server = APIServer()
    server.requester = {"username": "system:node:n2", "groups": ["system:nodes"]}
    async with linked(server) as cluster:
        await cluster.says("system:node:n2 may not be certified as system:node:n1")
        assert cluster.reported == 0
        server.requester = {"username": "system:node:n1", "groups": ["system:nodes"]}
        await cluster.more()


async def test_an_expired_certificate_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async with linked() as cluster:
        await cluster.more()
        cluster.rig.state.ahead_s = 8 * 86_400
        await cluster.says("has expired")
        assert cluster.requests == 1, "a new one would fare no better"
        monkeypatch.setattr(nodeidentity, "RETRY_S", 0.0)
        await until(lambda: cluster.requests > 1)
        cluster.rig.state.ahead_s = 0
        await cluster.more()
        assert cluster.link.status().state is PartState.OK


async def test_a_certificate_is_renewed_before_its_time_and_without_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeidentity, "RETRY_S", 0.0)
    async with linked() as cluster:
        await cluster.more()
        cluster.link._identity.reject()
        await until(lambda: cluster.requests == 2)
        await cluster.more()
        assert cluster.node.metrics.cluster_reports["NodeLink", "failed"] == 0


async def test_a_new_authority_brings_a_new_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the connection that was made by the old one ends."""
    monkeypatch.setattr(nodelink_server, "AGE_S", 1.0)
    async with linked() as cluster:
        await cluster.more()
        before = cluster.rig.ca
        cluster.rig.server.delete("/api/v1/secrets", NAMESPACE, "koordinator-nodelink-certs")
        await until(lambda: cluster.rig.ca != before)
        await cluster.says("cannot connect")
        cluster.lead(f"m_1@127.0.0.1:{cluster.rig.link.port}")
        await cluster.more()
        assert cluster.requests == 2


async def test_a_standby_sends_it_to_the_leader() -> None:
    """The replica that it speaks with does not lead any more; then the Lease names it again."""
    async with linked() as cluster:
        await cluster.more()
        cluster.rig.state.leads, cluster.rig.state.leader = False, "127.0.0.1:1"
        await cluster.says("this replica does not lead, 127.0.0.1:1 does")
        cluster.lead("m_2@127.0.0.1:1")
        await cluster.says("cannot connect to 127.0.0.1:1")
        with pytest.raises(Unreachable, match=r"no link to koord-manager: cannot connect to 127\.0\.0\.1:1"):
            await cluster.link.evict(Key("shop", "web"), "u1")
        cluster.rig.state.leads = True
        cluster.lead(f"m_1@127.0.0.1:{cluster.rig.link.port}")
        await cluster.more()
        assert cluster.requests == 1, "one certificate is good for every replica"


@pytest.mark.parametrize(
    ("holder", "ca", "why"),
    [
        ("", None, "lacks an address"),
        ("upstreams-manager", None, "lacks an address"),
        ("m_1@127.0.0.1:1", "", f"lacks annotation {CA_ANNOTATION}"),
        ("m_1@nowhere", None, "the address 'nowhere': must be host:port"),
        ("m_1@127.0.0.1:1", "no PEM", "no authorities that can be used"),
    ],
)
async def test_a_lease_that_leads_nowhere(holder: str, ca: str | None, why: str) -> None:
    async with linked() as cluster:
        await cluster.more()
        cluster.lead(holder, ca)
        cluster.rig.state.leads = False
        await cluster.says(why)
        cluster.rig.state.leads = True
        cluster.lead(f"m_1@127.0.0.1:{cluster.rig.link.port}")
        await cluster.more()


async def test_there_is_no_lease_yet() -> None:
    async with linked() as cluster:
        cluster.rig.server.delete(LEASES, NAMESPACE, LEASE_NAME)
        cluster.rig.state.leads = False
        await cluster.says("404 NotFound")


async def test_the_api_server_is_away_when_a_certificate_is_to_be_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link goes on with the one that is still good."""
    monkeypatch.setattr(nodeidentity, "RENEWED_WITHIN_S", 1.5)
    monkeypatch.setattr(nodeidentity, "RETRY_S", 0.3)
    async with linked() as cluster:
        await cluster.more()
        cluster.rig.server.faults += [Fault("any", hang=True)] * 20
        cluster.link._identity._due_s = 0.0
        await cluster.more(20)
        assert cluster.node.metrics.cluster_reports["NodeLink", "failed"] == 0
        cluster.rig.server.faults.clear()
        await until(lambda: cluster.requests == 2)
        await cluster.more()


async def test_the_api_server_is_away_and_the_link_goes_on() -> None:
    async with linked() as cluster:
        await cluster.more()
        cluster.rig.server.faults += [Fault("any", hang=True)] * 20
        await cluster.more(5)


async def test_connections_that_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager ends each after a while; reports go on by the next one."""
    monkeypatch.setattr(nodelink_server, "AGE_S", 0.2)
    async with linked() as cluster:
        await cluster.more(30)


async def test_a_manager_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections, and reads no call."""
    monkeypatch.setattr(nodelink, "CALL_S", 0.1)
    came = list[asyncio.StreamWriter]()

    async def never(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer)

    async with linked() as cluster:
        await cluster.more()
        authority = await cluster.rig.link.read_ca()
        serving = certificates.ServingCertificate(
            certificates.issue_serving(authority, [SERVER_NAME], datetime.now(UTC)), authority.certificate
        )
        tls = LiveContext(None, "h2")
        tls.load(serving)
        async with await asyncio.start_server(never, "127.0.0.1", 0, ssl=tls.server_context) as listener:
            cluster.lead(f"m_2@127.0.0.1:{listener.sockets[0].getsockname()[1]}")
            cluster.rig.state.leads = False
            await cluster.says("no answer in time")
            cluster.rig.state.leads = True
            cluster.lead(f"m_1@127.0.0.1:{cluster.rig.link.port}")
            await cluster.more()
            for writer in came:
                writer.close()


async def test_nothing_is_told_before_there_are_samples() -> None:
    async with linked() as cluster:
        await cluster.more()
        cluster.node.loop.report = SimpleNamespace(snapshot=None)
        before = cluster.reported
        await asyncio.sleep(0.2)
        assert cluster.reported <= before + 1


async def test_evictions_through_the_manager() -> None:
    async with linked() as cluster:
        made = cluster.rig
        for name, node in (("web", "n1"), ("kept", "n1"), ("other", "n2")):
            made.put_pod(name, node, f"uid-of-{name}")
        await until(lambda: len(made.view.pods.objects) == 3)
        await cluster.more()
        made.server.protected.add("kept")
        evictions = NodeLinkEvictions(cluster.link, made.api)
        for name, status, blocked_by_pdb in (("kept", 429, True), ("other", 403, False), ("unknown", 404, False)):
            with pytest.raises(APIError) as error:
                await evictions.evict(Key("shop", name), f"uid-of-{name}")
            assert (error.value.status, error.value.blocked_by_pdb) == (status, blocked_by_pdb)
        assert (await evictions.get(POD, Key("shop", "kept"))).metadata.uid == "uid-of-kept"
        await evictions.evict(Key("shop", "web"), "uid-of-web")
        assert {name for _, name in made.server.objects["/api/v1", "pods"]} == {"kept", "other"}
        await cluster.more()


def test_figures_are_those_of_the_last_two_beats() -> None:
    history = History(WEB, JOB)
    for cores in (4.0, 1.0, 2.0):
        history.tick(Use(0.5, 1.0), Use(0.25, 0.5), cache_gib=0.25, web=Use(cores, 1.0), job=Use(1.0, 1.0))
    plain, with_cache = (
        freshfigures.fresh_usage(history.snapshot(), history.store, policy)
        for policy in (MemoryCollectPolicy.NO_PAGE_CACHE, MemoryCollectPolicy.PAGE_CACHE)
    )
    assert plain is not None
    assert with_cache is not None
    assert plain.system == CPUMemory(750, GIB + GIB // 2), "with what no pod accounts for"
    assert plain.pods == (FreshPod("shop", "web", "koord-prod", CPUMemory(1500, GIB)),)
    assert with_cache.pods[0].usage == CPUMemory(1500, GIB + GIB // 4)
    assert freshfigures.level(history.snapshot()) == Level(0.75 + 2.0, 3.5 * GIB)


def test_without_the_systems_use_there_is_nothing_to_tell() -> None:
    history = History(WEB)
    assert freshfigures.fresh_usage(history.snapshot(), history.store, MemoryCollectPolicy.NO_PAGE_CACHE) is None
    assert freshfigures.level(history.snapshot()) is None
