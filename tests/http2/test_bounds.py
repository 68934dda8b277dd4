"""What the peer of our unary client or server can make it keep is bounded, and what exceeds a bound costs itself."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from koord.http2 import link as link_module
from koord.http2.client import ClientLink, UnaryClient, UnaryError
from koord.http2.frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    NO_ERROR,
    PING,
    PREFACE,
    SETTINGS,
    frame,
    frame_payload,
    header_block,
    rst_stream,
    settings,
    split,
    window_update,
)
from koord.http2.grpc import ANSWER_HEAD, MAX_MESSAGE_BYTES, RESOURCE_EXHAUSTED, grpc_body
from koord.http2.hpack import HeaderDecoder, literal
from koord.http2.link import HIGH_WATER_BYTES, Link
from koord.http2.reading import READ_BYTES
from koord.http2.server import MAX_HEADER_BYTES, ServerReply, UnaryServer, _ServerLink
from tests.support.waiting import until

DEADLINE_S = 20
FRAME_BYTES = 16_384
BLOCK = b"\x83\x86" + literal(b":path", b"/a.B/Size")
LARGE_BLOCK = b"\x83\x86" + literal(b":path", b"/a.B/Large")
PING_FRAME = frame(PING, 0, 0, b"koordlet")
MAX_UNFINISHED_BYTES = 2 * MAX_MESSAGE_BYTES
# Two requests that fill all the room there is for unfinished ones.
HALF_MESSAGE = bytes(MAX_UNFINISHED_BYTES // 2 - len(grpc_body(b"")))
STATUS_OK = literal(b"grpc-status", b"0")
NO_WINDOW_IN_THE_WAY = settings(((INITIAL_WINDOW_SIZE, 1 << 30),)) + window_update(0, 1 << 30)


AnyLink = ClientLink | _ServerLink


def _size(message: bytes, fields: Mapping[bytes, bytes]) -> ServerReply:
    return ServerReply(b"%d" % len(message))


def _large(message: bytes, fields: Mapping[bytes, bytes]) -> ServerReply:
    return ServerReply(bytes(HIGH_WATER_BYTES))


def request(stream: int, block: bytes, message: bytes) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, grpc_body(message))


def unfinished(stream: int, message: bytes) -> bytes:
    """All DATA of a message but for END_STREAM."""
    body = grpc_body(message)
    pieces = (body[begin : begin + FRAME_BYTES] for begin in range(0, len(body), FRAME_BYTES))
    return b"".join(frame(DATA, 0, stream, piece) for piece in pieces)


def headers_of(stream: int, size: int) -> bytes:
    """HEADERS and CONTINUATION frames of so many bytes together."""
    framing_bytes = 9 * -(-size // (FRAME_BYTES + 9))
    field_bytes = len(literal(b"x", bytes(size))) - size  # what a field of about that size takes besides its value
    block = BLOCK + literal(b"x", bytes(size - framing_bytes - field_bytes - len(BLOCK)))
    parts = [block[begin : begin + FRAME_BYTES] for begin in range(0, len(block), FRAME_BYTES)]
    last = len(parts) - 1
    return b"".join(
        frame(CONTINUATION if number else HEADERS, END_HEADERS if number == last else 0, stream, part)
        for number, part in enumerate(parts)
    )


class Peer:
    """The other end: it writes any bytes, and reads only when it is told to."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.sock = sock
        self.frames: list[tuple[int, int, int, bytes]] = []  # (kind, flags, stream, payload), of all it has read
        self.has_ended = False
        self._loop = loop
        self._decoder = HeaderDecoder()
        self._rest = b""

    async def write(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def flood(self, one: bytes, until: Callable[[], bool]) -> None:
        """Write ``one`` again and again."""
        many, position = one * 4_096, 0
        while not until():
            try:
                position = (position + self.sock.send(many[position:])) % len(many)
            except BlockingIOError:
                await asyncio.sleep(0)

    async def read(self, until: Callable[[], object]) -> None:
        while not until() and not self.has_ended:
            data = await self._loop.sock_recv(self.sock, 1 << 18)
            self.has_ended = not data
            self._take(self._rest + data)

    def _take(self, data: bytes) -> None:
        need_bytes = 0
        while data and not need_bytes:
            frames, used, need_bytes = split(data, 0, FRAME_BYTES)
            for each in frames:
                kind, flags, stream, *_ = each
                payload = header_block(data, each) if kind == HEADERS else frame_payload(data, each)
                self.frames.append((kind, flags, stream, payload))
            data = data[used:]
        self._rest = data

    def count(self, kind: int, flags: int = 0) -> int:
        return sum(1 for each in self.frames if each[0] == kind and each[1] & flags == flags)

    def body_of(self, stream: int) -> bytes:
        return b"".join(payload for kind, _, of, payload in self.frames if (kind, of) == (DATA, stream))

    def statuses(self) -> dict[int, int]:
        """The gRPC status of every stream that has ended, in order."""
        decoder, statuses = HeaderDecoder(), {}
        for kind, _, stream, payload in self.frames:
            fields = decoder.decode(payload) if kind == HEADERS else {}
            if b"grpc-status" in fields:
                statuses[stream] = int(fields[b"grpc-status"])
        return statuses


@contextlib.asynccontextmanager
async def served(path: Path) -> AsyncIterator[tuple[Peer, _ServerLink]]:
    """Our server, with one client whose preface it has read: the client, and what the server has of it."""
    server = UnaryServer({"/a.B/Size": _size, "/a.B/Large": _large})
    loop = asyncio.get_running_loop()
    listener = await loop.create_unix_server(server.protocol, str(path))
    async with asyncio.timeout(DEADLINE_S):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.setblocking(False)
            sock.connect(str(path))
            peer = Peer(sock, loop)
            await peer.write(PREFACE + NO_WINDOW_IN_THE_WAY)
            await peer.read(lambda: peer.count(SETTINGS, ACK))
            (link,) = server._links
            yield peer, link
        listener.close()
        server.close()
        await until(lambda: not server.connections)


@contextlib.asynccontextmanager
async def called(
    path: Path, max_answer_bytes: int = MAX_MESSAGE_BYTES
) -> AsyncIterator[tuple[UnaryClient, ClientLink, Peer]]:
    """Our client, its connection, and the server that it is connected to, whose settings it has read."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            listener.setblocking(False)
            client = UnaryClient(str(path), loop, max_answer_bytes=max_answer_bytes)
            link = await client.link_within(DEADLINE_S)
            with listener.accept()[0] as sock:
                sock.setblocking(False)
                assert await loop.sock_recv(sock, len(PREFACE)) == PREFACE
                peer = Peer(sock, loop)
                await peer.write(settings())
                await peer.read(lambda: peer.count(SETTINGS, ACK))
                yield client, link, peer
            client.close()


def kept_bytes(link: AnyLink) -> int:
    """What waits to be written."""
    assert link.transport is not None
    return link.transport.get_write_buffer_size()


def count_writes(link: AnyLink) -> list[int]:
    """The sizes of all writes from now on."""
    sizes: list[int] = []
    transport = link.transport
    assert transport is not None
    written = transport.write

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(transport, name)

        def write(self, data: bytes) -> None:
            sizes.append(len(data))
            written(data)

    link.transport = cast(asyncio.Transport, Counting())
    return sizes


def is_heard(link: AnyLink) -> bool:
    """Or is it not even read, as it does not read the answers?"""
    return not link._is_deaf


FLOODS = pytest.mark.parametrize("one", [pytest.param(PING_FRAME, id="PING"), pytest.param(settings(), id="SETTINGS")])


async def flooded(peer: Peer, link: AnyLink, one: bytes) -> None:
    await peer.flood(one, lambda: not is_heard(link))
    assert HIGH_WATER_BYTES < kept_bytes(link) <= 2 * HIGH_WATER_BYTES + FRAME_BYTES
    before, passes = kept_bytes(link), iter(range(100))
    await peer.flood(one, lambda: next(passes, None) is None)
    assert kept_bytes(link) == before
    assert not is_heard(link)


@FLOODS
async def test_a_client_that_floods_and_does_not_read_is_not_heard(tmp_path: Path, one: bytes) -> None:
    async with served(tmp_path / "s") as (peer, link):
        await flooded(peer, link, one)
        other = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        assert (await other.call("/a.B/Size", b"four", DEADLINE_S)).message == b"4"
        other.close()


@FLOODS
async def test_a_server_that_floods_and_does_not_read_is_not_heard(tmp_path: Path, one: bytes) -> None:
    async with called(tmp_path / "s") as (client, link, peer):
        await flooded(peer, link, one)
        with pytest.raises(UnaryError, match="no free stream in time"):
            await client.call("/a.B/Size", b"", 0.01)


async def test_a_client_that_reads_again_gets_the_answer_to_everything(tmp_path: Path) -> None:
    pings = 60_000
    async with served(tmp_path / "s") as (peer, link):
        writing = asyncio.create_task(peer.write(PING_FRAME * pings))
        await until(lambda: not is_heard(link))
        await peer.read(lambda: peer.count(PING, ACK) == pings)
        await writing
        assert is_heard(link)
        assert kept_bytes(link) == 0


async def test_bodies_wait_while_much_is_unread_and_their_client_is_heard(tmp_path: Path) -> None:
    streams = range(1, 201, 2)
    async with served(tmp_path / "s") as (peer, link):
        for stream in streams:
            await peer.write(request(stream, LARGE_BLOCK, b""))
        await until(lambda: streams[-1] in link.streams)
        assert is_heard(link)
        assert HIGH_WATER_BYTES < kept_bytes(link) <= 2 * HIGH_WATER_BYTES + FRAME_BYTES
        await peer.read(lambda: len(peer.statuses()) == len(streams))
        assert {len(peer.body_of(stream)) for stream in streams} == {len(grpc_body(bytes(HIGH_WATER_BYTES)))}


async def test_unfinished_requests_are_bounded_together(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as (peer, _):
        for stream in (1, 3):
            await peer.write(frame(HEADERS, END_HEADERS, stream, BLOCK) + unfinished(stream, HALF_MESSAGE))
        await peer.write(frame(HEADERS, END_HEADERS, 5, BLOCK) + PING_FRAME)  # no byte of it: nothing is exceeded
        await peer.read(lambda: peer.count(PING, ACK))
        assert peer.statuses() == {}
        await peer.write(frame(DATA, 0, 5, b"z"))
        await peer.read(peer.statuses)
        assert peer.statuses() == {5: RESOURCE_EXHAUSTED}
        await peer.write(b"".join(frame(DATA, END_STREAM, stream) for stream in (1, 3)) + request(7, BLOCK, b"four"))
        await peer.read(lambda: len(peer.statuses()) == 4)
        assert peer.statuses() == {5: RESOURCE_EXHAUSTED, 1: 0, 3: 0, 7: 0}
        assert peer.body_of(1) == peer.body_of(3) == grpc_body(b"%d" % len(HALF_MESSAGE))


async def test_what_a_client_gave_up_leaves_room_for_its_other_requests(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as (peer, _):
        for stream in (1, 3, 5):
            await peer.write(frame(HEADERS, END_HEADERS, stream, BLOCK) + unfinished(stream, HALF_MESSAGE))
            if stream == 1:
                await peer.write(rst_stream(stream, CANCEL))
        await peer.write(b"".join(frame(DATA, END_STREAM, stream) for stream in (3, 5)))
        await peer.read(lambda: len(peer.statuses()) == 2)
        assert peer.statuses() == {3: 0, 5: 0}


async def test_unfinished_answers_are_bounded_together(tmp_path: Path) -> None:
    async with called(tmp_path / "s") as (client, _, peer):
        calls = [asyncio.create_task(client.call("/a.B/Size", b"", DEADLINE_S)) for _ in range(3)]
        await peer.read(lambda: peer.count(HEADERS) == 3)
        for stream in (1, 3):
            await peer.write(frame(HEADERS, END_HEADERS, stream, ANSWER_HEAD) + unfinished(stream, HALF_MESSAGE))
        await peer.write(frame(HEADERS, END_HEADERS, 5, ANSWER_HEAD) + PING_FRAME)
        await peer.read(lambda: peer.count(PING, ACK))
        assert not any(call.done() for call in calls)
        await peer.write(frame(DATA, 0, 5, b"z"))
        with pytest.raises(UnaryError, match=f"answers over {MAX_UNFINISHED_BYTES} bytes together"):
            await calls[2]
        await peer.write(b"".join(frame(HEADERS, END_HEADERS | END_STREAM, stream, STATUS_OK) for stream in (1, 3)))
        assert [(await call).message for call in calls[:2]] == [HALF_MESSAGE] * 2


@pytest.mark.parametrize("size", [1_001, 40 << 20, (1 << 32) - 1])
async def test_an_answer_that_announces_too_much_is_refused_before_it_comes(tmp_path: Path, size: int) -> None:
    async with called(tmp_path / "s", max_answer_bytes=1_000) as (client, _, peer):
        call = asyncio.create_task(client.call("/a.B/Size", b"", DEADLINE_S))
        await peer.read(lambda: peer.count(HEADERS))
        await peer.write(frame(HEADERS, END_HEADERS, 1, ANSWER_HEAD) + frame(DATA, 0, 1, b"\0" + size.to_bytes(4)))
        with pytest.raises(UnaryError, match="answer over 1000 bytes"):
            await call


async def test_an_answer_of_just_as_much_is_taken(tmp_path: Path) -> None:
    async with called(tmp_path / "s", max_answer_bytes=1_000) as (client, _, peer):
        call = asyncio.create_task(client.call("/a.B/Size", b"", DEADLINE_S))
        await peer.read(lambda: peer.count(HEADERS))
        ending = frame(HEADERS, END_HEADERS | END_STREAM, 1, STATUS_OK)
        await peer.write(frame(HEADERS, END_HEADERS, 1, ANSWER_HEAD) + unfinished(1, bytes(1_000)) + ending)
        assert (await call).message == bytes(1_000)


@pytest.mark.parametrize("whose", [served, called])
@pytest.mark.parametrize("read_bytes", [READ_BYTES, READ_BYTES - 1])
async def test_a_peer_that_has_sent_much_waits_for_its_turn(tmp_path: Path, read_bytes: int, whose: Any) -> None:
    count, rest_bytes = divmod(read_bytes, len(PING_FRAME))
    async with whose(tmp_path / "s") as of_it:
        (peer,) = (each for each in of_it if isinstance(each, Peer))
        (link,) = (each for each in of_it if isinstance(each, Link))
        assert link.transport is not None
        await until(link.transport.is_reading)
        link.get_buffer(-1)[:read_bytes] = (PING_FRAME * (count + 1))[:read_bytes]
        link.buffer_updated(read_bytes)
        assert link.transport.is_reading() == (read_bytes < READ_BYTES)
        await until(link.transport.is_reading)
        await peer.write(PING_FRAME[rest_bytes:])
        await peer.read(lambda: peer.count(PING, ACK) == count + 1)


async def test_a_peer_that_is_read_no_more_is_not_read_for_its_turn(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as (_, link):
        assert link.transport is not None
        link._is_deaf = True
        link.pause_for_turn()
        await asyncio.sleep(0.01)
        assert not link.transport.is_reading()
        link.resume_writing()
        assert link.transport.is_reading()


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1536])
@pytest.mark.parametrize("rest_bytes", [0, 1, 8, 9, 16])
def test_what_is_split_is_what_came(count: int, rest_bytes: int) -> None:
    data = PING_FRAME * count + PING_FRAME[:rest_bytes]
    frames, used, need_bytes = split(data, 0, FRAME_BYTES)
    assert {data[begin:end] for *_, begin, end in frames} <= {PING_FRAME}
    assert (len(frames), len(data) - used) == (count, rest_bytes)
    assert need_bytes == {0: 0, 1: 9, 8: 9, 9: 17, 16: 17}[rest_bytes]


async def test_the_answers_to_what_one_read_held_are_few_writes(tmp_path: Path) -> None:
    """Each write costs a hundred bytes beside its own until it is through."""
    async with served(tmp_path / "s") as (peer, link):
        writes = count_writes(link)
        await peer.write(PING_FRAME * 2_000)
        await peer.read(lambda: peer.count(PING, ACK) == 2_000)
        assert len(writes) < 100


@pytest.mark.parametrize(
    ("size", "status"),
    [(MAX_HEADER_BYTES, 0), (MAX_HEADER_BYTES + 1, RESOURCE_EXHAUSTED), (60_000, RESOURCE_EXHAUSTED)],
)
async def test_a_long_header_block_is_refused_alone(tmp_path: Path, size: int, status: int) -> None:
    """``size``: of its frames, with their headers."""
    async with served(tmp_path / "s") as (peer, _):
        frames = headers_of(1, size)
        assert len(frames) == size
        await peer.write(frames + frame(DATA, END_STREAM, 1, grpc_body(b"")) + request(3, BLOCK, b"four"))
        await peer.read(lambda: len(peer.statuses()) == 2)
        assert peer.statuses() == {1: status, 3: 0}


@pytest.mark.parametrize("end", ["server", "client"])
async def test_after_close_what_is_not_read_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(link_module, "LINGER_S", 0.01)
    async with contextlib.AsyncExitStack() as stack:
        peer: Peer
        link: AnyLink
        if end == "server":
            peer, link = await stack.enter_async_context(served(tmp_path / "s"))
        else:
            _, link, peer = await stack.enter_async_context(called(tmp_path / "s"))
        await peer.flood(PING_FRAME, lambda: not is_heard(link))
        link.close()
        assert kept_bytes(link) > HIGH_WATER_BYTES
        await until(lambda: kept_bytes(link) == 0)


async def test_after_close_what_was_written_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "LINGER_S", DEADLINE_S)
    async with served(tmp_path / "s") as (peer, link):
        await peer.flood(PING_FRAME, lambda: not is_heard(link))
        link.leave(NO_ERROR)
        with contextlib.suppress(ConnectionResetError):
            await peer.read(lambda: False)
        assert peer.frames[-1][0] == GOAWAY
