"""One HTTP exchange with the API server, over kept connections.

Invariant: each exchange is bounded in time, each carries the credentials that are right now, and a refused credential
is read again and tried once more. Answers come uncompressed: on a cluster's network that costs both ends less.
Redirects are not followed, since they would carry the token elsewhere.
Fails with the errors of ``koord.kube.errors``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import aiohttp
from yarl import URL

from koord.kube.credentials import Access, Credentials
from koord.kube.errors import Unreachable, from_answer

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


@dataclass(frozen=True, slots=True)
class Request:
    """``idempotent``: sent twice, it does no more than once."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    idempotent: bool = True


@dataclass(slots=True)
class Exchanges:
    """What was exchanged, by method and status; 0: no answer came."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: float = 0.0
    """In sum, until the answer's head."""


class Transport:
    """To be closed (or used as an async context). Belongs to the event loop that is running."""

    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        self._credentials = credentials
        self._headers = {"User-Agent": user_agent, "Accept": JSON, "Accept-Encoding": "identity"}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self.exchanges = Exchanges()

    async def __aenter__(self) -> Transport:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def exchange(self, request: Request, timeout_s: float) -> bytes:
        """The body of the answer. Raises APIError, Unreachable or CredentialsError."""
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        async with self._answer(request, timeout) as response:
            return await response.read()

    @contextlib.asynccontextmanager
    async def stream(self, request: Request, timeout_s: float) -> AsyncIterator[aiohttp.StreamReader]:
        """The body of an answer that goes on; ``timeout_s`` is for its head, and for an error's body.

        Raises as ``exchange`` does.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        async with self._answer(request, timeout, timeout_s) as response:
            yield response.content

    @contextlib.asynccontextmanager
    async def _answer(
        self, request: Request, timeout: aiohttp.ClientTimeout, head_s: float | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is no error; errors of the transport within the block become ours.

        ``head_s`` bounds the head and, apart from it, the body of an error. (A load balancer may send a 502 and stall.)
        """
        with _translated():
            async with asyncio.timeout(head_s):
                response = await self._send_again_if_refused(request, timeout)
            async with response:
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                    async with asyncio.timeout(head_s):
                        body = await response.read()
                    raise from_answer(response.status, body, response.headers.get("Retry-After", ""))
                yield response

    async def _send_again_if_refused(self, request: Request, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        access = await self._credentials.access()
        response = await self._send(request, access, timeout)
        if response.status != HTTPStatus.UNAUTHORIZED:
            return response
        self._credentials.reject(access)
        renewed = await self._credentials.access()
        if renewed is access:
            return response
        response.release()
        return await self._send(request, renewed, timeout)

    async def _send(self, request: Request, access: Access, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        headers = dict(self._headers)
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        url = URL(access.server + request.path, encoded=True).with_query(request.query)
        begun_s, status = time.monotonic(), 0
        try:
            response = await self._session.request(
                request.method,
                url,
                data=request.body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                ssl=True if access.tls is None else access.tls,
                server_hostname=access.server_name,
                proxy=access.proxy,
            )
            status = response.status
            return response
        finally:
            self.exchanges.answers[request.method, status] += 1
            self.exchanges.seconds += time.monotonic() - begun_s


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """One whose connection ends when the other side is gone, also where nobody sends anything for hours."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise Unreachable(_TLS.sub("", str(error)), may_have_arrived=False) from error
    except (aiohttp.ConnectionTimeoutError, aiohttp.ClientProxyConnectionError) as error:
        raise Unreachable(f"no connection: {error}", may_have_arrived=False) from error
    except TimeoutError as error:
        raise Unreachable(f"no answer in time{_reason(error)}", may_have_arrived=True) from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"the connection broke{_reason(error)}", may_have_arrived=True) from error


def _reason(error: BaseException) -> str:
    return f": {error}" if str(error) else ""
