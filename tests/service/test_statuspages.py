"""Pages whose address is taken when they are to be opened."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from koord.service.statuspages import StatusPages
from koord.service.statusserver import Page, StatusServer
from tests.support.waiting import HANG_S

SERVED = b"fine\n"


@asynccontextmanager
async def opened(endpoint: str) -> AsyncIterator[StatusPages]:
    pages = StatusPages(StatusServer({"/ok": lambda: Page(200, SERVED)}), endpoint, retry_s=0.01)
    await pages.open()
    try:
        yield pages
    finally:
        pages.close()


async def body(endpoint: str) -> bytes:
    """Of the page; b"" if nobody serves it."""
    host, _, port = endpoint.rpartition(":")
    connecting = asyncio.open_connection(host, int(port)) if host else asyncio.open_unix_connection(endpoint)
    try:
        reader, writer = await connecting
    except OSError:
        return b""
    writer.write(b"GET /ok HTTP/1.0\r\n\r\n")
    try:
        return (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")[2]
    finally:
        writer.close()


@pytest.fixture(params=["unix", "port"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> socket.socket:
    """Whoever has the address."""
    if request.param == "port":
        return socket.create_server(("127.0.0.1", 0))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    return listener


def endpoint_of(listener: socket.socket) -> str:
    name = listener.getsockname()
    return name if isinstance(name, str) else f"{name[0]}:{name[1]}"


async def test_an_address_that_is_taken_is_used_when_it_is_free(
    other: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = endpoint_of(other)
    async with opened(endpoint):
        await asyncio.sleep(0.05)
        assert [f"no status pages at {endpoint} yet: " in record.message for record in caplog.records] == [True]
        other.close()
        async with asyncio.timeout(HANG_S):
            while await body(endpoint) != SERVED:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert await body(endpoint) == b""


async def test_what_is_closed_is_not_tried_again(other: socket.socket) -> None:
    endpoint = endpoint_of(other)
    async with opened(endpoint):
        pass
    other.close()
    await asyncio.sleep(0.05)
    assert await body(endpoint) == b""


async def test_a_free_address_is_served_at_once(other: socket.socket) -> None:
    endpoint = endpoint_of(other)
    other.close()
    async with opened(endpoint):
        assert await body(endpoint) == SERVED
