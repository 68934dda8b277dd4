"""Agents and a manager: their own link, identity and signer, and a model of what is between them.

A node's connection takes a handshake, of which the manager does so many a second, one after the other. One that its
agent gave up costs the manager as much as any; one that the manager itself gives up after ``HANDSHAKE_S`` costs it
nothing. What an agent does between two failures is not simulated: while it is connected it reports, and the manager
knows fresh figures.

Half of the agents are units, which request with kubelet's credential; the others are pods, which do so with their
token. Of every other pod the token names the node, as since Kubernetes 1.30, of the rest the pod alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from koord.http2.grpc import DEADLINE_EXCEEDED, UNAVAILABLE, UnaryError
from koord.http2.tlsclient import TLSClient
from koord.kube.client import BURST, QPS
from koord.kube.clientkey import key_and_request
from koord.kube.kind import Key
from koord.model.core import ObjectMeta, Pod, PodSpec
from koord.model.nodelink import CA_ANNOTATION, LEASE_NAME, NODE_GROUP, NODE_USER, REPORT_INTERVAL_S
from koord.tls import certificates
from koord.tls.certificates import KeyPair
from koord_manager.nodelink import signer
from koord_manager.nodelink.server import AGE_S, HANDSHAKE_S
from koord_manager.nodelink.signer import Signer
from koord_manager.nodelink.signing import Agents
from qosd.cluster import session
from qosd.cluster.nodeidentity import NodeIdentity
from qosd.cluster.nodelink import NodeLinkClient
from qosd.metrics import Metrics
from tests.koord_manager.nodelink.rig import AGENT, NAMESPACE, pods_token
from tests.koord_manager.nodelink.simulation.apiserver import MemoryServer
from tests.koord_manager.nodelink.simulation.freshness import Freshness
from tests.kube.server import JSONObject

NODES = 10_000
HANDSHAKES_PER_S = 300.0
"""Of a manager that has one CPU, and others to do with it: grpcio does 800 in a second of a CPU."""
BEGIN = datetime(2026, 11, 26, tzinfo=UTC)
CA = certificates.issue_ca(BEGIN)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a manager of ``NODES`` nodes has a second, or that part of it that fewer nodes are of them."""

    signer_qps: float = signer.QPS
    signer_burst: int = signer.BURST
    handshakes_per_s: float = HANDSHAKES_PER_S

    def of(self, nodes: int) -> Budget:
        part = nodes / NODES
        burst = max(1, round(self.signer_burst * part))
        return Budget(self.signer_qps * part, burst, self.handshakes_per_s * part)


class Manager:
    """The one that leads. ``cut``: set when it has gone. ``pods``: its cache."""

    def __init__(self, server: MemoryServer, budget: Budget, pods: Mapping[Key, Pod]) -> None:
        self.cut = asyncio.Event()
        self._loop, self._handshake_s, self._free_s = asyncio.get_running_loop(), 1 / budget.handshakes_per_s, 0.0
        client, clock = server.client(QPS, BURST, {}), self._loop.time

        async def read_ca() -> KeyPair:
            return CA

        def now() -> datetime:
            return BEGIN + timedelta(seconds=clock())

        agents = Agents(AGENT, pods.get)
        signing = Signer(client, read_ca, agents, clock, now, budget.signer_qps, budget.signer_burst)
        self._signing = asyncio.create_task(signing.run())

    async def shake(self, patience_s: float) -> None:
        """A client's handshake, for which he waits so long. Raises UnaryError."""
        done_s = max(self._loop.time(), self._free_s) + self._handshake_s
        needed_s = done_s - self._loop.time()
        if needed_s <= HANDSHAKE_S:
            self._free_s = done_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(needed_s, patience_s, HANDSHAKE_S)):
                await self.cut.wait()
        if self.cut.is_set():
            raise UnaryError(UNAVAILABLE, "the connection is cut")
        if needed_s > patience_s:
            raise UnaryError(DEADLINE_EXCEEDED, f"no answer in {patience_s:g} s")
        if needed_s > HANDSHAKE_S:
            raise UnaryError(UNAVAILABLE, "the manager gave up the handshake")

    async def end(self) -> None:
        self.cut.set()
        self._signing.cancel()
        await asyncio.wait([self._signing])


