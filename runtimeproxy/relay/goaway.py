"""Asks a client to leave: RFC 9113 §6.8's graceful shutdown, and its abrupt form when headers do not decode.

A GOAWAY that allows every stream goes out with a PING; once the client has answered it, or after a second, a GOAWAY
names the last stream that was taken, and the connection is closed when that and those before it have ended.

Invariant: GOAWAY and PING go to a client that speaks HTTP/2 only, behind its preface and behind the runtime's first
frames (which must be SETTINGS). So a connection that has not begun is served first; one that stays silent for a
second is closed; one that speaks something else is left alone until the drain has waited long enough.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from koord.http2.frames import MAX_STREAM_ID, NO_ERROR, PING, frame, goaway
from runtimeproxy.relay.pair import ConnectionPair

log = logging.getLogger("koord.relay")

WAIT_S = 1.0  # for the answer to our PING, or for the first bytes of a client that has said nothing yet
_PING = b"koordDrn"


class GoingAway:
    """Asks one client to leave. ``last_allowed``: streams above it are dropped, the client repeats them elsewhere.

    ``on_ping`` is called as our PING goes out: its acknowledgement is not for the runtime.
    """

    def __init__(self, pair: ConnectionPair) -> None:
        self._pair = pair
        self.draining = False
        self.last_allowed = MAX_STREAM_ID
        self.on_ping: Callable[[], None]
        self._announced = self._final = False
        pair.to_client.on_settled = self.proceed

    def drain(self) -> None:
        """Asks the client to open its next streams elsewhere, and closes when the last stream has ended."""
        if not self.draining:
            self.draining = True
            self.proceed()
            self.expect_preface()

    def go_blind(self, block: str, error: Exception) -> None:
        """Intercepts nothing and takes no stream from now on: header blocks cannot be followed any more."""
        pair = self._pair
        if pair.blind:
            return
        pair.blind = True
        pair.metrics.blind_connections[block] += 1
        log.warning("connection is drained, its %s no longer decode: %s", block, error)
        self.draining = True
        self._allow_no_more()

    def proceed(self) -> None:
        """Goes on if both ends have begun; called again when one of them does."""
        pair = self._pair
        if not self.draining or not (pair.started and pair.to_client.settled):
            return
        if self.last_allowed != MAX_STREAM_ID:
            self._send_last_goaway()
        elif not self._announced:
            self._announced = True
            self.on_ping()
            pair.to_client.inject(self._goaway(MAX_STREAM_ID) + frame(PING, 0, 0, _PING))
            pair.loop.call_later(WAIT_S, self._allow_no_more)

    def expect_preface(self) -> None:
        """Waits for a client that sends nothing: it has no call to lose, but there may be one on its way."""
        pair = self._pair
        if self.draining and pair.client.transport is not None and not pair.started:
            pair.loop.call_later(WAIT_S, self._close_if_silent)

    def is_ping_answer(self, payload: bytes) -> bool:
        """Returns whether this PING acknowledgement answers ours: then every stream opened before GOAWAY is known."""
        if not self._announced or payload != _PING:
            return False
        self._allow_no_more()
        return True

    def close_if_done(self) -> None:
        """Closes once the last stream has ended, behind the frame that ended it."""
        if self._final and not self._pair.streams:
            self._pair.loop.call_soon(self._close_if_still_done)

    def _allow_no_more(self) -> None:
        if self.last_allowed == MAX_STREAM_ID:
            self.last_allowed = self._pair.last_stream
            self.proceed()

    def _send_last_goaway(self) -> None:
        if not self._final:
            self._final = True
            self._pair.to_client.inject(self._goaway(self.last_allowed))
            self.close_if_done()

    def _goaway(self, last_stream: int) -> bytes:
        """Returns GOAWAY for no more streams than the runtime's own: a later one allows no more (RFC 9113 §6.8)."""
        return goaway(min(last_stream, self._pair.runtime_last), NO_ERROR)

    def _close_if_still_done(self) -> None:
        if not self._pair.streams:
            self._pair.close()

    def _close_if_silent(self) -> None:
        if not self._pair.started and not self._pair.raw:
            self._pair.close()
