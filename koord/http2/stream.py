"""Server-streaming gRPC calls on the unary client's connection: a runtime's container events.

One request, then messages until the server ends the call or the reader stops (which resets the stream). Invariant:
what a slow reader makes us keep is bounded; beyond it the call ends with RESOURCE_EXHAUSTED, and the reader, who has
then missed messages, must look for itself. There is no deadline: a stream lives as long as its connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence

from koord.http2.client import PendingCall, UnaryClient, head
from koord.http2.grpc import INTERNAL, MAX_MESSAGE_BYTES, PREFIX_BYTES, RESOURCE_EXHAUSTED, UnaryError, refusal_in

MAX_UNREAD = 4096  # messages
MAX_UNREAD_BYTES = 2 * MAX_MESSAGE_BYTES


class StreamingClient(UnaryClient):
    """A `UnaryClient` that also reads streams."""

    async def stream(
        self, path: str, message: bytes, connect_timeout_s: float, metadata: Sequence[tuple[str, str]] = ()
    ) -> AsyncGenerator[bytes, None]:
        """The messages of a server-streaming call, until the server ends it well; raises UnaryError otherwise."""
        link = await self.link_within(connect_timeout_s)
        pending = _Stream(link.initial_window_bytes)
        stream = link.open(pending, head(path, tuple(metadata)), message)
        try:
            while (one := await pending.next()) is not None:
                yield one
        finally:
            link.release(stream, pending)


class _Stream(PendingCall):
    """A streaming call: ``_rest`` is the begin of a message, ``_ending`` is set once nothing more will come."""

    def __init__(self, window_bytes: int) -> None:
        super().__init__(window_bytes)
        self._rest = bytearray()
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._wake = asyncio.Event()
        self._ending = False
        self._error: UnaryError | None = None

    async def next(self) -> bytes | None:
        """The next message; None at a good end. Raises UnaryError, after all messages that came before it."""
        while not self._unread and not self._ending:
            self._wake.clear()
            await self._wake.wait()
        if self._unread:
            message = self._unread.popleft()
            self._unread_bytes -= PREFIX_BYTES + len(message)
            return message
        if self._error is not None:
            raise self._error
        return None

    @property
    def kept_bytes(self) -> int:
        return len(self._rest) + self._unread_bytes

    def take(self, payload: bytes) -> None:
        if self._ending:
            return
        self._rest += payload
        while len(self._rest) >= PREFIX_BYTES:
            end = PREFIX_BYTES + int.from_bytes(self._rest[1:PREFIX_BYTES])
            if self._rest[0] or end > PREFIX_BYTES + MAX_MESSAGE_BYTES:
                self.fail(INTERNAL, f"a message is compressed or over {MAX_MESSAGE_BYTES} bytes")
                return
            if len(self._rest) < end:
                break
            self._unread.append(bytes(self._rest[PREFIX_BYTES:end]))
            del self._rest[:end]
            self._unread_bytes += end
        if len(self._unread) > MAX_UNREAD or self._unread_bytes > MAX_UNREAD_BYTES:
            self.fail(RESOURCE_EXHAUSTED, f"more than {MAX_UNREAD} messages or {MAX_UNREAD_BYTES} bytes unread")
        self._wake.set()

    def settle(self) -> None:
        self.ended = True
        refusal = refusal_in(self.fields)
        if refusal is not None:
            self.fail(*refusal)
        elif self._rest:
            self.fail(INTERNAL, "the stream ended within a message")
        self._ending = True
        self._wake.set()

    def fail(self, code: int, message: str) -> None:
        if not self._ending:
            self._error = UnaryError(code, message)
            self._ending = True
        self._wake.set()
