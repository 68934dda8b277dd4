"""How often each client may begin something, so that a client that comes again and again delays itself alone.

Pure. Invariant: a source begins so many at once, and then ``per_s``; one that would have to wait for longer than
``most_wait_s`` is refused, so nothing piles up.
"""

from __future__ import annotations

from collections.abc import Callable

_MOST_REMEMBERED = 4096


class SourceRate:
    """``clock``: seconds."""

    def __init__(self, per_s: float, at_once: int, most_wait_s: float, clock: Callable[[], float]) -> None:
        self._interval_s, self._at_once, self._most_wait_s = 1 / per_s, at_once, most_wait_s
        self._clock = clock
        self._next_s: dict[str, float] = {}
        """By source, when its next one's turn were if it had not come so many at once."""

    def delay_s(self, source: str) -> float | None:
        """Until it may begin; None: it may not, and nothing is counted."""
        now_s = self._clock()
        if len(self._next_s) > _MOST_REMEMBERED:
            self._next_s = {each: next_s for each, next_s in self._next_s.items() if next_s > now_s}
        turn_s = max(now_s, self._next_s.get(source, 0.0))
        delay_s = max(0.0, turn_s - now_s - (self._at_once - 1) * self._interval_s)
        if delay_s > self._most_wait_s:
            return None
        self._next_s[source] = turn_s + self._interval_s
        return delay_s
