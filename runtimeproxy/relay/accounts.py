"""Keeps account of the credit that we owe the client for its windows, and of the memory of its requests.

Invariant: the client gets credit once for every byte that it sends, in frames of a useful size; every byte that is kept
counts against the budget of all connections (`Budget`), under the state of its stream at that moment.
"""

from __future__ import annotations

from koord.http2.frames import window_update
from runtimeproxy.relay.budget import ASKING_BYTES, STREAM_BYTES
from runtimeproxy.relay.pair import ConnectionPair
from runtimeproxy.relay.policy import CREDIT_BATCH_BYTES
from runtimeproxy.relay.stream import Stream, StreamState

_MUCH_WAITING_BYTES = 1 << 20


class Accounts:
    """Keeps the accounts of one pair."""

    def __init__(self, pair: ConnectionPair) -> None:
        self._pair = pair
        self._budget = pair.policy.budget

    # windows

    def credit_connection(self, size_bytes: int) -> None:
        """Lets the client send so many bytes more on the connection."""
        pair = self._pair
        pair.credit_bytes += size_bytes
        if pair.credit_bytes >= CREDIT_BATCH_BYTES:
            pair.to_client.inject(window_update(0, pair.credit_bytes))
            pair.client_window_bytes += pair.credit_bytes
            pair.credit_bytes = 0

    def credit_stream(self, stream: Stream, size_bytes: int) -> None:
        """Lets the client send so many bytes more on this stream, whose window is ours."""
        stream.owed_bytes += size_bytes
        if stream.owed_bytes >= self._pair.credit_stream_batch_bytes:
            self._pair.to_client.inject(window_update(stream.id, stream.owed_bytes))
            stream.owed_bytes = 0

    def credit_passing(self, stream: int, size_bytes: int) -> None:
        """Lets the client send so many bytes more on this stream, whose window is the runtime's."""
        if size_bytes:
            self._pair.to_client.inject(window_update(stream, size_bytes))

    def outbox_full(self, full: bool) -> None:
        """Stops reading the client while more waits than one that keeps to its windows could have sent."""
        self._pair.client.pause("outbox", full)

    # memory

    def open(self, stream: Stream) -> None:
        """Notes that the stream is remembered."""
        self._count(stream, _overhead_bytes(stream.state))

    def close(self, stream: Stream) -> None:
        """Notes that neither the stream nor anything of its request is remembered any more."""
        self.empty(stream)
        self._count(stream, -_overhead_bytes(stream.state))

    def account(self, stream: Stream, size_bytes: int) -> None:
        """Notes that so many bytes more of a request are kept.

        While memory is short, the relay does not read a client with much data that waits for the runtime's windows.
        """
        stream.held_bytes += size_bytes
        self._pair.metrics.held_bytes += size_bytes
        self._count(stream, size_bytes)

    def empty(self, stream: Stream) -> None:
        """Notes that nothing of the request is kept any more."""
        self.account(stream, -stream.held_bytes)
        stream.replace(b"")

    def to_state(self, stream: Stream, state: StreamState) -> None:
        """Counts the stream under its new state from now on."""
        self._count(stream, -_overhead_bytes(stream.state) - stream.held_bytes)
        stream.state = state
        self._count(stream, _overhead_bytes(state) + stream.held_bytes)

    def _count(self, stream: Stream, size_bytes: int) -> None:
        budget, share, state = self._budget, self._pair.share, stream.state
        if state is StreamState.TAPPED:
            budget.copy(share, size_bytes)
        elif state is StreamState.HOLDING or state is StreamState.ASKING:
            budget.hold(share, size_bytes)
        else:
            budget.wait(share, size_bytes)
            short = budget.used_bytes > budget.limit_bytes and share.waiting_bytes > _MUCH_WAITING_BYTES
            self._pair.client.pause("waiting", short)


def _overhead_bytes(state: StreamState) -> int:
    return ASKING_BYTES if state is StreamState.ASKING else STREAM_BYTES
