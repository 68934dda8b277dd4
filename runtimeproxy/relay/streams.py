"""Begins and ends the streams of a pair, and counts them.

Invariant: a stream that is over is forgotten everywhere at once: by the outbox, by the parts that hold or copy it, and
by the budget; it is counted once, by its status.
"""

from __future__ import annotations

import time

from koord.http2.grpc import grpc_message
from runtimeproxy.relay.accounts import Accounts
from runtimeproxy.relay.goaway import GoingAway
from runtimeproxy.relay.outbox import Outbox
from runtimeproxy.relay.pair import ConnectionPair
from runtimeproxy.relay.rewrites import Rewrites
from runtimeproxy.relay.stream import Route, Stream, StreamState


class Streams:
    def __init__(
        self, pair: ConnectionPair, accounts: Accounts, outbox: Outbox, going_away: GoingAway, rewrites: Rewrites
    ) -> None:
        self._pair = pair
        self._accounts = accounts
        self._outbox = outbox
        self._going_away = going_away
        self._rewrites = rewrites

    def add(self, stream: Stream) -> None:
        """Adds a new stream that is tapped or held."""
        self._pair.streams[stream.id] = stream
        self._accounts.open(stream)
        self._pair.policy.worked()

    def pass_on(self, stream: Stream) -> None:
        """Keeps nothing of a tapped stream any more: it only passes."""
        self._uncount(stream)
        self._pair.streams[stream.id] = stream.route
        self._pair.began_s[stream.id] = stream.call.started

    def finish(self, stream_id: int, status: int) -> None:
        """Finishes a stream that the runtime has answered for good, or that either end has reset."""
        stream = self._pair.streams.pop(stream_id, None)
        if stream is None:
            return
        if isinstance(stream, Route):
            self._count(stream, self._pair.began_s.pop(stream_id, None), status)
            self._rewrites.close(stream_id)
        else:
            self._count(stream.route, stream.call.started, status)
            self._leave(stream)
            self._report_answer(stream, status)
        if self._going_away.draining:
            self._going_away.close_if_done()

    def finish_all(self, status: int) -> None:
        """Finishes all streams: the connection is over."""
        pair = self._pair
        for stream_id in list(pair.streams):
            stream = pair.streams.pop(stream_id)
            if isinstance(stream, Route):
                self._count(stream, pair.began_s.pop(stream_id, None), status)
                self._rewrites.end(stream_id)
            else:
                self._count(stream.route, stream.call.started, status)
                self._leave(stream)

    def forget(self, stream: Stream) -> None:
        """Sends nothing more of this stream to the runtime; its bytes leave the budget."""
        self._outbox.forget(stream.id)
        stream.stop_asking()
        self._unlist(stream)
        self._accounts.empty(stream)

    def _count(self, route: Route, began_s: float | None, status: int) -> None:
        self._pair.metrics.calls[route.label, status] += 1
        if began_s is not None:
            route.latency.observe(time.monotonic() - began_s)
        self._pair.policy.worked()

    def _report_answer(self, stream: Stream, status: int) -> None:
        if stream.state is StreamState.REFUSING:
            return
        pair = self._pair
        message = grpc_message(stream.answer) if stream.answer is not None and status == 0 else None
        pair.loop.call_soon(pair.policy.interceptor.answered, stream.call, status, message)  # behind the answer itself

    def _leave(self, stream: Stream) -> None:
        if stream.state is not StreamState.TAPPED:  # whose DATA passes, answered or not
            self._outbox.forget(stream.id)
        stream.stop_asking()
        self._uncount(stream)

    def _uncount(self, stream: Stream) -> None:
        self._unlist(stream)
        self._accounts.close(stream)

    def _unlist(self, stream: Stream) -> None:
        self._pair.held.pop(stream.id, None)
        self._pair.tapped.pop(stream.id, None)
