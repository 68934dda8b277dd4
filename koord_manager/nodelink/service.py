"""NodeLink's two calls.

Invariants: a node speaks for itself alone, in reports as in evictions; a pod's node is the one that the manager's cache
has for that UID, and an eviction carries the UID as its precondition, so it can hit no other pod. A node has one
eviction at the API server at a time, so those of the others wait for one of it at most; a call that the node gives up
leaves its eviction there, and the node's next one waits until the API server has answered or ``EVICTION_TIMEOUT_S``
have passed. While this replica does not lead, every call is refused with the leader's address. What the API server says
to an eviction goes back in its own words; everything else that goes wrong is a Refusal with a sentence.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakValueDictionary

from google.protobuf.message import DecodeError, Message

from koord.http2.grpc import FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE
from koord.http2.server import Refusal
from koord.kube.client import CallLimits, Client
from koord.kube.errors import DISRUPTION_BUDGET, APIError, KubeError
from koord.kube.kind import Key
from koord.kube.ratelimit import RateLimit
from koord.pb.koord import nodelink_pb2 as pb
from koord_manager.freshusage import FreshFigures
from koord_manager.nodestates import NodeStates
from koord_manager.view import ClusterView

_log = logging.getLogger(__name__)
SERVICE = pb.DESCRIPTOR.services_by_name["NodeLink"]
REPORTED = pb.NodeReportAnswer().SerializeToString()
MAX_PODS = 1024
"""Of a report: kubelet's own bound is some hundreds."""
MAX_REASON_CHARACTERS = 500
EVICTION_QPS, EVICTION_BURST = 10.0, 50
"""Of their own: a node that is short of memory does not wait for what controllers have to write."""
EVICTION_TIMEOUT_S = 15.0
"""Of the one try, since the node tries again. Of a pod with another UID a server may say so only after ten seconds."""
_EVICTED = pb.EvictPodAnswer().SerializeToString()
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Leadership:
    """``leader``: its address, "" if it is not known."""

    is_ours: Callable[[], bool]
    leader: Callable[[], str]


class NodeLinkService:
    """``wall_s``: seconds since 1970. ``states``: is told of each report, for schedulers."""

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        fresh: FreshFigures,
        leadership: Leadership,
        wall_s: Callable[[], float],
        states: NodeStates | None = None,
    ) -> None:
        rate = RateLimit(EVICTION_QPS, EVICTION_BURST, time.monotonic)
        self._client = client.with_limits(CallLimits(rate, tries=1, timeout_s=EVICTION_TIMEOUT_S))
        self._view, self._fresh = view, fresh
        self._leadership, self.wall_s = leadership, wall_s
        self._states = NodeStates() if states is None else states
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By node; an eviction keeps it until it is over."""
        self._evictions: set[asyncio.Task[bytes | Refusal]] = set()
        self.results = Counter[str](reported=0, refused=0, evicted=0)
        """How many calls reported, were refused, evicted a pod."""

    @property
    def methods(self) -> Mapping[str, Callable[[str, bytes], Awaitable[bytes]]]:
        """The methods by path: the calling node and its message → the answer. Each raises Refusal."""
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
            self._states.remove(node)
            raise Refusal(NOT_FOUND, f"there is no Node {node}")
        if self._fresh.take(message, report):
            sampled_s = report.sampled_unix_ns / 1e9
            self._states.put(node, message, sampled_s, time.monotonic(), self.wall_s())
        self.results["reported"] += 1
        return REPORTED

    async def evict_pod(self, node: str, message: bytes) -> bytes:
        """Raises Refusal."""
        self._check_leadership()
        request = _read(pb.EvictPodRequest, message)
        key = Key(request.namespace, request.name)
        turn = self._turns.setdefault(node, asyncio.Lock())
        await turn.acquire()
        try:
            self._check_leadership()
            self._check_pod(node, key, request.uid)
        except Refusal:
            turn.release()
            raise
        reason = request.reason[:MAX_REASON_CHARACTERS] or "no reason given"
        _log.info("node %s evicts pod %s: %s", node, key, reason)
        eviction = asyncio.create_task(self._evicted(key, request.uid))
        self._evictions.add(eviction)
        eviction.add_done_callback(self._evictions.discard)
        eviction.add_done_callback(lambda _: turn.release())
        try:
            answer = await asyncio.shield(eviction)
        except asyncio.CancelledError:
            said = "node %s waited no longer for its eviction of pod %s: %s"
            eviction.add_done_callback(lambda _: _log.info(said, node, key, _what_became(eviction)))
            raise
        if isinstance(answer, Refusal):
            raise answer
        return answer

    async def end_evictions(self) -> None:
        """Cancels the evictions whose callers have gone."""
        for eviction in self._evictions:
            eviction.cancel()
        if self._evictions:
            await asyncio.wait(self._evictions)

    async def _evicted(self, key: Key, uid: str) -> bytes | Refusal:
        """The answer, or why there is none."""
        try:
            await self._client.evict(key, uid)
        except APIError as error:
            return _api_answer(error).SerializeToString()
        except (KubeError, ValueError) as error:
            return Refusal(UNAVAILABLE, f"pod {key} is not evicted: {error}")
        self.results["evicted"] += 1
        return _EVICTED

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


def _what_became(eviction: asyncio.Task[bytes | Refusal]) -> str:
    if eviction.cancelled():
        return "this replica ended before the API server answered"
    answer = eviction.result()
    if isinstance(answer, Refusal):
        return answer.message
    if answer == _EVICTED:
        return "the API server evicted it"
    said = pb.EvictPodAnswer.FromString(answer)
    return f"the API server says {said.status} {said.reason}: {said.message}"


def _api_answer(error: APIError) -> pb.EvictPodAnswer:
    return pb.EvictPodAnswer(
        status=error.status,
        reason=error.reason,
        message=error.message,
        budget_causes=[cause.message for cause in error.causes if cause.reason == DISRUPTION_BUDGET],
        retry_after_s=error.retry_after_s or 0.0,
    )
