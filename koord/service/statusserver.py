"""Serves a few read-only pages over a unix socket or a loopback port: figures, health, a dump of the process's state.

One small HTTP/1.0 answer per connection, enough for Prometheus, curl and node agents, without a web server in the
process. Invariants: a slow, hostile or broken client costs a bounded time and memory, and no other client's answer.
Where ``MAX_CLIENTS`` have sent something, a newcomer is answered and the oldest is cut off, first one whose request is
not whole, of the network that has most. A page that can be made at once is sent at once, so a probe of health is
answered under any load from its own address. Clients that have sent nothing yet are a `ClientListener`'s. A page that
fails answers 500 and is logged. A port that other machines reach is the caller's choice, and then a ``TokenGuard`` or
TLS stands before the figures. Pages that say more than figures (``local``) are for callers of this machine alone, or
for those with the token.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from koord.model.connectionlimit import ConnectionLimit
from koord.service import clientlistener, loglimit
from koord.service.clientlistener import ClientListener
from koord.service.optionvalues import listen_address
from koord.service.unixsocket import permissions, prepare

log = logging.getLogger("koord.service.statusserver")

MAX_CLIENTS = 16
MAX_HEAD_BYTES = 8192
TIMEOUT_S = 5.0
_END = b"\r\n\r\n"
SOCKET_MODE = 0o660
HEALTH_PAGES = frozenset({"/healthz", "/readyz"})
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: HTTP status, body and media type."""

    status: int
    body: bytes
    media_type: str = "text/plain; charset=utf-8"


_FAILED = Page(500, b"see the log\n")


@dataclass(frozen=True, slots=True)
class TokenGuard:
    """Wants ``token`` as bearer token for all pages but ``open_pages``, a node's probes; "" opens no other page."""

    token: str
    open_pages: frozenset[str] = frozenset()

    def lets(self, path: str, head: bytes) -> bool:
        """Returns whether a request with this ``head`` may see ``path``."""
        if path in self.open_pages:
            return True
        bearer = _header(head, b"authorization")
        return bool(self.token) and hmac.compare_digest(bearer, b"Bearer " + self.token.encode())


def read_token(file: str) -> str:
    """Returns the bearer token in ``file``. Raises OSError or ValueError."""
    token = Path(file).read_text(encoding="utf-8").strip()
    if not token:
        raise ValueError("is empty")
    return token


Maker = Callable[[], Page | Awaitable[Page]]
"""Makes a page; one that takes long is made elsewhere (``asyncio.to_thread``) and waited for."""


class PageRequest(NamedTuple):
    """``rest``: of the path, below the page's own, decoded; ``query``: the last value of each name."""

    rest: str
    query: Mapping[str, str]


LocalMaker = Callable[[PageRequest], Page | Awaitable[Page]]
"""Makes a page of what the caller names."""
Begun = Awaitable[Page] | bytes | None
"""A conversation's page, in the making, or the bytes that are left to send; None: its request is not whole."""


