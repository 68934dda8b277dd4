"""Kept HTTP/1.1 connections to one server, for requests whose answers are read whole.

A client of the API server spends most of its CPU on such requests, and aiohttp's take four times as much as these; it
stays for what this cannot do: answers that go on, and proxies.
Invariants: a connection has one request at a time; one that has not brought the whole answer, or that the server wants
to end, takes no other; there are at most ``most``. What is given up and has not left this machine, as where the network
is cut, never leaves it. Fails with Unreachable.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import NamedTuple, cast

import httptools

from koord.kube.errors import Unreachable

CONNECT_S = 10.0
MAX_IDLE_S = 60.0
"""The API server ends a connection after 90 seconds without a request."""

_KEEPALIVE = (
    (socket.TCP_KEEPIDLE, 15),
    (socket.TCP_KEEPINTVL, 5),
    (socket.TCP_KEEPCNT, 3),
    (socket.TCP_USER_TIMEOUT, 30_000),
)
_AT_ONCE = struct.pack("ii", 1, 0)
"""``struct linger``: close the connection by a reset, and forget what it was to send."""

_FRAMED = (b"content-length", b"transfer-encoding")
_FIRST_FINAL_STATUS = 200


Check = Callable[[], None]
"""Raises a KubeError if a request is not to be sent any more."""


class Endpoint(NamedTuple):
    """``tls`` None: plain TCP. ``server_name``: in its certificate; "": as ``host``."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str = ""


class Answer(NamedTuple):
    """``retry_after``: that header, or ""."""

    status: int
    body: bytes
    retry_after: str


class Connections:
    """To be closed. Belongs to the event loop that is running."""

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)
        self._endpoint: Endpoint | None = None
        self._idle: list[_Connection] = []

    def close(self) -> None:
        """Ends those that are idle."""
        while self._idle:
            self._idle.pop().end()

    async def exchange(
        self, endpoint: Endpoint, request: bytes, is_repeatable: bool, timeout_s: float, check: Check | None = None
    ) -> Answer:
        """Sends a whole ``request`` and returns the answer. Raises Unreachable.

        A kept connection may be one that the server has just ended: then what ``is_repeatable`` is sent once more.
        ``check``: is called each time when there is a connection; what it raises keeps the request from being sent.
        """
        if endpoint != self._endpoint:
            self.close()
            self._endpoint = endpoint
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(timeout_s), self._places:
                connection = self._kept() or await self._opened(endpoint)
                try:
                    return await connection.sent(request, check)
                except Unreachable:
                    if not (is_repeatable and connection.may_have_been_ended):
                        raise
                connection = None
                connection = await self._opened(endpoint)
                return await connection.sent(request, check)
        except TimeoutError as error:
            if connection is None:
                raise Unreachable(f"no connection to {endpoint.host} in time", may_have_arrived=False) from error
            raise Unreachable("no answer in time", may_have_arrived=True) from error
        finally:
            if connection is not None:
                self._put_back(connection, endpoint)

    def _kept(self) -> _Connection | None:
        """Returns the one that was used last."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_free and time.monotonic() - connection.last_s < MAX_IDLE_S:
                return connection
            connection.end()
        return None

    def _put_back(self, connection: _Connection, endpoint: Endpoint) -> None:
        if connection.is_free and endpoint == self._endpoint:
            self._idle.append(connection)
        else:
            connection.end()

    async def _opened(self, endpoint: Endpoint) -> _Connection:
        """Tries one address after the other."""
        loop, failure = asyncio.get_running_loop(), "it has no address"
        try:
            addresses = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
            for address in addresses:
                try:
                    async with asyncio.timeout(CONNECT_S / len(addresses)):
                        return await _connected(loop, address[0], address[4], endpoint)
                except OSError as error:  # TLS's and TimeoutError, too
                    failure = str(error) or "no answer in time"
        except OSError as error:
            failure = str(error)
        raise Unreachable(f"Cannot connect to host {endpoint.host}:{endpoint.port}: {failure}", may_have_arrived=False)


async def _connected(
    loop: asyncio.AbstractEventLoop, family: int, address: tuple[object, ...], endpoint: Endpoint
) -> _Connection:
    made = keepalive_socket(family)
    try:
        made.setblocking(False)
        await loop.sock_connect(made, address)
        name = (endpoint.server_name or endpoint.host) if endpoint.tls is not None else None
        _, connection = await loop.create_connection(_Connection, sock=made, ssl=endpoint.tls, server_hostname=name)
    except BaseException:
        made.close()
        raise
    return connection


class _Connection(asyncio.Protocol):
    """``last_s``: when the last answer had come."""

    def __init__(self) -> None:
        self.last_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self._answers = 0
        self._takes_another = True
        self._begin()

    @property
    def is_free(self) -> bool:
        return self._takes_another and self._answer is None and self._transport is not None

    @property
    def may_have_been_ended(self) -> bool:
        """Whether it has brought answers, and nothing of the last one."""
        return self._answers > 0 and not self._has_begun

    async def sent(self, request: bytes, check: Check | None) -> Answer:
        """Raises Unreachable, and what ``check`` raises."""
        if self._transport is None:
            raise Unreachable("the connection broke", may_have_arrived=False)
        if check is not None:
            check()
        self._begin()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._transport.write(request)
        found = await answer  # a caller that gives up leaves a connection that is not free
        self._answer = None
        return found

    def end(self) -> None:
        if self._transport is None:
            return
        if self._answer is not None:  # or the kernel would send for half a minute more what it still has
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass

    def data_received(self, data: bytes) -> None:
        self._has_begun = True
        if self._answer is None or self._answer.done():
            self.end()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(str(error))
            self.end()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._is_in_body and not self._is_framed and error is None:
            self._complete(takes_another=False)
        self._fail("" if error is None else str(error))

    # what the parser calls

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.done():  # nobody asked
            self._takes_another = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in _FRAMED:
            self._is_framed = True
        elif name == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._is_in_body = True

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < _FIRST_FINAL_STATUS:
            self._begin()
        else:
            self._complete(self._parser.should_keep_alive())

    def _begin(self) -> None:
        self._parts: list[bytes] = []
        self._retry_after = ""
        self._has_begun = self._is_framed = self._is_in_body = False

    def _complete(self, takes_another: bool) -> None:
        self._takes_another &= takes_another
        self._is_in_body, self.last_s = False, time.monotonic()
        self._answers += 1
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(self._parser.get_status_code(), b"".join(self._parts), self._retry_after))

    def _fail(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            said = f"the connection broke{f': {why}' if why else ''}"
            self._answer.set_exception(Unreachable(said, may_have_arrived=True))


def keepalive_socket(family: int) -> socket.socket:
    """Returns a TCP socket whose connection ends when the other side is gone, also where nobody sends for hours."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEPALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
