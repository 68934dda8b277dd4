"""The HTTPS server that an API server asks about objects: AdmissionReview in, AdmissionReview out.

A handler is a function from a request to its response (`koord.model.admissionreview`); what goes around them on the
wire is `koord.webhook.reviews`'. It runs on the event loop, one review at a time and each client's address in its turn;
what it has to wait for it returns to be awaited outside of that turn. What would keep the loop for long is a
`LargeReviews`'s to judge. Whoever runs webhooks that are switched off gives them `allow`, so that an entry of an older
configuration blocks nothing.

What the caller gets when there is no response:
* the handler raises, or returns what is none: a review that refuses with status 500;
* it takes longer than four fifths of the API server's timeout, too much waits already (what it waits for says so by
  OverloadedError), or the body is late or too large: an HTTP error, upon which the API server does what
  ``failurePolicy`` says; after 503 it tries again first. A client that has gone ends its handler.

Invariants: number and size of what is held are bounded (`ServerLimits`) for all clients alike: API servers show no
certificate unless their administrator configured one, so clients are verified only if ``LiveContext`` has their
authority, and then none without a certificate is answered but on ``/healthz``. No client's reviews keep another's
waiting for more than one of them.
Fails with OSError from ``start``; a request's failure is the request's.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from aiohttp import web

from koord.model.admissionreview import AdmissionRequest, AdmissionResponse
from koord.tls.certificates import ServingCertificate
from koord.tls.context import LiveContext, client_context
from koord.tls.listener import TLSListener
from koord.webhook import reviews
from koord.webhook.fairshare import FairShare
from koord.webhook.reviews import OverloadedError, ReviewAnswer, ReviewResult, UndecodableError
from koord.webhook.turns import Turns

log = logging.getLogger("koord.webhook.server")

Verdict = Callable[[], AdmissionResponse]
Waiting = Awaitable[AdmissionResponse | Verdict]
Handler = Callable[[AdmissionRequest], AdmissionResponse | Waiting | Callable[[str], Waiting]]
"""From a request to its response, or to what has to be awaited for it, or to what makes that of the client's
address. A `Verdict` that was waited for is called in turn, too."""

HEALTH_PATH = "/healthz"
MIB = 1 << 20
_DEFAULT_TIMEOUT_S = 10.0  # of a webhook whose configuration names none
_PART_OF_TIMEOUT = 0.8
_MOST_TIMEOUT_S = 30  # that a webhook's configuration may name
_TIMEOUT = re.compile(r"(?:^|&)timeout=(\d{1,9})s(?:&|$)", re.ASCII)
_LINE_BYTES = 8190
_HEADERS = 128
_CHECK_S = 5.0
_CLOSE_S = 1.0
_REST = 2.0
"""Of the event loop, for each second of judging: reviews have a third of it at most. gRPC takes one call in each pass
of the loop, so without a rest a flood of reviews makes the nodes' reports late."""
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


_STATUS = {
    ReviewResult.ALLOWED: HTTPStatus.OK,
    ReviewResult.REJECTED: HTTPStatus.OK,
    ReviewResult.FAILED: HTTPStatus.OK,  # the review itself says 500
    ReviewResult.TIMED_OUT: HTTPStatus.GATEWAY_TIMEOUT,
    ReviewResult.UNDECODABLE: HTTPStatus.BAD_REQUEST,
    ReviewResult.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ReviewResult.TOO_SLOW: HTTPStatus.REQUEST_TIMEOUT,
    ReviewResult.OVERLOADED: HTTPStatus.SERVICE_UNAVAILABLE,
    ReviewResult.DISCONNECTED: HTTPStatus.BAD_REQUEST,
    ReviewResult.REFUSED: HTTPStatus.FORBIDDEN,
}
_REVIEWED = frozenset({ReviewResult.ALLOWED, ReviewResult.REJECTED, ReviewResult.FAILED})


class Duration(Protocol):
    """A histogram."""

    def observe(self, seconds: float) -> None: ...


