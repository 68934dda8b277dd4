"""A monotonic clock that only tests advance."""

from __future__ import annotations

S = 1_000_000_000


class Clock:
    """At ``ns`` nanoseconds, which a call gives, as the node daemon's clocks do; ``now`` gives seconds."""

    def __init__(self, seconds: float = 100) -> None:
        self.ns = round(seconds * S)

    def __call__(self) -> int:
        return self.ns

    def now(self) -> float:
        return self.ns / S

    def advance(self, seconds: float) -> None:
        self.ns += round(seconds * S)
