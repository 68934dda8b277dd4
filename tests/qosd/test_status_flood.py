"""The status port of a whole koord-qosd while another process of the node does with it what it can."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from koord.service import clientlistener
from koord.service.statusserver import MAX_CLIENTS
from koord.tls import certificates
from tests.qosd.machine import Machine
from tests.qosd.test_daemon import running
from tests.qosd.test_status import free_port
from tests.support.waiting import HANG_S

PROBES = 20
HALF_A_HEAD, SCRAPE = b"GET /healthz HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\n\r\n"
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01"
"""What connections say and then wait."""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.kubepods()
    return made


async def _stays(port: int, said: bytes, *, comes_again: bool) -> None:
    """Says that, and waits for the end."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(said)
                await reader.read()
            finally:
                writer.transport.abort()
        if not comes_again:
            return
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def flood(port: int, *said: bytes, comes_again: bool = True) -> AsyncIterator[None]:
    """Silent ones, and twice as many of each kind as there are places."""
    kinds = [(b"", clientlistener.MOST)] + [(one, 2 * MAX_CLIENTS) for one in said]
    tasks = [
        asyncio.create_task(_stays(port, one, comes_again=comes_again)) for one, count in kinds for _ in range(count)
    ]
    await asyncio.sleep(0.2)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def answer(port: int, path: str, tls: ssl.SSLContext | None = None) -> bytes:
    """b"" where the connection was cut."""
    try:
        async with asyncio.timeout(HANG_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            try:
                return await reader.read()
            finally:
                writer.close()
    except OSError:
        return b""


@pytest.mark.parametrize("said", [(), (HALF_A_HEAD,), (SCRAPE,), (HALF_A_HEAD, SCRAPE)],
                         ids=["silence", "half a head", "scrapes", "both"])  # fmt: skip
async def test_health_is_told_whoever_else_comes(machine: Machine, said: tuple[bytes, ...]) -> None:
    """All of them come again as soon as they are cut off."""
    port = free_port()
    async with running(machine, "--metrics-endpoint", f"127.0.0.1:{port}") as daemon, flood(port, *said):
        for _ in range(PROBES):
            assert (await answer(port, "/healthz")).startswith(b"HTTP/1.0 200 ")
            assert (await answer(port, "/readyz")).startswith((b"HTTP/1.0 200 ", b"HTTP/1.0 503 "))
        await daemon.create()


async def test_over_tls_who_stays_keeps_no_probe_out(machine: Machine) -> None:
    """A newcomer has a place, since a probe has a handshake to make; who comes again and again may take that, too."""
    authority = certificates.issue_ca(datetime.now(UTC))
    pair = certificates.issue_serving(authority, ["localhost", "127.0.0.1"], datetime.now(UTC))
    chain, key = machine.root / "cert.pem", machine.root / "key.pem"
    chain.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    trusting.check_hostname = False
    port = free_port()
    files = ("--metrics-cert-file", str(chain), "--metrics-key-file", str(key))
    staying = flood(port, HALF_A_HELLO, comes_again=False)
    async with running(machine, "--metrics-endpoint", f"127.0.0.1:{port}", *files), staying:
        for _ in range(PROBES):
            assert (await answer(port, "/healthz", trusting)).startswith(b"HTTP/1.0 200 ")
