"""Refusing a held stream.

The client must not lose a header block that the runtime has sent, or their HPACK tables part. So the stream is reset
towards the runtime and an empty SETTINGS follows as a barrier. What the runtime answered before it acknowledges the
barrier goes to the client (its answer wins); after that nothing can come, and the client gets our status in literals
that touch no table (behind a table size update, where one is due).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from koord.http2.frames import CANCEL, END_HEADERS, END_STREAM, HEADERS, NO_ERROR, frame, rst_stream, settings
from koord.http2.grpc import ANSWER_HEAD, status_fields
from runtimeproxy.intercept import Refuse
from runtimeproxy.relay.stream import State, Stream

if TYPE_CHECKING:
    from runtimeproxy.relay.connection import Connection


class Refusals:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def refuse(self, stream: Stream, verdict: Refuse) -> None:
        connection = self._connection
        connection.counters.refused += 1
        connection.forget(stream)
        connection.to_state(stream, State.REFUSING)
        stream.verdict = (verdict.code, verdict.message)
        connection.requests.drop_rest(stream.id, not stream.client_ended)
        barrier = rst_stream(stream.id, CANCEL) + settings()
        connection.requests.send_behind_headers(stream.id, barrier, lambda: connection.acks.append(stream))

    def barrier(self, stream: Stream) -> None:
        """The runtime has acknowledged the SETTINGS behind our reset: nothing of the stream can come any more."""
        connection = self._connection
        if connection.streams.get(stream.id) is not stream or stream.verdict is None:
            return
        code, message = stream.verdict
        status = status_fields(code, message)
        block = connection.answers.size_update() + (status if stream.answered else ANSWER_HEAD + status)
        answer = frame(HEADERS, END_HEADERS | END_STREAM, stream.id, block)
        if not stream.client_ended:
            answer += rst_stream(stream.id, NO_ERROR)
        connection.requests.drop_rest(stream.id, False)
        connection.to_client(answer)
        connection.finish(stream.id, code)
