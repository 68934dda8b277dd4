"""NodeLink's two calls, for one connection at a time: who calls is known before anything that it says counts.

Invariants: a node speaks for itself alone, in reports as in evictions; a pod's node is the one that the manager's cache
has for that UID, and an eviction carries the UID as its precondition, so it can hit no other pod. While this replica
does not lead, every call is refused with the leader's address. What the API server says to an eviction goes back in its
own words; everything else that goes wrong is a Refusal with a sentence.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from koord.http2.grpc import FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE
from koord.http2.server import Method, Refusal, Reply
from koord.kube.client import Client, Limits
from koord.kube.errors import DISRUPTION_BUDGET, APIError, KubeError
from koord.kube.kind import Key
from koord.kube.ratelimit import RateLimit
from koord.pb.koord import nodelink_pb2 as pb
from koord_manager.freshusage import FreshFigures
from koord_manager.nodelink import identity
from koord_manager.nodelink.tokens import TokenReviewer
from koord_manager.view import ClusterView

_log = logging.getLogger(__name__)
SERVICE = pb.DESCRIPTOR.services_by_name["NodeLink"]
REPORTED = Reply(pb.NodeReportAnswer().SerializeToString())
EVICTION_QPS, EVICTION_BURST = 10.0, 50
"""Of their own: a node that is short of memory does not wait for what controllers have to write."""
_EVICTED = pb.EvictPodAnswer()
_Fields = Mapping[bytes, bytes]
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Leadership:
    """``leader``: its address, "" if nobody knows."""

    is_ours: Callable[[], bool]
    leader: Callable[[], str]


@dataclass(slots=True)
class Counts:
    reports: int = 0
    refused: int = 0
    evictions: int = 0

    @property
    def by_result(self) -> Mapping[str, float]:
        return {"reported": self.reports, "refused": self.refused, "evicted": self.evictions}


class NodeLinkService:
    """``wall_s``: seconds since 1970."""

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        fresh: FreshFigures,
        tokens: TokenReviewer,
        leadership: Leadership,
        wall_s: Callable[[], float],
    ) -> None:
        self._client = client.with_limits(Limits(RateLimit(EVICTION_QPS, EVICTION_BURST, time.monotonic)))
        self._view, self._fresh, self._tokens = view, fresh, tokens
        self._leadership, self._wall_s = leadership, wall_s
        self.counts = Counts()

    def caller(self, transport: asyncio.BaseTransport) -> Caller:
        return Caller(self, transport)

    # who calls

    def node(self, certified: identity.CertificateIdentity | None, fields: _Fields) -> str | None:
        """The caller's node; None if that takes a review of its token. Raises Refusal."""
        if not self._leadership.is_ours():
            leader = self._leadership.leader()
            raise Refusal(FAILED_PRECONDITION, f"this replica does not lead, {leader or 'nobody'} does")
        if certified is None:
            return self._tokens.known(identity.token(fields))
        certified.check(self._wall_s())
        return certified.node

    async def reviewed_node(self, fields: _Fields) -> str:
        """Raises Refusal."""
        return await self._tokens.node(identity.token(fields))

    # what it says

    def report(self, node: str, message: bytes) -> Reply:
        """Raises Refusal."""
        report = _read(pb.NodeReport, message)
        if report.node != node:
            raise Refusal(PERMISSION_DENIED, f"node {node} may not report for {report.node or 'nobody'!r}")
        if self._view.nodes.get(Key("", node)) is None:
            self._fresh.forget(node)
            raise Refusal(NOT_FOUND, f"there is no Node {node}")
        self._fresh.take(message, report)
        self.counts.reports += 1
        return REPORTED

    async def evict_pod(self, node: str, message: bytes) -> Reply:
        """Raises Refusal."""
        request = _read(pb.EvictPodRequest, message)
        key = Key(request.namespace, request.name)
        self._check_pod(node, key, request.uid)
        _log.info("node %s evicts pod %s: %s", node, key, request.reason or "no reason given")
        try:
            await self._client.evict(key, request.uid)
        except APIError as error:
            return Reply(_said(error).SerializeToString())
        except (KubeError, ValueError) as error:
            raise Refusal(UNAVAILABLE, f"pod {key} is not evicted: {error}") from error
        self.counts.evictions += 1
        return Reply(_EVICTED.SerializeToString())

    def _check_pod(self, node: str, key: Key, uid: str) -> None:
        """Raises Refusal unless the pod is the caller's node's."""
        if not (key.namespace and key.name and uid):
            raise Refusal(INVALID_ARGUMENT, "namespace, name and uid are needed to say which pod is meant")
        pod = self._view.pods.get(key)
        if pod is None or pod.metadata.uid != uid:
            raise Refusal(NOT_FOUND, f"the manager knows no pod {key} with UID {uid}")
        if pod.spec.node_name != node:
            raise Refusal(PERMISSION_DENIED, f"pod {key} is not on node {node}")


class Caller:
    """One connection."""

    def __init__(self, service: NodeLinkService, transport: asyncio.BaseTransport) -> None:
        self._service, self.transport = service, transport
        self._certified = identity.of_connection(transport)
        self._has_called = True  # it has just come

    def was_idle(self) -> bool:
        """Was there no call of a node that is known since the last time that this was asked?"""
        was_idle, self._has_called = not self._has_called, False
        return was_idle

    @property
    def methods(self) -> Mapping[bytes, Method]:
        return {
            _path("Report"): lambda message, fields: self._call(self._service.report, message, fields),
            _path("EvictPod"): lambda message, fields: self._call(self._service.evict_pod, message, fields),
        }

    def _call(
        self, method: Callable[[str, bytes], Reply | Awaitable[Reply]], message: bytes, fields: _Fields
    ) -> Reply | Awaitable[Reply]:
        try:
            node = self._service.node(self._certified, fields)
            self._has_called |= node is not None
            reply = self._after_review(method, message, fields) if node is None else method(node, message)
        except Refusal:
            self._service.counts.refused += 1
            raise
        return reply if isinstance(reply, Reply) else self._awaited(reply)

    async def _awaited(self, reply: Awaitable[Reply]) -> Reply:
        try:
            return await reply
        except Refusal:
            self._service.counts.refused += 1
            raise

    async def _after_review(
        self, method: Callable[[str, bytes], Reply | Awaitable[Reply]], message: bytes, fields: _Fields
    ) -> Reply:
        node = await self._service.reviewed_node(fields)
        self._has_called = True
        reply = method(node, message)
        return reply if isinstance(reply, Reply) else await reply


def _path(rpc: str) -> bytes:
    return f"/{SERVICE.full_name}/{SERVICE.methods_by_name[rpc].name}".encode()


def _read(kind: type[M], message: bytes) -> M:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise Refusal(INVALID_ARGUMENT, f"the request is no {kind.__name__}: {error}") from error


def _said(error: APIError) -> pb.EvictPodAnswer:
    return pb.EvictPodAnswer(
        status=error.status,
        reason=error.reason,
        message=error.message,
        budget_causes=[cause.message for cause in error.causes if cause.reason == DISRUPTION_BUDGET],
        retry_after_s=error.retry_after_s or 0.0,
    )
