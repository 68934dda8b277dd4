"""One client connection and the runtime connection that belongs to it.

Stream ids, SETTINGS, PING and stream windows are the two real ends' own; see design: the relay terminates only the
connection window towards the runtime and the stream windows of held streams. The two halves share what is here:
the streams, the order of outstanding SETTINGS acknowledgements, and the connection's end.

Invariant: the runtime never receives a held request before its verdict, and a client that was refused never waits
for the runtime. When a header block does not decode the connection is *blind*: nothing is intercepted on it any
more and it is drained. When either side goes, both go.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from koord.http2.frames import (
    DEFAULT_WINDOW_BYTES,
    MAX_STREAM_ID,
    NO_ERROR,
    PING,
    FrameError,
    frame,
    goaway,
    window_update,
)
from koord.http2.grpc import CANCELLED, UNAVAILABLE, grpc_message
from runtimeproxy.intercept import PASS, Interceptor, Treatment
from runtimeproxy.relay.answers import AnswerHalf
from runtimeproxy.relay.counters import RelayCounters
from runtimeproxy.relay.half import Half
from runtimeproxy.relay.requests import RequestHalf
from runtimeproxy.relay.stream import Route, State, Stream

log = logging.getLogger("koord.relay")

CREDIT_BATCH_BYTES = 16_384  # a quarter of HTTP/2's initial window: the client never runs dry waiting for us
_DRAIN_PING = b"koordDrn"
_DRAIN_PING_TIMEOUT_S = 1.0
_MAX_ROUTES = 512


class Policy:
    """What all connections of one relay share. ``held_budget_bytes`` bounds the bytes in hold, of all together."""

    def __init__(self, interceptor: Interceptor, counters: RelayCounters, held_budget_bytes: int) -> None:
        self.interceptor = interceptor
        self.counters = counters
        self.held_budget_bytes = held_budget_bytes
        self.bypass = False
        self._routes: dict[bytes, Route] = {}
        self._version = interceptor.version

    def route(self, path: bytes) -> Route:
        """The route of a new stream."""
        if self._version != self.interceptor.version:
            self.forget_routes()
        return self._routes.get(path) or self._learn(path)

    def forget_routes(self) -> None:
        """What the interceptor wants, or whether it is asked at all, has changed."""
        self._routes.clear()
        self._version = self.interceptor.version

    def _learn(self, path: bytes) -> Route:
        text = path.decode("ascii", "replace")
        plan = PASS if self.bypass else self.interceptor.plan(text)
        passes = plan.treatment is Treatment.PASS
        if len(self._routes) >= _MAX_ROUTES and passes:
            return Route(text, "other", plan, passes)
        return self._routes.setdefault(path, Route(text, text, plan, passes))


class Connection:
    """Pairs the two halves; ``closed`` is called once, when both transports are gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, policy: Policy) -> None:
        self.loop = loop
        self.policy = policy
        self.counters = policy.counters
        self.streams: dict[int, Route | Stream] = {}
        self.acks: deque[Stream | None] = deque()  # SETTINGS sent to the runtime: the client's (None) or a barrier
        self.barriers = 0  # how many of them are barriers
        self.runtime_settings: deque[list[tuple[int, int]]] = deque()  # those the client has not acknowledged yet
        self.last_stream = 0
        self.last_allowed = MAX_STREAM_ID
        self.blind = False
        self.raw = False  # not HTTP/2: bytes pass as they are
        self.draining = False
        self.ended: asyncio.Future[None] = loop.create_future()
        self._lost: set[Half] = set()
        self.client_window_bytes = DEFAULT_WINDOW_BYTES  # what the client may still send on the connection
        self._credit_bytes = 0
        self.requests = RequestHalf(self)
        self.answers = AnswerHalf(self)

    # windows: what the outbox gives back to the client

    def credit_connection(self, size_bytes: int) -> None:
        self._credit_bytes += size_bytes
        if self._credit_bytes >= CREDIT_BATCH_BYTES:
            self.to_client(window_update(0, self._credit_bytes))
            self.client_window_bytes += self._credit_bytes
            self._credit_bytes = 0

    def credit_stream(self, stream: int, size_bytes: int) -> None:
        if size_bytes:
            self.to_client(window_update(stream, size_bytes))

    def account(self, stream: Stream, size_bytes: int) -> None:
        stream.held_bytes += size_bytes
        self.counters.held_bytes += size_bytes

    # frames of our own

    def expect_barrier(self, stream: Stream) -> None:
        """A SETTINGS of ours is going out: the runtime's acknowledgement of it tells that ``stream`` is over."""
        self.acks.append(stream)
        self.barriers += 1

    def to_client(self, frames: bytes) -> None:
        self.answers.inject(frames)

    # streams

    def finish(self, stream_id: int, status: int) -> None:
        """The runtime has answered the stream for good, or either end has reset it."""
        stream = self.streams.pop(stream_id, None)
        if stream is None:
            return
        self._count(stream, status)
        if isinstance(stream, Stream):
            self._finish_held(stream, status)
        if self.draining and not self.streams:
            self.loop.call_soon(self._close_if_drained)  # the frame that ended it goes out first

    def _count(self, stream: Route | Stream, status: int) -> None:
        route = stream if isinstance(stream, Route) else stream.route
        self.counters.calls[route.label, status] += 1

    def _finish_held(self, stream: Stream, status: int) -> None:
        self.forget(stream)
        if stream.state is State.REFUSING:
            return
        message = grpc_message(b"".join(stream.answer)) if stream.answer is not None and status == 0 else None
        self.loop.call_soon(self.policy.interceptor.answered, stream.call, status, message)  # behind the answer itself

    def forget(self, stream: Stream) -> None:
        """Nothing more of this stream goes to the runtime; its bytes leave the budget."""
        self.requests.outbox.forget(stream.id)
        self.account(stream, -stream.held_bytes)
        if stream.task is not None:
            stream.task.cancel()
            stream.task = None
        stream.chunks = []

    # ends

    def fail(self, error: FrameError) -> None:
        """A peer sent what no peer may: tell the client, close both."""
        log.warning("connection closed: %s", error)
        self.counters.blind["bad frame"] += 1
        self.requests.write(goaway(self.last_stream, error.code, str(error).encode()))
        self.close()

    def go_raw(self) -> None:
        """The client does not speak HTTP/2: bytes pass as they are, both ways."""
        self.raw = self.answers.unusual = True

    def go_blind(self, where: str, error: Exception) -> None:
        """Header blocks cannot be followed any more: nothing is intercepted from here on, and the client leaves."""
        if self.blind:
            return
        self.blind = True
        self.counters.blind[where] += 1
        log.warning("connection is drained, its %s no longer decode: %s", where, error)
        self.draining = True
        self._final_goaway()

    def drain(self) -> None:
        """Ask the client to open its next streams elsewhere, and close when the last stream has ended."""
        if self.draining:
            return
        self.draining = True
        if not self.answers.settled:  # nothing may precede the runtime's SETTINGS
            if not self.requests.started:
                self.close()
            return
        self.announce_drain()

    def announce_drain(self) -> None:
        self.requests.expect_drain_ping()
        self.to_client(goaway(MAX_STREAM_ID, NO_ERROR) + frame(PING, 0, 0, _DRAIN_PING))
        self.loop.call_later(_DRAIN_PING_TIMEOUT_S, self._final_goaway)

    def is_drain_ping(self, payload: bytes) -> bool:
        """Is this PING acknowledgement the answer to ours? Then every stream opened before GOAWAY is known."""
        if not self.draining or payload != _DRAIN_PING:
            return False
        self._final_goaway()
        return True

    def _final_goaway(self) -> None:
        if self.last_allowed != MAX_STREAM_ID:
            return
        self.last_allowed = self.last_stream
        self.to_client(goaway(self.last_stream, NO_ERROR))
        self.loop.call_soon(self._close_if_drained)

    def _close_if_drained(self) -> None:
        if not self.streams and self.last_allowed != MAX_STREAM_ID:
            self.close()

    def congested(self, half: Half, full: bool) -> None:
        """``half``'s peer does not read fast enough: stop reading what would be sent to it."""
        (self.answers if half is self.requests else self.requests).pause("peer", full)

    def outbox_full(self, full: bool) -> None:
        self.requests.pause("outbox", full)

    def close(self) -> None:
        self.requests.close()
        self.answers.close()

    def abandon(self) -> None:
        """The pair never came to be: close what there is of it."""
        self.close()
        if self.answers.transport is None and not self.ended.done():
            self.ended.set_result(None)

    def lost(self, half: Half) -> None:
        self._lost.add(half)
        self.close()
        cut_off = CANCELLED if half is self.requests else UNAVAILABLE  # by the client, or by the runtime
        for stream_id in list(self.streams):
            stream = self.streams.pop(stream_id)
            self._count(stream, cut_off)
            if isinstance(stream, Stream):
                self.forget(stream)
        expected = {each for each in (self.requests, self.answers) if each.transport is not None}
        if expected <= self._lost and not self.ended.done():
            self.ended.set_result(None)