class LargeReviews(Protocol):
    """Judges elsewhere what would keep the event loop for long; ``source`` is the client's address."""

    def takes(self, path: str, size_bytes: int) -> bool: ...
    async def answer(self, path: str, source: str, body: bytes) -> ReviewAnswer: ...


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """``body_bytes``: an API server takes 3 MiB of an object, and an update carries two, in an envelope."""

    body_bytes: int = 7 * MIB
    buffered_bytes: int = 24 * MIB
    """Of all requests, as their bytes come; each address has its `FairShare`."""
    requests: int = 512
    """At a time, shared likewise."""
    connections: int = 512
    """Handshakes under way count too."""
    head_s: float = 10.0
    """For a connection's handshake, and then for its first request line and headers."""
    body_s: float = 5.0
    keepalive_s: float = 120.0
    """An API server closes what was idle for 90 s; who closes first wins the race with a new request."""


class _Refusal(Exception):
    """The request ends here."""

    def __init__(self, result: ReviewResult, why: str) -> None:
        super().__init__(why)
        self.answer = ReviewAnswer(result, why.encode() + b"\n")


def allow(request: AdmissionRequest) -> AdmissionResponse:
    """The handler of a webhook that is switched off."""
    return AdmissionResponse()


def deadline_s(query: str) -> float:
    """Returns how long a handler may take: part of the time that the API server waits, as its query says,
    ``timeout=30s``.
    """
    match = _TIMEOUT.search(query)
    asked_s = int(match[1]) if match else 0
    return _PART_OF_TIMEOUT * (min(asked_s, _MOST_TIMEOUT_S) or _DEFAULT_TIMEOUT_S)


