"""Accepts connections, and hands on those whose client has sent something; a silent one costs a descriptor.

A connection costs an event loop's transport and a task a tenth of a millisecond or more, so that clients that connect
and send nothing could keep a server from accepting others. Here an accepted socket waits as it is, among ``most``
others, until it can be read; the `ConnectionLimit` chooses which one gives way to a newcomer. Clients of HTTP and of
TLS speak first. Invariants: no more than ``_AT_ONCE`` are accepted in a pass of the event loop; a client that is silent
for ``silent_s`` is cut off. Fails with OSError from ``listening_sockets``.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from koord.model.connectionlimit import ConnectionLimit

log = logging.getLogger("koord.service.clientlistener")

MOST = 256
"""Descriptors: a process that may have 1024 keeps most of them."""
_BACKLOG = 1024
_AT_ONCE = 64
_PAUSE_S = 1.0
"""The wait after an accept that failed, as for want of descriptors: it would fail again at once."""
Spoken = Callable[[socket.socket, str], None]
"""Takes a socket, which it closes in the end, and the client's address; "" for a unix socket."""


class _Silent(NamedTuple):
    socket: socket.socket
    source: str
    until_s: float


class ClientListener:
    """Serves ``listening`` on the running event loop, from ``open`` to ``close``."""

    def __init__(self, listening: Iterable[socket.socket], spoken: Spoken, silent_s: float, most: int = MOST) -> None:
        self._listening, self._spoken, self._silent_s = tuple(listening), spoken, silent_s
        self._limit = ConnectionLimit[int](most, time.monotonic)
        self._silent: dict[int, _Silent] = {}
        """By descriptor, the oldest first."""
        self._poll = select.epoll()
        self._timers: set[asyncio.TimerHandle] = set()

    def open(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.add_reader(listening.fileno(), self._accept, listening)
        loop.add_reader(self._poll.fileno(), self._look)
        self._call_later(self._silent_s, self._sweep)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for timer in self._timers:
            timer.cancel()
        for listening in self._listening:
            loop.remove_reader(listening.fileno())
            listening.close()
        loop.remove_reader(self._poll.fileno())
        self._poll.close()
        for descriptor in list(self._silent):
            self._taken(descriptor).close()

    @property
    def address(self) -> tuple[str, int] | str:
        """The address of the first socket."""
        address: tuple[str, int] | str = self._listening[0].getsockname()
        return address

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue
            except OSError as error:
                log.warning("no connection can be accepted: %s", error)
                asyncio.get_running_loop().remove_reader(listening.fileno())
                self._call_later(_PAUSE_S, self._resume, listening)
                return
            accepted.setblocking(False)
            source = str(address[0]) if isinstance(address, tuple) else ""
            if not self._is_over(accepted, source):
                self._keep(accepted, source)

    def _resume(self, listening: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    def _keep(self, accepted: socket.socket, source: str) -> None:
        descriptor = accepted.fileno()
        self._silent[descriptor] = _Silent(accepted, source, time.monotonic() + self._silent_s)
        self._poll.register(descriptor, select.EPOLLIN)
        given = self._limit.add(descriptor, source)
        if given is not None:
            self._silent.pop(given).socket.close()

    def _look(self) -> None:
        for descriptor, _ in self._poll.poll(0, _AT_ONCE):
            silent = self._silent.get(descriptor)
            if silent is not None:
                self._poll.unregister(descriptor)
                self._is_over(self._taken(descriptor), silent.source)

    def _taken(self, descriptor: int) -> socket.socket:
        self._limit.discard(descriptor)
        return self._silent.pop(descriptor).socket

    def _is_over(self, accepted: socket.socket, source: str) -> bool:
        """Hands the connection on if its client has sent something, closes it if it is gone; False if it must wait."""
        try:
            said = accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            said = b""
        if said:
            self._spoken(accepted, source)
        else:
            accepted.close()
        return True

    def _sweep(self) -> None:
        now_s = time.monotonic()
        for descriptor in [descriptor for descriptor, silent in self._silent.items() if silent.until_s <= now_s]:
            self._taken(descriptor).close()
        self._call_later(self._silent_s / 4, self._sweep)

    def _call_later(self, delay_s: float, call: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            self._timers.discard(timer)
            call(*arguments)

        timer = asyncio.get_running_loop().call_later(delay_s, run)
        self._timers.add(timer)


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Returns a socket for each address of ``host``; "" is every address of the machine. Raises OSError."""
    flags = socket.AI_PASSIVE if not host else 0
    found = await asyncio.get_running_loop().getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    listening: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, *_, address in found):
            listening.append(_listening(family, address))
    except OSError:
        for each in listening:
            each.close()
        raise
    return listening


def unix_listening_socket(path: str) -> socket.socket:
    """Returns a socket that listens at ``path``. Raises OSError."""
    return _listening(socket.AF_UNIX, path)


def _listening(family: int, address: tuple[object, ...] | str) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        made.bind(address)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made
