"""Our unary client and server against grpcio's and against each other, over real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from koord.http2.client import UnaryClient, UnaryError
from koord.http2.frames import (
    COMPRESSION_ERROR,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    PREFACE,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    frame_payload,
    goaway,
    rst_stream,
    settings,
    split,
)
from koord.http2.grpc import grpc_body
from koord.http2.hpack import literal
from koord.http2.server import MAX_STREAMS, ServerReply, UnaryServer
from tests.runtimeproxy.relay.endpoint import Tuning
from tests.runtimeproxy.relay.peers import Client, serving
from tests.support.waiting import HANG_S

MIB = 1 << 20
LATE = r"no answer in time|Deadline Exceeded"
"""The client's message or the server's: both end a call at its deadline."""
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


def _echo(message: bytes, fields: Mapping[bytes, bytes]) -> ServerReply:
    if message == b"raise":
        raise ValueError("never shown")
    return ServerReply(
        message, (("x-said", fields.get(b"x-say", b"").decode()),), _fail if message == b"after" else None
    )


def _fail() -> None:
    raise ValueError("after the answer")


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[UnaryServer]:
    """Our server; method /a.B/Echo, which returns x-say as x-said."""
    server = UnaryServer({"/a.B/Echo": _echo})
    listener = await asyncio.get_running_loop().create_unix_server(server.protocol, str(path))
    try:
        yield server
    finally:
        listener.close()
        server.close()


async def _answer(message: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    if message == b"refuse":
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now: 100 %\nof ü")
    if message == b"hang":
        await asyncio.sleep(30)
    await context.send_initial_metadata((("x-first", "1"),))
    context.set_trailing_metadata((("x-last", "2"),))
    return message[::-1]


class _Everything(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_unary_rpc_method_handler(_answer)


@asynccontextmanager
async def grpcio_server(path: Path, options: Sequence[tuple[str, int]] = OPTIONS) -> AsyncIterator[grpc.aio.Server]:
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((_Everything(),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield server
    finally:
        await server.stop(None)


# --- our client ------------------------------------------------------------------------------------------------------


async def test_nobody_listens(tmp_path: Path) -> None:
    client = UnaryClient(str(tmp_path / "absent"), asyncio.get_running_loop())
    with pytest.raises(UnaryError, match="cannot connect") as refused:
        await client.call("/a.B/Echo", b"", 1)
    assert refused.value.code == 14
    assert client.peer_pid is None


async def test_a_path_that_is_not_trusted_is_not_connected_to(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.setblocking(False)
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop(), lambda path, uid: f"{path} is not root's")
        with pytest.raises(UnaryError, match=f"^gRPC status 14: not connected to .*: {tmp_path}/s is not root's$"):
            await client.call("/a.B/Echo", b"", 1)
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_a_server_of_a_user_who_is_not_trusted_is_not_asked(tmp_path: Path) -> None:
    uids: list[int | None] = []

    def distrust(path: str, uid: int | None) -> str | None:
        uids.append(uid)
        return None if uid is None or len(uids) > 2 else f"its server runs as uid {uid}"

    async with grpcio_server(tmp_path / "s"):
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop(), distrust)
        with pytest.raises(UnaryError, match=f"its server runs as uid {os.geteuid()}") as refused:
            await client.call("/a.B/C", b"abc", 5)
        assert refused.value.code == 14
        assert client.peer_pid is None
        assert (await client.call("/a.B/C", b"abc", 5)).message == b"cba"  # it is asked again about each connection
        assert uids == [None, os.geteuid()] * 2
        client.close()


@pytest.mark.parametrize(
    ("message", "timeout_s", "code", "says"),
    [
        (b"refuse", 5.0, 9, "^gRPC status 9: not now: 100 %\nof ü$"),
        (b"hang", 0.05, 4, "no answer"),
        (b"x" * (16 * MIB + 1), 10.0, 8, "answer over"),
    ],
)
async def test_calls_that_fail(tmp_path: Path, message: bytes, timeout_s: float, code: int, says: str) -> None:
    async with grpcio_server(tmp_path / "s"):
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        with pytest.raises(UnaryError, match=says) as failed:
            await client.call("/a.B/C", message, timeout_s)
        assert failed.value.code == code
        assert (await client.call("/a.B/C", b"abc", 5)).message == b"cba"  # the connection is still good
        client.close()


@pytest.mark.parametrize("size", [0, 1, 16_384, 70_000, 16 * MIB])
async def test_a_library_answers_our_client(tmp_path: Path, size: int) -> None:
    async with grpcio_server(tmp_path / "s"):
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        message = bytes(range(256)) * (size // 256) + b"z" * (size % 256)
        answer = await client.call("/a.B/C", message, 20)
        assert answer.message == message[::-1]
        assert (answer.metadata[b"x-first"], answer.metadata[b"x-last"]) == (b"1", b"2")
        client.close()


async def test_many_calls_share_one_connection_and_it_is_made_again(tmp_path: Path) -> None:
    client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
    for _ in range(2):
        async with grpcio_server(tmp_path / "s"):
            calls = [client.call("/a.B/C", b"%d" % number, 60) for number in range(200)]
            assert [a.message for a in await asyncio.gather(*calls)] == [(b"%d" % n)[::-1] for n in range(200)]
        (tmp_path / "s").unlink(missing_ok=True)
    client.close()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4, "broke HTTP/2"),
        (frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), "broke HTTP/2"),
        (rst_stream(1, 2), "reset the stream"),
        (goaway(0, 0), "going away"),
        (frame(HEADERS, END_HEADERS | 1, 1, b"\x88"), "HTTP 200"),
        (frame(HEADERS, END_HEADERS, 1, b"\x88") + frame(DATA, 0, 1, grpc_body(b"x")[:-1]), "connection was lost"),
    ],
)
async def test_a_server_that_does_not_keep_to_the_protocol(tmp_path: Path, answer: bytes, says: str) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"/a.B/C")
        writer.write(settings() + answer)
        await asyncio.sleep(0.02)
        writer.close()

    server = await asyncio.start_unix_server(converse, str(tmp_path / "s"))
    client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
    with pytest.raises(UnaryError, match=says):
        await client.call("/a.B/C", b"", 2)
    client.close()
    server.close()


async def test_a_short_deadline_counts_beside_a_long_one(tmp_path: Path) -> None:
    async with grpcio_server(tmp_path / "s"):
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        patient = asyncio.ensure_future(client.call("/a.B/C", b"hang", 20))
        await asyncio.sleep(0)
        for _ in range(2):
            with pytest.raises(UnaryError, match=LATE):
                await client.call("/a.B/C", b"hang", 0.05)
        assert not patient.done()
        client.close()
        with pytest.raises(UnaryError, match="lost"):
            await patient


@pytest.mark.parametrize("turns", range(8))
async def test_a_call_can_be_cancelled_at_any_time(tmp_path: Path, turns: int) -> None:
    async with grpcio_server(tmp_path / "s"):
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        call = asyncio.ensure_future(client.call("/a.B/C", b"hang", 20))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, 5)
        client.close()


@pytest.mark.parametrize(("size", "credits"), [(10, 0), (100_000, 0), (600_000, 2)])
async def test_only_large_answers_are_credited(tmp_path: Path, size: int, credits: int) -> None:
    heard = bytearray()
    over = asyncio.Event()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"\x88" + literal(b"content-type", b"application/grpc")
        body = grpc_body(bytes(size))
        pieces = [body[at : at + 16_384] for at in range(0, len(body), 16_384)]
        heard.extend(await reader.readuntil(b"C"))  # the end of the call's path
        writer.write(settings() + frame(HEADERS, END_HEADERS, 1, head))
        writer.writelines(frame(DATA, 0, 1, piece) for piece in pieces)
        writer.write(frame(HEADERS, END_HEADERS | END_STREAM, 1, literal(b"grpc-status", b"0")))
        heard.extend(await reader.read())
        over.set()

    server = await asyncio.start_unix_server(converse, str(tmp_path / "s"))
    client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
    assert len((await client.call("/a.B/C", b"", 2)).message) == size
    client.close()
    await over.wait()
    server.close()
    frames = split(bytes(heard), len(PREFACE), 16_384)[0]
    assert len([each for each in frames if (each[0], each[2]) == (WINDOW_UPDATE, 1)]) == credits


@pytest.mark.parametrize(("allowed", "calls"), [(1, 20), (4, 40), (100, 150)])
async def test_calls_above_the_server_s_streams_wait_for_their_turn(tmp_path: Path, allowed: int, calls: int) -> None:
    limited = (*OPTIONS, ("grpc.max_concurrent_streams", allowed))
    async with grpcio_server(tmp_path / "s", limited):
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        await client.call("/a.B/C", b"", 5)  # now the server has said how many
        answers = await asyncio.gather(*(client.call("/a.B/C", b"%03d" % number, 5) for number in range(calls)))
        assert [answer.message[::-1] for answer in answers] == [b"%03d" % number for number in range(calls)]
        client.close()


@pytest.mark.parametrize(("refusals", "answered"), [(0, True), (1, True), (4, True), (5, False)])
async def test_a_refused_stream_is_tried_again(tmp_path: Path, refusals: int, answered: bool) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(settings())
        for number in range(refusals):
            await reader.readuntil(b"/a.B/C")
            writer.write(rst_stream(1 + 2 * number, REFUSED_STREAM))
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"/a.B/C")
            writer.write(frame(HEADERS, END_HEADERS, 1 + 2 * refusals, b"\x88"))
            writer.write(frame(DATA, 0, 1 + 2 * refusals, grpc_body(b"well")))
            writer.write(frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * refusals, literal(b"grpc-status", b"0")))
        writer.close()

    server = await asyncio.start_unix_server(converse, str(tmp_path / "s"))
    client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
    with nullcontext() if answered else pytest.raises(UnaryError, match=r"reset the stream \(error code 7\)"):
        assert (await client.call("/a.B/C", b"", 2)).message == b"well"
    client.close()
    server.close()


async def test_who_waits_for_a_turn_is_told_in_time(tmp_path: Path) -> None:
    async with grpcio_server(tmp_path / "s", (*OPTIONS, ("grpc.max_concurrent_streams", 1))):
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        await client.call("/a.B/C", b"", 5)
        hanging = asyncio.ensure_future(client.call("/a.B/C", b"hang", 0.3))
        await asyncio.sleep(0)
        given_up = asyncio.ensure_future(client.call("/a.B/C", b"c", 5))
        in_time = asyncio.ensure_future(client.call("/a.B/C", b"b", 5))
        with pytest.raises(UnaryError, match="no free stream in time"):
            await client.call("/a.B/C", b"a", 0.05)
        given_up.cancel()
        with pytest.raises(UnaryError, match=LATE):
            await hanging
        assert (await in_time).message == b"b"
        lost = [asyncio.ensure_future(client.call("/a.B/C", b"hang", 5)) for _ in range(3)]
        await asyncio.sleep(0.01)
        client.close()
        assert [error.code for error in await asyncio.gather(*lost, return_exceptions=True)] == [14] * 3  # type: ignore[union-attr]


@pytest.mark.parametrize("table", [0, 64, 4_096, 65_536])
async def test_our_client_minds_the_header_table_of_a_strict_server(tmp_path: Path, table: int) -> None:
    async with serving(tmp_path / "s", tuning=Tuning(header_table=table)) as server, asyncio.timeout(HANG_S):
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        for size in (None, None, 0, 4_096, 100):
            if size is not None:
                server.connections[0].change(header_table_size=size)
            assert (await client.call("/a.B/C", b"x", 5)).message == b"x"
        assert len(server.connections) == 1
        client.close()


# --- our server ------------------------------------------------------------------------------------------------------


def unary(channel: grpc.aio.Channel, path: str = "/a.B/Echo") -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    """A call of bytes."""
    return channel.unary_unary(path)


@pytest.mark.parametrize(
    ("path", "message", "status", "details"),
    [
        ("/a.B/Other", b"", grpc.StatusCode.UNIMPLEMENTED, "unknown method /a.B/Other"),
        ("/a.B/Echo", b"raise", grpc.StatusCode.INTERNAL, "ValueError"),
        ("/a.B/Echo", b"x" * (16 * MIB + 1), grpc.StatusCode.RESOURCE_EXHAUSTED, "request over 16777216 bytes"),
    ],
)
async def test_calls_that_our_server_refuses(
    tmp_path: Path, path: str, message: bytes, status: grpc.StatusCode, details: str
) -> None:
    async with served(tmp_path / "s"), grpc.aio.insecure_channel(f"unix:{tmp_path}/s", options=OPTIONS) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await unary(channel, path)(message, timeout=10)
        assert (failed.value.code(), failed.value.details()) == (status, details)
        assert await unary(channel)(b"well", timeout=5) == b"well"


@pytest.mark.parametrize("size", [0, 1, 16_384, 70_000, 16 * MIB])
async def test_our_server_answers_a_library(tmp_path: Path, size: int) -> None:
    async with served(tmp_path / "s"), grpc.aio.insecure_channel(f"unix:{tmp_path}/s", options=OPTIONS) as channel:
        call = unary(channel)(b"y" * size, timeout=20, metadata=(("x-say", "héllo".encode().hex()),))
        assert await call == b"y" * size
        assert dict(await call.initial_metadata())["x-said"] == "héllo".encode().hex()


async def test_our_server_answers_a_request_that_ends_with_trailers(tmp_path: Path) -> None:
    async with served(tmp_path / "s.sock"):
        client = await Client.connect(tmp_path / "s.sock")
        stream = client.open("/a.B/Echo")
        await client.endpoint.send(stream.id, grpc_body(b"hello"), end=False)
        client.endpoint.send_headers(stream.id, [(b"x-trailer", b"1")], end=True)
        async with asyncio.timeout(HANG_S):
            assert (await stream.finished()).messages == [b"hello"]
        await client.endpoint.close()


async def test_what_follows_an_answer_costs_nobody_anything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with served(tmp_path / "s"), asyncio.timeout(HANG_S):
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        for message in (b"after", b"next"):
            assert (await client.call("/a.B/Echo", message, 5.0)).message == message
        client.close()
    assert "what follows an answer failed" in caplog.text


async def test_our_client_and_our_server(tmp_path: Path) -> None:
    async with served(tmp_path / "s"):
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        calls = [client.call("/a.B/Echo", b"m" * (number * 40_000), 20) for number in range(100)]
        assert [len(answer.message) for answer in await asyncio.gather(*calls)] == [n * 40_000 for n in range(100)]
        client.close()


@pytest.mark.parametrize("table", [0, 64, 4_096, 65_536])
async def test_our_server_minds_the_header_table_of_a_strict_client(tmp_path: Path, table: int) -> None:
    async with (
        served(tmp_path / "s"), Client.connected(tmp_path / "s", Tuning(header_table=table)) as client,
        asyncio.timeout(HANG_S),
    ):  # fmt: skip
        for size in (None, None, 0, 4_096, 100):
            if size is not None:
                client.endpoint.change(header_table_size=size)
            assert (await client.call("/a.B/Other", b"x")).grpc_status == 12
            assert (await client.call("/a.B/Echo", b"x")).messages == [b"x"]


async def test_leaving_tells_the_client(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as server:
        peer = _Raw(tmp_path / "s")
        peer.send(PREFACE + settings())
        await asyncio.sleep(0.02)
        assert peer.kinds()[0] == SETTINGS
        server.close()
        assert GOAWAY in await peer.rest()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(b"GET /metrics HTTP/1.1\r\n\r\n", PROTOCOL_ERROR, id="another protocol"),
        pytest.param(
            PREFACE + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff\xff"), COMPRESSION_ERROR, id="bad block"
        ),
        pytest.param(PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", FRAME_SIZE_ERROR, id="oversized frame"),
        pytest.param(PREFACE + frame(HEADERS, 0, 1, b"") + frame(HEADERS, 0, 3, b""), PROTOCOL_ERROR, id="cut block"),
        pytest.param(PREFACE + settings(((INITIAL_WINDOW_SIZE, 1 << 31),)), FLOW_CONTROL_ERROR, id="a large window"),
        pytest.param(PREFACE + settings(((MAX_FRAME_SIZE, 16_383),)), PROTOCOL_ERROR, id="too small a frame"),
        pytest.param(PREFACE + settings(((MAX_FRAME_SIZE, 1 << 24),)), PROTOCOL_ERROR, id="too large a frame"),
    ],
)
async def test_a_client_that_does_not_keep_to_the_protocol_is_told_and_costs_its_connection_only(
    tmp_path: Path, sent: bytes, code: int
) -> None:
    async with served(tmp_path / "s"):
        peer = _Raw(tmp_path / "s")
        peer.send(sent)
        assert await peer.rest() == [SETTINGS, WINDOW_UPDATE, GOAWAY]  # and then the server has closed
        assert peer.last_payload()[:8] == bytes(4) + code.to_bytes(4)
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        assert (await client.call("/a.B/Echo", b"well", 5)).message == b"well"
        client.close()


async def test_one_stream_too_many_is_refused_alone(tmp_path: Path) -> None:
    block = b"\x83\x86" + literal(b":path", b"/a.B/Echo")
    async with served(tmp_path / "s"):
        peer = _Raw(tmp_path / "s")
        peer.send(PREFACE + settings())
        for number in range(MAX_STREAMS + 1):
            peer.send(frame(HEADERS, END_HEADERS, 1 + 2 * number, block))
        await asyncio.sleep(0.05)
        assert peer.kinds().count(RST_STREAM) == 1
        peer.send(frame(DATA, 1, 1, grpc_body(b"first")))
        await asyncio.sleep(0.05)
        assert peer.kinds().count(DATA) == 1


async def test_a_preface_in_pieces_and_a_call_that_is_given_up(tmp_path: Path) -> None:
    block = b"\x83\x86" + literal(b":path", b"/a.B/Echo")
    async with served(tmp_path / "s"):
        peer = _Raw(tmp_path / "s")
        for piece in (PREFACE[:3], PREFACE[3:20], PREFACE[20:] + settings()):
            peer.send(piece)
            await asyncio.sleep(0.01)
        peer.send(frame(HEADERS, END_HEADERS, 1, block) + frame(RST_STREAM, 0, 1, bytes(4)))
        peer.send(frame(HEADERS, END_HEADERS, 3, block) + frame(DATA, 1, 3, grpc_body(b"second")))
        await asyncio.sleep(0.05)
        assert peer.kinds().count(DATA) == 1


class _Raw:
    """A client that writes what it likes."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._socket.setblocking(False)
        self._got = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def kinds(self) -> list[int]:
        """The frames that have arrived so far, by kind."""
        try:
            while chunk := self._socket.recv(1 << 16):
                self._got += chunk
        except BlockingIOError:
            pass
        return [each[0] for each in split(self._got, 0, 1 << 20)[0]]

    async def rest(self) -> list[int]:
        """All frames until the server closes."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(HANG_S):
            while chunk := await loop.sock_recv(self._socket, 1 << 16):
                self._got += chunk
        return [each[0] for each in split(self._got, 0, 1 << 20)[0]]

    def last_payload(self) -> bytes:
        return frame_payload(self._got, split(self._got, 0, 1 << 20)[0][-1])
