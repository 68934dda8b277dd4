"""Attaches to the runtime as an NRI plugin, for ever: connects, registers, serves, and again when the runtime restarts.

A missing socket is the normal state of a node whose runtime has no NRI, or starts later: its directory is watched, not
polled. Any other failure is tried again after a growing pause, which the socket's appearance cuts short. Invariant:
``attached`` hears True and False in turn, True when the runtime has taken us in (before it tells what runs already),
False when it is gone.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from koord.pb.nri import api_pb2 as nri
from koord.service.inotify import DirectoryWatch
from qosd.nri import ttrpc
from qosd.nri.connection import NRIConnection
from qosd.nri.service import Hooks, Peer, PluginService

RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
NRI_VERSION = "v0.12.0"  # of the protocol that protos/nri/api.proto follows
_SETTLE_S = 0.02  # between the socket's appearance and its listening

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """``pause_s`` before the second attempt, doubled up to ``longest_pause_s``, each longer by up to ``jitter`` of it.

    ``answer_s``: how long each step of becoming attached may take the runtime.
    """

    pause_s: float = 1.0
    longest_pause_s: float = 30.0
    jitter: float = 0.1
    answer_s: float = 5.0


@dataclass(frozen=True, slots=True)
class NRIStatus:
    """``peer``: the runtime while attached. ``failure``: why we are not, or why the last time ended; "" = never."""

    socket: Path
    peer: Peer | None
    attachments: int
    failure: str


class NRIPlugin:
    """``index``: two digits, the order in which the runtime calls its plugins. ``chance`` returns 0..1."""

    def __init__(
        self,
        socket: Path,
        hooks: Hooks,
        attached: Callable[[bool], None],
        name: str = "koord-qosd",
        index: str = "10",
        patience: Patience = Patience(),
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._socket, self._hooks, self._attached = socket, hooks, attached
        self._name, self._index, self._patience, self._chance = name, index, patience, chance
        self._appeared = asyncio.Event()
        self._peer: Peer | None = None
        self._attachments = 0
        self._failure = ""

    @property
    def status(self) -> NRIStatus:
        return NRIStatus(self._socket, self._peer, self._attachments, self._failure)

    @property
    def runtime(self) -> str:
        """Returns the runtime that has taken us in, for people; "" = none."""
        return str(self._peer) if self._peer is not None else ""

    async def run(self) -> None:
        """Attaches, and stays attached until it is cancelled."""
        loop = asyncio.get_running_loop()
        watch = self._watch()
        patience = self._patience
        pause_s = patience.pause_s
        try:
            while True:
                self._appeared.clear()
                began_s = loop.time()
                missing = await self._attempt()
                if loop.time() - began_s > patience.longest_pause_s:
                    pause_s = patience.pause_s  # it held; a runtime that drops us at once is asked less and less
                forever = missing and watch is not None
                wait_s = None if forever else pause_s * (1 + patience.jitter * self._chance())
                appeared = await self._socket_appears(wait_s)
                pause_s = patience.pause_s if appeared else min(2 * pause_s, patience.longest_pause_s)
        finally:
            if watch is not None:
                watch.close()

    def _watch(self) -> DirectoryWatch | None:
        def changed(names: frozenset[str]) -> None:
            if not names or self._socket.name in names:
                self._appeared.set()

        try:
            return DirectoryWatch(asyncio.get_running_loop(), str(self._socket.parent), changed)
        except OSError as error:
            _log.warning("%s is not watched, it is tried now and then: %s", self._socket.parent, error)
            return None

    async def _socket_appears(self, wait_s: float | None) -> bool:
        """Returns whether something happened to the socket within ``wait_s`` (None = for ever)."""
        try:
            async with asyncio.timeout(wait_s):
                await self._appeared.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(_SETTLE_S)
        return True

    async def _attempt(self) -> bool:
        """Runs one connection from its beginning to its end. Returns True if there is no socket."""
        try:
            await self._serve()
        except FileNotFoundError:
            self._failed(logging.INFO, f"there is no {self._socket} (yet)")
            return True
        except (OSError, ttrpc.CallError) as error:
            self._failed(logging.WARNING, f"{self._socket}: {str(error) or type(error).__name__}")
        return False

    async def _serve(self) -> None:
        """Raises OSError when the socket does not answer or the connection ends, CallError when we are not taken in."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[str] = loop.create_future()
        answered = asyncio.Event()

        def attach(peer: Peer) -> None:
            self._attach(peer)
            answered.set()

        def end(reason: str) -> None:
            answered.set()
            if not ended.done():
                ended.set_result(reason)

        methods = PluginService(self._hooks, attach).methods()
        async with asyncio.timeout(self._patience.answer_s):
            _, connection = await loop.create_unix_connection(lambda: NRIConnection(methods, end), str(self._socket))
        try:
            await self._register(connection, answered)
            raise ConnectionError(await ended)
        finally:
            connection.close("koord-qosd lets go")
            if self._peer is not None:
                self._peer = None
                self._attached(False)

    async def _register(self, connection: NRIConnection, answered: asyncio.Event) -> None:
        """Returns when the runtime has configured us, or the connection is over."""
        request = nri.RegisterPluginRequest(
            plugin_name=self._name, plugin_idx=self._index, NRI_version=NRI_VERSION
        ).SerializeToString()
        answer_s = self._patience.answer_s
        await connection.call(RUNTIME_SERVICE, "RegisterPlugin", request, answer_s)
        try:
            async with asyncio.timeout(answer_s):
                await answered.wait()
        except TimeoutError:
            raise TimeoutError(f"registered, but not configured within {answer_s:g} s") from None

    def _attach(self, peer: Peer) -> None:
        if self._peer is None:
            self._attachments += 1
            self._peer = peer
            self._failure = ""
            _log.info("attached to %s as %s-%s", peer, self._index, self._name)
            self._attached(True)

    def _failed(self, level: int, reason: str) -> None:
        """Logs the reason, but not again and again."""
        if reason != self._failure:
            _log.log(level, "not attached: %s", reason)
        self._failure = reason
