"""Refuses held streams.

The client must not lose a header block that the runtime has sent, or their HPACK tables differ from then on. So the
stream is reset towards the runtime and an empty SETTINGS follows as a barrier. What the runtime answered before it
acknowledges the barrier goes to the client (its answer wins); after that nothing can come, and the client gets our
status in literals that touch no table (behind a table size update, where one is due).
"""

from __future__ import annotations

from koord.http2.frames import CANCEL, END_HEADERS, END_STREAM, HEADERS, NO_ERROR, frame, rst_stream, settings
from koord.http2.grpc import ANSWER_HEAD, status_fields
from runtimeproxy.intercept import Refuse
from runtimeproxy.relay.accounts import Accounts
from runtimeproxy.relay.pair import ConnectionPair
from runtimeproxy.relay.stream import Stream, StreamState
from runtimeproxy.relay.streams import Streams
from runtimeproxy.relay.uplink import Uplink


class Refusals:
    def __init__(self, pair: ConnectionPair, accounts: Accounts, uplink: Uplink, streams: Streams) -> None:
        self._pair = pair
        self._accounts = accounts
        self._uplink = uplink
        self._streams = streams

    def refuse(self, stream: Stream, verdict: Refuse) -> None:
        acks = self._pair.acks
        self._pair.metrics.refused += 1
        self._streams.forget(stream)
        self._accounts.to_state(stream, StreamState.REFUSING)
        stream.verdict = (verdict.code, verdict.message)
        self._uplink.drop_rest(stream.id, not stream.client_ended)
        barrier = rst_stream(stream.id, CANCEL) + settings()
        self._uplink.send_behind_headers(stream.id, barrier, lambda: acks.append(stream))

    def barrier(self, stream: Stream) -> None:
        """Answers a refused stream: the runtime acknowledged the SETTINGS behind our reset, nothing more can come."""
        if self._pair.streams.get(stream.id) is not stream or stream.verdict is None:
            return
        code, message = stream.verdict
        status = status_fields(code, message)
        block = self._size_update() + (status if stream.answered else ANSWER_HEAD + status)
        answer = frame(HEADERS, END_HEADERS | END_STREAM, stream.id, block)
        if not stream.client_ended:
            answer += rst_stream(stream.id, NO_ERROR)
        self._uplink.drop_rest(stream.id, False)
        self._pair.to_client.inject(answer)
        self._streams.finish(stream.id, code)

    def _size_update(self) -> bytes:
        """Returns the begin of a header block of ours; empty on a blind connection, where it is not known."""
        return b"" if self._pair.blind else self._pair.to_client.decoder.size_update()
