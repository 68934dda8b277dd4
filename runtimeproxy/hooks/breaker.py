"""A circuit breaker: a hook server that keeps failing is not waited for.

After ``FAILURES`` failures in a row calls fail at once for a time that doubles from ``FIRST_PAUSE_S`` to
``LONGEST_PAUSE_S``; then one call is let through as a probe, and its outcome decides. Invariant: at most one probe
is under way, and a probe that is given up counts as none.
"""

from __future__ import annotations

from collections.abc import Callable

FAILURES = 5
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class Breaker:
    """``clock`` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._open_until: float | None = None
        self._probing = False

    def allows(self) -> bool:
        """May a call be made now? After a yes, exactly one of the three below must follow."""
        if self._open_until is None:
            return True
        if self._probing or self._clock() < self._open_until:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._open_until = None
        self._probing = False

    def failed(self) -> None:
        self._failures += 1
        if self._probing:
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        if self._probing or (self._open_until is None and self._failures >= FAILURES):
            self._open_until = self._clock() + self._pause_s
        self._probing = False

    def abandoned(self) -> None:
        """The caller went away before the outcome was known."""
        self._probing = False
