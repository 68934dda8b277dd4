"""A leader that stands still for longer than its Lease, and goes on: it has no rights any more, and uses none.

Two koord-managers are real processes; the API server in memory records each write with its writer and time.
"""

from __future__ import annotations

import asyncio
import base64
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from bench.nodelinkload import context
from integration.cluster.manager import NAMESPACE, Replica
from integration.harness.processes import until
from integration.managerfuzz.apiserver import fill, pod_of
from koord.http2.client import UnaryError
from koord.http2.grpc import FAILED_PRECONDITION
from koord.http2.tlsclient import TLSClient
from koord.model.nodelink import LEASE_NAME, SERVER_NAME
from koord.tls.certificates import CA_CERTIFICATE, CA_KEY, KeyPair
from tests.koord_manager.nodelink.rig import APIServer, Node

NAMES = ("manager-a", "manager-b")
NODE_COUNT, REPORT_S, WRITE_S = 24, 1.05, 0.15
"""A report counts by the second that it names, so that two of one second are one."""
UNDER_WAY = 4
"""Writes of the leader that it does not see answered before it stands still."""
READY_S, NEXT_S, SOON_S, WATCHED_S = 60.0, 30.0, 10.0, 5.0
METRICS = ("/apis/slo.koordinator.sh/v1alpha1", "nodemetrics")
LEASES, SECRETS = ("/apis/coordination.k8s.io/v1", "leases"), ("/api/v1", "secrets")
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{token: "{name}"}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""


@dataclass(frozen=True)
class Write:
    """``status``: of its answer. ``begun_s``: when it had come."""

    who: str
    begun_s: float
    text: str
    status: int

    @property
    def is_of_a_node(self) -> bool:
        return "/nodes/" in self.text

    @property
    def is_lost_lease(self) -> bool:
        """A renewal that came too late, which changes nothing."""
        return LEASE_NAME in self.text and self.status == 409


