"""A CRI client that knows exactly what was in flight when its connection ended.

gRPC libraries hide this behind retries and backoff; here a call has one attempt, on one connection, and there are
three ways to fail. ``Interrupted``: its HEADERS were written to a connection that ended before the answer, so the
runtime may or may not have acted. ``Failed``: answered, with a status other than OK. A connection that ends, or
cannot be made, before the HEADERS were written is no attempt: the client reconnects at once, without backoff.
The frames are h2's, which is strict about its peer.
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
from tests.runtimeproxy.relay.peers import Client

TUNING = Tuning(initial_window=1 << 20, connection_window=1 << 22, credit_batch=1 << 16)
CALL_S = 30.0
IGNORED = pb.StopContainerResponse  # it has no fields, so every answer parses as one
UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED, INTERNAL = 14, 4, 1, 13
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

    ``refused`` counts connection attempts that the socket itself refused; ``waits_ms`` see ``expect_answer``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls = 0
        self.refused = 0
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
        since = self._since
        self.calls += 1
        try:
            async with asyncio.timeout(CALL_S):
                stream = await client.call(method, request.SerializeToString(), [(b"grpc-timeout", b"60S")])
        except PeerGone as error:
            raise Interrupted(f"{method}: {error}") from error
        except TimeoutError:
            raise Failed(method, request, DEADLINE_EXCEEDED, f"no answer within {CALL_S:.0f} s") from None
        _raise_unless_ok(method, request, stream)
        if since is not None and since == self._since:
            self.waits_ms.append((time.monotonic() - since) * 1e3)
            self._since = None
        return answer.FromString(stream.messages[0])

    async def close(self) -> None:
        if self._client is not None:
            await self._client.endpoint.close()

    async def _connected(self) -> Client:
        """The connection, a new one if it has ended or its peer said GOAWAY."""
        async with self._connecting:
            while self._client is None or self._client.endpoint.closed or self._client.endpoint.goaways:
                try:
                    self._client = await Client.connect(self.path, TUNING)
                except PeerGone:
                    await asyncio.sleep(0)
                except (ConnectionError, FileNotFoundError, BlockingIOError):
                    self.refused += 1
                    await asyncio.sleep(0.001)
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
async def calling(path: Path) -> AsyncIterator[Caller]:
    """A caller for the time of the block."""
    caller = Caller(path)
    try:
        yield caller
    finally:
        await caller.close()
