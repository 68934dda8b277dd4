"""Copies requests that pass, for the cache of pods and containers.

Invariant: a copy delays and changes nothing, and takes no memory that a held request needs: where that is short, or the
request is over 16 MiB, its stream becomes one that only passes, and the cache reads the object from the runtime when it
needs it.
"""

from __future__ import annotations

from koord.http2.grpc import MAX_MESSAGE_BYTES, PREFIX_BYTES, grpc_message
from runtimeproxy.relay.accounts import Accounts
from runtimeproxy.relay.pair import ConnectionPair
from runtimeproxy.relay.stream import Stream
from runtimeproxy.relay.streams import Streams


class Taps:
    """Copies the tapped streams of one pair."""

    def __init__(self, pair: ConnectionPair, accounts: Accounts, streams: Streams) -> None:
        self._pair = pair
        self._accounts = accounts
        self._streams = streams
        self._budget = pair.policy.budget

    def take(self, stream: Stream, payload: bytes, ended: bool) -> None:
        """Copies DATA of a tapped stream, which has passed."""
        pair, budget = self._pair, self._budget
        stream.put(payload)
        self._accounts.account(stream, len(payload))
        if stream.held_bytes > PREFIX_BYTES + MAX_MESSAGE_BYTES:
            self._drop(stream, "over 16 MiB")
        elif budget.is_exceeded:
            budget.relieve()
        if ended and stream.id in pair.tapped:
            message = grpc_message(stream.data)
            self._accounts.empty(stream)
            if message is not None:
                pair.loop.call_soon(pair.policy.interceptor.tapped, stream.call, message)

    def drop_all(self) -> None:
        for stream in list(self._pair.tapped.values()):
            self._drop(stream, "held bytes over budget")

    def _drop(self, stream: Stream, reason: str) -> None:
        self._pair.metrics.not_copied[reason] += 1
        self._streams.pass_on(stream)
