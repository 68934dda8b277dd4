"""A webhook server on a loopback port, with handlers for each kind of answer and fault, and its client."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from koord.model.admissionreview import AdmissionRequest, AdmissionResponse
from koord.service.metrics import histogram, take
from koord.tls import certificates
from koord.tls.certificates import ServingCertificate
from koord.tls.context import LiveContext, client_context
from koord.webhook.server import Handler, LargeReviews, ServerLimits, WebhookServer, allow
from tests.tls.pki import NAMES

NOW = datetime.now(UTC)
CA = certificates.issue_ca(NOW)
FIRST, SECOND = (ServingCertificate(certificates.issue_serving(CA, NAMES, NOW), CA.certificate) for _ in range(2))
SMALL = ServerLimits(body_bytes=20_000, buffered_bytes=50_000)
IMPATIENT = ServerLimits(head_s=1.0)


@dataclass
class Metrics:
    webhook_seconds: Any = histogram("Time.", "path", "result")

    def results(self) -> dict[tuple[str, ...], int]:
        ((_, values),) = take(self)
        return {labels: sum(value.counts) for labels, value in values if not isinstance(value, float)}


def review(version: str = "admission.k8s.io/v1", **request: object) -> dict[str, object]:
    return {"apiVersion": version, "kind": "AdmissionReview", "request": {"uid": "u1", **request}}


# handlers


def patch(request: AdmissionRequest) -> AdmissionResponse:
    return AdmissionResponse([{"op": "add", "path": "/metadata/labels", "value": request.object}])


def reject(request: AdmissionRequest) -> AdmissionResponse:
    return AdmissionResponse(code=400, message="spec.priority: no")


async def allow_later(request: AdmissionRequest) -> AdmissionResponse:
    await asyncio.sleep(0)
    return AdmissionResponse()


def fail(request: AdmissionRequest) -> AdmissionResponse:
    raise ZeroDivisionError("a defect")


async def fail_later(request: AdmissionRequest) -> AdmissionResponse:
    await asyncio.sleep(0)
    raise TimeoutError("of its own")


async def hang(request: AdmissionRequest) -> AdmissionResponse:
    await asyncio.sleep(60)
    return AdmissionResponse()


def returning(value: Any) -> Handler:
    return lambda request: value


HANDLERS: dict[str, Handler] = {
    "/patch": patch,
    "/reject": reject,
    "/allow": allow,
    "/allow-later": allow_later,
    "/fail": fail,
    "/fail-later": fail_later,
    "/hang": hang,
    "/nothing": returning(None),
    "/document": returning({"allowed": True}),
    "/strange": returning(AdmissionResponse([{"value": object()}])),
    "/surrogate": returning(AdmissionResponse(code=400, message="\ud800")),
}


@dataclass
class Running:
    server: WebhookServer
    tls: LiveContext
    metrics: Metrics
    handlers: Mapping[str, Handler] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return self.server.address[1]

    async def connect(
        self, context: ssl.SSLContext | None = None, name: str | None = NAMES[0], source: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """From the address ``source``."""
        tls = context or client_context(FIRST)
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=tls, server_hostname=name, local_addr=(source, 0)
        )

    async def post(self, path: str, body: object = None, **kwargs: Any) -> tuple[int, Any, Mapping[str, str]]:
        """Status, body (decoded if it is JSON), headers."""
        source = kwargs.pop("source", "127.0.0.1"), 0
        connector = aiohttp.TCPConnector(ssl=kwargs.pop("context", None) or client_context(FIRST), local_addr=source)
        data = body if isinstance(body, bytes) else json.dumps(body or review()).encode()
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(
                kwargs.pop("method", "POST"),
                f"https://127.0.0.1:{self.port}{path}",
                data=kwargs.pop("data", data),
                server_hostname=NAMES[0],
                **kwargs,
            ) as response,
        ):
            raw = await response.read()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(raw) if is_json else raw, response.headers

    def results(self) -> dict[str, int]:
        counts: dict[str, int] = defaultdict(int)
        for (_, result), count in self.metrics.results().items():
            counts[result] += count
        return dict(counts)


@asynccontextmanager
async def running(
    handlers: Mapping[str, Handler] = HANDLERS,
    limits: ServerLimits = SMALL,
    client_ca: bytes | None = b"",
    large: LargeReviews | None = None,
    client_names: Collection[str] = (),
) -> AsyncIterator[Running]:
    tls, metrics = LiveContext(client_ca), Metrics()
    tls.load(FIRST)
    server = WebhookServer(handlers, tls, NAMES[0], metrics.webhook_seconds, limits, large, client_names)
    await server.start("127.0.0.1", 0)
    try:
        yield Running(server, tls, metrics, handlers)
    finally:
        await server.stop(0, 0.1)


def request(path: str, body: bytes | None = None, length: int | None = None, extra: str = "") -> bytes:
    body = json.dumps(review()).encode() if body is None else body
    size = len(body) if length is None else length
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n{extra}\r\n".encode() + body


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
    return int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))