class WebhookServer:
    """Serves ``handlers`` (by path) until ``stop``.

    ``durations``: told the seconds that each request took, by its path and `ReviewResult`; such as a metric of two
    labels. ``name``: that by which API servers verify the server. ``client_names``: the common names of clients that
    are answered, where clients are verified; none: each of them. ``clock``: seconds, finer than the milliseconds of
    uvloop's.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        tls: LiveContext,
        name: str,
        durations: Mapping[tuple[str, str], Duration],
        limits: ServerLimits = ServerLimits(),
        large: LargeReviews | None = None,
        client_names: Collection[str] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._handlers, self._tls, self._name, self._durations = handlers, tls, name, durations
        self._limits, self._large, self._client_names, self._clock = limits, large, frozenset(client_names), clock
        self._turns = Turns(_REST, clock)
        self._checking: asyncio.Task[str] | None = None
        self._http = _HTTPServer(
            self._respond,
            self._expect,
            self._forget,
            access_log=None,
            logger=log,
            handler_cancellation=True,
            keepalive_timeout=limits.keepalive_s,
            max_line_size=_LINE_BYTES,
            max_field_size=_LINE_BYTES,
            max_headers=_HEADERS,
            lingering_time=_CLOSE_S,
            auto_decompress=False,
        )
        self._silent: dict[object, asyncio.TimerHandle] = {}
        self._listener: TLSListener | None = None
        self.address = ("", 0)
        """Host and port that are served."""
        self._is_draining = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._requests, self._bytes = FairShare(limits.requests), FairShare(limits.buffered_bytes)

    @property
    def requests_in_flight(self) -> int:
        return self._requests.held

    @property
    def buffered_bytes(self) -> int:
        return self._bytes.held

    # life

    async def start(self, host: str, port: int) -> None:
        """Raises OSError."""
        limits, tls = self._limits, self._tls.server_context
        listener = TLSListener(tls, self._http, limits.connections, limits.head_s, _CLOSE_S)
        self.address = await listener.start(host, port)
        self._listener = listener

    @property
    def connections(self) -> int:
        """The number of connections with a finished handshake."""
        return len(self._http.connections)

    async def stop(self, linger_s: float, drain_s: float) -> None:
        """Ends in three steps: connections end with their next answer; no further one is accepted; the rest is cut off.

        ``linger_s``: for how long it serves on, until all API servers know that it is no longer an end point.
        ``drain_s``: how long requests may take after that.
        """
        self._is_draining = True
        await asyncio.sleep(linger_s)
        if self._listener is not None:
            await self._listener.stop()
        try:
            await asyncio.wait_for(self._is_idle.wait(), drain_s)
        except TimeoutError:
            log.warning("%d requests are cut off", self.requests_in_flight)
        if self._listener is not None:
            await self._listener.cut()
        self._http.pre_shutdown()
        await self._http.shutdown(_CLOSE_S)
        for timer in self._silent.values():
            timer.cancel()
        self._silent.clear()

    async def unreadiness(self) -> str:
        """Why API servers get no answer, "" if they do: a request to itself, verified as they verify it.

        Whoever asks while one is under way gets its answer: many who ask cost no more than one.
        """
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._unreadiness())
        return await asyncio.shield(self._checking)

    async def _unreadiness(self) -> str:
        certificate = self._tls.certificate
        if self._is_draining or self._listener is None:
            return "the webhook server is stopping" if self._is_draining else "the webhook server has not started"
        if certificate is None:
            return "the webhook server has no certificate"
        try:
            return await asyncio.wait_for(self._check(certificate), _CHECK_S)
        except TimeoutError:
            return f"the webhook server did not answer in {_CHECK_S:g} s"
        except OSError as error:  # that of TLS among them
            return f"the webhook server cannot be called: {error}"

    async def _check(self, certificate: ServingCertificate) -> str:
        host, port = self.address
        reader, writer = await asyncio.open_connection(
            _LOOPBACK.get(host, host), port, ssl=client_context(certificate), server_hostname=self._name
        )
        try:
            writer.write(f"GET {HEALTH_PATH} HTTP/1.1\r\nHost: {self._name}\r\nConnection: close\r\n\r\n".encode())
            line = await reader.readline()
        finally:
            writer.close()
        return "" if line.startswith(b"HTTP/1.1 200 ") else f"the webhook server answers {line!r}"

    # connections

    def _expect(self, connection: web.RequestHandler) -> None:
        """A connection whose handshake is done has to send a review soon."""
        timer = asyncio.get_running_loop().call_later(self._limits.head_s, self._close_silent, connection)
        self._silent[connection] = timer

    def _close_silent(self, connection: web.RequestHandler) -> None:
        del self._silent[connection]
        connection.force_close()

    def _forget(self, connection: web.RequestHandler) -> None:
        self._heard(connection)
        if self._listener is not None and connection.transport is not None:
            self._listener.closed(connection.transport)

    def _heard(self, connection: object) -> None:
        timer = self._silent.pop(connection, None)
        if timer is not None:
            timer.cancel()

    # requests

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._response(request)
        if self._is_draining:
            response.force_close()
        return response

    async def _response(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path == HEALTH_PATH:
            return web.Response(text="ok\n")
        handler = self._handlers.get(path)
        if handler is None:
            return web.Response(status=HTTPStatus.NOT_FOUND, text="no such webhook\n")
        if request.method != "POST":
            return web.Response(status=HTTPStatus.METHOD_NOT_ALLOWED, text="reviews are posted\n")
        self._heard(request.protocol)
        begin, result = self._clock(), ReviewResult.DISCONNECTED
        try:
            result, body = await self._answer(request, path, handler)
        finally:  # a client that has gone cancels
            self._durations[path, result.value].observe(self._clock() - begin)
        is_review = result in _REVIEWED
        if is_review and self._listener is not None and request.transport is not None:
            self._listener.used(request.transport)
        response = web.Response(
            status=_STATUS[result], body=body, content_type="application/json" if is_review else "text/plain"
        )
        if result is ReviewResult.OVERLOADED:
            response.headers["Retry-After"] = "1"
        if not is_review:
            response.force_close()  # of a body that was not read to its end the rest would be the next request
        return response

    async def _answer(self, request: web.BaseRequest, path: str, handler: Handler) -> ReviewAnswer:
        timeout_s = deadline_s(request.query_string)
        try:
            self._check_client(request)
            async with asyncio.timeout(timeout_s):
                source = request.remote or ""
                with self._held(source, request.content_length) as held:
                    body = await self._body(request, held)
                    if self._large is not None and self._large.takes(path, len(body)):
                        return await self._large.answer(path, source, body)
                    return await self._judged(path, source, handler, body)
        except (_Refusal, UndecodableError, OverloadedError) as refusal:
            return refusal.answer
        except TimeoutError:
            log.warning("the webhook %s took longer than %g s", path, timeout_s)
            return ReviewAnswer(ReviewResult.TIMED_OUT, b"the webhook takes too long\n")

    async def _judged(self, path: str, source: str, handler: Handler, body: bytes) -> ReviewAnswer:
        """Raises UndecodableError and OverloadedError."""
        async with self._turns.turn(source):
            review = reviews.decode(body)
            try:
                response = handler(review.request)
            except Exception as error:  # noqa: BLE001 - a handler is a root of its own
                return reviews.failed(path, review, error)
        if not callable(response) and not inspect.isawaitable(response):
            return reviews.answered(path, review, response)
        try:
            awaited = await (response(source) if callable(response) else response)
            if callable(awaited):
                async with self._turns.turn(source):
                    awaited = awaited()
            return reviews.answered(path, review, awaited)
        except OverloadedError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            return reviews.failed(path, review, error)

    def _check_client(self, request: web.BaseRequest) -> None:
        if self._tls.server_context.verify_mode is ssl.CERT_NONE:
            return
        shown = request.get_extra_info("ssl_object").getpeercert()
        if not shown:
            raise _Refusal(ReviewResult.REFUSED, "the client shows no certificate")
        names = [value for attributes in shown["subject"] for name, value in attributes if name == "commonName"]
        if self._client_names and not self._client_names.intersection(names):
            why = f"the client is {', '.join(names) or 'nobody'}, which is none of those let in"
            raise _Refusal(ReviewResult.REFUSED, why)

    @contextmanager
    def _held(self, source: str, content_bytes: int | None) -> Iterator[Callable[[int], None]]:
        """Accounts for a request of ``source``; what it yields accounts for bytes of it that have come."""
        limits, held_bytes = self._limits, 0
        if content_bytes is not None and content_bytes > limits.body_bytes:
            raise _Refusal(ReviewResult.TOO_LARGE, f"{content_bytes} bytes are more than {limits.body_bytes}")

        def hold(count: int) -> None:
            nonlocal held_bytes
            self._take(self._bytes, source, count)
            held_bytes += count

        self._take(self._requests, source, 1)
        self._is_idle.clear()
        try:
            yield hold
        finally:
            self._requests.hold(source, -1)
            self._bytes.hold(source, -held_bytes)
            if not self._requests.held:
                self._is_idle.set()

    @staticmethod
    def _take(share: FairShare, source: str, count: int) -> None:
        if not share.has_room(source, count):
            raise _Refusal(ReviewResult.OVERLOADED, "too many requests wait already")
        share.hold(source, count)

    async def _body(self, request: web.BaseRequest, hold: Callable[[int], None]) -> bytes:
        chunks: list[bytes] = []
        size_bytes = 0
        try:
            async with asyncio.timeout(self._limits.body_s):
                async for chunk in request.content.iter_any():
                    size_bytes += len(chunk)
                    if size_bytes > self._limits.body_bytes:
                        raise _Refusal(ReviewResult.TOO_LARGE, f"more than {self._limits.body_bytes} bytes come")
                    hold(len(chunk))
                    chunks.append(chunk)
        except TimeoutError:
            raise _Refusal(ReviewResult.TOO_SLOW, f"the body takes longer than {self._limits.body_s:g} s") from None
        except (ConnectionError, web.RequestPayloadError) as error:
            raise _Refusal(ReviewResult.DISCONNECTED, "the body is cut off") from error
        return b"".join(chunks)


class _HTTPServer(web.Server):
    """Calls ``opened`` with each connection whose handshake is done, and ``lost`` when it is over."""

    def __init__(
        self,
        respond: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        opened: Callable[[web.RequestHandler], None],
        lost: Callable[[web.RequestHandler], None],
        **options: Any,
    ) -> None:
        super().__init__(respond, **options)
        self._opened, self._lost = opened, lost

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._opened(handler)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._lost(handler)
