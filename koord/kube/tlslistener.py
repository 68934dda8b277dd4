"""Takes connections on a port and holds the TLS handshakes of no more than it may, each of them for a limited time.

asyncio's own servers tell of a connection after its handshake, and of one that failed never, so that nobody can count
the clients that say nothing, and those cost a TLS object and a descriptor each. Here a handshake is a task. Invariant:
handshakes and connections together are ``most`` at most. A new client takes the place of the handshake that has lasted
longest, so that silent ones keep nobody out; when none is left but connections, it is the new client who is closed.
Fails with OSError from ``start``; a handshake's failure is its client's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

log = logging.getLogger("koord.kube.tlslistener")

_BACKLOG = 1024
"""Clients come back all at once when another replica has gone."""
_PAUSE_S = 1.0
"""After an accept that failed, as for want of descriptors, which would fail again at once."""


class TLSListener:
    """``protocol`` makes the protocol of a connection, ``connections`` says how many have finished their handshake."""

    def __init__(
        self,
        tls: ssl.SSLContext,
        protocol: Callable[[], asyncio.BaseProtocol],
        connections: Callable[[], int],
        most: int,
        handshake_s: float,
        shutdown_s: float,
    ) -> None:
        self._tls, self._protocol, self._connections = tls, protocol, connections
        self._most, self._handshake_s, self._shutdown_s = most, handshake_s, shutdown_s
        self._handshakes: dict[asyncio.Task[None], None] = {}  # in the order in which they began
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    @property
    def handshakes(self) -> int:
        """Those under way."""
        return len(self._handshakes)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """The address that is served; host "" is every one of the machine, of IPv4 and of IPv6. Raises OSError."""
        listener = _listening(host, port)
        listener.setblocking(False)
        self._socket = listener
        self._accepting = asyncio.create_task(self._accept(listener))
        served_host, served_port = listener.getsockname()[:2]
        return host and served_host, served_port

    async def stop(self) -> None:
        """Lets nobody else in; handshakes under way go on."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait((self._accepting,))
        if self._socket is not None:
            self._socket.close()

    async def cut(self) -> None:
        """Ends the handshakes that are under way."""
        while self._handshakes:
            await asyncio.wait([self._cut_oldest() for _ in range(len(self._handshakes))])

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("no connection can be accepted: %s", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            self._admit(accepted)
            await asyncio.sleep(0)  # who floods the port is not to keep the loop; and each handshake begins

    def _admit(self, accepted: socket.socket) -> None:
        if self._connections() + len(self._handshakes) >= self._most:
            if not self._handshakes:
                accepted.close()
                return
            self._cut_oldest()
        task = asyncio.create_task(self._shake(accepted))
        self._handshakes[task] = None
        task.add_done_callback(lambda task: self._handshakes.pop(task, None))

    def _cut_oldest(self) -> asyncio.Task[None]:
        oldest = next(iter(self._handshakes))
        del self._handshakes[oldest]
        oldest.cancel()
        return oldest

    async def _shake(self, accepted: socket.socket) -> None:
        """Ends with the handshake; the connection lives on by itself."""
        with contextlib.suppress(OSError):  # those of TLS among them
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=self._shutdown_s,
            )


def _listening(host: str, port: int) -> socket.socket:
    """A machine whose kernel knows no IPv6 has every address of IPv4."""
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    if socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
    return socket.create_server((host, port), backlog=_BACKLOG)
