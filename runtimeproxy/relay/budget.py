"""Bounds the memory that the requests of all connections take together, and chooses which give way.

Every connection has a share of the memory: the requests that it holds (and its own cost while it holds any), the
released requests that wait for the runtime's windows, and copies of requests that pass (on which no pod depends). When
more is held and copied than the limit, first the connection that copies most loses its copies, and then the one that
holds most gives up the request that it opened last, again and again until the rest fits. So a connection that holds
less than another never pays for it.

Invariants: no connection gives way while each of n connections holds, with what it costs, at most 1/n of the limit, and
no copy ever makes one give way. A request that was given up goes on as the runtime takes it; if the bytes that wait
bring the sum to OVERDRAFT_BYTES above the limit, the connection with the largest share is closed. A client cannot get
there by sending alone: the relay stops reading it before (`Accounts.account`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

OVERDRAFT_BYTES = 16 << 20  # the largest request: one may always go on unedited, whatever the runtime's windows
STREAM_BYTES = 1024  # what is remembered of a tapped or held stream beside its request
ASKING_BYTES = 12 << 10  # … and while hook servers are asked about it; 9 KiB were measured
CONNECTION_BYTES = 26 << 10  # what a connection costs, measured; it counts while the connection holds anything


class Holder(Protocol):
    """A connection, as the budget sees it."""

    def drop_copies(self) -> None:
        """Drops all copies of what passes; they leave the share."""

    def give_way(self) -> None:
        """Holds one request less."""

    def cut_off(self) -> None:
        """Ends the connection; everything leaves the share at once."""


@dataclass(slots=True, eq=False)
class Share:
    """One connection's part of the memory in use."""

    holder: Holder
    held_bytes: int = 0
    waiting_bytes: int = 0
    copied_bytes: int = 0

    @property
    def holding_bytes(self) -> int:
        return self.held_bytes + CONNECTION_BYTES if self.held_bytes else 0

    @property
    def used_bytes(self) -> int:
        return self.holding_bytes + self.waiting_bytes + self.copied_bytes


class Budget:
    """Bounds memory: ``held_bytes`` (copies included) by ``limit_bytes``, ``used_bytes`` by OVERDRAFT_BYTES more."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = self.used_bytes = 0
        self._shares: set[Share] = set()
        self._relieving = False

    def join(self, holder: Holder) -> Share:
        share = Share(holder)
        self._shares.add(share)
        return share

    def leave(self, share: Share) -> None:
        """Releases all that a connection used: it is gone."""
        self._shares.discard(share)
        self.held_bytes -= share.holding_bytes + share.copied_bytes
        self.used_bytes -= share.used_bytes

    def hold(self, share: Share, size_bytes: int) -> None:
        before = share.holding_bytes
        share.held_bytes += size_bytes
        grown = share.holding_bytes - before
        self.held_bytes += grown
        self.used_bytes += grown

    def wait(self, share: Share, size_bytes: int) -> None:
        share.waiting_bytes += size_bytes
        self.used_bytes += size_bytes

    def copy(self, share: Share, size_bytes: int) -> None:
        share.copied_bytes += size_bytes
        self.held_bytes += size_bytes
        self.used_bytes += size_bytes

    @property
    def is_exceeded(self) -> bool:
        return self.held_bytes > self.limit_bytes or self.used_bytes > self.limit_bytes + OVERDRAFT_BYTES

    def relieve(self) -> None:
        """Brings the bytes in use back to the limits."""
        if self._relieving:  # giving way sends, and what is sent is accounted for
            return
        self._relieving = True
        try:
            while self.is_exceeded:
                self._relieve_once()
        finally:
            self._relieving = False

    def _relieve_once(self) -> None:
        copier = max(self._shares, key=lambda share: share.copied_bytes)
        if copier.copied_bytes:
            copier.holder.drop_copies()
        elif self.held_bytes > self.limit_bytes:
            max(self._shares, key=lambda share: share.held_bytes).holder.give_way()
        else:
            max(self._shares, key=lambda share: share.used_bytes).holder.cut_off()
