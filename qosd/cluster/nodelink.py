"""NodeLink's node side: one connection to the leading manager, for fresh reports and for evictions that it carries out.

The leader is found by its Lease, which also has the authorities of its certificate. A report goes each
``REPORT_INTERVAL_S``, and within a second or two when the use that batch pods must make room for moves by
``MOVED_PERCENT`` of the node. Invariants: there is never more than one connection and one report on its way; a manager
that cannot be reached, does not lead any more or refuses costs no more than a look at the Lease after a growing pause.
It fails with nothing: the NodeMetric says the same a minute later, and evictions have another way.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from random import random as uniform

from koord.http2.client import UnaryError
from koord.http2.grpc import DEADLINE_EXCEEDED, NOT_FOUND, PERMISSION_DENIED, UNAUTHENTICATED, UNAVAILABLE
from koord.http2.tlsclient import TLSClient
from koord.kube.backoff import Backoff, Random
from koord.kube.client import Client
from koord.kube.errors import DISRUPTION_BUDGET, APIError, KubeError, Unreachable
from koord.kube.kind import LEASE, Key, Kind, T
from koord.kube.lease import address_of
from koord.kube.reading import StatusCause
from koord.model import locations, nodelink
from koord.model.nodelink import CA_ANNOTATION, REPORT_INTERVAL_S, SERVER_NAME
from koord.model.nodemetric import NodeMetric
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.report import FreshUsage
from koord.pb.koord import nodelink_pb2 as pb
from koord.service import optionvalues
from qosd.cluster import collectpolicy, freshfigures
from qosd.cluster.freshfigures import Level
from qosd.cluster.nodeidentity import NodeIdentity, NoIdentity
from qosd.cluster.ticks import MeasuredNode, after_each_tick, set_within
from qosd.clusterstatus import ClusterPart, PartState
from qosd.model.snapshot import NodeSnapshot
from qosd.sense.node import NodeRow

NAME = "NodeLink"
MOVED_PERCENT = 5
CALL_S = 5.0
CONNECT_S = 15.0
"""Longer than a manager lets a handshake take. A handshake that the node gives up first costs the manager as much as
any, and if all nodes came at once, it would do nothing else."""
EVICTION_S = 30.0
MAX_ANSWER_BYTES = 64 << 10
_BACKOFF = Backoff(base_s=2.0, max_s=30.0)
_SERVICE = pb.DESCRIPTOR.services_by_name["NodeLink"].full_name
_REPORT, _EVICT_POD = f"/{_SERVICE}/Report", f"/{_SERVICE}/EvictPod"
_log = logging.getLogger(__name__)


class NoLink(Exception):
    """There is no manager to speak with; the message says why."""


class NodeLinkClient:
    """``metric``: the node's NodeMetric, whose policy says which memory counts. ``namespace``: the manager's."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        node: MeasuredNode,
        metric: Callable[[], NodeMetric | None],
        namespace: str = locations.NAMESPACE,
        clock: Callable[[], float] = time.monotonic,
        random: Random = uniform,
    ) -> None:
        self._client, self._node_name, self._node, self._metric = client, node_name, node, metric
        self._lease = Key(namespace, nodelink.LEASE_NAME)
        self._clock, self._random = clock, random
        self._identity = NodeIdentity(client, node_name, clock)
        self._instance, self._sequence = secrets.token_hex(8), 0
        self._link: TLSClient | None = None
        self._woken = asyncio.Event()
        self._sampled_ns = 0
        self._recent = freshfigures.RecentLevels()
        self._level: Level | None = None
        self._reported_level: Level | None = None
        self._reported_s: float | None = None
        self._failures = 0
        self._why = "it has not been looked for yet"

    async def run(self) -> None:
        """Runs until it is cancelled."""
        with after_each_tick(self._node.after_tick, self._look):
            while True:
                try:
                    await self._speak()
                except (NoLink, NoIdentity, UnaryError, KubeError) as error:
                    self._fail(error)
                    await asyncio.sleep(_BACKOFF.delay_s(self._failures, self._random))

    def status(self) -> ClusterPart:
        age_s = None if self._reported_s is None else self._clock() - self._reported_s
        if not self._why:
            state = PartState.OK
        else:
            state = PartState.WAITING if self._reported_s is None and self._failures <= 1 else PartState.FAILING
        return ClusterPart(NAME, state, age_s, self._failures, self._why)

    # evictions

    async def evict(self, key: Key, uid: str, reason: str = "") -> None:
        """Asks the manager for what ``Client.evict`` does, and fails as that does, with KubeError."""
        link = self._link
        if link is None:
            raise Unreachable(f"no link to koord-manager: {self._why or 'it is just being made'}", False)
        request = pb.EvictPodRequest(namespace=key.namespace, name=key.name, uid=uid, reason=reason)
        try:
            message = (await link.call(_EVICT_POD, request.SerializeToString(), EVICTION_S)).message
        except (UnaryError, NoIdentity) as error:
            raise _as_kube_error(error) from error
        answer = pb.EvictPodAnswer.FromString(message)
        if answer.status:
            causes = tuple(StatusCause(DISRUPTION_BUDGET, text) for text in answer.budget_causes)
            raise APIError(answer.status, answer.reason, answer.message, answer.retry_after_s or None, causes)

    # reports

    async def _speak(self) -> None:
        """Reports until something goes wrong. A renewed identity needs another connection, and not the API server."""
        host, port, ca = await self._leader()
        while True:
            context = await self._identity.context(ca)
            link = TLSClient(host, port, context, SERVER_NAME, asyncio.get_running_loop(), MAX_ANSWER_BYTES)
            try:
                await self._report_by(link)
            finally:
                self._link = None
                link.close()

    async def _report_by(self, link: TLSClient) -> None:
        """Reports until the identity is due."""
        while not self._identity.is_due():
            await self._report(link)
            self._link = link
            await self._pause()

    async def _leader(self) -> tuple[str, int, str]:
        """Returns host, port and the authorities of the leader's certificate. Raises NoLink or KubeError."""
        lease = await self._client.get(LEASE, self._lease)
        address, ca = address_of(lease.spec.holder_identity), lease.metadata.annotations.get(CA_ANNOTATION, "")
        if not address or not ca:
            lacking = "an address" if ca else f"annotation {CA_ANNOTATION}"
            raise NoLink(f"Lease {self._lease} lacks {lacking}: koord-manager does not lead, or serves no NodeLink")
        try:
            return *optionvalues.host_port(address), ca
        except ValueError as error:
            raise NoLink(f"Lease {self._lease} has the address {address!r}: {error}") from error

    async def _report(self, link: TLSClient) -> None:
        """Raises UnaryError, or NoIdentity."""
        snapshot = self._node.loop.report.snapshot
        usage = None if snapshot is None else self._usage(snapshot)
        if snapshot is None or usage is None:
            return
        self._sequence += 1
        self._reported_level = self._level or freshfigures.level(snapshot)
        message = encoded(self._node_name, self._instance, self._sequence, snapshot.wall_ns, usage)
        await link.call(_REPORT, message, self._patience_s(link))
        self._node.metrics.cluster_reports[NAME, "written"] += 1
        if self._why:
            _log.info("NodeLink: reports to koord-manager at %s", link.peer)
        self._reported_s, self._failures, self._why = self._clock(), 0, ""

    def _patience_s(self, link: TLSClient) -> float:
        """Returns the timeout of a call: the first one on a link also makes the connection."""
        return CALL_S if link is self._link else CONNECT_S

    def _usage(self, snapshot: NodeSnapshot) -> FreshUsage | None:
        metric = self._metric()
        policy = collectpolicy.effective(None if metric is None else metric.spec.metric_collect_policy)
        return freshfigures.fresh_usage(snapshot, self._node.sense.store, policy.memory)

    async def _pause(self) -> None:
        self._woken.clear()
        await set_within(self._woken, REPORT_INTERVAL_S)

    def _look(self) -> None:
        """Wakes the report after a tick if the level has moved; a tick without new samples, which an event brings,
        shows none.
        """
        snapshot = self._node.loop.report.snapshot
        if snapshot is None or snapshot.sampled_ns == self._sampled_ns:
            return
        self._sampled_ns, newest = snapshot.sampled_ns, freshfigures.level(snapshot)
        if newest is None:
            return
        self._level = self._recent.mean_with(snapshot.sampled_ns, newest)
        if self._reported_level is not None and has_moved(self._reported_level, self._level, _total(snapshot)):
            self._woken.set()

    def _fail(self, error: Exception) -> None:
        self._failures += 1
        self._node.metrics.cluster_reports[NAME, "failed"] += 1
        if isinstance(error, UnaryError) and error.code == UNAUTHENTICATED:
            self._identity.reject()
        why = error.message if isinstance(error, UnaryError) else str(error)
        if why != self._why:
            _log.warning("NodeLink: %s", why)
        self._why = why


