"""One client connection and the runtime connection that belongs to it: the state that all parts of the relay share.

Stream ids, SETTINGS, PING and stream windows belong to the client and the runtime: the relay terminates only the
connection window towards the runtime and the stream windows of held streams. The pair holds state only: it calls none
of the parts that change it.

Invariant: when either end goes, both go.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from koord.http2.frames import DEFAULT_WINDOW_BYTES, MAX_STREAM_ID, FrameError, goaway
from runtimeproxy.relay.budget import Share
from runtimeproxy.relay.direction import ToClient, ToRuntime
from runtimeproxy.relay.peerwriter import PeerWriter
from runtimeproxy.relay.policy import CREDIT_BATCH_BYTES, RelayPolicy
from runtimeproxy.relay.stream import Route, Stream

log = logging.getLogger("koord.relay")


class ConnectionPair:
    """Holds two connections and their state. ``share``: of the budget; ``ended`` is done once both are gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, policy: RelayPolicy, share: Share) -> None:
        self.loop = loop
        self.policy = policy
        self.metrics = policy.metrics
        self.share = share
        self.client, self.runtime = PeerWriter(loop, policy.hangups), PeerWriter(loop, policy.hangups)
        self.to_client = ToClient(self.client, policy.metrics)
        self.to_runtime = ToRuntime(self.runtime, policy.metrics)
        self.ended: asyncio.Future[None] = loop.create_future()
        self.started = False  # the client's preface has been seen
        self.blind = False  # header blocks cannot be followed any more
        self.raw = False  # not HTTP/2: bytes pass as they are
        # streams
        self.streams: dict[int, Route | Stream] = {}
        self.began_s: dict[int, float] = {}  # of the streams that pass
        self.held: dict[int, Stream] = {}  # HOLDING or ASKING, in the order in which they were opened
        self.tapped: dict[int, Stream] = {}
        self.reset: dict[int, bool] = {}  # streams that we or the runtime have reset → is the client given credit?
        self.last_stream = 0
        self.runtime_last = MAX_STREAM_ID  # the last one that the runtime will process
        # What the runtime's next acknowledgements of SETTINGS mean to us: that a refused stream is over, that the
        # client's HPACK table has so many bytes now, or nothing.
        self.acks: deque[Stream | int | None] = deque()
        self.unacknowledged = 0  # the client's SETTINGS
        self.runtime_settings: deque[list[tuple[int, int]]] = deque()  # those the client has not acknowledged yet
        # windows
        self.client_window_bytes = DEFAULT_WINDOW_BYTES  # what the client may still send on the connection
        self.credit_bytes = 0  # what we owe it on the connection: still too little for a frame of its own
        self.credit_stream_batch_bytes = CREDIT_BATCH_BYTES

    def fail(self, error: FrameError) -> None:
        """Closes both after a frame that no peer may send; tells the client, if it is known to speak HTTP/2."""
        log.warning("connection closed: %s", error)
        self.metrics.blind_connections["bad frame"] += 1
        if self.started:
            self.client.write(goaway(self.last_stream, error.code, str(error).encode()))
        self.close()

    def close(self) -> None:
        self.client.close()
        self.runtime.close()
