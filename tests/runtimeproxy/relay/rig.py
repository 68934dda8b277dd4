"""Client, relay and runtime wired together on unix sockets, with the ledger running beside them.

``Rig`` holds one watched connection; leaving the block asserts that neither end saw a rule broken and that no
window credit was lost. A test that breaks the connection on purpose says so with ``settle=False``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runtimeproxy.intercept import PASS, Call, Forward, Interceptor, Refuse, StreamPlan, Treatment
from runtimeproxy.relay.connection import RelayedConnection
from runtimeproxy.relay.server import RelayServer
from runtimeproxy.relay.stream import Stream as HeldStream
from runtimeproxy.relay.stream import StreamState
from tests.runtimeproxy.relay.endpoint import Stream, Tuning
from tests.runtimeproxy.relay.ledger import End, Ledger
from tests.runtimeproxy.relay.peers import Client, Handler, Server, serving
from tests.support.waiting import until

CREATE = "/runtime.v1.RuntimeService/CreateContainer"
VERSION = "/runtime.v1.RuntimeService/Version"
HOLD = StreamPlan(Treatment.HOLD)
SETTLE_S = 2.0


@dataclass(slots=True)
class Scripted:
    """An interceptor that does what the test says; it implements ``Interceptor``.

    ``decide`` turns a held message into its replacement, or into a ``Refuse``; it may raise. ``gate`` closed means
    that no answer comes.
    """

    plans: dict[str, StreamPlan] = field(default_factory=dict)
    decide: Callable[[bytes], bytes | Refuse] = bytes
    then: Callable[[], None] | None = None
    rewrite: Callable[[bytes], bytes] = bytes
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[bytes] = field(default_factory=list)
    tapped_messages: list[bytes] = field(default_factory=list)
    answers: list[tuple[str, int, bytes | None]] = field(default_factory=list)
    cancelled: int = 0
    forgotten: int = 0
    version: int = 0

    def plan(self, path: str) -> StreamPlan:
        return self.plans.get(path, PASS)

    async def request(self, call: Call, message: bytes) -> Forward | Refuse:
        self.asked.append(message)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        decided = self.decide(message)
        return decided if isinstance(decided, Refuse) else Forward(decided, self.then)

    def tapped(self, call: Call, message: bytes) -> None:
        self.tapped_messages.append(message)

    def answered(self, call: Call, status: int, message: bytes | None) -> None:
        self.answers.append((call.path, status, message))

    def rewritten(self, path: str, message: bytes) -> bytes:
        return self.rewrite(message)

    def forget(self) -> None:
        self.forgotten += 1


def passing() -> Scripted:
    """Holds nothing."""
    return Scripted()


def holding(decide: Callable[[bytes], bytes | Refuse], *, opened: bool = False, plan: StreamPlan = HOLD) -> Scripted:
    """Holds CreateContainer; nothing is decided before the gate is set."""
    scripted = Scripted({CREATE: plan}, decide)
    if opened:
        scripted.gate.set()
    return scripted


def text(size: int, letter: bytes = b"o") -> bytes:
    """A message of so many bytes."""
    return letter * size


def listening(path: Path) -> socket.socket:
    """A bound, listening, non-blocking unix socket."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    sock.listen(128)
    sock.setblocking(False)
    return sock


@contextlib.asynccontextmanager
async def relaying(
    path: Path, backend: Path, interceptor: Interceptor, held_budget_bytes: int = 128 << 20
) -> AsyncIterator[RelayServer]:
    """The relay under test, listening on ``path`` for the time of the block."""
    loop = asyncio.get_running_loop()
    server = RelayServer(loop, str(backend), interceptor, held_budget_bytes=held_budget_bytes)
    server.add_listener(listening(path))
    try:
        yield server
    finally:
        server.drain()
        await server.drained(0.0)


@dataclass(slots=True)
class Rig:
    """One watched client connection through the relay to one h2 server."""

    client: Client
    server: Server
    relay: RelayServer
    ledger: Ledger
    path: Path
    watched: RelayedConnection

    async def another(self, tuning: Tuning | None = None) -> Client:
        """A further client connection, not watched."""
        return await Client.connect(self.path, tuning)

    async def arrived(self, number: int) -> Stream:
        """The runtime's stream of that number, once it has its HEADERS."""
        await until(lambda: len(self.server.streams) > number)
        return self.server.streams[number]

    async def settled(self) -> None:
        """Wait for quiet on both links and check the books."""
        await settled(lambda: balance(self.ledger, self.watched))


def balance(ledger: Ledger, connection: RelayedConnection) -> list[str]:
    """Where the books of the relay and those of both links do not agree to the byte, at rest."""
    held = {
        stream.id: stream.owed_bytes + min(stream.uncredited_bytes, stream.left_bytes)
        for stream in connection.pair.streams.values()
        if isinstance(stream, HeldStream) and stream.state is not StreamState.TAPPED
    }
    wrong = ledger.settled(owed_bytes=connection.pair.credit_bytes, held=held)
    for name, link, window in (
        ("client", ledger.near, connection.pair.client_window_bytes),
        ("relay", ledger.far, connection.uplink.outbox.window_bytes),
    ):
        granted = link.senders[End.CLIENT].connection
        if window != granted:
            wrong.append(f"the {name} may send {granted}, of which the relay counts {window}")
    return wrong


async def settled(balance: Callable[[], list[str]]) -> None:
    """Wait until ``balance`` finds nothing wrong; what was wrong last is the failure."""
    try:
        await until(lambda: not balance(), within_s=SETTLE_S)
    except AssertionError:
        raise AssertionError(balance()) from None


@contextlib.asynccontextmanager
async def rigged(
    directory: Path,
    interceptor: Interceptor,
    handlers: Mapping[str, Handler] | None = None,
    *,
    client: Tuning | None = None,
    runtime: Tuning | None = None,
    settle: bool = True,
    held_budget_bytes: int = 128 << 20,
) -> AsyncIterator[Rig]:
    """Everything up and connected; sockets live in ``directory``."""
    ledger = Ledger()
    near, far = directory / "proxy.sock", directory / "runtime.sock"
    async with (
        serving(far, handlers, runtime, ledger.far) as server,
        relaying(near, far, interceptor, held_budget_bytes) as relay,
        Client.connected(near, client, ledger.near) as caller,
    ):
        (watched,) = relay.connections
        rig = Rig(caller, server, relay, ledger, near, watched)
        yield rig
        if settle:
            await rig.settled()
            faults = [end.fault for end in (caller.endpoint, *server.connections) if end.fault is not None]
            assert not faults, faults