class Fleet:
    """``budget``: of this number of nodes."""

    def __init__(self, nodes: int, budget: Budget, seed: int = 1) -> None:
        self.server, self.figures, self.random = MemoryServer(), Freshness(nodes), Random(seed)
        self._budget = budget
        self._pods: dict[Key, Pod] = {}
        self._agents: dict[int, asyncio.Task[None]] = {}
        self.manager: Manager | None = None
        self.node: Any = SimpleNamespace(metrics=Metrics(), after_tick=[])
        """The part of a node that the link looks at while it reports nothing."""
        self.server.lease = {
            "metadata": {"name": LEASE_NAME, "annotations": {CA_ANNOTATION: CA.certificate.decode()}},
            "spec": {"holderIdentity": "m_1@10.0.0.1:9877"},
        }

    def start_manager(self) -> None:
        self.manager = Manager(self.server, self._budget, self._pods)

    async def end_manager(self) -> None:
        assert self.manager is not None
        manager, self.manager = self.manager, None
        self.figures.forget(asyncio.get_running_loop().time())
        await manager.end()

    def requester(self, number: int) -> JSONObject:
        """Who the agent on a node is to the API server; a pod is another one with each start."""
        node, key = f"node-{number}", Key(NAMESPACE, f"koordlet-{number}")
        if number % 2 == 0:
            return {"username": f"{NODE_USER}{node}", "groups": [NODE_GROUP]}
        uid = str(UUID(int=self.random.getrandbits(128)))
        self._pods[key] = Pod(ObjectMeta(key.name, key.namespace, uid), PodSpec(node_name=node))
        names_node = {"node_name": node} if number % 4 == 1 else {}
        return pods_token(pod_name=key.name, pod_uid=uid, **names_node)

    async def start_agents(self, nodes: Iterable[int], within_s: float) -> None:
        """Or start them anew, evenly within that time; a process that ends takes its certificate along."""
        chosen = list(nodes)
        for node in chosen:
            await self._end_agent(node)
            link = _AgentLink(self, node)
            self._agents[node] = asyncio.create_task(link.run())
            await asyncio.sleep(within_s / len(chosen))

    async def end(self) -> None:
        for node in list(self._agents):
            await self._end_agent(node)
        if self.manager is not None:
            await self.end_manager()

    async def _end_agent(self, node: int) -> None:
        running = self._agents.pop(node, None)
        if running is not None:
            running.cancel()
            await asyncio.wait([running])
            if not running.cancelled():
                running.result()


class _AgentLink(NodeLinkClient):
    """The agent's own, which finds the manager, identifies itself, fails and comes again; only the wire is a model."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        loop, name = asyncio.get_running_loop(), f"node-{number}"
        client = fleet.server.client(session.QPS, session.BURST, fleet.requester(number))
        super().__init__(client, name, fleet.node, lambda: None, clock=loop.time, random=fleet.random.random)
        self._identity = NodeIdentity(client, name, loop.time, _key_and_request)
        self._fleet, self._number, self._loop = fleet, number, loop
        self._manager: Manager | None = None
        self._aged_s = 0.0

    async def _report_by(self, link: TLSClient) -> None:
        try:
            await super()._report_by(link)
        finally:
            if self._manager is not None:
                self._manager = None
                last_s = self._loop.time() - self._fleet.random.random() * REPORT_INTERVAL_S
                self._fleet.figures.silent(self._number, last_s)

    async def _report(self, link: TLSClient) -> None:
        if self._manager is None or self._loop.time() >= self._aged_s:
            if self._fleet.manager is None:
                raise UnaryError(UNAVAILABLE, "nobody listens")
            manager = self._fleet.manager
            await manager.shake(self._patience_s(link))
            self._manager = manager
            self._aged_s = self._loop.time() + AGE_S * (0.9 + self._fleet.random.random() / 5)
        if self._manager.cut.is_set():
            raise UnaryError(UNAVAILABLE, "the connection is cut")
        self._failures, self._why = 0, ""
        self._fleet.figures.told(self._number, self._loop.time())

    async def _pause(self) -> None:
        """Until the next report that is not like the one before."""
        assert self._manager is not None
        until_s = min(self._aged_s, self._identity._due_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until_s - self._loop.time())):
                await self._manager.cut.wait()
                await asyncio.sleep(self._fleet.random.random() * REPORT_INTERVAL_S)


async def _key_and_request(user: str, group: str) -> tuple[bytes, bytes]:
    """In no process of its own."""
    return key_and_request(user, group)
