"""What gets through NodeLink's gate, and whom it cuts off: real sockets of several addresses of loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from koord.tls.listener import listening_socket
from koord_manager.nodelink import gate as gates
from koord_manager.nodelink.gate import NODE_CONNECTIONS, PROOF_BYTES, ConnectionGate
from tests.support.waiting import HANG_S, until

FEW = 8
GREETING_BYTES = 5
PLENTY = bytes(range(256)) * 4096
"""A MiB, in which each byte's place shows."""


@dataclass
class Rig:
    """A gate, and behind it a server that says its client's port, and sends back what it gets. ``ports``: of all.
    ``served``: of those who are there."""

    gate: ConnectionGate
    port: int
    ports: list[int] = field(default_factory=list)
    served: int = 0

    async def connect(self, source: str = "127.0.0.1") -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))
        return Client(reader, writer)

    async def stranger(self, source: str = "127.0.0.1") -> Client:
        """One that is through to the server."""
        client = await self.connect(source)
        client.port = int(await client.reader.readexactly(GREETING_BYTES))
        return client

    async def node(self, name: str, source: str = "127.0.0.1") -> Client:
        """One that has proved who it is."""
        client = await self.stranger(source)
        self.gate.prove(client.port, name)
        return client


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    port: int = 0
    """By which the server knows it."""

    async def echoed(self, data: bytes) -> bytes:
        """What comes back of ``data``, which is less where the connection ends."""
        sending = asyncio.create_task(self._send(data))
        try:
            return await self.reader.readexactly(len(data))
        except asyncio.IncompleteReadError as error:
            return error.partial
        except ConnectionError:
            return b""
        finally:
            sending.cancel()

    async def _send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()

    async def is_alive(self) -> bool:
        return await self.echoed(b"?") == b"?"

    async def has_ended(self) -> bool:
        """Waits for it."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(1 << 16):
                pass
        return True


@contextlib.asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        made.ports.append(port)
        made.served += 1
        writer.write(f"{port:{GREETING_BYTES}}".encode())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()
        made.served -= 1

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    listener, gate = listening_socket("127.0.0.1", 0), ConnectionGate()
    made = Rig(gate, listener.getsockname()[1])
    async with asyncio.timeout(HANG_S), gate.open(listener, server.sockets[0].getsockname()[1]):
        yield made
    server.close()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "MOST_STRANGERS", FEW)


async def test_bytes_pass_both_ways_whole() -> None:
    async with rig() as made:
        client = await made.node("n1")
        assert await client.echoed(PLENTY) == PLENTY
        client.writer.close()
        await until(lambda: not made.gate.connections_of("n1"))


async def test_who_reads_nothing_is_read_no_more_and_stops_nobody() -> None:
    async with rig() as made:
        stuck, other = await made.node("n1"), await made.node("n2")
        stuck.writer.transport.set_write_buffer_limits(0)
        stuck.reader._transport.pause_reading()  # type: ignore[attr-defined]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                while True:
                    stuck.writer.write(PLENTY)
                    await stuck.writer.drain()
        assert await other.echoed(PLENTY) == PLENTY


@pytest.mark.usefixtures("few")
async def test_one_address_takes_only_its_own_places() -> None:
    async with rig() as made:
        node = await made.node("n1", "127.0.0.9")
        for _ in range(5):
            silent = [await made.connect() for _ in range(2 * FEW)]
            honest = await made.node("n2", "127.0.0.2")
            assert await honest.is_alive()
            assert made.gate.strangers <= FEW
            assert len(silent) > FEW
        assert await node.is_alive()


@pytest.mark.usefixtures("few")
async def test_many_nodes_at_once_are_let_in_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is cut off for the next one as long as each proves itself in time."""
    monkeypatch.setattr(gates, "PATIENCE_S", HANG_S)
    async with rig() as made:

        async def come(number: int) -> bool:
            return await (await made.stranger(f"127.0.1.{number}")).is_alive()

        async def prove() -> None:
            for number in range(4 * FEW):
                await until(lambda number=number: len(made.ports) > number)  # type: ignore[misc]
                made.gate.prove(made.ports[number], f"n{number}")

        proving = asyncio.create_task(prove())
        assert all(await asyncio.gather(*(come(number) for number in range(1, 4 * FEW + 1))))
        await proving


@pytest.mark.usefixtures("few")
async def test_silence_from_many_addresses_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "PATIENCE_S", 0.05)
    async with rig() as made:
        silent = [await made.connect(f"127.0.2.{number}") for number in range(1, 3 * FEW)]
        assert await (await made.node("n1", "127.0.0.2")).is_alive()
        assert await silent[0].has_ended()


