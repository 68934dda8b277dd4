"""Accepts CRI clients and pairs each with a connection to the runtime.

Invariant: a client is either paired with a runtime connection or, after a bounded wait, closed (it sees
Unavailable and comes again); never answered by us. A listener that fails closes nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from functools import partial

from runtimeproxy.intercept import Interceptor
from runtimeproxy.looplag import LoopLag
from runtimeproxy.metrics import Metrics
from runtimeproxy.relay.connection import RelayedConnection
from runtimeproxy.relay.policy import RelayPolicy
from runtimeproxy.relay.runtimeconnector import RuntimeConnector

log = logging.getLogger("koord.relay")

DEFAULT_HELD_BUDGET_BYTES = 64 << 20
_ACCEPTS_PER_WAKE = 64
_ACCEPT_REST_S = 0.1


class RelayServer:
    """Accepts clients. ``backend``: the runtime's socket. ``backend_wait_s``: how long a connection waits for it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        backend: str,
        interceptor: Interceptor,
        *,
        metrics: Metrics | None = None,
        backend_wait_s: float = 10.0,
        held_budget_bytes: int = DEFAULT_HELD_BUDGET_BYTES,
    ) -> None:
        self._loop = loop
        self._backend = backend
        self._backend_wait_s = backend_wait_s
        self.metrics = metrics or Metrics()
        self.policy = RelayPolicy(interceptor, self.metrics, held_budget_bytes)
        self.lag = LoopLag(loop, self.metrics, lambda: self.metrics.held_streams > 0)
        self.policy.worked = self.lag.arm
        self._listeners: set[socket.socket] = set()
        self._connections: set[RelayedConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._short = False  # of descriptors or memory for a connection; logged once
        self._runtime = RuntimeConnector(loop, backend)
        self.draining = False

    def add_listener(self, listener: socket.socket) -> None:
        """Accepts on a listening unix socket. It stays the caller's to close, after `remove_listener`."""
        listener.setblocking(False)
        self._listeners.add(listener)
        self._loop.add_reader(listener, self._accept, listener)

    def remove_listener(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._listeners.discard(listener)
            self._loop.remove_reader(listener)

    def set_bypass(self, bypass: bool) -> None:
        """Switches to a pure relay and back: under bypass new streams pass, held ones go on, windows stay in step."""
        was, self.policy.bypass = self.policy.bypass, bypass
        if was and not bypass:
            self.policy.interceptor.forget()
        self.policy.forget_routes()
        if bypass:
            for connection in list(self._connections):
                connection.held.release_all()

    @property
    def bypass(self) -> bool:
        return self.policy.bypass

    @property
    def connections(self) -> frozenset[RelayedConnection]:
        """The connections that are open, or wait for the runtime."""
        return frozenset(self._connections)

    def drain(self) -> None:
        """Accepts no more and asks every client to leave; calls that are open, or still arrive, are served."""
        self.draining = True
        for listener in list(self._listeners):
            self.remove_listener(listener)
        for connection in list(self._connections):
            connection.going_away.drain()

    async def drained(self, timeout_s: float) -> bool:
        """Waits for the last connection to end; after ``timeout_s`` closes what is left and returns False."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
                return True
        for connection in list(self._connections):
            connection.pair.close()
        return False

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_WAKE):
            try:
                client, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # out of descriptors or memory: clients in the backlog keep waiting
                if not self._short:
                    log.error("no connection can be accepted on %s: %s", listener.getsockname(), error)
                self._short = True
                self._rest(listener)
                return
            if self._short:
                log.warning("connections are accepted again")
            self._short = False
            client.setblocking(False)
            task = self._loop.create_task(self._serve(client, self._join()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _rest(self, listener: socket.socket) -> None:
        self._loop.remove_reader(listener)
        self._loop.call_later(_ACCEPT_REST_S, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    async def _serve(self, client: socket.socket, connection: RelayedConnection) -> None:
        """Pairs one client; its bytes are read only once there is a runtime to send them to."""
        try:
            runtime = await self._reach_runtime(client)
            await self._loop.create_unix_connection(lambda: connection.answers, sock=runtime)
            await self._loop.connect_accepted_socket(lambda: connection.requests, sock=client)
        except OSError as error:
            log.warning("a connection is closed unserved: runtime at %s: %s", self._backend, error)
            self.metrics.unserved_connections += 1
            client.close()
            connection.abandon()
            return
        connection.going_away.expect_preface()

    async def _reach_runtime(self, client: socket.socket) -> socket.socket:
        """Returns a connected socket. Raises OSError: the runtime stayed away for too long, or the client has gone."""
        connecting = self._runtime.connect(self._backend_wait_s)
        if connecting.done():
            return connecting.result()
        on_hangup = partial(self._runtime.give_up, connecting, ConnectionAbortedError("its client left before it came"))
        self.policy.hangups.watch(self._loop, client.fileno(), on_hangup)
        try:
            return await connecting
        finally:
            self.policy.hangups.forget(client.fileno(), on_hangup)

    def _join(self) -> RelayedConnection:
        connection = RelayedConnection(self._loop, self.policy)
        self._connections.add(connection)
        self._idle.clear()
        self.metrics.connections += 1
        self.metrics.accepted_connections += 1
        connection.pair.ended.add_done_callback(lambda _: self._leave(connection))
        return connection

    def _leave(self, connection: RelayedConnection) -> None:
        self._connections.discard(connection)
        self.metrics.connections -= 1
        if not self._connections:
            self._idle.set()
