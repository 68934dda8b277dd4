"""A few read-only pages over a unix socket or a loopback port: figures, health, a dump of what the process holds.

One small HTTP/1.0 answer per connection, enough for Prometheus, curl and node agents, without a web server in the
process. Invariants: a slow, hostile or broken client costs a bounded time and memory and nobody else: where there are
``MAX_CLIENTS`` who have said something, the newcomer is answered and who has waited longest is not, of the network that
has most, and before those who have said all; a page that can be made at once waits for nobody, so a probe of health is
answered whatever comes from its own address; those who have said nothing yet are a `ClientListener`'s; a page that
fails answers 500 and is logged; a port that other machines reach is the caller's choice, and then a ``Guard`` or TLS
stands before the figures.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

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
class Guard:
    """Every page but the ``open_pages`` (what a node's prober asks) wants ``token`` as bearer token; "" = nobody's."""

    token: str
    open_pages: frozenset[str] = frozenset()

    def lets(self, path: str, head: bytes) -> bool:
        """May a request with this ``head`` see ``path``?"""
        if path in self.open_pages:
            return True
        bearer = _header(head, b"authorization")
        return bool(self.token) and hmac.compare_digest(bearer, b"Bearer " + self.token.encode())


def read_token(file: str) -> str:
    """The bearer token in ``file``. Raises OSError or ValueError."""
    token = Path(file).read_text(encoding="utf-8").strip()
    if not token:
        raise ValueError("is empty")
    return token


Maker = Callable[[], Page | Awaitable[Page]]
"""Makes a page; one that takes long is made elsewhere (``asyncio.to_thread``) and waited for."""
Begun = Awaitable[Page] | bytes | None
"""Of a conversation: what makes its page, or what is left to send; None: its client has not said everything yet."""


class StatusServer:
    """Serves ``pages`` (path → what makes the page) until ``close``."""

    def __init__(
        self,
        pages: Mapping[str, Maker],
        guard: Guard | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._pages = pages
        self._guard = guard
        self._tls = tls
        self._listener: ClientListener | None = None
        self._clients = ConnectionLimit[asyncio.Task[None]](MAX_CLIENTS, time.monotonic)
        self._unbegun: dict[asyncio.Task[None], tuple[socket.socket, Begun]] = {}
        loglimit.limit(log.name, clientlistener.log.name)

    async def start(self, endpoint: str) -> None:
        """``endpoint``: an absolute path (socket of mode 0660), ``host:port``, or ``:port`` for every address.

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
        """A page that is there is sent at once, whoever else waits; for the rest there are ``MAX_CLIENTS`` places."""
        begun: Begun = None
        try:
            if self._tls is None and (head := _whole_head(accepted)):
                made = self._made(head)
                begun = _unsent(accepted, _encoded(made)) if isinstance(made, Page) else made
        except OSError:
            begun = b""
        if begun == b"":
            accepted.close()
            return
        conversation = asyncio.create_task(self._converse())
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

    async def _converse(self) -> None:
        """Ends early, and with it the connection, where others need its place."""
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
                        made = self._made(head)
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

    def _made(self, head: bytes) -> Page | Awaitable[Page]:
        """The answer to a request with this ``head``, or what it has to be waited for."""
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return Page(400, b"not HTTP\n")
        if words[0] != "GET":
            return Page(405, b"GET only\n")
        path = words[1].split("?")[0]
        if self._guard is not None and not self._guard.lets(path, head):
            return Page(401, b"a bearer token is needed\n")
        make = self._pages.get(path)
        if make is None:
            return Page(404, f"see {' '.join(self._pages)}\n".encode())
        try:
            return make()
        except Exception:  # a page is a root of its own: it must not end the server
            log.exception("page %s", path)
            return _FAILED


async def _awaited(made: Awaitable[Page]) -> Page:
    try:
        return await made
    except Exception:  # as above
        log.exception("a page that was waited for")
        return _FAILED


def _whole_head(accepted: socket.socket) -> bytes:
    """What the client has said, taken from its socket, if a request's head is in it; else b"". Raises OSError."""
    said = accepted.recv(MAX_HEAD_BYTES, socket.MSG_PEEK)
    return accepted.recv(len(said)) if _END in said else b""


def _unsent(accepted: socket.socket, answer: bytes) -> bytes:
    """The rest that its buffer does not take. Raises OSError."""
    try:
        return answer[accepted.send(answer) :]
    except (BlockingIOError, InterruptedError):
        return answer


def _header(head: bytes, name: bytes) -> bytes:
    """The value of a header field, b"" without it."""
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
