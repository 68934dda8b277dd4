"""Approves, denies and signs what ``signing`` judges, for as long as this replica leads.

Level-triggered: an approval that was written and not followed by a certificate is seen again. Invariants: nothing is
signed that the API server has not recorded as approved; requesters take turns, so one with many requests keeps nobody
waiting for more than one of them; a request that was signed is not signed again, however late its event is. Fails with
KubeError, of which the work queue makes another try.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from koord.kube.certificates import CertificateError, KeyPair
from koord.kube.client import Client, Limits, Selection
from koord.kube.errors import APIError, KubeError
from koord.kube.informer import Informer
from koord.kube.kind import CERTIFICATE_SIGNING_REQUEST, Key, Unstructured
from koord.kube.ratelimit import RateLimit
from koord.kube.stream import EventStream
from koord.kube.workqueue import WorkQueue
from koord.model.nodelink import SIGNER
from koord_manager.nodelink import signing
from koord_manager.nodelink.signing import Agents, Approved, Denied

_log = logging.getLogger(__name__)
QPS, BURST = 100.0, 200
"""Of its own, so that nodes that all come at once keep no controller waiting. A certificate is two requests: 10,000
nodes have theirs in four minutes, which is no more load than their agents' own requests are."""
WORKERS = 8
"""An API server takes some hundredths of a second to write."""
_BATCH = 64
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
        self._client = client.with_limits(Limits(RateLimit(qps, burst, clock)))
        self._read_ca, self._agents, self._clock, self._now = read_ca, agents, clock, now
        self.queue = WorkQueue[str]("nodelink-signer")
        self._requests: Informer[Unstructured] | None = None
        self._names: dict[str, dict[str, None]] = {}
        """By requester, those of his requests that are to be looked at, in their order."""
        self._signed: dict[str, str] = {}
        """UIDs, by name, of requests that have their certificate, of which no event has told yet."""

    async def run(self) -> None:
        """Until it is cancelled."""
        stream = EventStream()
        requests = Informer(self._client, CERTIFICATE_SIGNING_REQUEST, self._clock, _OURS, stream=stream)
        self._requests = requests
        async with asyncio.TaskGroup() as group:
            group.create_task(requests.run())
            group.create_task(self.queue.work(self._reconcile, WORKERS))
            while events := await stream.take(_BATCH):
                for event in events:
                    self._look_at(event.key.name)

    def _look_at(self, name: str) -> None:
        request = None if self._requests is None else self._requests.get(Key("", name))
        if request is None or signing.is_answered(request):
            self._signed.pop(name, None)
        elif self._signed.get(name) != request.metadata.uid:
            requester = signing.requester(request)
            self._names.setdefault(requester, {})[name] = None
            self.queue.add(requester)

    async def _reconcile(self, requester: str) -> None:
        """One request of his. Raises KubeError."""
        names = self._names.pop(requester, {})
        if not names:
            return
        name = next(iter(names))
        del names[name]
        if names:
            self._names[requester] = names
            self.queue.add(requester)
        request = None if self._requests is None else self._requests.get(Key("", name))
        try:
            if request is not None and self._signed.get(name) != request.metadata.uid:
                await self._carry_out(request)
        except KubeError as error:
            if isinstance(error, APIError) and (error.is_conflict or error.is_not_found):
                return  # a newer state is another event
            self._names.setdefault(requester, {})[name] = None
            raise

    async def _carry_out(self, request: Unstructured) -> None:
        verdict = signing.judge(request, self._agents)
        if isinstance(verdict, Denied):
            await self._record(request, "Denied", "NotThisNode", verdict.why)
        elif isinstance(verdict, Approved):
            if not verdict.is_recorded:
                request = await self._record(request, "Approved", "NodeItself", f"node {verdict.node} requested it")
            await self._sign(request, verdict)

    async def _record(self, request: Unstructured, type_: str, reason: str, message: str) -> Unstructured:
        _log.info("CertificateSigningRequest %s: %s: %s", request.metadata.name, type_, message)
        now = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            **{"type": type_, "status": "True", "reason": reason, "message": message},
            **{"lastUpdateTime": now, "lastTransitionTime": now},
        }
        kept: list[Any] = (request.content.get("status") or {}).get("conditions") or []
        return await self._patch(request, "approval", {"conditions": [*kept, condition]})

    async def _sign(self, request: Unstructured, approved: Approved) -> None:
        try:
            certificate = signing.signed(approved, await self._read_ca(), self._now())
        except CertificateError as error:
            raise KubeError(f"nothing can be signed: {error}") from error
        await self._patch(request, "status", {"certificate": b64encode(certificate).decode()})
        self._signed[request.metadata.name] = request.metadata.uid

    async def _patch(self, request: Unstructured, subresource: str, status: dict[str, Any]) -> Unstructured:
        body = {"metadata": {"resourceVersion": request.metadata.resource_version}, "status": status}
        key = Key("", request.metadata.name)
        return await self._client.patch(CERTIFICATE_SIGNING_REQUEST, key, body, subresource=subresource)
