"""One HTTP exchange with the API server, over kept connections.

Answers that are read whole come over connections of our own, those that go on and those of a proxy by aiohttp.
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
from collections.abc import AsyncIterator, Awaitable, Mapping
from http import HTTPStatus
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload
from yarl import URL

from koord.kube.connections import CONNECT_S, Answer, Check, Connections, Endpoint, keepalive_socket
from koord.kube.credentials import APIAccess, Credentials, CredentialsError
from koord.kube.errors import KubeError, Unreachable, from_answer

JSON = "application/json"
_MAX_CONNECTIONS = 128
_MAX_MESSAGE_BYTES = 1 << 20
_TLS = re.compile(r" ssl:(<[^>]*>|\w+)(?= )")
"""What aiohttp says of a connection's TLS beside host and reason: an object's address, another in each process."""

_UNAUTHORIZED, _REDIRECTION = int(HTTPStatus.UNAUTHORIZED), int(HTTPStatus.MULTIPLE_CHOICES)
_STREAMED = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
_PORTS = {"https": 443, "http": 80}
_REPEATED = frozenset(("GET", "PUT", "DELETE"))
"""Methods that HTTP lets a client repeat by itself where a kept connection turns out to have been ended (RFC 9110,
9.2.2). Whether another request is sent again is for who sends it.
"""


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


class GuardedBody(BytesPayload):
    """``check``: called before the first byte of the request, head included, is written; what it raises, ends that."""

    def __init__(self, body: bytes, check: Check) -> None:
        super().__init__(body)
        self._check = check

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._check()
        await super().write_with_length(writer, content_length)


class _Origin:
    """Where requests go with one access, and what all of them begin with."""

    def __init__(self, access: APIAccess, headers: Mapping[str, str]) -> None:
        try:
            parts = urlsplit(access.server)
            port = parts.port or _PORTS[parts.scheme]
        except ValueError as error:
            raise CredentialsError(f"server {access.server!r}: {error}") from error
        self.endpoint = Endpoint(parts.hostname or "", port, access.tls, access.server_name or "")
        self._access, self._path = access, parts.path
        lines = {"Host": parts.netloc.rpartition("@")[2], **headers, **_authorization(access)}
        if any(character in text for text in lines.values() for character in "\r\n"):
            raise CredentialsError("a line break in the token, or in the server's URL")
        self._head = "".join([f"{name}: {text}\r\n" for name, text in lines.items()])

    def is_of(self, access: APIAccess) -> bool:
        return access is self._access

    def encoded(self, request: HTTPRequest) -> bytes:
        """Returns all of a request, as it is sent."""
        head = f"{request.method} {self._path}{request.target} HTTP/1.1\r\n{self._head}"
        if request.body is None:
            return f"{head}\r\n".encode()
        length = len(request.body)
        return f"{head}Content-Type: {request.content_type}\r\nContent-Length: {length}\r\n\r\n".encode() + request.body


class Transport:
    """To be closed (or used as an async context). Belongs to the event loop that is running."""

    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        self._credentials = credentials
        self._headers = {"User-Agent": user_agent, "Accept": JSON, "Accept-Encoding": "identity"}
        self._connections = Connections(_MAX_CONNECTIONS)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
        )
        self._origin: _Origin | None = None

    async def __aenter__(self) -> Transport:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._connections.close()
        await self._session.close()

    async def exchange(self, request: HTTPRequest, timeout_s: float, check: Check | None = None) -> bytes:
        """Returns the body of the answer. Raises APIError, Unreachable or CredentialsError.

        ``check``: is called when a request that has a body gets its connection; what it raises, a KubeError, keeps the
        request from being sent. A refused credential is read again, and tried once more if it differs.
        """
        access = self._credentials.checked or await self._credentials.access()
        answer = await self._answer(access, request, timeout_s, check)
        if answer.status == _UNAUTHORIZED:
            self._credentials.reject(access)
            renewed = await self._credentials.access()
            if renewed is not access:
                answer = await self._answer(renewed, request, timeout_s, check)
        if answer.status < _REDIRECTION:
            return answer.body
        raise from_answer(answer.status, answer.body, answer.retry_after)

    async def _answer(self, access: APIAccess, request: HTTPRequest, timeout_s: float, check: Check | None) -> Answer:
        if access.proxy is not None:
            return await self._proxied(access, request, timeout_s, check)
        origin = self._origin
        if origin is None or not origin.is_of(access):
            origin = self._origin = _Origin(access, self._headers)
        return await self._connections.exchange(
            origin.endpoint, origin.encoded(request), request.method in _REPEATED, timeout_s, check
        )

    async def _proxied(self, access: APIAccess, request: HTTPRequest, timeout_s: float, check: Check | None) -> Answer:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        try:
            response = await self._send_as(access, request, timeout, check)
            body = await response.read()  # which releases the connection, or closes it where it fails
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(error) from error
        return Answer(response.status, body, response.headers.get("Retry-After", ""))

    @contextlib.asynccontextmanager
    async def stream(self, request: HTTPRequest, timeout_s: float) -> AsyncIterator[aiohttp.StreamReader]:
        """Yields the body of an answer that goes on; ``timeout_s`` is for its head, or for all of an error.

        Raises as ``exchange`` does. (A load balancer may send a 502 and stall.)
        """
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._begun(request)
                if response.status >= _REDIRECTION:
                    body = await response.read()
                    raise from_answer(response.status, body, response.headers.get("Retry-After", ""))
            async with response:
                yield response.content
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(error) from error

    @contextlib.asynccontextmanager
    async def websocket(self, request: HTTPRequest, protocol: str) -> AsyncIterator[WebSocket]:
        """Yields a WebSocket of this subprotocol. Raises as ``exchange`` does, also for one without it."""
        access = self._credentials.checked or await self._credentials.access()
        try:
            async with self._session.ws_connect(
                URL(access.server + request.target, encoded=True),
                protocols=(protocol,),
                headers={**_authorization(access), "Accept": "*/*"},  # an upgrade is no JSON
                max_msg_size=_MAX_MESSAGE_BYTES,
                ssl=True if access.tls is None else access.tls,
                server_hostname=access.server_name,
                proxy=access.proxy,
            ) as messages:
                if messages.protocol != protocol:
                    raise Unreachable(f"the server does not speak {protocol}", may_have_arrived=False)
                yield WebSocket(messages)
        except aiohttp.WSServerHandshakeError as error:
            raise from_answer(error.status, f"no WebSocket at {request.path}".encode()) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _translated(error) from error

    async def _begun(self, request: HTTPRequest) -> aiohttp.ClientResponse:
        """Returns the head of an answer that goes on. A refused credential is tried again as in ``exchange``."""
        access = self._credentials.checked or await self._credentials.access()
        response = await self._send_as(access, request, _STREAMED)
        if response.status == _UNAUTHORIZED:
            self._credentials.reject(access)
            renewed = await self._credentials.access()
            if renewed is not access:
                response.release()
                return await self._send_as(renewed, request, _STREAMED)
        return response

    def _send_as(
        self,
        access: APIAccess,
        request: HTTPRequest,
        timeout: aiohttp.ClientTimeout,
        check: Check | None = None,
    ) -> Awaitable[aiohttp.ClientResponse]:
        headers = _authorization(access)
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        return self._session.request(
            request.method,
            URL(access.server + request.target, encoded=True),
            data=request.body if check is None or request.body is None else GuardedBody(request.body, check),
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            ssl=True if access.tls is None else access.tls,
            server_hostname=access.server_name,
            proxy=access.proxy,
        )


class WebSocket:
    """Binary messages, until the other side ends."""

    def __init__(self, messages: aiohttp.ClientWebSocketResponse) -> None:
        self._messages = messages

    async def send(self, message: bytes) -> None:
        """To another side that has ended nothing is sent; what it has said before is still read."""
        with contextlib.suppress(ConnectionResetError):
            await self._messages.send_bytes(message)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for message in self._messages:
            if message.type is aiohttp.WSMsgType.BINARY and message.data:
                yield message.data


def _authorization(access: APIAccess) -> dict[str, str]:
    return {"Authorization": f"Bearer {access.token}"} if access.token else {}


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    return keepalive_socket(address[0])


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
