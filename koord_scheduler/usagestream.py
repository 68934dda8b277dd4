"""Follows the leading koord-manager's ClusterState: what nodes use, some seconds fresh, while there is such a stream.

The leader and its authority are in the manager's Lease. Invariants: what the stream said counts for ``STALE_S`` after
its end, so that one that is back by then has changed nothing; then NodeMetrics count alone. Nothing here fails: what
goes wrong is said once, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from random import random

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from koord.kube.backoff import Backoff
from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.kube.kind import LEASE, Key
from koord.kube.lease import address_of
from koord.model.nodelink import CA_ANNOTATION, LEASE_NAME, SERVER_NAME, STALE_S
from koord.model.priority import CPU, MEMORY, PriorityClass
from koord.pb.koord import clusterstate_pb2 as pb
from koord.pb.koord import nodelink_pb2 as reports
from koord.scheduling.nodeload import NodeLoads
from koord.scheduling.nodeusage import NodeUsage, PodMeasure, UsageSource
from koord_scheduler import clientcertificate
from koord_scheduler.clientcertificate import ClientCertificate, NoCertificate

_log = logging.getLogger(__name__)
WATCH = "/koord.clusterstate.v1.ClusterState/Watch"
SILENCE_S = STALE_S
"""The manager says something every five seconds; a stream that says nothing for so long is none."""
_BACKOFF = Backoff(1.0, 30.0)
_DENIED_S = 300.0
"""Until a certificate is requested again that was not given: each request is an object that stays for an hour."""
_SLICE = 64
"""Nodes that are taken before the event loop comes to other work: some milliseconds."""


class NoStream(Exception):
    """The text says why there is none."""


class UsageStream:
    """``loads``: what is told; ``changed``: called after each update. ``user``: who this process is to the API server;
    ``namespace``: the manager's. ``wall_s``: seconds since 1970.
    """

    def __init__(
        self,
        client: Client,
        loads: NodeLoads,
        changed: Callable[[], None],
        user: str,
        namespace: str,
        wall_s: Callable[[], float],
        backoff: Backoff = _BACKOFF,
        stale_s: float = STALE_S,
    ) -> None:
        self._client, self._loads, self._changed = client, loads, changed
        self._user, self._lease, self._wall_s = user, Key(namespace, LEASE_NAME), wall_s
        self._backoff, self._stale_s = backoff, stale_s
        self._certificate: ClientCertificate | None = None
        self._instance, self._version = "", 0
        self._nodes: dict[str, None] = {}
        self._unseen: dict[str, None] = {}
        """Nodes of before that a snapshot under way has not named yet."""
        self.source = ""
        """The address of the stream that is followed; "": there is none, and NodeMetrics count alone."""
        self.updates = Counter[str](snapshot=0, delta=0)

    async def run(self) -> None:
        """Until it is cancelled."""
        failures, said, clearing = 0, "", None
        while True:
            is_denied = False
            try:
                async for is_first in self._updates():
                    if is_first:
                        failures, said = 0, ""
                        if clearing is not None:
                            clearing.cancel()
                            clearing = None
                        _log.info("goes by what koord-manager at %s says nodes use", self.source)
            except (NoStream, NoCertificate, KubeError, DecodeError, OSError) as error:
                is_denied = isinstance(error, NoCertificate)
                if str(error) != said:
                    _log.warning("goes by NodeMetrics: %s", error)
                    said = str(error)
            self.source = ""
            failures += 1
            if clearing is None and self._nodes:
                clearing = asyncio.get_running_loop().call_later(self._stale_s, self._clear)
            delay_s = self._backoff.delay_s(failures, random)
            await asyncio.sleep(max(delay_s, _DENIED_S) if is_denied else delay_s)

    async def _updates(self) -> AsyncIterator[bool]:
        """Takes updates; yields whether one was the first. Raises NoStream, NoCertificate or KubeError."""
        address, ca = await self._leader()
        if self._certificate is None or self._wall_s() >= self._certificate.renew_s:
            self._certificate = await clientcertificate.request(self._client, self._user)
        credentials = grpc.ssl_channel_credentials(ca, self._certificate.key, self._certificate.chain)
        channel_options = (("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.use_local_subchannel_pool", 1))
        async with grpc.aio.secure_channel(address, credentials, options=channel_options) as channel:
            method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(WATCH)
            request = pb.WatchRequest(instance=self._instance, version=self._version)
            call = method(request.SerializeToString())
            is_first = True
            while True:
                try:
                    async with asyncio.timeout(SILENCE_S):
                        message = await call.read()
                except TimeoutError:
                    raise NoStream(f"koord-manager at {address} says nothing") from None
                except grpc.aio.AioRpcError as error:
                    raise self._ended(address, error) from error
                if not isinstance(message, bytes):  # the end
                    raise NoStream(f"koord-manager at {address} has ended the stream")
                update = pb.Update.FromString(message)
                if is_first and not update.is_snapshot and self._version != request.version:
                    raise NoStream(f"koord-manager at {address} goes on from what was forgotten meanwhile")
                await self._take(update)
                self.source = address
                yield is_first
                is_first = False

    def _ended(self, address: str, error: grpc.aio.AioRpcError) -> NoStream:
        if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            self._certificate = None
        return NoStream(f"koord-manager at {address}: {error.code().name}: {error.details()}")

    async def _leader(self) -> tuple[str, bytes]:
        """The address and the authorities. Raises NoStream or KubeError."""
        lease = await self._client.get(LEASE, self._lease)
        address = address_of(lease.spec.holder_identity)
        ca = lease.metadata.annotations.get(CA_ANNOTATION, "")
        if not address or not ca:
            raise NoStream(f"Lease {self._lease} names no koord-manager that nodes report to")
        return address, ca.encode()

    async def _take(self, update: pb.Update) -> None:
        if update.is_snapshot:
            self._unseen, self._nodes = {**self._unseen, **self._nodes}, {}
        self.updates["snapshot" if update.is_snapshot else "delta"] += 1
        for number, state in enumerate(update.nodes, 1):
            self._put(state)
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        gone = list(update.gone)
        if update.is_complete:
            gone += self._unseen
            self._unseen = {}
            self._instance, self._version = update.instance, update.version
        for node in gone:
            self._nodes.pop(node, None)
            self._loads.put_fresh(node, None)
        self._changed()

    def _put(self, state: pb.NodeState) -> None:
        """A node whose agent is silent counts by its NodeMetric."""
        self._nodes[state.node] = None
        self._unseen.pop(state.node, None)
        usage = None
        if state.agent == pb.REPORTING:
            report = reports.NodeReport.FromString(state.report)
            usage = usage_of(report, self._wall_s() - state.age_ms / 1000)
        self._loads.put_fresh(state.node, usage, state.anomaly)

    def _clear(self) -> None:
        """The stream has been gone for too long."""
        for node in (*self._nodes, *self._unseen):
            self._loads.put_fresh(node, None)
        self._nodes, self._unseen = {}, {}
        self._instance, self._version = "", 0
        self._changed()


def usage_of(report: reports.NodeReport, measured_s: float) -> NodeUsage:
    """``measured_s``: when it came, by our clock: that of the node may be another."""
    return NodeUsage(
        UsageSource.STREAM,
        measured_s,
        _amounts(report.node_usage),
        _amounts(report.system_usage),
        dict(_pods(report.pods)),
    )


def _amounts(usage: reports.Usage) -> Mapping[str, int]:
    return {CPU: usage.cpu_milli, MEMORY: usage.memory_bytes}


def _pods(pods: Iterable[reports.PodUsage]) -> Iterable[tuple[str, PodMeasure]]:
    for pod in pods:
        is_prod = pod.priority_class == PriorityClass.PROD if pod.priority_class else None
        yield f"{pod.namespace}/{pod.name}", PodMeasure(pod.usage.cpu_milli, pod.usage.memory_bytes, is_prod)
