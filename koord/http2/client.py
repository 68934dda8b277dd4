"""A small unary gRPC client: hook servers, and the proxy's own questions to the runtime.

One connection per socket path, made when it is first needed and again after it was lost; calls are multiplexed.
Every failure, the peer's or ours, is a `UnaryError` with a gRPC status.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from koord.http2.frames import (
    CANCEL,
    END_STREAM,
    MAX_CONCURRENT_STREAMS,
    MAX_STREAM_ID,
    PREFACE,
    REFUSED_STREAM,
    Frame,
    data_payload,
    header_block,
    last_stream_of,
    rst_stream,
    uint32,
)
from koord.http2.grpc import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    MAX_MESSAGE_BYTES,
    PREFIX_BYTES,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UnaryError,
    body_bytes,
    grpc_body,
    grpc_message,
    refusal_in,
)
from koord.http2.hpack import literal
from koord.http2.link import Link, Sending

__all__ = ["Answer", "UnaryClient", "UnaryError"]

PRESUMED_STREAMS = 100  # that a server allows before it has said so; grpc-go presumes the same
# Pauses before a refused call is made again: a server may count a stream that it has ended a moment longer than we do.
_AGAIN_S = (0.001, 0.004, 0.016, 0.064, math.inf)
_PSEUDO = b"\x83\x86" + literal(b":authority", b"localhost")  # with :method POST and :scheme http, static entries
_TIMER_STEP_S = 0.001  # the loop's timers may go off so much early
_GRACE_MS = 20  # a server that watches the deadline too must not give up just before we do
_FIXED = literal(b"content-type", b"application/grpc") + literal(b"te", b"trailers")


@dataclass(frozen=True, slots=True)
class Answer:
    """``metadata``: initial metadata and trailers together, as they came; names are in lower case."""

    message: bytes
    metadata: Mapping[bytes, bytes]


Distrust = Callable[[str, int | None], str | None]
"""Why the server at a socket's path must not be asked, None if it may. It is called with None before the connection is
made, and with the user id of the listening process after that. Raises OSError for a path that cannot be looked at."""


class UnaryClient:
    """Calls the gRPC server at ``socket_path``; one that is not trusted is not asked anything.

    What connects otherwise than by a unix socket overrides ``connect``.

    ``max_answer_bytes``: of one message; of all answers that have begun and not ended, twice as much.
    """

    def __init__(
        self,
        socket_path: str,
        loop: asyncio.AbstractEventLoop,
        distrust: Distrust = lambda path, uid: None,
        max_answer_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._path = socket_path
        self._distrust = distrust
        self._loop = loop
        self._max_answer_bytes = max_answer_bytes
        self._link: ClientLink | None = None
        self._connecting = asyncio.Lock()

    @property
    def peer_pid(self) -> int | None:
        """Process id of the server, while connected."""
        return self._link.peer_pid if self._link is not None and self._link.usable else None

    def call(
        self,
        path: str,
        message: bytes,
        timeout_s: float,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> Coroutine[Any, Any, Answer]:
        """One unary call. Raises UnaryError."""
        link = self._link
        if link is not None and link.usable:
            return link.call(path, message, timeout_s, metadata)
        return self._call_once_connected(path, message, timeout_s, metadata)

    async def _call_once_connected(
        self,
        path: str,
        message: bytes,
        timeout_s: float,
        metadata: Sequence[tuple[str, str]],
    ) -> Answer:
        deadline = self._loop.time() + timeout_s
        link = await self.link_within(timeout_s)
        return await link.call(path, message, deadline - self._loop.time(), metadata)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    async def link_within(self, timeout_s: float) -> ClientLink:
        """The connection, made if need be. Raises UnaryError."""
        connecting = self._loop.create_task(self._connected())
        try:
            await asyncio.wait((connecting,), timeout=timeout_s)
        finally:
            connecting.cancel()
        if not connecting.done():
            raise UnaryError(DEADLINE_EXCEEDED, f"no connection to {self._path} in {timeout_s:.3g} s")
        return connecting.result()

    async def _connected(self) -> ClientLink:
        async with self._connecting:
            if self._link is None or not self._link.usable:
                try:
                    self._link = await self.connect()
                except OSError as error:
                    raise UnaryError(UNAVAILABLE, f"cannot connect to {self._path}: {error}") from None
            return self._link

    async def connect(self) -> ClientLink:
        """A new connection. Raises OSError, and UnaryError for a server that is not trusted."""
        self._trust(None)
        _, link = await self._loop.create_unix_connection(
            lambda: ClientLink(self._loop, self._max_answer_bytes), self._path
        )
        try:
            self._trust(link.peer_uid)
        except UnaryError:
            link.close()
            raise
        return link

    def _trust(self, uid: int | None) -> None:
        reason = self._distrust(self._path, uid)
        if reason is not None:
            raise UnaryError(UNAVAILABLE, f"not connected to {self._path}: {reason}")


class PendingCall(Sending):
    """A call on its way. ``ended``: by the server, so that there is nothing to reset; ``deadline``: loop time.

    ``refused``: the server has not looked at it, and it can be made again.
    """

    ended = refused = False

    def __init__(self, window_bytes: int, deadline: float = math.inf) -> None:
        self.window_bytes, self.deadline = window_bytes, deadline
        self.fields: dict[bytes, bytes] = {}

    @property
    def kept_bytes(self) -> int:
        """Of the answer, what nobody has read yet."""
        raise NotImplementedError

    def take(self, payload: bytes) -> None:
        """Some bytes of the answer."""
        raise NotImplementedError

    def settle(self) -> None:
        """The server has ended the stream: an answer, or the status that says why there is none."""
        raise NotImplementedError

    def fail(self, code: int, message: str) -> None:
        raise NotImplementedError


class _Unary(PendingCall):
    def __init__(
        self, window_bytes: int, deadline: float, result: asyncio.Future[Answer], max_answer_bytes: int
    ) -> None:
        super().__init__(window_bytes, deadline)
        self.result = result
        self.answer = bytearray()
        self._max_answer_bytes = max_answer_bytes

    @property
    def kept_bytes(self) -> int:
        return len(self.answer)

    def take(self, payload: bytes) -> None:
        if self.result.done():
            return
        self.answer += payload
        if max(len(self.answer), body_bytes(self.answer)) > PREFIX_BYTES + self._max_answer_bytes:
            self.fail(RESOURCE_EXHAUSTED, f"answer over {self._max_answer_bytes} bytes")

    def settle(self) -> None:
        self.ended = True
        if self.result.done():
            return
        refusal = refusal_in(self.fields)
        message = grpc_message(self.answer)
        if refusal is not None:
            self.fail(*refusal)
        elif message is None:
            self.fail(INTERNAL, "the answer is not one uncompressed message")
        else:
            self.result.set_result(Answer(message, self.fields))

    def fail(self, code: int, message: str) -> None:
        self.answer = bytearray()
        if not self.result.done():
            self.result.set_exception(UnaryError(code, message))


class ClientLink(Link[PendingCall]):
    """One connection; when it is lost every pending call fails with UNAVAILABLE.

    A call above the number of streams that the server allows waits for its turn, and one that was refused unseen is
    made again, within its own time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_answer_bytes: int) -> None:
        super().__init__()
        self._max_answer_bytes = max_answer_bytes
        self.peer_pid: int | None = None
        self.peer_uid: int | None = None
        self._loop = loop
        self._next_stream = 1
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._max_streams: float = PRESUMED_STREAMS
        self._greeted = False
        self._turns: deque[asyncio.Future[None]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected = transport.get_extra_info("socket")
        if connected.family == socket.AF_UNIX:
            credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            self.peer_pid, self.peer_uid, _ = struct.unpack("iII", credentials)
        super().connection_made(transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        for _ in range(len(self._turns)):
            self._next_turn()

    def opening(self) -> bytes:
        return PREFACE + super().opening()

    async def call(
        self,
        path: str,
        message: bytes,
        timeout_s: float,
        metadata: Sequence[tuple[str, str]],
    ) -> Answer:
        deadline = self._loop.time() + timeout_s
        for pause_s in _AGAIN_S:
            if len(self.streams) >= self._max_streams or self.is_congested:
                await self._turn(deadline)
                timeout_s = max(deadline - self._loop.time(), 0.0)
            result = self._loop.create_future()
            pending = _Unary(self.initial_window_bytes, deadline, result, self._max_answer_bytes)
            stream = self.open(
                pending, head(path, tuple(metadata)) + _timeout(int(timeout_s * 1000) + _GRACE_MS), message
            )
            if deadline < self._alarm_at:
                self._set_alarm(deadline)
            try:
                return await pending.result
            except UnaryError:
                timeout_s = deadline - self._loop.time() - pause_s
                if not pending.refused or timeout_s <= 0 or not self.usable:
                    raise
            finally:
                self.release(stream, pending)
            await asyncio.sleep(pause_s)
        raise AssertionError  # the last pause is longer than any call

    async def _turn(self, deadline: float) -> None:
        """Wait until the server allows one more stream, and reads what it was sent."""
        while len(self.streams) >= self._max_streams or self.is_congested:
            turn = self._loop.create_future()
            self._turns.append(turn)
            late = self._loop.call_at(deadline, _fail, turn, DEADLINE_EXCEEDED, "no free stream in time")
            try:
                await turn
            except asyncio.CancelledError:
                self._next_turn()  # it may have been ours already
                raise
            finally:
                late.cancel()

    def _next_turn(self) -> None:
        while self._turns and len(self.streams) < self._max_streams and not self.is_congested:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _set_alarm(self, at: float) -> None:
        """One timer for all calls; it stays set when its call ends, so that a call seldom has to set it."""
        self._stop_alarm()
        if at < math.inf:
            self._alarm_at = at
            self._alarm = self._loop.call_at(at, self._overdue)

    def _stop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, math.inf

    def _overdue(self) -> None:
        now = self._loop.time() + _TIMER_STEP_S
        for pending in list(self.streams.values()):
            if pending.deadline <= now:
                pending.fail(DEADLINE_EXCEEDED, "no answer in time")
        self._set_alarm(min([each.deadline for each in self.streams.values() if each.deadline > now], default=math.inf))

    def open(self, pending: PendingCall, block: bytes, message: bytes) -> int:
        """Begin a call with header block ``block``; its stream, which the caller must `release`."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        if self._next_stream > MAX_STREAM_ID:
            self.usable = False
        pending.body = grpc_body(message)
        self.streams[stream] = pending
        self.begin(stream, pending, self.block(0, stream, block))
        return stream

    def release(self, stream: int, pending: PendingCall) -> None:
        """The caller wants no more of the call; the server is told unless it has ended it."""
        del self.streams[stream]
        if not pending.ended:
            self.write(rst_stream(stream, CANCEL))
        if self._turns:
            self._next_turn()

    # Link

    def ended(self, why: str) -> None:
        self._stop_alarm()
        for pending in list(self.streams.values()):
            pending.fail(UNAVAILABLE, why)
        while self._turns:
            _fail(self._turns.popleft(), UNAVAILABLE, why)

    def on_settings(self, settings: Mapping[int, int]) -> None:
        presumed = self._max_streams if self._greeted else math.inf
        self._max_streams, self._greeted = settings.get(MAX_CONCURRENT_STREAMS, presumed), True
        for _ in range(len(self._turns)):
            self._next_turn()

    def on_headers(self, data: bytes, frame: Frame) -> None:
        fields = self.decoder.decode(header_block(data, frame))
        pending = self.streams.get(frame[2])
        if pending is None:
            return
        pending.fields.update(fields)
        if frame[1] & END_STREAM:
            pending.settle()

    def on_data(self, data: bytes, frame: Frame) -> None:
        self.credit(frame)
        pending = self.streams.get(frame[2])
        if pending is None:
            return
        pending.take(data_payload(data, frame))
        if sum(each.kept_bytes for each in self.streams.values()) > 2 * self._max_answer_bytes:
            pending.fail(RESOURCE_EXHAUSTED, f"answers over {2 * self._max_answer_bytes} bytes together")
        if frame[1] & END_STREAM:
            pending.settle()

    def on_rst_stream(self, data: bytes, frame: Frame) -> None:
        pending = self.streams.get(frame[2])
        if pending is not None:
            code = uint32(data, frame)
            pending.ended, pending.refused = True, code == REFUSED_STREAM
            pending.fail(UNAVAILABLE, f"the server reset the stream (error code {code})")

    def on_goaway(self, data: bytes, frame: Frame) -> None:
        """No new call on this connection; those the server has taken may still end well."""
        self.usable = False
        last = last_stream_of(data, frame)
        for stream, pending in list(self.streams.items()):
            if stream > last:
                pending.fail(UNAVAILABLE, "the server is going away")


def _fail(future: asyncio.Future[None], code: int, message: str) -> None:
    if not future.done():
        future.set_exception(UnaryError(code, message))


@lru_cache(maxsize=64)
def _timeout(timeout_ms: int) -> bytes:
    """The field that says so; most calls are given the same time."""
    return literal(b"grpc-timeout", b"%dm" % timeout_ms)


@lru_cache(maxsize=64)
def head(path: str, metadata: tuple[tuple[str, str], ...]) -> bytes:
    """The header block of a call but for its timeout. Pseudo-header fields come first: grpc-go insists."""
    fields = b"".join(literal(name.encode(), value.encode()) for name, value in metadata)
    return _PSEUDO + literal(b":path", path.encode()) + _FIXED + fields