class StatusServer:
    """Serves ``pages`` (by path, their Makers) until ``close``.

    ``local``: pages for callers of this machine, or with the token; a path that ends in ``/`` has all below it.
    """

    def __init__(
        self,
        pages: Mapping[str, Maker],
        guard: TokenGuard | None = None,
        tls: ssl.SSLContext | None = None,
        local: Mapping[str, LocalMaker] = MappingProxyType({}),
    ) -> None:
        self._pages, self._local = pages, local
        self._guard = guard
        self._tls = tls
        self._listener: ClientListener | None = None
        self._clients = ConnectionLimit[asyncio.Task[None]](MAX_CLIENTS, time.monotonic)
        self._unbegun: dict[asyncio.Task[None], tuple[socket.socket, Begun]] = {}
        loglimit.limit(log.name, clientlistener.log.name)

    async def start(self, endpoint: str) -> None:
        """Serves at ``endpoint``: an absolute path (socket of mode 0660), ``host:port``, or ``:port`` (all addresses).

        Raises OSError, with the path.
        """
        if endpoint.startswith("/"):
            prepare(Path(endpoint))
            with permissions(SOCKET_MODE):
                listening = [clientlistener.unix_listening_socket(endpoint)]
        else:
            listening = await clientlistener.listening_sockets(*listen_address(endpoint))
        self._listener = ClientListener(listening, self._spoken, TIMEOUT_S)
        self._listener.open()

    @property
    def port(self) -> int:
        """The TCP port that is served."""
        assert self._listener is not None and not isinstance(self._listener.address, str)
        return int(self._listener.address[1])

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _spoken(self, accepted: socket.socket, source: str) -> None:
        """Sends a page that is there at once, before all that wait; others take one of ``MAX_CLIENTS`` places."""
        begun: Begun = None
        try:
            if self._tls is None and (head := _whole_head(accepted)):
                made = self._made(head, source)
                begun = _unsent(accepted, _encoded(made)) if isinstance(made, Page) else made
        except OSError:
            begun = b""
        if begun == b"":
            accepted.close()
            return
        conversation = asyncio.create_task(self._converse(source))
        self._unbegun[conversation] = accepted, begun
        conversation.add_done_callback(self._ended)
        given = self._clients.add(conversation, source)
        if begun is not None:
            self._clients.use(conversation)
        if given is not None:
            given.cancel()

    def _ended(self, conversation: asyncio.Task[None]) -> None:
        self._clients.discard(conversation)
        if conversation in self._unbegun:
            accepted, begun = self._unbegun.pop(conversation)
            accepted.close()
            if asyncio.iscoroutine(begun):
                begun.close()
        if not conversation.cancelled() and (error := conversation.exception()) is not None:
            log.error("a status client's request failed", exc_info=error)

    async def _converse(self, source: str) -> None:
        """Reads a request and answers it; cancelled, with the connection, where another client needs its place."""
        conversation = asyncio.current_task()
        assert conversation is not None
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(MAX_HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                accepted, begun = self._unbegun[conversation]
                if begun is not None and not isinstance(begun, bytes):
                    begun = _encoded(await _awaited(begun))
                del self._unbegun[conversation]
                transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=self._tls)
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                try:
                    if begun is None:
                        head = await reader.readuntil(_END)
                        self._clients.use(conversation)
                        made = self._made(head, source)
                        begun = _encoded(made if isinstance(made, Page) else await _awaited(made))
                    writer.write(begun)
                    await writer.drain()
                except asyncio.CancelledError:
                    transport.abort()
                    raise
                finally:
                    writer.close()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("a status client went away or said too much")

    def _local_maker(self, path: str, query: str) -> Maker | None:
        for own, make in self._local.items():
            if path == own or (own.endswith("/") and path.startswith(own)):
                return partial(make, PageRequest(unquote(path[len(own) :]), dict(parse_qsl(query))))
        return None

    def _made(self, head: bytes, source: str) -> Page | Awaitable[Page]:
        """Returns the answer to a request with this ``head`` from the address ``source``, or an awaitable of it."""
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return Page(400, b"not HTTP\n")
        if words[0] != "GET":
            return Page(405, b"GET only\n")
        path, _, query = words[1].partition("?")
        if self._guard is not None and not self._guard.lets(path, head):
            return Page(401, b"a bearer token is needed\n")
        make = self._pages.get(path) or self._local_maker(path, query)
        if make is None:
            return Page(404, f"see {' '.join((*self._pages, *self._local))}\n".encode())
        if path not in self._pages and self._guard is None and not _is_of_this_machine(source):
            return Page(403, b"for callers of this machine, unless a token guards the pages\n")
        try:
            return make()
        except Exception:  # a page is a root of its own: it must not end the server
            log.exception("page %s", path)
            return _FAILED


def _is_of_this_machine(source: str) -> bool:
    """Returns whether a caller of this address is one: "" is a unix socket's."""
    if not source:
        return True
    address = ipaddress.ip_address(source.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


async def _awaited(made: Awaitable[Page]) -> Page:
    try:
        return await made
    except Exception:  # as above
        log.exception("a page that was waited for")
        return _FAILED


def _whole_head(accepted: socket.socket) -> bytes:
    """Takes a request's head from the socket; b"", and takes nothing, if it is not whole. Raises OSError."""
    said = accepted.recv(MAX_HEAD_BYTES, socket.MSG_PEEK)
    return accepted.recv(len(said)) if _END in said else b""


def _unsent(accepted: socket.socket, answer: bytes) -> bytes:
    """Sends what the socket's buffer takes, and returns the rest. Raises OSError."""
    try:
        return answer[accepted.send(answer) :]
    except (BlockingIOError, InterruptedError):
        return answer


def _header(head: bytes, name: bytes) -> bytes:
    """Returns the value of a header field, b"" without it."""
    for line in head.split(b"\r\n")[1:]:
        field, _, value = line.partition(b":")
        if field.strip().lower() == name:
            return value.strip()
    return b""


def _encoded(page: Page) -> bytes:
    head = (
        f"HTTP/1.0 {page.status} {_REASONS.get(page.status, '')}\r\nContent-Type: {page.media_type}\r\n"
        f"Content-Length: {len(page.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + page.body
