"""A port of a pod, through an API server that forwards it, or does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

import pytest

from koord.kube.client import CallLimits
from koord.kube.errors import APIError, Unreachable
from koord.kube.kind import Key
from tests.kube import portforward
from tests.kube.server import Fault, Server
from tests.kube.support import client

POD = Key("koord", "scheduler-1")
REQUEST = b"GET / HTTP/1.0\r\n\r\n"
LONG = b"answer " * 50_000


@contextlib.asynccontextmanager
async def listening(answer: bytes | None) -> AsyncIterator[int]:
    """A port that answers, or None: that says nothing. Ends the connection after the answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await asyncio.sleep(3600)
        writer.write(said + (answer or b""))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_an_answer_comes_whole_however_it_is_cut() -> None:
    server = Server()
    async with listening(LONG) as port, server.serving() as url, client(url) as api:
        server.forwards = partial(portforward.forward, target_port=port)
        assert await api.forwarded(POD, 10251, REQUEST) == REQUEST + LONG
    assert server.requests[-1][1:3] == (
        "/api/v1/namespaces/koord/pods/scheduler-1/portforward",
        {"ports": "10251"},
    )


async def test_nobody_listens_on_the_port() -> None:
    server = Server()
    async with server.serving() as url, client(url) as api:
        server.forwards = partial(portforward.forward, target_port=1)
        with pytest.raises(Unreachable, match="port 10251 of pod koord/scheduler-1: an error occurred forwarding"):
            await api.forwarded(POD, 10251, REQUEST)


async def test_a_port_that_does_not_answer() -> None:
    server = Server()
    async with listening(None) as port, server.serving() as url, client(url) as api:
        server.forwards = partial(portforward.forward, target_port=port)
        with pytest.raises(Unreachable, match="no answer in time"):
            await api.with_limits(CallLimits(tries=1, timeout_s=0.2)).forwarded(POD, 10251, REQUEST)


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_an_api_server_that_refuses(status: int) -> None:
    server = Server()
    async with server.serving() as url, client(url) as api:
        server.faults.append(Fault("get", status=status, reason="No"))
        with pytest.raises(APIError) as refused:
            await api.forwarded(POD, 10251, REQUEST)
    assert refused.value.status == status


async def test_a_server_without_the_subprotocol() -> None:
    server = Server()
    async with server.serving() as url, client(url) as api:
        server.forwards = partial(portforward.forward, target_port=1, speaks="v5.channel.k8s.io")
        with pytest.raises(Unreachable, match=r"does not speak v4\.channel\.k8s\.io"):
            await api.forwarded(POD, 10251, REQUEST)
