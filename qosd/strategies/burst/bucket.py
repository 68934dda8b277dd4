"""Limits how long a container bursts: by a bucket of tokens that bursting takes and resting gives back.

A token is one percent of the container's quota for a nanosecond. With a usage of u percent of it:

    u >= 100        takes u - 100 for each nanosecond
    60 <= u < 100   changes nothing
    u < 60          gives 100 - u for each nanosecond

The bucket holds at most ``period * (burst percent - 100)`` and owes at most as much; while it has any, the container
may burst. Upstream fills a new one to a random part of one half; here that part follows from the container's id, so
that the same snapshot always decides the same, and containers that start together do not end their bursts together.
Invariant: whole numbers, so that a time in two parts comes to exactly what it comes to as one.
"""

from __future__ import annotations

import zlib

import msgspec

PERCENT_NS_PER_PERCENT_S = 1_000_000_000
_SPENDS_FROM, _GAINS_BELOW = 100, 60
_HALVES = 33
"""A 32-bit hash over 2^33 is a part of one half."""


class Bucket(msgspec.Struct, frozen=True):
    """``period_s`` and ``burst_percent``: its settings; ``tokens_percent_ns``: its tokens, negative while it owes."""

    period_s: int
    burst_percent: int
    tokens_percent_ns: int

    @classmethod
    def of(cls, container_id: str, period_s: int, burst_percent: int) -> Bucket:
        """Returns a new bucket."""
        part = zlib.crc32(container_id.encode())
        return cls(period_s, burst_percent, capacity_percent_ns(period_s, burst_percent) * part >> _HALVES)

    @property
    def capacity_percent_ns(self) -> int:
        return capacity_percent_ns(self.period_s, self.burst_percent)

    @property
    def tokens_percent_s(self) -> float:
        """The tokens in percent times seconds, as people are shown them."""
        return self.tokens_percent_ns / PERCENT_NS_PER_PERCENT_S

    @property
    def allows(self) -> bool:
        """May the container burst?"""
        return self.tokens_percent_ns > 0

    def is_made_by(self, period_s: int, burst_percent: int) -> bool:
        return (self.period_s, self.burst_percent) == (period_s, burst_percent)

    def after(self, usage_percent: int, elapsed_ns: int) -> Bucket:
        """Returns the bucket after ``elapsed_ns`` in which the container used ``usage_percent`` of its quota."""
        tokens = self.tokens_percent_ns - _taken_percent(usage_percent) * elapsed_ns
        capacity = self.capacity_percent_ns
        tokens = max(-capacity, min(capacity, tokens))
        return self if tokens == self.tokens_percent_ns else Bucket(self.period_s, self.burst_percent, tokens)


def capacity_percent_ns(period_s: int, burst_percent: int) -> int:
    return period_s * (burst_percent - 100) * PERCENT_NS_PER_PERCENT_S


def _taken_percent(usage_percent: int) -> int:
    """Returns the tokens that are taken for each nanosecond; negative if they are given."""
    if usage_percent >= _SPENDS_FROM:
        return usage_percent - 100
    return usage_percent - 100 if usage_percent < _GAINS_BELOW else 0