class Recording(APIServer):
    """A patch of a Node takes ``WRITE_S``; ``under_way``: how many have come and are not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[Write] = []
        self.under_way: dict[str, int] = dict.fromkeys(NAMES, 0)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return await super()._serve(request)
        who, begun_s = request.headers.get("Authorization", "").rpartition(" ")[2], time.monotonic()
        self.under_way[who] += 1
        if request.method == "PATCH" and "/nodes/" in request.path:
            await asyncio.sleep(WRITE_S)
        answer = await super()._serve(request)
        self.under_way[who] -= 1
        self.writes.append(Write(who, begun_s, f"{request.method} {request.path}", answer.status))
        return answer

    def writes_of(self, who: str, since_s: float) -> list[Write]:
        return [each for each in self.writes if each.who == who and each.begun_s >= since_s]


@dataclass
class Cluster:
    """``reports``: how often each node has reported."""

    server: Recording
    directory: Path
    url: str
    replicas: dict[str, Replica] = field(default_factory=dict)
    reports: int = 0

    def kubeconfig(self, user: str) -> Path:
        """Of the replica that is started next; its token is its name."""
        name = NAMES[len(self.replicas)]
        path = self.directory / f"{name}.kubeconfig"
        path.write_text(KUBECONFIG.format(url=self.url, name=name))
        return path

    @property
    def leader(self) -> str:
        lease = self.server.objects.get(LEASES, {}).get((NAMESPACE, LEASE_NAME))
        return str(lease["spec"]["holderIdentity"]).partition("_")[0] if lease else ""

    @property
    def authority(self) -> KeyPair:
        data = self.server.objects[SECRETS][NAMESPACE, "koordinator-nodelink-certs"]["data"]
        return KeyPair(base64.b64decode(data[CA_KEY]), base64.b64decode(data[CA_CERTIFICATE]))

    async def report(self) -> None:
        """NodeMetrics by turns of a node that is busy and of one that is not, so that its offer changes with each."""
        while True:
            self.reports += 1
            updated = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            usage = {"resources": {"cpu": "20" if self.reports % 2 else "1", "memory": "1Gi"}}
            status = {"updateTime": updated, "nodeMetric": {"nodeUsage": usage, "systemUsage": usage}}
            for number in range(NODE_COUNT):
                metric = self.server.objects.get(METRICS, {}).get(("", f"node-{number}"), {})
                self.server.put("/".join(METRICS), "", f"node-{number}", spec=metric.get("spec", {}), status=status)
            await asyncio.sleep(REPORT_S)

    def client(self, replica: Replica) -> TLSClient:
        """NodeLink of the first node."""
        made = context("node-0", self.authority, self.authority.certificate)
        return TLSClient("127.0.0.1", replica.nodelink_port, made, SERVER_NAME, asyncio.get_running_loop())


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Cluster]:
    """Starts two replicas, waits until the first leads, and lets nodes report until the end."""
    server = Recording()
    fill(server, NODE_COUNT)
    async with server.serving() as url:
        made = Cluster(server, directory, url)
        reporting = asyncio.create_task(made.report())
        try:
            for name in NAMES:
                flags = ("--feature-gates=WebhookFramework=false", "--rest-config-qps=200", "--rest-config-burst=200")
                made.replicas[name] = Replica(made, name, *flags)
                await until(lambda: made.leader == NAMES[0], "the first one to lead", READY_S)
            await asyncio.to_thread(made.replicas[NAMES[1]].wait_ready)
            yield made
        finally:
            reporting.cancel()
            for replica in made.replicas.values():
                replica.process.signal(signal.SIGCONT)
                await asyncio.to_thread(replica.process.stop)


async def refusal(call: Awaitable[object]) -> UnaryError:
    with pytest.raises(UnaryError) as caught:
        await call
    return caught.value


async def test_a_leader_that_goes_on_after_its_lease(tmp_path: Path, figure: Callable[[str], None]) -> None:
    async with cluster(tmp_path) as made:
        server, (first, second) = made.server, (made.replicas[name] for name in NAMES)
        with closing(made.client(first)) as link:
            node = Node(link)
            await node.report("node-0")
            await until(lambda: server.under_way[first.name] >= UNDER_WAY, "writes that are under way")
            first.process.signal(signal.SIGSTOP)
            stopped_s = time.monotonic()
            await until(lambda: made.leader == second.name, "the second one to lead", NEXT_S)
            led_s = time.monotonic()
            await until(
                lambda: [each for each in server.writes_of(second.name, led_s) if each.is_of_a_node], "its work"
            )

            _, name, uid = pod_of("node-0")
            eviction = asyncio.create_task(node.evict(name, uid))
            await asyncio.sleep(0.5)  # it waits in the socket
            continued_s = time.monotonic()
            first.process.signal(signal.SIGCONT)
            assert (await refusal(eviction)).code == FAILED_PRECONDITION
            told = f"this replica does not lead, 127.0.0.1:{second.nodelink_port} does"
            while (said := await refusal(node.report("node-0"))).message != told:
                assert said.code == FAILED_PRECONDITION and time.monotonic() < continued_s + SOON_S, said
                await asyncio.sleep(0.05)
        await asyncio.sleep(max(0.0, continued_s + WATCHED_S - time.monotonic()))

        late = server.writes_of(first.name, continued_s)
        assert [each for each in late if not each.is_lost_lease] == []
        assert len([each for each in server.writes_of(second.name, continued_s) if each.is_of_a_node]) > NODE_COUNT
        assert made.leader == second.name
        assert first.process.running and await asyncio.to_thread(first.figure, "koord_manager_leader") == 0
        figure(
            f"koord-manager stood still for {continued_s - stopped_s:.1f} s, the next one led after "
            f"{led_s - stopped_s:.1f} s; it wrote {len(late)} times when it went on"
        )
