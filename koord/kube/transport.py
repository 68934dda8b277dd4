"""One HTTP exchange with the API server, over kept connections.

Invariant: each exchange is bounded in time, each carries the credentials that are right now, and a refused credential
is read again and tried once more. A write that may be sent only for a time is asked about when it has its connection,
for which it may have waited, so that no byte of it leaves later. Answers come uncompressed: on a cluster's network that
costs both ends less. Redirects are not followed, since they would carry the token elsewhere.
Fails with the errors of ``koord.kube.errors``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from urllib.parse import urlencode

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload
from yarl import URL

from koord.kube.credentials import APIAccess, Credentials
from koord.kube.errors import KubeError, Unreachable, from_answer

JSON = "application/json"
CONNECT_S = 10.0
_MAX_CONNECTIONS = 128
_TLS = re.compile(r" ssl:(<[^>]*>|\w+)(?= )")
"""What aiohttp says of a connection's TLS beside host and reason: an object's address, another in each process."""

_KEEPALIVE = (
    (socket.TCP_KEEPIDLE, 15),
    (socket.TCP_KEEPINTVL, 5),
    (socket.TCP_KEEPCNT, 3),
    (socket.TCP_USER_TIMEOUT, 30_000),
)
_UNAUTHORIZED, _REDIRECTION = int(HTTPStatus.UNAUTHORIZED), int(HTTPStatus.MULTIPLE_CHOICES)
_STREAMED = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)


class HTTPRequest(msgspec.Struct, frozen=True):
    """``idempotent``: sent twice, it does no more than once."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = JSON
    idempotent: bool = True

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


class _GuardedBody(BytesPayload):
    """``check``: called before the first byte of the request, head included, is written; what it raises, ends that."""

    def __init__(self, body: bytes, check: Callable[[], None]) -> None:
        super().__init__(body)
        self._check = check

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._check()
        await super().write_with_length(writer, content_length)


class Transport:
    """To be closed (or used as an async context). Belongs to the event loop that is running."""

    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        self._credentials = credentials
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent, "Accept": JSON, "Accept-Encoding": "identity"},
        )
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}

    async def __aenter__(self) -> Transport:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def exchange(self, request: HTTPRequest, timeout_s: float, check: Callable[[], None] | None = None) -> bytes:
        """Returns the body of the answer. Raises APIError, Unreachable or CredentialsError.

        ``check``: is called when a request that has a body gets its connection; what it raises, a KubeError, keeps the
        request from being sent.
        """
        timeout = self._timeouts.get(timeout_s)
        if timeout is None:
            timeout = self._timeouts[timeout_s] = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        try:
            response = await self._send(request, timeout, check)
            body = await response.read()  # which releases the connection, or closes it where it fails
            if response.status < _REDIRECTION:
                return body
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(error) from error
        raise from_answer(response.status, body, response.headers.get("Retry-After", ""))

    @contextlib.asynccontextmanager
    async def stream(self, request: HTTPRequest, timeout_s: float) -> AsyncIterator[aiohttp.StreamReader]:
        """Yields the body of an answer that goes on; ``timeout_s`` is for its head, or for all of an error.

        Raises as ``exchange`` does. (A load balancer may send a 502 and stall.)
        """
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._send(request, _STREAMED)
                if response.status >= _REDIRECTION:
                    body = await response.read()
                    raise from_answer(response.status, body, response.headers.get("Retry-After", ""))
            async with response:
                yield response.content
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(error) from error

    async def _send(
        self, request: HTTPRequest, timeout: aiohttp.ClientTimeout, check: Callable[[], None] | None = None
    ) -> aiohttp.ClientResponse:
        """Returns the head of the answer. A refused credential is read again, and tried once more if it differs."""
        access = self._credentials.checked or await self._credentials.access()
        response = await self._send_as(access, request, timeout, check)
        if response.status == _UNAUTHORIZED:
            self._credentials.reject(access)
            renewed = await self._credentials.access()
            if renewed is not access:
                response.release()
                return await self._send_as(renewed, request, timeout, check)
        return response

    def _send_as(
        self,
        access: APIAccess,
        request: HTTPRequest,
        timeout: aiohttp.ClientTimeout,
        check: Callable[[], None] | None,
    ) -> Awaitable[aiohttp.ClientResponse]:
        headers = {} if request.body is None else {"Content-Type": request.content_type}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        return self._session.request(
            request.method,
            URL(access.server + request.target, encoded=True),
            data=request.body if check is None or request.body is None else _GuardedBody(request.body, check),
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            ssl=True if access.tls is None else access.tls,
            server_hostname=access.server_name,
            proxy=access.proxy,
        )


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """One whose connection ends when the other side is gone, also where nobody sends anything for hours."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _translated(error: Exception) -> KubeError:
    if isinstance(error.__cause__, KubeError):
        return error.__cause__
    if isinstance(error, aiohttp.ClientConnectorError):
        return Unreachable(_TLS.sub("", str(error)), may_have_arrived=False)
    if isinstance(error, aiohttp.ConnectionTimeoutError | aiohttp.ClientProxyConnectionError):
        return Unreachable(f"no connection: {error}", may_have_arrived=False)
    if isinstance(error, TimeoutError):
        return Unreachable(f"no answer in time{_reason(error)}", may_have_arrived=True)
    return Unreachable(f"the connection broke{_reason(error)}", may_have_arrived=True)


def _reason(error: BaseException) -> str:
    return f": {error}" if str(error) else ""
