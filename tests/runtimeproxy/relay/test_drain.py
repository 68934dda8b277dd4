"""A connection that is told to go: what it had begun ends well, what it begins later does not reach the runtime."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from runtimeproxy.relay.server import RelayServer
from tests.runtimeproxy.relay.endpoint import PeerGone, Stream
from tests.runtimeproxy.relay.ledger import PREFACE, FrameCutter
from tests.runtimeproxy.relay.peers import answer, grpc_frame, serving
from tests.runtimeproxy.relay.raw import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    OPENING,
    SETTINGS,
    WINDOW_UPDATE,
    Sink,
    frame,
    headers,
)
from tests.runtimeproxy.relay.rig import CREATE, VERSION, Rig, holding, passing, relaying, rigged
from tests.support.waiting import HANG_S, until

LARGEST = 2**31 - 1


async def test_a_call_that_a_client_opens_before_it_has_read_goaway_is_not_passed_on(tmp_path: Path) -> None:
    """The client cannot answer our PING, so its later streams are dropped whole: HEADERS, DATA, RST and trailers."""
    ended = asyncio.Event()

    async def slow(stream: Stream) -> None:
        await stream.finished()
        await ended.wait()
        await answer(stream, bytes(stream.data))

    async with asyncio.timeout(HANG_S), rigged(tmp_path, passing(), {VERSION: slow}, settle=False) as rig:
        first, upload = rig.client.open(VERSION), rig.client.open(VERSION)
        await rig.client.endpoint.send(first.id, grpc_frame(b"in flight"))
        await rig.arrived(1)
        near = rig.client.endpoint
        near.stop_reading()
        rig.relay.drain()
        await _told_the_last_stream(rig)
        for path in (VERSION, "/a.B/C"):
            late = rig.client.open(path, [(b"x-late", b"a new table entry")])
            await near.send(late.id, grpc_frame(b"late"))
        given_up = rig.client.open(VERSION)
        near.reset(given_up.id)
        near.send_headers(upload.id, [(b"x-late", b"a new table entry")], end=True)
        await (await rig.arrived(1)).until(lambda s: s.ended)
        ended.set()
        near.read_again()
        assert (await first.finished()).messages == [b"in flight"]
        await upload.finished()
        assert sorted(rig.server.connections[0].streams) == [first.id, upload.id]
        assert near.goaways == [(LARGEST, 0), (upload.id, 0)]
        assert rig.server.connections[0].fault is None
        assert await rig.relay.drained(5)


async def test_what_a_client_sent_on_dropped_streams_is_given_back(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), rigged(tmp_path, holding(bytes), settle=False) as rig:
        held = rig.client.open(CREATE)
        await rig.arrived(0)
        rig.client.endpoint.stop_reading()
        rig.relay.drain()
        await _told_the_last_stream(rig)
        late = rig.client.open(VERSION)
        await rig.client.endpoint.send(late.id, bytes(65_535))  # all that the window allows
        rig.client.endpoint.read_again()
        await rig.client.endpoint.until(lambda: rig.client.endpoint.h2.outbound_flow_control_window > 40_000)
        rig.client.endpoint.reset(held.id)


async def _told_the_last_stream(rig: Rig) -> None:
    (connection,) = rig.relay.connections
    await until(lambda: connection.going_away.last_allowed != LARGEST)


async def test_the_goaway_of_an_unreadable_block_covers_the_stream_that_it_opens(tmp_path: Path) -> None:
    sinks: list[Sink] = []

    def accept() -> Sink:
        sinks.append(Sink())
        return sinks[-1]

    server = await asyncio.get_running_loop().create_unix_server(accept, str(tmp_path / "r"))
    async with asyncio.timeout(HANG_S), relaying(tmp_path / "p", tmp_path / "r", passing()) as relay:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "p"))
        unreadable = frame(HEADERS, END_HEADERS, 3, b"\xfe") + frame(DATA, END_STREAM, 3, b"x")
        writer.write(OPENING + headers(1, VERSION) + unreadable + headers(5, VERSION))
        assert await _goaways(reader, 1) == [3]
        await until(lambda: sinks[0].seen == [(HEADERS, 1), (HEADERS, 3), (DATA, 3)])
        sinks[0].say(frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88"))
        await asyncio.sleep(0)
        assert relay.metrics.connections == 1  # stream 3 may still be answered
        sinks[0].say(frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\x88"))
        assert await relay.drained(5)
        writer.close()
    server.close()


# --- connections that have not begun, or speak something else --------------------------------------------------------


@pytest.mark.parametrize("sent_bytes", [0, 1, len(PREFACE), len(OPENING)])
async def test_a_connection_that_was_just_accepted_is_served_and_then_told(tmp_path: Path, sent_bytes: int) -> None:
    """However much of its opening had come when the drain began."""
    opening = OPENING + headers(1, VERSION) + frame(DATA, END_STREAM, 1, bytes(5))
    async with (
        asyncio.timeout(HANG_S),
        serving(tmp_path / "r"),
        relaying(tmp_path / "p", tmp_path / "r", passing()) as relay,
    ):
        client = await _accepted(tmp_path / "p", relay)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, opening[:sent_bytes])
        await asyncio.sleep(0.01)
        relay.drain()
        await asyncio.sleep(0.01)
        await loop.sock_sendall(client, opening[sent_bytes:])
        kinds, lasts = _frames(await _all_of(client))
        assert kinds[0] == SETTINGS
        assert kinds.count(HEADERS) == 2  # the answer and its trailers
        assert lasts == [LARGEST, 1]
        assert await relay.drained(5)


async def test_a_connection_whose_task_has_not_run_yet_is_waited_for(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(HANG_S),
        serving(tmp_path / "r"),
        relaying(tmp_path / "p", tmp_path / "r", passing()) as relay,
    ):
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        client.connect(str(tmp_path / "p"))
        while not relay.connections:  # noqa: ASYNC110 - at the very turn of the loop
            await asyncio.sleep(0)
        relay.drain()
        drained = asyncio.ensure_future(relay.drained(5))
        await asyncio.get_running_loop().sock_sendall(client, OPENING + headers(1, VERSION, END_HEADERS | END_STREAM))
        assert _frames(await _all_of(client))[1] == [LARGEST, 1]
        assert await drained


async def test_a_connection_that_stays_silent_is_closed(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(HANG_S),
        serving(tmp_path / "r"),
        relaying(tmp_path / "p", tmp_path / "r", passing()) as relay,
    ):
        client = await _accepted(tmp_path / "p", relay)
        relay.drain()
        assert _frames(await _all_of(client))[1] == []
        assert await relay.drained(5)


async def test_a_connection_that_waits_for_the_runtime_is_served_when_it_comes(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), relaying(tmp_path / "p", tmp_path / "r", passing()) as relay:
        client = await _accepted(tmp_path / "p", relay, paired=False)
        await asyncio.get_running_loop().sock_sendall(client, OPENING + headers(1, VERSION, END_HEADERS | END_STREAM))
        relay.drain()
        await asyncio.sleep(0.01)
        async with serving(tmp_path / "r"):
            assert _frames(await _all_of(client))[1] == [LARGEST, 1]
            assert await relay.drained(5)


async def test_nothing_is_put_into_a_connection_that_is_not_http2(tmp_path: Path) -> None:
    more = asyncio.Event()

    async def http1(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        await more.wait()
        writer.write(b"world")
        writer.close()

    server = await asyncio.start_unix_server(http1, str(tmp_path / "r"))
    async with asyncio.timeout(HANG_S), relaying(tmp_path / "p", tmp_path / "r", passing()) as relay:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "p"))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.readuntil(b"hello")
        relay.drain()
        await asyncio.sleep(1.1)  # as long as a client that says nothing is waited for
        more.set()
        assert await reader.read() == b"world"
        writer.close()
        assert await relay.drained(5)
    server.close()


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.6\r\n", b"220", b"\0" * 9])
async def test_a_server_that_speaks_first_is_not_answered_in_frames(tmp_path: Path, greeting: bytes) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        writer.write(await reader.read(100))
        writer.close()

    server = await asyncio.start_unix_server(greet, str(tmp_path / "r"))
    async with asyncio.timeout(HANG_S), relaying(tmp_path / "p", tmp_path / "r", passing()):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "p"))
        writer.write(b"hello")
        got = await reader.read()
        assert got in (greeting + b"hello", b"", greeting)  # all of it, or a connection that was closed
        writer.close()
    server.close()


async def test_nothing_of_ours_comes_before_the_runtimes_settings(tmp_path: Path) -> None:
    """Credit for what an eager client sends is due before a slow runtime has said its first word."""
    sinks: list[Sink] = []

    def accept() -> Sink:
        sinks.append(Sink(greets=False))
        return sinks[-1]

    server = await asyncio.get_running_loop().create_unix_server(accept, str(tmp_path / "r"))
    async with asyncio.timeout(HANG_S), relaying(tmp_path / "p", tmp_path / "r", holding(bytes)):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "p"))
        writer.write(OPENING + headers(1, CREATE) + frame(DATA, 0, 1, bytes(16_384)) * 3)
        await until(lambda: sinks and sinks[0].seen)
        sinks[0].say(frame(SETTINGS))
        kinds, _ = _frames(await reader.read(1 << 16))
        assert kinds[0] == SETTINGS
        assert kinds.count(WINDOW_UPDATE) > 1
        writer.close()
    server.close()


async def _accepted(path: Path, relay: RelayServer, *, paired: bool = True) -> socket.socket:
    """A client that has said nothing, once the relay has it."""
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    client.connect(str(path))
    await until(lambda: any(not paired or each.pair.client.transport for each in relay.connections))
    return client


async def _all_of(client: socket.socket) -> bytes:
    """What comes before the end, which is no reset."""
    got = b""
    with client:
        while data := await asyncio.get_running_loop().sock_recv(client, 1 << 16):
            got += data
    return got


def _frames(data: bytes) -> tuple[list[int], list[int]]:
    """The kinds of frames, and the last streams of those that are GOAWAY."""
    cut = FrameCutter(preface=False).feed(data)
    return [each[3] for each in cut], [int.from_bytes(each[9:13], "big") for each in cut if each[3] == GOAWAY]


async def _goaways(reader: asyncio.StreamReader, count: int) -> list[int]:
    """The last streams of the first GOAWAY frames that come."""
    cutter, found = FrameCutter(preface=False), list[int]()
    while len(found) < count:
        data = await reader.read(1 << 16)
        if not data:
            raise PeerGone(f"closed after {found}")
        found += [int.from_bytes(whole[9:13], "big") for whole in cutter.feed(data) if whole[3] == GOAWAY]
    return found
