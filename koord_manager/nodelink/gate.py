"""The port of NodeLink as the network sees it: takes connections in, and hands their bytes on to gRPC's server.

gRPC accepts every connection, and each handshake costs it 80 KiB: a client that opens connections and says nothing
takes the memory and the places of all nodes. Here a connection is a stranger until `NodeLinkServer` reports a call on
it by a node's certificate.

Invariants: there are at most ``MOST_STRANGERS``, none of them for longer than ``PROOF_S`` or with more than
``PROOF_BYTES``; for a newcomer the network with most of them gives one (`ConnectionLimit`), and where each address has
only one, the newcomer waits until one of them has had ``PATIENCE_S``: many nodes that come at once are let in one after
the other, instead of cutting each other off. gRPC gets no more than ``STARTS_PER_S`` of one address, and
``MOST_QUEUED`` of them wait, so that a node which connects again and again pays with its own time, and not with the
others' handshakes. A node has ``NODE_CONNECTIONS``, and the latest ones stay. Bytes are read from one end as fast as
the other end reads them, and from a client no faster than ``BYTES_PER_S``: a node that floods gRPC with frames pays
with its own time for them, too. A connection's failure is its client's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator
from typing import cast

from koord.http2.reading import READ_BYTES, FairProtocol
from koord.model.connectionlimit import ConnectionLimit
from koord.model.sourcerate import SourceRate
from koord.tls.listener import next_accepted

_log = logging.getLogger(__name__)
MOST_STRANGERS = 256
PROOF_S, PATIENCE_S, LINGER_S = 15.0, 2.0, 1.0
PROOF_BYTES = 256 << 10
"""From the client: a handshake and a call of 64 KiB fit in."""
STARTS_PER_S, MOST_QUEUED = 100.0, MOST_STRANGERS // 2
"""Of an address. Many nodes may share one, behind a balancer: who comes while so many wait is refused and comes again,
instead of taking the place of one whose turn is next."""
BURST_BYTES, BYTES_PER_S = 1 << 20, float(256 << 10)
"""Sixteen calls of 64 KiB at once; and twenty times what a node sends that reports as much every five seconds."""
NODE_CONNECTIONS = 2
"""A new one and the one that it takes the place of, while both are there."""
_LOOPBACK = "127.0.0.1"


class _Side(FairProtocol):
    """One end of a connection; ``other``: where its bytes go."""

    def __init__(self, connection: _Connection) -> None:
        super().__init__()
        self._connection = connection
        self.transport: asyncio.Transport | None = None
        self.other = self
        self._early: list[bytes] = []
        """What gRPC's server said before the client was connected."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(READ_BYTES)
        self.transport.writelines(self._early)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if not self._connection.may_pass(self, len(data)):
            self._connection.close()
            return
        self.other.write(data)
        if (wait_s := self._connection.wait_s(self, len(data))) > 0:
            self._connection.pause(self, "rate")
            asyncio.get_running_loop().call_later(wait_s, self._connection.resume, self, "rate")

    def write(self, data: bytes) -> None:
        if self.transport is None:
            self._early.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def pause_for_turn(self) -> None:
        self._connection.pause(self, "turn")
        asyncio.get_running_loop().call_soon(self._connection.resume, self, "turn")

    def pause_writing(self) -> None:
        self._connection.pause(self.other, "full")

    def resume_writing(self) -> None:
        self._connection.resume(self.other, "full")

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.close()


class _Connection:
    """A stranger's, or ``node``'s."""

    def __init__(self, gate: ConnectionGate, accepted: socket.socket) -> None:
        self._gate = gate
        self.client, self.server = _Side(self), _Side(self)
        self.client.other, self.server.other = self.server, self.client
        self.port = 0
        """By which gRPC's server knows it."""
        self.node = ""
        self.since_s = time.monotonic()
        self._client_bytes = 0
        self._paid_until_s = 0.0
        """By this time the client may have sent what it has sent."""
        self._pauses: set[tuple[_Side, str]] = set()
        self._accepted: socket.socket | None = accepted
        """Until it has a transport."""
        self.starting: asyncio.Task[None] | None = None
        self.is_closed = False

    async def serve(self, delay_s: float, inner_port: int) -> None:
        """Ends when both ends are connected. Raises OSError."""
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(delay_s)
            if self.is_closed:
                return
            await loop.create_connection(lambda: self.server, _LOOPBACK, inner_port)
            accepted, self._accepted = self._accepted, None
            if accepted is None or self.server.transport is None:  # it was closed meanwhile
                self.close()
                return
            self.port = self.server.transport.get_extra_info("sockname")[1]
            self._gate.connected(self)
            try:
                await loop.connect_accepted_socket(lambda: self.client, accepted)
            except BaseException:
                accepted.close()
                raise
        except BaseException:
            self.close()
            raise
        if not self._gate.has(self):  # the server was quicker to end it
            self.close()

    def may_pass(self, side: _Side, size_bytes: int) -> bool:
        if side is self.client and not self.node:
            self._client_bytes += size_bytes
        return not self.is_closed and (bool(self.node) or self._client_bytes <= PROOF_BYTES)

    def wait_s(self, side: _Side, size_bytes: int) -> float:
        """Counts what came, and returns for how long nothing more is to be read of it; nothing, if not above 0."""
        if side is not self.client:
            return 0.0
        now_s = time.monotonic()
        self._paid_until_s = max(self._paid_until_s, now_s - BURST_BYTES / BYTES_PER_S) + size_bytes / BYTES_PER_S
        return self._paid_until_s - now_s

    def pause(self, side: _Side, why: str) -> None:
        self._pauses.add((side, why))
        if side.transport is not None and not side.transport.is_closing():
            side.transport.pause_reading()

    def resume(self, side: _Side, why: str) -> None:
        self._pauses.discard((side, why))
        is_paused = any(each is side for each, _ in self._pauses)
        if not is_paused and side.transport is not None and not side.transport.is_closing():
            side.transport.resume_reading()

    def close(self) -> None:
        """Closes both ends; each has ``LINGER_S`` to read what was sent to it."""
        if self._accepted is not None:
            self._accepted.close()
            self._accepted = None
            if self.starting is not None:
                self.starting.cancel()
        transports = [side.transport for side in (self.client, self.server) if side.transport is not None]
        for transport in transports:
            transport.close()
        if not self.is_closed:
            self.is_closed = True
            self._gate.forget(self)
            for transport in transports:
                if transport.get_write_buffer_size():
                    asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def abort(self) -> None:
        """Nobody gets anything more."""
        for side in (self.client, self.server):
            if side.transport is not None:
                side.transport.abort()
        self.close()


