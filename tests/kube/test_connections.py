"""Kept connections against a server that answers in each way there is, and in each wrong way."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import uvloop

from koord.kube.connections import Answer, Connections, Endpoint
from koord.kube.errors import Unreachable
from tests.support.waiting import HANG_S, until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
ENDS = b""
"""In a script: the server ends the connection."""


@dataclass
class Peer:
    """``script``: what each connection answers to its requests, one after the other; the last one stays."""

    script: list[list[bytes]]
    size: int = 1 << 20
    requests: list[int] = field(default_factory=list)
    """Of each request the number of its connection."""
    open: int = 0
    held: asyncio.Event = field(default_factory=asyncio.Event)
    endpoint: Endpoint = field(init=False)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Peer]:
        self.held.set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = Endpoint(*server.sockets[0].getsockname())
        async with server, asyncio.timeout(HANG_S):
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self.open = self.open, self.open + 1
        answers = list(self.script[min(number, len(self.script) - 1)])
        try:
            while answers:
                await reader.readuntil(b"\r\n\r\n")
                self.requests.append(number)
                await self.held.wait()
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                if answer == ENDS:
                    break
                for at in range(0, len(answer), self.size):
                    writer.write(answer[at : at + self.size])
                    await asyncio.sleep(0)
                if b"close" in answer or b"\r\n\r\n" not in answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def pool(most: int = 8) -> AsyncIterator[Connections]:
    made = Connections(most)
    try:
        yield made
    finally:
        made.close()


async def ask(pool: Connections, peer: Peer, is_repeatable: bool = False, timeout_s: float = HANG_S) -> Answer:
    return await pool.exchange(peer.endpoint, GET, is_repeatable, timeout_s)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("answer", "expected", "is_kept"),
    [
        (OK, Answer(200, b"ok", ""), True),
        (CHUNKED, Answer(200, b"ok", ""), True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, Answer(200, b"ok", ""), True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, b"", ""), True),
        (b"HTTP/1.1 429 Slow\r\nRETRY-after: 7\r\nContent-Length: 0\r\n\r\n", Answer(429, b"", "7"), True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", Answer(200, b"ok", ""), False),
        (b"HTTP/1.0 502 Bad\r\nConnection: close\r\n\r\n<html>", Answer(502, b"<html>", ""), False),
    ],
    ids=["length", "chunks", "continue", "no content", "retry after", "closed", "until the end"],
)
async def test_whole_answers(answer: bytes, expected: Answer, is_kept: bool, size: int) -> None:
    async with Peer([[answer]], size).serving() as peer, pool() as connections:
        assert [await ask(connections, peer) for _ in range(3)] == [expected] * 3
        assert peer.requests == ([0, 0, 0] if is_kept else [0, 1, 2])


@pytest.mark.parametrize(
    "answer",
    [
        ENDS,
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\no\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
    ids=["none", "no HTTP", "cut", "cut in chunks", "two lengths", "another protocol"],
)
async def test_answers_that_are_none(answer: bytes) -> None:
    """The connection is given up, and the next request has another one."""
    async with Peer([[answer], [OK]]).serving() as peer, pool() as connections:
        with pytest.raises(Unreachable, match="the connection broke") as caught:
            await ask(connections, peer, is_repeatable=True)
        assert caught.value.may_have_arrived
        assert (await ask(connections, peer)).body == b"ok"
        assert peer.requests == [0, 1]


@pytest.mark.parametrize("is_repeatable", [True, False])
async def test_a_kept_connection_that_the_server_ends_as_it_is_used(is_repeatable: bool) -> None:
    async with Peer([[OK, ENDS], [OK]]).serving() as peer, pool() as connections:
        await ask(connections, peer)
        if is_repeatable:
            assert (await ask(connections, peer, is_repeatable=True)).body == b"ok"
            assert peer.requests == [0, 0, 1]
        else:
            with pytest.raises(Unreachable) as caught:
                await ask(connections, peer)
            assert caught.value.may_have_arrived


async def test_a_late_answer_is_nobodys() -> None:
    """Who gave up, in time or cancelled, leaves a connection that is not used again."""
    late = OK[:-2] + b"no"
    async with Peer([[OK, late], [late], [OK]]).serving() as peer, pool() as connections:
        await ask(connections, peer)
        peer.held.clear()
        with pytest.raises(Unreachable, match="no answer in time") as caught:
            await ask(connections, peer, timeout_s=0.02)
        assert caught.value.may_have_arrived
        task = asyncio.create_task(ask(connections, peer))
        await until(lambda: len(peer.requests) == 3)
        task.cancel()
        await asyncio.wait([task])
        peer.held.set()
        assert (await ask(connections, peer)).body == b"ok"
        assert peer.requests == [0, 0, 1, 2]


async def test_what_nobody_asked_for_ends_a_connection() -> None:
    async with Peer([[OK + OK[:-2]], [OK]]).serving() as peer, pool() as connections:
        assert (await ask(connections, peer)).body == b"ok"
        assert (await ask(connections, peer)).body == b"ok"
        assert peer.requests == [0, 1]


async def test_there_are_no_more_than_so_many() -> None:
    async with Peer([[OK]]).serving() as peer, pool(most=3) as connections:
        peer.held.clear()
        tasks = [asyncio.create_task(ask(connections, peer)) for _ in range(10)]
        await until(lambda: len(peer.requests) == 3)
        with pytest.raises(Unreachable, match=r"no connection to 127\.0\.0\.1 in time") as caught:
            await ask(connections, peer, timeout_s=0.02)
        assert not caught.value.may_have_arrived
        peer.held.set()
        assert [answer.body for answer in await asyncio.gather(*tasks)] == [b"ok"] * 10
        assert peer.open == 3


async def test_another_endpoint_has_connections_of_its_own() -> None:
    async with Peer([[OK]]).serving() as first, Peer([[OK]]).serving() as second, pool() as connections:
        for peer in (first, second, first):
            await ask(connections, peer)
        assert (first.requests, second.requests) == ([0, 1], [0])


@pytest.mark.parametrize(
    ("host", "words"), [("127.0.0.1", "Connect"), ("nowhere.invalid", "nowhere.invalid:1")], ids=["refused", "no name"]
)
async def test_nobody_listens(host: str, words: str) -> None:
    async with pool() as connections:
        with pytest.raises(Unreachable, match=words) as caught:
            await connections.exchange(Endpoint(host, 1), GET, True, HANG_S)
        assert str(caught.value).startswith("Cannot connect to host")
        assert not caught.value.may_have_arrived


async def test_a_connection_that_idled_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Peer([[OK]]).serving() as peer, pool() as connections:
        await ask(connections, peer)
        monkeypatch.setattr("koord.kube.connections.MAX_IDLE_S", 0.0)
        await ask(connections, peer)
        assert peer.requests == [0, 1]


def test_they_work_in_uvloop() -> None:
    """Whose transports are none of asyncio's classes."""

    async def run() -> None:
        async with Peer([[OK, ENDS], [CHUNKED]]).serving() as peer, pool() as connections:
            assert [(await ask(connections, peer, is_repeatable=True)).body for _ in range(3)] == [b"ok"] * 3
            assert peer.requests == [0, 0, 1, 1]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_what_was_given_up_never_arrives(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Of a request that waits in the kernel, since the server takes nothing, as where the network is cut."""
    size = 20_000
    request = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
    with socket.socket() as listening, asyncio.Runner(loop_factory=loop) as runner:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        async def give_up() -> None:
            async with pool() as connections:
                with pytest.raises(Unreachable, match="no answer in time"):
                    await connections.exchange(Endpoint(*listening.getsockname()), request, False, 0.2)

        runner.run(give_up())
        accepted, _ = listening.accept()
        with accepted, pytest.raises(ConnectionResetError):
            while accepted.recv(1 << 16):
                pass