async def test_an_address_that_comes_too_often_waits_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "STARTS_PER_S", 0.5)
    async with rig() as made:
        first = await made.stranger()
        again = [await made.connect() for _ in range(20)]
        assert await (await made.node("n1", "127.0.0.2")).is_alive()
        assert await first.is_alive()
        assert len(made.ports) == 2, "nobody else has come through"
        assert len(made.gate._connecting) == len(again)
        for each in again:
            each.close()
    assert not made.gate._connecting


async def test_many_nodes_of_one_address_are_let_in_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a balancer: each comes again when it is refused, and none takes the place of one whose turn is next."""
    monkeypatch.setattr(gates, "STARTS_PER_S", 200.0)
    monkeypatch.setattr(gates, "MOST_QUEUED", 2 * FEW)
    monkeypatch.setattr(gates, "MOST_STRANGERS", 4 * FEW)
    async with rig() as made:
        clients: list[Client] = []

        async def come(name: str) -> None:
            while not made.gate.connections_of(name):
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    clients.append(await made.node(name))
                await asyncio.sleep(0.02)

        async with asyncio.timeout(HANG_S / 4):
            await asyncio.gather(*[come(f"n{number}") for number in range(20 * FEW)])
        for each in clients:
            each.close()
        await until(lambda: not made.served)


@pytest.mark.usefixtures("few")
async def test_nothing_waits_for_a_connection_that_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "STARTS_PER_S", 0.1)
    async with rig() as made:
        for _ in range(10 * FEW):
            (await made.connect()).close()
        await until(lambda: len(made.gate._connecting) <= FEW)


async def test_a_stranger_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as made:
        node = await made.node("n1")
        monkeypatch.setattr(gates, "PROOF_S", 0.05)
        stranger = await made.stranger()
        assert await stranger.has_ended()
        assert await node.is_alive()


async def test_a_stranger_has_its_bytes() -> None:
    async with rig() as made:
        stranger, node = await made.stranger(), await made.node("n1")
        assert len(await stranger.echoed(bytes(2 * PROOF_BYTES))) <= PROOF_BYTES
        assert len(await node.echoed(bytes(2 * PROOF_BYTES))) == 2 * PROOF_BYTES
        await until(lambda: not made.gate.strangers)


async def test_the_latest_connections_of_a_node_stay() -> None:
    async with rig() as made:
        other = await made.node("n2")
        clients = [await made.node("n1") for _ in range(NODE_CONNECTIONS + 3)]
        for old in clients[:3]:
            assert await old.has_ended()
        assert [await each.is_alive() for each in (*clients[3:], other)] == [True] * (NODE_CONNECTIONS + 1)
        assert made.gate.connections_of("n1") == NODE_CONNECTIONS


@pytest.mark.parametrize("ends", [Client.abort, Client.close])
async def test_nothing_is_kept_of_who_has_gone(ends: Callable[[Client], None]) -> None:
    async with rig() as made:
        clients = [await made.connect() for _ in range(20)] + [await made.node("n1") for _ in range(2)]
        for client in clients:
            ends(client)
        await until(lambda: not made.gate.strangers and not made.gate.connections_of("n1"))
        await until(lambda: not made.gate._by_port and not made.gate._connecting)


async def test_a_server_that_is_not_there_ends_the_connection() -> None:
    listener, gate = listening_socket("127.0.0.1", 0), ConnectionGate()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        async with asyncio.timeout(HANG_S), gate.open(listener, nobody.getsockname()[1]):
            reader, writer = await asyncio.open_connection(*listener.getsockname()[:2])
            assert await Client(reader, writer).has_ended()
            await until(lambda: not gate.strangers)


async def test_a_node_that_floods_is_read_no_faster_than_it_may_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets everything through in the end, and another one at once."""
    monkeypatch.setattr(gates, "BURST_BYTES", len(PLENTY) // 4)
    monkeypatch.setattr(gates, "BYTES_PER_S", float(len(PLENTY)))
    async with rig() as made:
        flooding, other = await made.node("a"), await made.node("b")
        began_s = time.monotonic()
        echoing = asyncio.create_task(flooding.echoed(PLENTY))
        for _ in range(9):
            assert await other.is_alive()
        assert not echoing.done()
        assert await echoing == PLENTY
        assert time.monotonic() - began_s >= 0.7, "three quarters of it, at its size a second"
        for each in (flooding, other):
            each.close()
