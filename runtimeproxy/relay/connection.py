"""Joins one client connection and the runtime connection that belongs to it: their parts, their begin and their end.

Invariant: the runtime never receives a held request before its verdict, and a client that was refused never waits
for the runtime. When a header block does not decode the connection is *blind*: nothing is intercepted on it any
more and it is drained. When either side goes, both go.
"""

from __future__ import annotations

import asyncio

from koord.http2.frames import ENHANCE_YOUR_CALM, FrameError
from koord.http2.grpc import CANCELLED, UNAVAILABLE
from runtimeproxy.relay.accounts import Accounts
from runtimeproxy.relay.answers import AnswerRelay
from runtimeproxy.relay.goaway import GoingAway
from runtimeproxy.relay.held import HeldStreams
from runtimeproxy.relay.pair import ConnectionPair
from runtimeproxy.relay.peerwriter import PeerWriter
from runtimeproxy.relay.policy import RelayPolicy
from runtimeproxy.relay.refusals import Refusals
from runtimeproxy.relay.requests import RequestRelay
from runtimeproxy.relay.rewrites import Rewrites
from runtimeproxy.relay.streams import Streams
from runtimeproxy.relay.taps import Taps
from runtimeproxy.relay.uplink import Uplink


class RelayedConnection:
    """Relays one pair: ``requests`` reads the client, ``answers`` the runtime."""

    def __init__(self, loop: asyncio.AbstractEventLoop, policy: RelayPolicy) -> None:
        self.pair = pair = ConnectionPair(loop, policy, policy.budget.join(self))
        accounts = Accounts(pair)
        self.uplink = uplink = Uplink(pair, accounts)
        self.going_away = GoingAway(pair)
        self.rewrites = rewrites = Rewrites(pair)
        self._streams = streams = Streams(pair, accounts, uplink.outbox, self.going_away, rewrites)
        self._taps = Taps(pair, accounts, streams)
        refusals = Refusals(pair, accounts, uplink, streams)
        self.held = HeldStreams(pair, accounts, uplink, streams, refusals)
        self.answers = AnswerRelay(pair, uplink, self.going_away, streams, refusals, rewrites, self._lost)
        self.requests = RequestRelay(
            pair,
            accounts,
            uplink,
            self.going_away,
            streams,
            self._taps,
            self.held,
            rewrites,
            on_raw=self.answers.go_raw,
            on_lost=self._lost,
        )
        self._is_cut_off = False

    # memory: how the connection gives way (`Holder`)

    def drop_copies(self) -> None:
        self._taps.drop_all()
        self.rewrites.give_up_all()

    def give_way(self) -> None:
        self.held.give_way()

    def cut_off(self) -> None:
        if not self._is_cut_off:
            self._is_cut_off = True
            self.pair.fail(FrameError(ENHANCE_YOUR_CALM, "too many bytes wait for the runtime"))
        self._streams.finish_all(UNAVAILABLE)

    # begin and end

    def abandon(self) -> None:
        """Closes the connections of a pair that could not be completed."""
        self.pair.close()
        if self.pair.runtime.transport is None and not self.pair.ended.done():
            self._end()

    def _lost(self, peer: PeerWriter) -> None:
        pair = self.pair
        pair.close()
        self._streams.finish_all(CANCELLED if peer is pair.client else UNAVAILABLE)  # by the client, or by the runtime
        there = [each for each in (pair.client, pair.runtime) if each.transport is not None]
        if all(each.is_lost for each in there) and not pair.ended.done():
            self._end()

    def _end(self) -> None:
        self.pair.policy.budget.leave(self.pair.share)
        self.pair.ended.set_result(None)
