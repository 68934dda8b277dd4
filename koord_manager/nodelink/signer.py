"""Approves, denies and signs what ``signing`` judges, for as long as this replica leads.

Level-triggered: an approval that was written and not followed by a certificate is seen again. Invariants: only requests
are signed that the API server has recorded as approved; requesters take turns, so one with many requests delays the
others by one of them at most; a request that was signed is not signed again, however late its event is; memory is
bounded for each node, and an answered request leaves nothing in it: a client that may create requests creates any
number, of up to 1.5 MB. Fails with KubeError; the work queue tries again.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from koord.kube.client import CallLimits, Client, Selection
from koord.kube.errors import APIError, KubeError
from koord.kube.informer import Informer, Pace
from koord.kube.kind import CERTIFICATE_SIGNING_REQUEST, Key, Unstructured
from koord.kube.ratelimit import RateLimit
from koord.kube.workqueue import WorkQueue
from koord.model.nodelink import SIGNER
from koord.tls.certificates import CertificateError, KeyPair
from koord_manager.nodelink import signing
from koord_manager.nodelink.signing import Agents, Approved, CertificateRequest, Denied

_log = logging.getLogger(__name__)
QPS, BURST = 100.0, 200
"""Of its own, so that nodes that all come at once keep no controller waiting. A certificate is two requests: 10,000
nodes have theirs in four minutes, which is no more load than their agents' own requests are."""
WORKERS = 8
"""An API server takes some hundredths of a second to write."""
MAX_WAITING = 4
"""Requests of a node that are known at a time: the newest. An agent has one, and each restart may leave one behind for
which no agent waits any more."""
_MAX_SIGNED = 4096
"""Requests of which it is remembered that they are signed: those of the last half minute and more, so it is only a
refused write that an event which is later than that costs."""
_PACE = Pace(page_size=16, is_whole_allowed=False)
"""A page of the largest objects that there can be is 24 MB."""
_OURS = Selection(fields=f"spec.signerName={SIGNER}")
ReadCA = Callable[[], Awaitable[KeyPair]]
"""The authority that signs. Raises KubeError or CertificateError."""


class Signer:
    """``clock``: for the informer. ``now``: of what is signed."""

    def __init__(
        self,
        client: Client,
        read_ca: ReadCA,
        agents: Agents,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        qps: float = QPS,
        burst: int = BURST,
    ) -> None:
        self._client = client.with_limits(CallLimits(RateLimit(qps, burst, clock)))
        self._read_ca, self._agents, self._clock, self._now = read_ca, agents, clock, now
        self.queue = WorkQueue[str]("nodelink-signer")
        self.results = Counter[str]()
        """How many requests were signed, denied, denied as too long, superseded: never looked at."""
        self._waiting: dict[str, dict[str, CertificateRequest]] = {}
        """By requester and name, in their order; at most ``MAX_WAITING`` of each."""
        self._signed: dict[str, str] = {}
        """UIDs, by name, of the last requests that got their certificate, of which no event may have told yet."""

    @property
    def waiting(self) -> int:
        """Requests that are known and not answered."""
        return sum(map(len, self._waiting.values()))

    async def run(self) -> None:
        """Until it is cancelled."""
        self._waiting.clear()
        requests: Informer[Unstructured, Unstructured] = Informer(
            self._client, CERTIFICATE_SIGNING_REQUEST, self._clock, _OURS, pace=_PACE, transform=self._take
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(requests.run())
            group.create_task(self.queue.work(self._reconcile, WORKERS))

    def _take(self, stored: Unstructured) -> None:
        """The informer keeps none of them. One that is deleted meanwhile is not found when it is to be answered."""
        request = signing.read(stored)
        if request is not None and self._signed.get(request.name) != request.uid:
            requester = signing.requester(request, self._agents)
            self._wait(requester, request)
            self.queue.add(requester)

    def _wait(self, requester: str, request: CertificateRequest) -> None:
        waiting = self._waiting.setdefault(requester, {})
        waiting[request.name] = request
        if len(waiting) > MAX_WAITING:
            oldest = min(waiting.values(), key=lambda each: each.created)
            del waiting[oldest.name]
            self.results["superseded"] += 1
            if self.results["superseded"] == 1:
                _log.warning("%s has more than %d requests that wait: the oldest are left", requester, MAX_WAITING)

    async def _reconcile(self, requester: str) -> None:
        """One request of his. Raises KubeError."""
        waiting = self._waiting.pop(requester, {})
        if not waiting:
            return
        request = waiting.pop(next(iter(waiting)))
        if waiting:
            self._waiting[requester] = waiting
            self.queue.add(requester)
        try:
            if self._signed.get(request.name) != request.uid:
                await self._carry_out(request)
        except KubeError as error:
            if isinstance(error, APIError) and (error.is_conflict or error.is_not_found):
                return  # a newer state is another event
            if request.name not in self._waiting.get(requester, {}):
                self._wait(requester, request)
            raise

    async def _carry_out(self, request: CertificateRequest) -> None:
        verdict = signing.judge(request, self._agents)
        if isinstance(verdict, Denied):
            await self._deny(request, verdict)
            return
        version = request.version
        if not request.is_approved:
            message = f"{verdict.user} requested it"
            version = await self._record(request, "Approved", "NodeItself", message, "approval")
        await self._sign(request, version, verdict)

    async def _deny(self, request: CertificateRequest, denied: Denied) -> None:
        """Denies the request, or fails its signing where it was approved by hand and cannot be denied any more."""
        if request.is_approved:
            await self._record(request, "Failed", denied.reason, denied.why, "status")
        else:
            await self._record(request, "Denied", denied.reason, denied.why, "approval")
        self.results["too long" if denied.reason == signing.TOO_LONG else "denied"] += 1

    async def _record(
        self, request: CertificateRequest, type_: str, reason: str, message: str, subresource: str
    ) -> str:
        """The object's resource version then."""
        _log.info("CertificateSigningRequest %s: %s: %s", request.name, type_, message)
        now = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            **{"type": type_, "status": "True", "reason": reason, "message": message},
            **{"lastUpdateTime": now, "lastTransitionTime": now},
        }
        status = {"conditions": [*request.conditions, condition]}
        return await self._patch(request.name, request.version, subresource, status)

    async def _sign(self, request: CertificateRequest, version: str, approved: Approved) -> None:
        try:
            certificate = signing.signed(approved, await self._read_ca(), self._now())
        except CertificateError as error:
            raise KubeError(f"nothing can be signed: {error}") from error
        await self._patch(request.name, version, "status", {"certificate": b64encode(certificate).decode()})
        self.results["signed"] += 1
        self._signed[request.name] = request.uid
        if len(self._signed) > _MAX_SIGNED:
            del self._signed[next(iter(self._signed))]

    async def _patch(self, name: str, version: str, subresource: str, status: dict[str, Any]) -> str:
        body = {"metadata": {"resourceVersion": version}, "status": status}
        patched = await self._client.patch(CERTIFICATE_SIGNING_REQUEST, Key("", name), body, subresource=subresource)
        return patched.metadata.resource_version
