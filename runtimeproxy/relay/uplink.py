"""Sends to the runtime: empties the outbox, keeps frames behind their stream's HEADERS, and resets streams.

Invariants: nothing goes out while the runtime does not read; the runtime gets nothing more of a stream that was reset
towards it, and the client gets its window for the rest back where it needs it.
"""

from __future__ import annotations

from collections.abc import Callable

from koord.http2.frames import CANCEL, rst_stream
from runtimeproxy.relay.accounts import Accounts
from runtimeproxy.relay.outbox import Outbox
from runtimeproxy.relay.pair import ConnectionPair
from runtimeproxy.relay.stream import Stream

_MAX_RESET = 1024


class Uplink:
    """Sends for one pair. ``is_congested``: the runtime does not read what goes to it."""

    def __init__(self, pair: ConnectionPair, accounts: Accounts) -> None:
        self._pair = pair
        self._accounts = accounts
        self.outbox = Outbox(accounts)
        self.is_congested = False
        self._pumping = False

    def pump(self) -> None:
        """Sends as much as the runtime's windows allow; nothing while the runtime does not read."""
        self._pumping = False
        if self.is_congested:
            return
        out = self.outbox.pump()
        if out:
            self._pair.to_runtime.inject(b"".join(out))

    def pump_soon(self) -> None:
        """Pumps once for all the credit that one read brought: many small credits must not make many small frames."""
        if not self._pumping and self.outbox.waiting:
            self._pumping = True
            self._pair.loop.call_soon(self.pump)

    def congested(self, full: bool) -> None:
        self.is_congested = full
        self.pump()

    def send_behind_headers(self, stream: int, frames: bytes, on_sent: Callable[[], None] | None = None) -> None:
        """Sends frames that concern a stream, once the runtime has its HEADERS; calls ``on_sent`` as they go out."""
        if self.outbox.waits(stream):
            self.outbox.queue_frame(stream, frames, on_sent)
        else:
            if on_sent is not None:
                on_sent()
            self._pair.to_runtime.inject(frames)

    # streams that are over for the runtime, and not yet for the client

    def cut_short(self, stream: Stream) -> None:
        """Ends a held request that the runtime has answered before it had all of it: only a reset follows."""
        self.drop_rest(stream.id, not stream.client_ended)
        if stream.owed_bytes:
            self._pair.loop.call_soon(self._credit_rest, stream.id, stream.owed_bytes)
        self.send_behind_headers(stream.id, rst_stream(stream.id, CANCEL))

    def _credit_rest(self, stream: int, size_bytes: int) -> None:
        """Lets the client send on, unless the runtime's own reset came right behind its answer."""
        if self._pair.reset.get(stream):
            self._accounts.credit_passing(stream, size_bytes)

    def drop_rest(self, stream: int, credits_client: bool) -> None:
        """Drops what the client still sends on the stream, and gives its window back or not.

        Nothing but header blocks, for the runtime's table, may follow a reset, of either side.
        """
        reset = self._pair.reset
        reset[stream] = credits_client
        if len(reset) > _MAX_RESET:
            del reset[next(iter(reset))]