class NodeLinkEvictions:
    """Evicts through the manager, since a pod's account may evict nothing itself, and reads by itself."""

    def __init__(self, link: NodeLinkClient, client: Client) -> None:
        self._link, self._client = link, client

    async def evict(self, key: Key, uid: str) -> None:
        await self._link.evict(key, uid)

    async def get(self, kind: Kind[T], key: Key) -> T:
        return await self._client.get(kind, key)

    async def get_path(self, path: str) -> bytes:
        return await self._client.get_path(path)


def has_moved(reported: Level, now: Level, total: Level) -> bool:
    """Returns whether the move is worth a report before its time: never if the total is not known."""
    return any(
        abs(after - before) * 100 > MOVED_PERCENT * most > 0
        for before, after, most in zip(reported, now, total, strict=True)
    )


def _total(snapshot: NodeSnapshot) -> Level:
    return Level(snapshot.capacity_cpu_milli / 1000, snapshot.value(NodeRow.memory_total_bytes) or 0.0)


def encoded(node: str, instance: str, sequence: int, sampled_unix_ns: int, usage: FreshUsage) -> bytes:
    """Returns a ``NodeReport`` as bytes."""
    return pb.NodeReport(
        node=node,
        instance=instance,
        sequence=sequence,
        sampled_unix_ns=sampled_unix_ns,
        node_usage=_usage(usage.node),
        system_usage=_usage(usage.system),
        pods=[
            pb.PodUsage(namespace=pod.namespace, name=pod.name, priority_class=pod.priority, usage=_usage(pod.usage))
            for pod in usage.pods
        ],
    ).SerializeToString()


def _usage(amount: CPUMemory) -> pb.Usage:
    return pb.Usage(cpu_milli=amount.cpu_milli, memory_bytes=amount.memory_bytes)


def _as_kube_error(error: UnaryError | NoIdentity) -> KubeError:
    if isinstance(error, NoIdentity):
        return Unreachable(str(error), False)
    if error.code == NOT_FOUND:
        return APIError(404, "NotFound", error.message)
    if error.code == PERMISSION_DENIED:
        return APIError(403, "Forbidden", error.message)
    return Unreachable(f"koord-manager: {error.message}", error.code in (DEADLINE_EXCEEDED, UNAVAILABLE))
