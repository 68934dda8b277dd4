"""NodeLink's two calls.

Invariants: a node speaks for itself alone, in reports as in evictions; a pod's node is the one that the manager's cache
has for that UID, and an eviction carries the UID as its precondition, so it can hit no other pod. A node has one
eviction at the API server at a time, so those of the others wait for one of it at most. While this replica does not
lead, every call is refused with the leader's address. What the API server says to an eviction goes back in its own
words; everything else that goes wrong is a Refusal with a sentence.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakValueDictionary

from google.protobuf.message import DecodeError, Message

from koord.http2.grpc import FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE
from koord.http2.server import Refusal
from koord.kube.client import Client, Limits
from koord.kube.errors import DISRUPTION_BUDGET, APIError, KubeError
from koord.kube.kind import Key
from koord.kube.ratelimit import RateLimit
from koord.pb.koord import nodelink_pb2 as pb
from koord_manager.freshusage import FreshFigures
from koord_manager.view import ClusterView

_log = logging.getLogger(__name__)
SERVICE = pb.DESCRIPTOR.services_by_name["NodeLink"]
REPORTED = pb.NodeReportAnswer().SerializeToString()
MAX_PODS = 1024
"""Of a report: kubelet's own bound is some hundreds."""
MAX_REASON_CHARACTERS = 500
EVICTION_QPS, EVICTION_BURST = 10.0, 50
"""Of their own: a node that is short of memory does not wait for what controllers have to write."""
_EVICTED = pb.EvictPodAnswer()
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
        leadership: Leadership,
        wall_s: Callable[[], float],
    ) -> None:
        self._client = client.with_limits(Limits(RateLimit(EVICTION_QPS, EVICTION_BURST, time.monotonic)))
        self._view, self._fresh = view, fresh
        self._leadership, self.wall_s = leadership, wall_s
        self._evicting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.counts = Counts()

    @property
    def methods(self) -> Mapping[str, Callable[[str, bytes], Awaitable[bytes]]]:
        """By path: the calling node and its message → the answer. Each raises Refusal."""
        return {_path("Report"): self.report, _path("EvictPod"): self.evict_pod}

    async def report(self, node: str, message: bytes) -> bytes:
        """Raises Refusal."""
        self._check_leadership()
        report = _read(pb.NodeReport, message)
        if report.node != node:
            raise Refusal(PERMISSION_DENIED, f"node {node} may not report for {report.node or 'nobody'!r}")
        if len(report.pods) > MAX_PODS:
            raise Refusal(INVALID_ARGUMENT, f"pods: {len(report.pods)} are more than the {MAX_PODS} of a report")
        if not self._has_node(node):
            self._fresh.forget(node)
            raise Refusal(NOT_FOUND, f"there is no Node {node}")
        self._fresh.take(message, report)
        self.counts.reports += 1
        return REPORTED

    async def evict_pod(self, node: str, message: bytes) -> bytes:
        """Raises Refusal."""
        self._check_leadership()
        request = _read(pb.EvictPodRequest, message)
        key = Key(request.namespace, request.name)
        lock = self._evicting.setdefault(node, asyncio.Lock())
        async with lock:
            self._check_leadership()
            self._check_pod(node, key, request.uid)
            reason = request.reason[:MAX_REASON_CHARACTERS] or "no reason given"
            _log.info("node %s evicts pod %s: %s", node, key, reason)
            try:
                await self._client.evict(key, request.uid)
            except APIError as error:
                return _said(error).SerializeToString()
            except (KubeError, ValueError) as error:
                raise Refusal(UNAVAILABLE, f"pod {key} is not evicted: {error}") from error
        self.counts.evictions += 1
        return _EVICTED.SerializeToString()

    def _check_leadership(self) -> None:
        """Raises Refusal."""
        if not self._leadership.is_ours():
            leader = self._leadership.leader()
            raise Refusal(FAILED_PRECONDITION, f"this replica does not lead, {leader or 'nobody'} does")

    def _has_node(self, node: str) -> bool:
        return self._view.nodes.get(Key("", node)) is not None

    def _check_pod(self, node: str, key: Key, uid: str) -> None:
        """Raises Refusal unless the pod is the caller's node's, which exists."""
        if not self._has_node(node):
            raise Refusal(NOT_FOUND, f"there is no Node {node}")
        if not (key.namespace and key.name and uid):
            raise Refusal(INVALID_ARGUMENT, "namespace, name and uid are needed to say which pod is meant")
        pod = self._view.pods.get(key)
        if pod is None or pod.metadata.uid != uid:
            raise Refusal(NOT_FOUND, f"the manager knows no pod {key} with UID {uid}")
        if pod.spec.node_name != node:
            raise Refusal(PERMISSION_DENIED, f"pod {key} is not on node {node}")


def _path(rpc: str) -> str:
    return f"/{SERVICE.full_name}/{SERVICE.methods_by_name[rpc].name}"


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
