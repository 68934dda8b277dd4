"""A CRI client that knows exactly what was in flight when its connection ended.

gRPC libraries hide this behind retries and backoff; here a call has one attempt, on one connection, and there are
three ways to fail. ``Interrupted``: its HEADERS were written to a connection that ended before the answer, so the
runtime may or may not have acted. ``Failed``: answered, with a status other than OK. A connection that ends, or
cannot be made, before the HEADERS were written is no attempt: the client reconnects at once, without backoff.
A server stream ends with ``Interrupted`` when its connection does. The frames are h2's, which is strict about its peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import Message

from koord.pb.cri import api_pb2 as pb
from tests.runtimeproxy.relay.endpoint import PeerGone, Stream, Tuning
from tests.runtimeproxy.relay.peers import Client, grpc_frame

TUNING = Tuning(initial_window=1 << 20, connection_window=1 << 22, credit_batch=1 << 16)
CALL_S = 30.0
RETRY_S = 0.001
IGNORED = pb.StopContainerResponse  # it has no fields, so every answer parses as one
UNAVAILABLE, UNKNOWN, DEADLINE_EXCEEDED, CANCELLED, INTERNAL, ALREADY_EXISTS = 14, 2, 4, 1, 13, 6
REFUSED_STREAM = 7

Answer = TypeVar("Answer", bound=Message)


class Interrupted(Exception):
    """The connection ended between HEADERS and answer."""


class Failed(Exception):
    """The call was answered with a status, or not at all within ``CALL_S``; it can be made again from its fields."""

    def __init__(self, method: str, request: Message, code: int, message: str) -> None:
        super().__init__(f"{method}: {code}: {message}")
        self.method, self.request, self.code = method, request, code


class Caller:
    """Calls over one connection, replaced as soon as it has ended.

    ``refused`` counts connection attempts that the socket itself refused, each followed by ``retry_s``. ``cut_off`` are
    those that ended between connecting and the far end's SETTINGS, from and to by ``time.monotonic``; the present one
    was made at ``connected_at``. ``interrupted`` calls: when their connection was made and ended, and why.
    ``waits_ms`` see ``expect_answer``. A call that has no answer within ``call_s`` has failed.
    """

    def __init__(self, path: Path, call_s: float = CALL_S, retry_s: float = RETRY_S) -> None:
        self.path = path
        self._call_s, self._retry_s = call_s, retry_s
        self.calls = 0
        self.refused = 0
        self.cut_off: list[tuple[float, float]] = []
        self.connected_at = 0.0
        self.interrupted: list[tuple[float, float, str]] = []
        self.slowest_s = 0.0  # of the calls that were answered
        self.waits_ms: list[float] = []
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._since: float | None = None

    def expect_answer(self) -> None:
        """Note the time until a call that starts from now on is answered, in ``waits_ms``."""
        if self._since is None:
            self._since = time.monotonic()

    async def call(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        """One attempt; ``method`` is a full path. Raises ``Interrupted`` or ``Failed``."""
        client = await self._connected()
        connected, since, began_s = self.connected_at, self._since, time.monotonic()
        self.calls += 1
        try:
            async with asyncio.timeout(self._call_s):
                deadline = (b"grpc-timeout", b"%dS" % (2 * self._call_s))
                stream = await client.call(method, request.SerializeToString(), [deadline])
        except PeerGone as error:
            self.interrupted.append((connected, time.monotonic(), f"{method}: {error}"))
            raise Interrupted(f"{method}: {error}") from error
        except TimeoutError:
            raise Failed(method, request, DEADLINE_EXCEEDED, f"no answer within {self._call_s:g} s") from None
        _raise_unless_ok(method, request, stream)
        ended_s = time.monotonic()
        self.slowest_s = max(self.slowest_s, ended_s - began_s)
        if since is not None and since == self._since:
            self.waits_ms.append((ended_s - since) * 1e3)
            self._since = None
        return answer.FromString(stream.messages[0])

    async def stream(self, method: str, request: Message) -> AsyncIterator[bytes]:
        """The messages of a server stream, until it ends well. Raises ``Interrupted`` or ``Failed``."""
        client = await self._connected()
        stream = client.open(method)
        taken = 0  # bytes of stream.data

        def message_end() -> int:
            """Of the next message in ``stream.data``, or where it ends at least."""
            prefix = stream.data[taken : taken + 5]
            return taken + 5 + int.from_bytes(prefix[1:5], "big")

        try:
            await client.endpoint.send(stream.id, grpc_frame(request.SerializeToString()))
            while True:
                await stream.until(lambda s: s.ended or s.reset is not None or len(s.data) >= message_end())
                if len(stream.data) < message_end():
                    break
                start, taken = taken + 5, message_end()
                yield bytes(stream.data[start:taken])
        except PeerGone as error:
            raise Interrupted(f"{method}: {error}") from error
        _raise_unless_ok(method, request, stream)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.endpoint.close()

    async def _connected(self) -> Client:
        """The connection, a new one if it has ended or its peer said GOAWAY."""
        async with self._connecting:
            while self._client is None or self._client.endpoint.closed or self._client.endpoint.goaways:
                self.connected_at = time.monotonic()
                try:
                    self._client = await Client.connect(self.path, TUNING)
                except PeerGone:
                    self.cut_off.append((self.connected_at, time.monotonic()))
                    await asyncio.sleep(0)
                except (ConnectionError, FileNotFoundError, BlockingIOError):
                    self.refused += 1
                    await asyncio.sleep(self._retry_s)
            if (fault := self._client.endpoint.fault) is not None:
                raise AssertionError(f"the peer broke the rules of HTTP/2: {fault}") from fault
            return self._client


def _raise_unless_ok(method: str, request: Message, stream: Stream) -> None:
    if stream.grpc_status == 0:
        return
    text = (stream.header(b"grpc-message") or b"").decode()
    if stream.grpc_status is not None:
        raise Failed(method, request, stream.grpc_status, text)
    code = {REFUSED_STREAM: UNAVAILABLE, 8: CANCELLED}.get(stream.reset or 0, INTERNAL)
    raise Failed(method, request, code, f"the stream was reset ({stream.reset})")


@contextlib.asynccontextmanager
async def calling(path: Path, call_s: float = CALL_S, retry_s: float = RETRY_S) -> AsyncIterator[Caller]:
    """A caller for the time of the block."""
    caller = Caller(path, call_s, retry_s)
    try:
        yield caller
    finally:
        await caller.close()
