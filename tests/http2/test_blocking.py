"""The blocking client against our server and grpcio's, and against peers that do not keep to the protocol."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import pytest

from koord.http2 import blocking
from koord.http2.client import UnaryClient, UnaryError
from koord.http2.frames import DATA, END_HEADERS, HEADERS, frame, goaway, rst_stream, settings
from koord.http2.grpc import INTERNAL, INVALID_ARGUMENT, NOT_FOUND, grpc_body
from koord.http2.server import Refusal, ServerReply, UnaryServer

MIB = 1 << 20


def _at_once(message: bytes, fields: Mapping[bytes, bytes]) -> ServerReply:
    if message == b"refuse":
        raise Refusal(NOT_FOUND, "no such thing: 100 % gone ü")
    return ServerReply(message)


async def _later(message: bytes, fields: Mapping[bytes, bytes]) -> ServerReply:
    await asyncio.sleep(0.01)
    if message == b"raise":
        raise ValueError("never shown")
    if message == b"hang":
        await asyncio.sleep(30)
    return _at_once(message, fields)


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[None]:
    """/a.B/Now answers at once, /a.B/Later in a task; both echo."""
    server = UnaryServer({"/a.B/Now": _at_once, "/a.B/Later": _later})
    listener = await asyncio.get_running_loop().create_unix_server(server.protocol, str(path))
    try:
        yield
    finally:
        listener.close()
        server.close()


async def call(path: Path, method: str, message: bytes, timeout_s: float = 10.0) -> bytes:
    return await asyncio.to_thread(blocking.call, str(path), method, message, timeout_s)


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[None]:
    """A server that says ``answer`` to whoever connects, and hangs up."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def converse() -> None:
            with listener.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=converse)
        thread.start()
        yield
        thread.join(5)


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(UnaryError, match="No such file") as failed:
        blocking.call(str(tmp_path / "absent"), "/a.B/Now", b"", 1)
    assert failed.value.code == 14


def test_a_request_that_needs_more_than_one_frame_is_not_sent(tmp_path: Path) -> None:
    with pytest.raises(UnaryError) as failed:
        blocking.call(str(tmp_path / "absent"), "/a.B/Now", bytes(blocking.MAX_REQUEST_BYTES + 1), 1)
    assert failed.value.code == INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4, "broke HTTP/2"),
        (frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), "broke HTTP/2"),
        (rst_stream(1, 7), "reset the stream"),
        (goaway(0, 0), "going away"),
        (frame(HEADERS, END_HEADERS | 1, 1, b"\x88"), "HTTP 200"),
        (frame(HEADERS, END_HEADERS, 1, b"\x88") + frame(DATA, 0, 1, grpc_body(b"x")[:-1]), "connection was lost"),
    ],
)
def test_a_server_that_does_not_keep_to_the_protocol(tmp_path: Path, answer: bytes, says: str) -> None:
    with answering(tmp_path / "s", settings() + answer), pytest.raises(UnaryError, match=says):
        blocking.call(str(tmp_path / "s"), "/a.B/Now", b"", 2)


@pytest.mark.parametrize(
    ("method", "message", "code", "says"),
    [
        ("/a.B/Now", b"refuse", NOT_FOUND, "no such thing: 100 % gone ü"),
        ("/a.B/Later", b"refuse", NOT_FOUND, "no such thing: 100 % gone ü"),
        ("/a.B/Later", b"raise", INTERNAL, "ValueError"),
        ("/a.B/Later", b"hang", 4, "no answer in 0.1 s"),
        ("/a.B/Other", b"", 12, "unknown method /a.B/Other"),
    ],
)
async def test_calls_that_fail(tmp_path: Path, method: str, message: bytes, code: int, says: str) -> None:
    async with served(tmp_path / "s"):
        with pytest.raises(UnaryError) as failed:
            await call(tmp_path / "s", method, message, 0.1)
        assert (failed.value.code, failed.value.message) == (code, says)
        assert await call(tmp_path / "s", "/a.B/Later", b"well") == b"well"


async def test_a_call_that_is_given_up_ends_its_task(tmp_path: Path) -> None:
    async with served(tmp_path / "s"):
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        before = len(asyncio.all_tasks())
        with pytest.raises(UnaryError, match="no answer"):
            await client.call("/a.B/Later", b"hang", 0.05)
        await asyncio.sleep(0.02)
        assert len(asyncio.all_tasks()) == before
        with pytest.raises(UnaryError):
            await asyncio.gather(client.call("/a.B/Later", b"hang", 5), _close_soon(client))
        await asyncio.sleep(0.02)
        assert len(asyncio.all_tasks()) == before


async def _close_soon(client: UnaryClient) -> None:
    await asyncio.sleep(0.05)
    client.close()


async def test_many_late_answers_on_one_connection(tmp_path: Path) -> None:
    async with served(tmp_path / "s"):
        client = UnaryClient(str(tmp_path / "s"), asyncio.get_running_loop())
        calls = [client.call("/a.B/Later", b"%d" % number, 5) for number in range(100)]
        assert [answer.message for answer in await asyncio.gather(*calls)] == [b"%d" % n for n in range(100)]
        client.close()


@pytest.mark.parametrize("size", [0, 1, 16_384, 16 * MIB])
async def test_a_library_answers(tmp_path: Path, size: int) -> None:
    async def answer(message: bytes, context: object) -> bytes:
        return bytes(size)

    class Everything(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.aio.server(options=(("grpc.max_send_message_length", -1),))
    server.add_generic_rpc_handlers((Everything(),))
    server.add_insecure_port(f"unix:{tmp_path}/s")
    await server.start()
    assert len(await call(tmp_path / "s", "/a.B/C", b"abc", 20)) == size
    await server.stop(None)
