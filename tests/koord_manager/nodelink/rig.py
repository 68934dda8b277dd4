"""A NodeLink server on a real socket, an API server in memory behind it, and nodes that speak with it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509

from koord.http2.client import UnaryError
from koord.http2.tlsclient import ALPN, TLSClient
from koord.kube.client import Client
from koord.kube.clientkey import key_and_request
from koord.kube.credentials import pem_file
from koord.kube.kind import Key
from koord.model.nodelink import CA_ANNOTATION, NODE_GROUP, NODE_USER, SERVER_NAME
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.report import FreshPod, FreshUsage
from koord.pb.koord import nodelink_pb2 as pb
from koord.tls import certificates
from koord.tls.certificates import KeyPair
from koord.tls.certificatestore import CertificateStore
from koord_manager.freshusage import FreshFigures
from koord_manager.nodelink.server import SECRET_NAME, NodeLinkServer
from koord_manager.nodelink.service import Leadership, NodeLinkService
from koord_manager.nodelink.watching import StateWatcher
from koord_manager.nodestates import NodeStates
from koord_manager.view import ClusterView
from qosd.cluster.nodelink import encoded
from tests.kube.server import JSONObject, Server
from tests.kube.support import NODES, PODS, client
from tests.support.waiting import until

NAMESPACE = "koordinator-system"
AGENT = f"system:serviceaccount:{NAMESPACE}:koordlet"
REQUESTS = "certificatesigningrequests"
REPORT, EVICT_POD = "/koord.nodelink.v1.NodeLink/Report", "/koord.nodelink.v1.NodeLink/EvictPod"
CALL_S = 5.0
GIB = 1 << 30
USAGE = FreshUsage(
    CPUMemory(2000, 4 * GIB), CPUMemory(500, GIB), (FreshPod("shop", "web", "koord-prod", CPUMemory(1000, GIB)),)
)


class APIServer(Server):
    """``requester``: who requests certificates, as the server knows it."""

    def __init__(self) -> None:
        super().__init__()
        self.requester: JSONObject = {}

    def _create(self, collection: tuple[str, str], namespace: str, body: JSONObject) -> JSONObject:
        if collection[1] == REQUESTS:
            body = {**body, "spec": {**body["spec"], **self.requester}}
        return super()._create(collection, namespace, body)


def pods_token(username: str = AGENT, **claims: str) -> JSONObject:
    """Who requests with a pod's token, as an API server says it; ``node_name="n1"`` is the claim ``…/node-name``."""
    extra = {f"authentication.kubernetes.io/{name.replace('_', '-')}": [value] for name, value in claims.items()}
    return {"username": username, "groups": ["system:serviceaccounts"], "extra": extra}


@dataclass
class Rig:
    """A replica, and what it works on."""

    server: APIServer
    api: Client
    view: ClusterView
    link: NodeLinkServer
    service: NodeLinkService
    fresh: FreshFigures
    state: State
    states: NodeStates
    watcher: StateWatcher

    @property
    def ca(self) -> str:
        return self.link.annotations()[CA_ANNOTATION]

    def put_pod(self, name: str, node: str, uid: str) -> None:
        self.server.put(PODS, "shop", name, metadata={"uid": uid}, spec={"nodeName": node}, status={"phase": "Running"})

    async def context(
        self, node: str = "n1", lifetime: timedelta = timedelta(days=7), ca: KeyPair | None = None
    ) -> ssl.SSLContext:
        """That of ``node``, certified by the manager's authority, or by another one."""
        key, request = key_and_request(f"{NODE_USER}{node}", NODE_GROUP)
        signing = ca or await self.link.read_ca()
        now = datetime.now(UTC)
        if lifetime < timedelta(0):
            now -= timedelta(days=1)
            lifetime += timedelta(days=1)
        certificate = certificates.issue_client(signing, x509.load_pem_x509_csr(request), now, lifetime)
        made = plain_context(self.ca)
        with pem_file(certificate) as chain, pem_file(key) as private:
            made.load_cert_chain(chain, private)
        return made

    @contextlib.contextmanager
    def client(self, context: ssl.SSLContext) -> Iterator[Node]:
        link = TLSClient("127.0.0.1", self.link.port, context, SERVER_NAME, asyncio.get_running_loop())
        try:
            yield Node(link)
        finally:
            link.close()


@dataclass
class State:
    """Of the replica. ``now_s``: its clock."""

    leads: bool = True
    leader: str = ""
    now_s: float = 1000.0
    ahead_s: float = 0.0
    """How much later it is for certificates than by the real clock."""


@dataclass
class Node:
    link: TLSClient
    sequence: int = 0

    async def report(self, node: str = "n1", usage: FreshUsage = USAGE, instance: str = "i") -> None:
        self.sequence += 1
        await self.link.call(REPORT, encoded(node, instance, self.sequence, 0, usage), CALL_S)

    async def evict(self, name: str, uid: str, reason: str = "memory is short") -> pb.EvictPodAnswer:
        message = pb.EvictPodRequest(namespace="shop", name=name, uid=uid, reason=reason)
        answer = await self.link.call(EVICT_POD, message.SerializeToString(), CALL_S)
        return pb.EvictPodAnswer.FromString(answer.message)

    async def refusal(self, node: str = "n1") -> tuple[int, str]:
        """Status and message of a report that is refused."""
        try:
            await self.report(node)
        except UnaryError as error:
            return error.code, error.message
        raise AssertionError("the report was taken")


def plain_context(ca: str) -> ssl.SSLContext:
    """A client without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca)
    context.set_alpn_protocols([ALPN])
    return context


@contextlib.asynccontextmanager
async def rig(nodes: tuple[str, ...] = ("n1", "n2"), server: APIServer | None = None) -> AsyncIterator[Rig]:
    """A replica that leads, in a cluster of ``nodes``."""
    server, state = server or APIServer(), State()
    async with server.serving() as url, client(url) as api:
        for node in nodes:
            server.put(NODES, "", node)
        view = ClusterView(api, Key(NAMESPACE, "none"), NAMESPACE, {}, time.monotonic, time.time)
        fresh = FreshFigures(lambda: state.now_s)
        leadership = Leadership(lambda: state.leads, lambda: state.leader)
        states = NodeStates()
        service = NodeLinkService(api, view, fresh, leadership, lambda: time.time() + state.ahead_s, states)
        store = CertificateStore(api, Key(NAMESPACE, SECRET_NAME), {}, may_be_provided=False)
        watcher = StateWatcher(states, leadership, time.monotonic, tick_s=0.05)
        link = NodeLinkServer(service, store, NAMESPACE, watcher)
        following = asyncio.create_task(view.run())
        try:
            async with link.serving("127.0.0.1", 0):
                await view.synced()
                await until(lambda: bool(link.annotations()))
                yield Rig(server, api, view, link, service, fresh, state, states, watcher)
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
