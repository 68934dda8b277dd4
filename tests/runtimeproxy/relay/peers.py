"""gRPC over strict HTTP/2 ends: a client that makes calls, a server with a handler per path."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from h2.exceptions import StreamClosedError

from tests.runtimeproxy.relay.endpoint import Endpoint, Header, Stream, Tuning
from tests.runtimeproxy.relay.ledger import End, Link

Handler = Callable[[Stream], Awaitable[None]]
ANY = "*"


class Client:
    """Makes gRPC calls over one connection."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    @classmethod
    async def connect(cls, path: Path, tuning: Tuning | None = None, link: Link | None = None) -> Client:
        """Connect, and wait for the far end's SETTINGS as a careful client does."""
        endpoint = Endpoint(End.CLIENT, tuning or Tuning(), link)
        await asyncio.get_running_loop().create_unix_connection(lambda: endpoint, str(path))
        await endpoint.until(lambda: endpoint.greeted)
        return cls(endpoint)

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(
        cls, path: Path, tuning: Tuning | None = None, link: Link | None = None
    ) -> AsyncIterator[Client]:
        """A client for the time of the block."""
        client = await cls.connect(path, tuning, link)
        try:
            yield client
        finally:
            await client.endpoint.close()

    def open(self, path: str, metadata: Sequence[Header] = (), *, end: bool = False) -> Stream:
        """Send the HEADERS of a call."""
        stream = Stream(self.endpoint, self.endpoint.h2.get_next_available_stream_id())
        self.endpoint.streams[stream.id] = stream
        self.endpoint.send_headers(stream.id, [*request_headers(path), *metadata], end=end)
        return stream

    async def call(
        self,
        path: str,
        message: bytes,
        metadata: Sequence[Header] = (),
        *,
        pad: int | None = None,
        chunk: int = 1 << 20,
    ) -> Stream:
        """One unary call to its end, which may come before all of the message was sent."""
        stream = self.open(path, metadata)
        with contextlib.suppress(StreamClosedError):
            await self.endpoint.send(stream.id, grpc_frame(message), pad=pad, chunk=chunk)
        return await stream.finished()


class Server:
    """Serves gRPC over a unix socket; a handler per path, that of ``ANY`` or ``echo`` for the others."""

    def __init__(self, handlers: Mapping[str, Handler], tuning: Tuning, link: Link | None) -> None:
        self.handlers = handlers
        self.connections: list[Endpoint] = []
        self.tuning = tuning
        self._link = link

    @property
    def streams(self) -> list[Stream]:
        """Every stream of every connection, in order of arrival."""
        return [stream for endpoint in self.connections for stream in endpoint.streams.values()]

    def accept(self) -> Endpoint:
        link = self._link if not self.connections else None  # a ledger is of one connection
        endpoint = Endpoint(End.RUNTIME, self.tuning, link, self._serve)
        self.connections.append(endpoint)
        return endpoint

    async def _serve(self, stream: Stream) -> None:
        path = (stream.header(b":path") or b"").decode()
        await (self.handlers.get(path) or self.handlers.get(ANY, echo))(stream)


@contextlib.asynccontextmanager
async def serving(
    path: Path,
    handlers: Mapping[str, Handler] | None = None,
    tuning: Tuning | None = None,
    link: Link | None = None,
) -> AsyncIterator[Server]:
    """A server on ``path`` for the time of the block; ``link`` watches its first connection."""
    server = Server(handlers or {}, tuning or Tuning(), link)
    listener = await asyncio.get_running_loop().create_unix_server(server.accept, str(path))
    try:
        yield server
    finally:
        listener.close()
        for endpoint in server.connections:
            await endpoint.close()


async def echo(stream: Stream) -> None:
    """Answer with the bytes of the request."""
    await stream.finished()
    if stream.reset is None:
        await answer(stream, bytes(stream.data))


async def answer(stream: Stream, body: bytes, metadata: Sequence[Header] = (), *, pad: int | None = None) -> None:
    """A complete gRPC answer whose DATA is ``body``; ``metadata`` goes into the trailers."""
    endpoint = stream.endpoint
    endpoint.send_headers(stream.id, [(b":status", b"200"), (b"content-type", b"application/grpc")])
    await endpoint.send(stream.id, body, end=False, pad=pad)
    endpoint.send_headers(stream.id, [(b"grpc-status", b"0"), *metadata], end=True)


def request_headers(path: str) -> list[Header]:
    """What grpc-go sends, in its order."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"grpc-go/1.79.1"),
        (b"te", b"trailers"),
    ]


def grpc_frame(message: bytes, *, compressed: bool = False) -> bytes:
    return bytes([compressed]) + len(message).to_bytes(4, "big") + message
