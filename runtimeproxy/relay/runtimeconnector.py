"""Connects to the runtime, also for clients that have to wait until it is there.

Invariant: however many clients wait, one attempt serves all of them, in the end ten times a second. A connection goes
to the client that has waited longest; a client whose time is over gets the last error. The socket is tried, not
watched: its file does not tell whether the runtime listens.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict

_FIRST_RETRY_S, _LAST_RETRY_S = 0.005, 0.1
_CONNECTS_PER_WAKE = 64

Connecting = asyncio.Future[socket.socket]


class RuntimeConnector:
    """Connects to the runtime that listens at ``path``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: str) -> None:
        self._loop = loop
        self._path = path
        self._waiting: OrderedDict[Connecting, asyncio.TimerHandle] = OrderedDict()  # … and the end of each wait
        self._retry: asyncio.Handle | None = None
        self._retry_s = _FIRST_RETRY_S
        self._error = OSError()

    def connect(self, within_s: float) -> Connecting:
        """Returns a connected socket, at once where the runtime is there; OSError when it stayed away for so long."""
        connecting: Connecting = self._loop.create_future()
        if not self._waiting:
            try:
                connecting.set_result(self._connected())
                return connecting
            except OSError as error:
                self._error = error
        self._waiting[connecting] = self._loop.call_later(within_s, self._late, connecting)
        if self._retry is None:
            self._retry_s = _FIRST_RETRY_S
            self._retry_later()
        return connecting

    def give_up(self, connecting: Connecting, error: OSError) -> None:
        """Waits no more: ``connecting`` raises ``error``, unless it has ended."""
        if connecting in self._waiting:
            self._waiting.pop(connecting).cancel()
            if not connecting.done():
                connecting.set_exception(error)

    def _late(self, connecting: Connecting) -> None:
        self.give_up(connecting, self._error)

    def _retry_later(self) -> None:
        self._retry = self._loop.call_later(self._retry_s, self._serve)
        self._retry_s = min(self._retry_s * 2, _LAST_RETRY_S)

    def _serve(self) -> None:
        """Connects for the clients that wait, until the runtime takes no more."""
        self._retry = None
        for _ in range(_CONNECTS_PER_WAKE):
            if not self._waiting:
                return
            try:
                sock = self._connected()
            except OSError as error:
                self._error = error
                self._retry_later()
                return
            self._retry_s = _FIRST_RETRY_S
            self._hand_over(sock)
        self._retry = self._loop.call_soon(self._serve)

    def _hand_over(self, sock: socket.socket) -> None:
        while self._waiting:
            connecting, late = self._waiting.popitem(last=False)
            late.cancel()
            if not connecting.done():  # the task that awaited it was cancelled
                connecting.set_result(sock)
                return
        sock.close()

    def _connected(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.connect(self._path)
        except OSError:
            sock.close()
            raise
        return sock
