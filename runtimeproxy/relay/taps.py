"""Copies of requests that pass, for whoever remembers pods and containers.

Invariant: a copy delays and changes nothing, and takes no memory that a held request needs: where that is short, or
the request is over 16 MiB, its stream becomes one that only passes, and what is remembered is read from the runtime
when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from koord.http2.grpc import MAX_MESSAGE_BYTES, PREFIX_BYTES, grpc_message
from runtimeproxy.relay.stream import Stream

if TYPE_CHECKING:
    from runtimeproxy.relay.connection import Connection


class Taps:
    """The tapped streams of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._streams: dict[int, Stream] = {}

    def open(self, stream: Stream) -> None:
        self._streams[stream.id] = stream

    def forget(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)

    def take(self, stream: Stream, payload: bytes, ended: bool) -> None:
        """DATA of a tapped stream has passed."""
        connection = self._connection
        stream.put(payload)
        connection.account(stream, len(payload))
        if stream.held_bytes > PREFIX_BYTES + MAX_MESSAGE_BYTES:
            self._drop(stream, "over 16 MiB")
        elif connection.policy.budget.is_exceeded:
            connection.policy.budget.relieve()
        if ended and stream.id in self._streams:
            message = grpc_message(stream.data)
            connection.empty(stream)
            if message is not None:
                connection.loop.call_soon(connection.policy.interceptor.tapped, stream.call, message)

    def drop_all(self) -> None:
        for stream in list(self._streams.values()):
            self._drop(stream, "held bytes over budget")

    def _drop(self, stream: Stream, reason: str) -> None:
        self._connection.counters.not_copied[reason] += 1
        self._connection.pass_on(stream)
