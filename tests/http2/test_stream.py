"""Server-streaming calls against grpcio's server, and against servers that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from koord.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, frame, rst_stream, settings
from koord.http2.grpc import ANSWER_HEAD, UnaryError, grpc_body, status_fields
from koord.http2.stream import MAX_UNREAD, MAX_UNREAD_BYTES, StreamingClient

PATH = "/a.B/Watch"


class _Events(grpc.GenericRpcHandler):
    """``request``: how many messages, then how it ends ("ok", "abort" or "open"). Counts the streams left open."""

    def __init__(self) -> None:
        self.open = 0

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_stream_rpc_method_handler(self._watch)

    async def _watch(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
        count, size, ending = request.split()
        self.open += 1
        try:
            for number in range(int(count)):
                yield b"%d" % number + b"." * int(size)
            if ending == b"abort":
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
            if ending == b"open":
                await asyncio.sleep(30)
        finally:
            self.open -= 1


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[_Events]:
    events = _Events()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((events,))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield events
    finally:
        await server.stop(None)


@asynccontextmanager
async def client_of(path: Path) -> AsyncIterator[StreamingClient]:
    client = StreamingClient(str(path), asyncio.get_running_loop())
    try:
        yield client
    finally:
        client.close()


async def _read(client: StreamingClient, request: bytes) -> tuple[list[bytes], UnaryError | None]:
    return await _collect(client.stream(PATH, request, 2))


async def _collect(messages: AsyncIterator[bytes]) -> tuple[list[bytes], UnaryError | None]:
    got: list[bytes] = []
    try:
        async for message in messages:
            got.append(message)
    except UnaryError as error:
        return got, error
    return got, None


async def test_nobody_listens(tmp_path: Path) -> None:
    async with client_of(tmp_path / "absent") as client:
        got, error = await _read(client, b"1 0 ok")
        assert got == []
        assert error is not None and error.code == 14


@pytest.mark.parametrize(
    ("request_", "count", "code"),
    [(b"0 0 ok", 0, None), (b"3 0 ok", 3, None), (b"40 70000 ok", 40, None), (b"2 0 abort", 2, 9)],
)
async def test_messages_come_in_order_and_the_status_last(
    tmp_path: Path, request_: bytes, count: int, code: int | None
) -> None:
    async with served(tmp_path / "s"), client_of(tmp_path / "s") as client:
        got, error = await _read(client, request_)
        assert [message.rstrip(b".") for message in got] == [b"%d" % number for number in range(count)]
        assert (error and error.code) == code


async def test_a_reader_that_stops_ends_the_call_and_keeps_the_connection(tmp_path: Path) -> None:
    async with served(tmp_path / "s") as events, client_of(tmp_path / "s") as client:
        async with aclosing(client.stream(PATH, b"5 0 open", 2)) as messages:
            assert await anext(messages) == b"0"
            assert events.open == 1
        async with asyncio.timeout(2):
            while events.open:  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.005)
        assert await _read(client, b"1 0 ok") == ([b"0"], None)


async def test_a_lost_server_ends_the_stream(tmp_path: Path) -> None:
    async with client_of(tmp_path / "s") as client:
        async with served(tmp_path / "s"):
            messages = client.stream(PATH, b"1 0 open", 2)
            assert await anext(messages) == b"0"
            waiting = asyncio.ensure_future(anext(messages))
        with pytest.raises(UnaryError):
            await asyncio.wait_for(waiting, 2)


_HEAD = frame(HEADERS, END_HEADERS, 1, ANSWER_HEAD)
_OK = frame(HEADERS, END_HEADERS | END_STREAM, 1, status_fields(0, ""))


@pytest.mark.parametrize(
    ("answer", "messages", "says"),
    [
        (_HEAD + frame(DATA, 0, 1, grpc_body(b"x")[:-1]) + _OK, 0, "within a message"),
        (_HEAD + frame(DATA, 0, 1, b"\1" + grpc_body(b"x")[1:]), 0, "compressed"),
        (_HEAD + frame(DATA, 0, 1, b"\0\xff\xff\xff\xff"), 0, "over 16777216"),
        (_HEAD + frame(DATA, 0, 1, grpc_body(b"x")) + rst_stream(1, 2), 1, "reset the stream"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4, 0, "broke HTTP/2"),
        (frame(HEADERS, END_HEADERS | END_STREAM, 1, ANSWER_HEAD + status_fields(12, "unknown method")), 0, "unknown"),
    ],
)
async def test_servers_that_fail_the_stream(tmp_path: Path, answer: bytes, messages: int, says: str) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(PATH.encode())
        writer.write(settings() + answer)
        await asyncio.sleep(0.2)
        writer.close()

    server = await asyncio.start_unix_server(converse, str(tmp_path / "s"))
    async with client_of(tmp_path / "s") as client:
        got, error = await _read(client, b"")
        assert len(got) == messages
        assert error is not None and says in str(error)
    server.close()


@pytest.mark.parametrize(("unread", "fails"), [(MAX_UNREAD, False), (MAX_UNREAD + 1, True)])
async def test_a_reader_that_is_too_slow_fails_the_stream(tmp_path: Path, unread: int, fails: bool) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(PATH.encode())
        writer.write(settings() + _HEAD + frame(DATA, 0, 1, grpc_body(b"first")))
        await is_reading.wait()
        for size in (unread // 2, unread - unread // 2):
            writer.write(frame(DATA, 0, 1, grpc_body(b"") * size))
        writer.write(_OK)
        await writer.drain()
        has_written.set()
        await reader.read()
        writer.close()

    is_reading, has_written = asyncio.Event(), asyncio.Event()
    server = await asyncio.start_unix_server(converse, str(tmp_path / "s"))
    async with client_of(tmp_path / "s") as client, aclosing(client.stream(PATH, b"", 2)) as messages:
        assert await anext(messages) == b"first"
        is_reading.set()
        await has_written.wait()
        await asyncio.sleep(0.2)
        got, error = await _collect(messages)
    assert got == [b""] * unread
    assert (error is not None and "unread" in str(error)) == fails
    server.close()


async def test_a_message_in_pieces(tmp_path: Path) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(PATH.encode())
        body = grpc_body(b"first") + grpc_body(b"second")
        writer.write(settings() + _HEAD)
        for octet in body:
            writer.write(frame(DATA, 0, 1, bytes((octet,))))
            await writer.drain()
        writer.write(_OK)
        await reader.read(1 << 16)

    server = await asyncio.start_unix_server(converse, str(tmp_path / "s"))
    async with client_of(tmp_path / "s") as client:
        assert await _read(client, b"") == ([b"first", b"second"], None)
    server.close()


async def test_what_was_read_of_a_stream_counts_no_more(tmp_path: Path) -> None:
    """A stream of events lives for weeks: all of it together is more than may be unread at once."""
    count, size = 40, 1 << 20
    async with served(tmp_path / "s"), client_of(tmp_path / "s") as client:
        async with aclosing(client.stream(PATH, b"%d %d ok" % (count, size), 10.0)) as stream:
            read = [len(message) async for message in stream]
        assert len(read) == count and sum(read) > MAX_UNREAD_BYTES
        async with aclosing(client.stream(PATH, b"1 1 ok", 10.0)) as stream:
            assert [message async for message in stream] == [b"0."]
