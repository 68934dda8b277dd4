"""The listener by itself: what it counts, and an accept that fails."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from koord.tls import listener as tlslistener
from koord.tls.context import LiveContext, client_context
from koord.tls.listener import TLSListener
from tests.kube.authority import Authority
from tests.support.managerloop import event_loop_policy  # noqa: F401 - a fixture
from tests.support.waiting import until
from tests.tls.pki import NAMES
from tests.webhook.rig import FIRST

LOOPBACKS = ["127.0.0.1", *(["::1"] if socket.has_dualstack_ipv6() else [])]


@pytest.fixture
async def listener() -> AsyncIterator[TLSListener]:
    tls = LiveContext()
    tls.load(FIRST)
    listener = TLSListener(tls.server_context, asyncio.Protocol, most=3, handshake_s=5, shutdown_s=1)
    yield listener
    await listener.stop()
    await listener.cut()


@pytest.mark.parametrize("sent", [b"no handshake", b""], ids=["nonsense", "nothing"])
async def test_a_handshake_that_fails_counts_no_more(listener: TLSListener, sent: bytes) -> None:
    host, port = await listener.start("127.0.0.1", 0)
    _, writer = await asyncio.open_connection(host, port)
    await until(lambda: listener.handshakes == 1)
    writer.write(sent)
    writer.close()
    await until(lambda: not listener.handshakes)


async def test_no_host_is_every_address(listener: TLSListener) -> None:
    host, port = await listener.start("", 0)
    assert host == ""
    opened = []
    for address in LOOPBACKS:
        opened.append(await asyncio.open_connection(address, port))
        await until(lambda: listener.handshakes == len(opened))


async def test_a_kernel_without_ipv6_has_every_address_of_ipv4(
    listener: TLSListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    _, port = await listener.start("", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    await until(lambda: listener.handshakes == 1)
    writer.close()


async def test_a_handshake_that_is_done_counts_no_more(listener: TLSListener) -> None:
    host, port = await listener.start("127.0.0.1", 0)
    tls: ssl.SSLContext = client_context(FIRST)
    _, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=NAMES[0])
    await until(lambda: not listener.handshakes)
    writer.close()


async def test_handshakes_go_on_after_the_stop_until_they_are_cut(listener: TLSListener) -> None:
    host, port = await listener.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(host, port)
    await until(lambda: listener.handshakes == 1)
    await listener.stop()
    with pytest.raises(OSError):
        await asyncio.open_connection(host, port)
    assert (listener.handshakes, reader.at_eof()) == (1, False)
    await listener.cut()
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


async def test_an_accept_that_fails_is_tried_again(
    listener: TLSListener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    accept, failures = loop.sock_accept, [OSError(24, "Too many open files")]

    async def fail_first(listening: object) -> object:
        if failures:
            raise failures.pop()
        return await accept(listening)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "sock_accept", fail_first)
    monkeypatch.setattr(tlslistener, "_PAUSE_S", 0.01)
    host, port = await listener.start("127.0.0.1", 0)
    _, writer = await asyncio.open_connection(host, port)
    await until(lambda: listener.handshakes == 1)
    assert "Too many open files" in caplog.text
    writer.close()


@pytest.mark.parametrize("shows", [True, False])
async def test_who_shows_no_certificate_goes_before_those_who_do(shows: bool, tmp_path: Path) -> None:
    """Of one address: silent clients take the place of the only one with a certificate last."""
    authority, context = Authority(), client_context(FIRST)
    tls = LiveContext(authority.pem)
    tls.load(FIRST)
    if shows:
        (tmp_path / "client.pem").write_bytes(authority.issue("api-server"))
        context.load_cert_chain(tmp_path / "client.pem")
    listener = TLSListener(tls.server_context, asyncio.Protocol, most=3, handshake_s=5, shutdown_s=1)
    host, port = await listener.start("127.0.0.1", 0)
    clients = [await asyncio.open_connection(host, port, ssl=context, server_hostname=NAMES[0])]
    await until(lambda: not listener.handshakes)
    clients += [await asyncio.open_connection(host, port) for _ in range(6)]
    for reader, _ in clients[1 if shows else 0 : 4]:
        assert await asyncio.wait_for(reader.read(), 5) == b""
    assert clients[0][0].at_eof() is not shows
    for _, writer in clients:
        writer.close()
    await listener.stop()
    await listener.cut()


async def test_who_connects_again_and_again_waits_for_himself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two handshakes at once, one a minute after them, of which one may wait; another address has its own."""
    monkeypatch.setattr(tlslistener, "STARTS_PER_S", 1 / 60)
    monkeypatch.setattr(tlslistener, "STARTS_AT_ONCE", 2)
    monkeypatch.setattr(tlslistener, "MOST_WAIT_S", 90.0)
    tls = LiveContext()
    tls.load(FIRST)
    listener = TLSListener(tls.server_context, asyncio.Protocol, most=100, handshake_s=5, shutdown_s=1)
    host, port = await listener.start("127.0.0.1", 0)

    async def connect(source: str) -> asyncio.StreamWriter:
        _, writer = await asyncio.open_connection(
            host, port, ssl=client_context(FIRST), server_hostname=NAMES[0], local_addr=(source, 0)
        )
        return writer

    writers = [await connect("127.0.0.1") for _ in range(2)]
    await until(lambda: not listener.handshakes)
    waiting = asyncio.create_task(connect("127.0.0.1"))
    await until(lambda: listener.handshakes == 1)
    with pytest.raises(OSError):
        await connect("127.0.0.1")
    writers.append(await connect("127.0.0.2"))
    await until(lambda: listener.handshakes == 1)
    assert not waiting.done()
    await listener.stop()
    await listener.cut()
    with pytest.raises(OSError):
        await waiting
    for writer in writers:
        writer.close()