class ConnectionGate:
    def __init__(self) -> None:
        self._limit = ConnectionLimit[_Connection](MOST_STRANGERS, time.monotonic)
        self._strangers: dict[_Connection, asyncio.TimerHandle] = {}
        """And the end of their patience; the one that has waited longest comes first."""
        self._by_port: dict[int, _Connection] = {}
        self._nodes: dict[str, list[_Connection]] = {}
        self._starts = SourceRate(STARTS_PER_S, 1, MOST_QUEUED / STARTS_PER_S, time.monotonic)
        self._has_room = asyncio.Event()
        self._connecting: set[asyncio.Task[None]] = set()

    @property
    def strangers(self) -> int:
        return len(self._strangers)

    def connections_of(self, node: str) -> int:
        return len(self._nodes.get(node, ()))

    @contextlib.asynccontextmanager
    async def open(self, listener: socket.socket, inner_port: int) -> AsyncIterator[None]:
        """Takes connections of ``listener`` for the server on ``inner_port`` of loopback; at the end, all are cut."""
        listener.setblocking(False)
        accepting = asyncio.create_task(self._accept(listener, inner_port))
        try:
            yield
        finally:
            tasks = {accepting, *self._connecting}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            listener.close()
            for connection in list(self._by_port.values()):
                connection.abort()

    def prove(self, port: int, node: str) -> None:
        """A call of ``node`` has come on the connection that gRPC's server knows by ``port``."""
        connection = self._by_port.get(port)
        if connection is None or connection.node:
            return
        self._discard_stranger(connection)
        connection.node = node
        connections = self._nodes.setdefault(node, [])
        connections.append(connection)
        if len(connections) > NODE_CONNECTIONS:
            connections[0].abort()

    def connected(self, connection: _Connection) -> None:
        self._by_port[connection.port] = connection

    def has(self, connection: _Connection) -> bool:
        return self._by_port.get(connection.port) is connection

    def forget(self, connection: _Connection) -> None:
        """Gives back the place of a closed connection."""
        self._by_port.pop(connection.port, None)
        self._discard_stranger(connection)
        connections = self._nodes.get(connection.node, [])
        if connection in connections:
            connections.remove(connection)
            if not connections:
                del self._nodes[connection.node]

    async def _accept(self, listener: socket.socket, inner_port: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wait_for_room()
            accepted, source, delay_s = await next_accepted(listener, self._starts, _log)
            connection = _Connection(self, accepted)
            self._strangers[connection] = loop.call_later(PROOF_S, connection.abort)
            if (given := self._limit.add(connection, source)) is not None:
                given.abort()
            task = asyncio.create_task(_connect(connection, delay_s, inner_port))
            connection.starting = task
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
            await asyncio.sleep(0)  # who floods the port is not to keep the loop

    async def _wait_for_room(self) -> None:
        """Waits until a client has more than one place, or has had one for ``PATIENCE_S``."""
        while len(self._limit) >= MOST_STRANGERS and self._limit.addresses == len(self._limit):
            wait_s = next(iter(self._strangers)).since_s + PATIENCE_S - time.monotonic()
            if wait_s <= 0:
                return
            self._has_room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._has_room.wait()

    def _discard_stranger(self, connection: _Connection) -> None:
        timer = self._strangers.pop(connection, None)
        if timer is not None:
            timer.cancel()
            self._limit.discard(connection)
            self._has_room.set()


async def _connect(connection: _Connection, delay_s: float, inner_port: int) -> None:
    with contextlib.suppress(OSError):
        await connection.serve(delay_s, inner_port)
