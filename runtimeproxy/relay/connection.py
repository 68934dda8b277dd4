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
import time
from collections import deque

from koord.http2.frames import (
    DEFAULT_WINDOW_BYTES,
    ENHANCE_YOUR_CALM,
    MAX_STREAM_ID,
    FrameError,
    goaway,
    window_update,
)
from koord.http2.grpc import CANCELLED, UNAVAILABLE, grpc_message
from runtimeproxy.relay.answers import AnswerHalf
from runtimeproxy.relay.budget import STREAM_BYTES
from runtimeproxy.relay.goaway import GoingAway
from runtimeproxy.relay.half import Half
from runtimeproxy.relay.policy import CREDIT_BATCH_BYTES, Policy
from runtimeproxy.relay.requests import RequestHalf
from runtimeproxy.relay.stream import Route, State, Stream

log = logging.getLogger("koord.relay")

_MUCH_WAITING_BYTES = 1 << 20
_KEPT_BACK = (State.HOLDING, State.ASKING, State.RELEASED)


class Connection:
    """Pairs the two halves; ``closed`` is called once, when both transports are gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, policy: Policy) -> None:
        self.loop = loop
        self.policy = policy
        self.counters = policy.counters
        self.streams: dict[int, Route | Stream] = {}
        self.began_s: dict[int, float] = {}  # of the streams that pass
        # What the runtime's next acknowledgements of SETTINGS mean to us: that a refused stream is over, that the
        # client's HPACK table has so many bytes now, or nothing.
        self.acks: deque[Stream | int | None] = deque()
        self.runtime_settings: deque[list[tuple[int, int]]] = deque()  # those the client has not acknowledged yet
        self.last_stream = 0
        self.runtime_last = MAX_STREAM_ID  # that the runtime will look at
        self.blind = False
        self.raw = False  # not HTTP/2: bytes pass as they are
        self.going_away = GoingAway(self)
        self.ended: asyncio.Future[None] = loop.create_future()
        self._lost: set[Half] = set()
        self.client_window_bytes = DEFAULT_WINDOW_BYTES  # what the client may still send on the connection
        self.credit_bytes = 0  # … and what can be given back, too little for a frame of its own
        self.credit_stream_batch_bytes = CREDIT_BATCH_BYTES
        self._is_cut_off = False
        self._share = policy.budget.join(self)
        self.requests = RequestHalf(self)
        self.answers = AnswerHalf(self)

    # windows: what the outbox gives back to the client

    def credit_connection(self, size_bytes: int) -> None:
        self.credit_bytes += size_bytes
        if self.credit_bytes >= CREDIT_BATCH_BYTES:
            self.to_client(window_update(0, self.credit_bytes))
            self.client_window_bytes += self.credit_bytes
            self.credit_bytes = 0

    def credit_stream(self, stream: Stream, size_bytes: int) -> None:
        stream.owed_bytes += size_bytes
        if stream.owed_bytes >= self.credit_stream_batch_bytes:
            self.to_client(window_update(stream.id, stream.owed_bytes))
            stream.owed_bytes = 0

    def credit_passing(self, stream: int, size_bytes: int) -> None:
        if size_bytes:
            self.to_client(window_update(stream, size_bytes))

    # memory: what counts against the budget of all connections

    def account(self, stream: Stream, size_bytes: int) -> None:
        """So many bytes more of a request are kept.

        Where memory is short, a client is read no more while much of what it sent waits for the runtime's windows.
        """
        stream.held_bytes += size_bytes
        self.counters.held_bytes += size_bytes
        self._count_in(stream, size_bytes)

    def empty(self, stream: Stream) -> None:
        """Nothing of the request is kept any more."""
        self.account(stream, -stream.held_bytes)
        stream.replace(b"")

    def to_state(self, stream: Stream, state: State) -> None:
        """Count the stream as what it is from now on."""
        size_bytes = STREAM_BYTES + stream.held_bytes
        self._count_in(stream, -size_bytes)
        stream.state = state
        self._count_in(stream, size_bytes)

    def _count_in(self, stream: Stream, size_bytes: int) -> None:
        budget, state = self.policy.budget, stream.state
        if state is State.TAPPED:
            budget.copy(self._share, size_bytes)
        elif state is State.HOLDING or state is State.ASKING:
            budget.hold(self._share, size_bytes)
        else:
            budget.wait(self._share, size_bytes)
            short = budget.used_bytes > budget.limit_bytes and self._share.waiting_bytes > _MUCH_WAITING_BYTES
            self.requests.pause("waiting", short)

    def drop_copies(self) -> None:
        self.requests.held.taps.drop_all()

    def give_way(self) -> None:
        self.requests.held.give_way()

    def cut_off(self) -> None:
        if not self._is_cut_off:
            self._is_cut_off = True
            self.fail(FrameError(ENHANCE_YOUR_CALM, "too many bytes wait for the runtime"))
        self._end_all(UNAVAILABLE)

    # frames of our own

    def to_client(self, frames: bytes) -> None:
        self.answers.inject(frames)

    # streams

    def answered(self, stream_id: int, status: int) -> None:
        """The runtime has ended its answer, maybe before it had all of the request."""
        stream = self.streams.get(stream_id)
        if isinstance(stream, Stream) and stream.state in _KEPT_BACK and not stream.end_sent:
            self.requests.cut_short(stream)
        self.finish(stream_id, status)

    def add(self, stream: Stream) -> None:
        """A new stream that is tapped or held."""
        self.streams[stream.id] = stream
        self._count_in(stream, STREAM_BYTES)
        self.policy.worked()

    def pass_on(self, stream: Stream) -> None:
        """Nothing of a tapped stream is kept any more, it only passes."""
        self._uncount(stream)
        self.streams[stream.id] = stream.route
        self.began_s[stream.id] = stream.call.started

    def finish(self, stream_id: int, status: int) -> None:
        """The runtime has answered the stream for good, or either end has reset it."""
        stream = self.streams.pop(stream_id, None)
        if stream is None:
            return
        if isinstance(stream, Route):
            self._count(stream, self.began_s.pop(stream_id, None), status)
        else:
            self._count(stream.route, stream.call.started, status)
            self._finish_held(stream, status)
        if self.going_away.draining:
            self.going_away.close_if_done()

    def _count(self, route: Route, began_s: float | None, status: int) -> None:
        self.counters.calls[route.label, status] += 1
        if began_s is not None:
            route.latency.observe(time.monotonic() - began_s)
        self.policy.worked()

    def _finish_held(self, stream: Stream, status: int) -> None:
        self._leave(stream)
        if stream.state is State.REFUSING:
            return
        message = grpc_message(stream.answer) if stream.answer is not None and status == 0 else None
        self.loop.call_soon(self.policy.interceptor.answered, stream.call, status, message)  # behind the answer itself

    def forget(self, stream: Stream) -> None:
        """Nothing more of this stream goes to the runtime; its bytes leave the budget."""
        self.requests.outbox.forget(stream.id)
        stream.stop_asking()
        self.requests.held.forget(stream)
        self.empty(stream)

    def _leave(self, stream: Stream) -> None:
        if stream.state is not State.TAPPED:  # whose DATA passes, answered or not
            self.requests.outbox.forget(stream.id)
        stream.stop_asking()
        self._uncount(stream)

    def _uncount(self, stream: Stream) -> None:
        self.requests.held.forget(stream)
        self.empty(stream)
        self._count_in(stream, -STREAM_BYTES)

    def _end_all(self, status: int) -> None:
        for stream_id in list(self.streams):
            stream = self.streams.pop(stream_id)
            if isinstance(stream, Route):
                self._count(stream, self.began_s.pop(stream_id, None), status)
            else:
                self._count(stream.route, stream.call.started, status)
                self._leave(stream)

    # ends

    def fail(self, error: FrameError) -> None:
        """A peer sent what no peer may: tell the client, if it is known to speak HTTP/2, and close both."""
        log.warning("connection closed: %s", error)
        self.counters.blind["bad frame"] += 1
        if self.requests.started:
            self.requests.write(goaway(self.last_stream, error.code, str(error).encode()))
        self.close()

    def go_raw(self) -> None:
        """The client does not speak HTTP/2: bytes pass as they are, both ways."""
        if not self.raw:
            self.raw = self.answers.unusual = True
            self.answers.flush()

    def go_blind(self, where: str, error: Exception) -> None:
        """Header blocks cannot be followed any more: nothing is intercepted from here on, and the client leaves."""
        if self.blind:
            return
        self.blind = True
        self.counters.blind[where] += 1
        log.warning("connection is drained, its %s no longer decode: %s", where, error)
        self.going_away.cut_off()

    def drain(self) -> None:
        """Ask the client to open its next streams elsewhere, and close when the last stream has ended."""
        self.going_away.drain()

    def paired(self) -> None:
        """Both transports are there."""
        self.going_away.expect_preface()

    def congested(self, half: Half, full: bool) -> None:
        """``half``'s peer does not read fast enough: read no more of what makes us write to it.

        Answers make us write to the client, and so do its own frames (credit, answers to what it sends), so neither
        end is read while the client does not read. Only the client's frames make us write to the runtime: what is
        held stays here meanwhile (`RequestHalf.pump`). This cannot become a deadlock, as each wait ends when one end
        reads its own socket, for which it needs nothing of us: an HTTP/2 end that reads only once its writes are
        through stands still before any peer that credits late.
        """
        self.requests.pause("client" if half is self.requests else "runtime", full)
        if half is self.requests:
            self.answers.pause("client", full)
        else:
            self.requests.is_congested = full
            self.requests.pump()

    def outbox_full(self, full: bool) -> None:
        self.requests.pause("outbox", full)

    def close(self) -> None:
        self.requests.close()
        self.answers.close()

    def abandon(self) -> None:
        """The pair never came to be: close what there is of it."""
        self.close()
        if self.answers.transport is None and not self.ended.done():
            self._end()

    def lost(self, half: Half) -> None:
        self._lost.add(half)
        self.close()
        self._end_all(CANCELLED if half is self.requests else UNAVAILABLE)  # by the client, or by the runtime
        expected = {each for each in (self.requests, self.answers) if each.transport is not None}
        if expected <= self._lost and not self.ended.done():
            self._end()

    def _end(self) -> None:
        self.policy.budget.leave(self._share)
        self.ended.set_result(None)
