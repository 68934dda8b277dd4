"""Takes connections on a port, and bounds the number and the time of TLS handshakes.

asyncio's own servers report a connection after its handshake, and a failed one never, so silent clients cannot be
counted, and each costs a TLS object and a descriptor. Here a handshake is a task. Invariant: handshakes and connections
together are as many as the `ConnectionLimit` allows, which also says which connection makes room for a newcomer: silent
clients keep no other out, a client with many connections gives one of its own, and clients without a certificate, where
one is asked for, make room before those with one. An address begins ``STARTS_AT_ONCE`` handshakes and then
``STARTS_PER_S``; each takes a millisecond of the event loop, so a client that connects again and again delays itself
alone. Fails with OSError from ``start``; a handshake's failure is its client's.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable

from koord.model.connectionlimit import ConnectionLimit
from koord.model.sourcerate import SourceRate

log = logging.getLogger("koord.tls.listener")

_BACKLOG = 1024
"""Clients come back all at once when another replica has gone."""
STARTS_PER_S, STARTS_AT_ONCE = 100.0, 256
"""An API server opens a connection for each review that finds none idle, and has 200 writes under way by default."""
MOST_WAIT_S = 4.0
"""Whose handshake would begin later is refused, and comes again."""
_PAUSE_S = 1.0
"""After an accept that failed, as for want of descriptors, which would fail again at once."""
Client = asyncio.Task[None] | asyncio.Transport
"""A handshake under way, or a connection. Only the first is told by its class: uvloop's transports have another."""


class TLSListener:
    """``protocol`` makes the protocol of a connection; its owner calls ``closed`` when one is lost, and ``used``.

    ``most``: handshakes and connections.
    """

    def __init__(
        self,
        tls: ssl.SSLContext,
        protocol: Callable[[], asyncio.Protocol],
        most: int,
        handshake_s: float,
        shutdown_s: float,
    ) -> None:
        self._tls, self._protocol = tls, protocol
        self._handshake_s, self._shutdown_s = handshake_s, shutdown_s
        self._clients = ConnectionLimit[Client](most, time.monotonic)
        self._starts = SourceRate(STARTS_PER_S, STARTS_AT_ONCE, MOST_WAIT_S, time.monotonic)
        self._handshakes: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    @property
    def handshakes(self) -> int:
        """The number of handshakes under way."""
        return len(self._handshakes)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """The address that is served; host "" is every one of the machine, of IPv4 and of IPv6. Raises OSError."""
        listener = listening_socket(host, port)
        listener.setblocking(False)
        self._socket = listener
        self._accepting = asyncio.create_task(self._accept(listener))
        served_host, served_port = listener.getsockname()[:2]
        return host and served_host, served_port

    async def stop(self) -> None:
        """Accepts no further connection; handshakes under way go on."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait((self._accepting,))
        if self._socket is not None:
            self._socket.close()

    async def cut(self) -> None:
        """Ends the handshakes that are under way."""
        for handshake in self._handshakes:
            handshake.cancel()
        if self._handshakes:
            await asyncio.wait(self._handshakes)

    def used(self, connection: asyncio.Transport) -> None:
        """Notes that the connection was of use, so that others make room before it."""
        self._clients.use(connection)

    def closed(self, connection: asyncio.Transport) -> None:
        self._clients.discard(connection)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            accepted, source, delay_s = await next_accepted(listener, self._starts, log)
            handshake = asyncio.create_task(self._shake(accepted, source, delay_s))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._done)
            self._admit(handshake, source)
            await asyncio.sleep(0)  # who floods the port is not to keep the loop; and each handshake begins

    def _done(self, handshake: asyncio.Task[None]) -> None:
        self._handshakes.discard(handshake)
        self._clients.discard(handshake)

    def _admit(self, client: Client, source: str, is_known: bool = False) -> None:
        given = self._clients.add(client, source, is_known)
        if isinstance(given, asyncio.Task):
            given.cancel()
        elif given is not None:
            given.abort()

    async def _shake(self, accepted: socket.socket, source: str, delay_s: float) -> None:
        """Ends with the handshake; the connection lives on by itself."""
        try:
            await asyncio.sleep(delay_s)
        except asyncio.CancelledError:
            accepted.close()
            raise
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=self._shutdown_s,
            )
        except OSError:  # those of TLS among them
            return
        handshake = asyncio.current_task()
        assert handshake is not None
        self._clients.discard(handshake)
        if not transport.is_closing():
            self._admit(transport, source, _has_certificate(transport))


def _has_certificate(transport: asyncio.BaseTransport) -> bool:
    """Returns whether the client has shown a certificate that was verified. Where none is asked for, no client has."""
    tls = transport.get_extra_info("ssl_object")
    return tls is not None and bool(tls.getpeercert())


async def next_accepted(
    listener: socket.socket, starts: SourceRate, report: logging.Logger
) -> tuple[socket.socket, str, float]:
    """Waits for the next connection that ``starts`` does not refuse, and returns it with its client's address and the
    seconds until it may begin. ``report`` says why none can be had."""
    while True:
        try:
            accepted, address = await asyncio.get_running_loop().sock_accept(listener)
        except OSError as error:
            report.warning("no connection can be accepted: %s", error)
            await asyncio.sleep(_PAUSE_S)
            continue
        source = address[0]
        delay_s = starts.delay_s(source)
        if delay_s is not None:
            return accepted, source, delay_s
        accepted.close()
        await asyncio.sleep(0)  # who floods the port is not to keep the loop


def listening_socket(host: str, port: int) -> socket.socket:
    """Host "" is every address; a machine whose kernel knows no IPv6 has those of IPv4. Raises OSError."""
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    if socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
    return socket.create_server((host, port), backlog=_BACKLOG)
