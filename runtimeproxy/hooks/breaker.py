"""Breaks the circuit to a hook server, or one stage of it, that keeps failing: it is not waited for.

A server that cannot be reached is down for all its stages. One that is late or unintelligible at one stage (a plugin
that hangs) may well be good at the others, so that counts for the stage alone.

After ``FAILURES`` failures in a row calls fail at once for a time that doubles from ``FIRST_PAUSE_S`` to
``LONGEST_PAUSE_S``; then one call is let through as a probe, and its outcome decides. Invariant: at most one probe
is under way, and a probe that is given up counts as none.
"""

from __future__ import annotations

from collections.abc import Callable

from runtimeproxy.hooks.stages import CallStage

FAILURES = 5
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class Breaker:
    """Breaks one circuit. ``clock`` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._open_until: float | None = None
        self._probing = False

    def allows(self) -> bool:
        """Returns whether a call may be made now. After True, exactly one of the three below must follow."""
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
        """Notes that the caller went away before the outcome was known."""
        self._probing = False


class Breakers:
    """Breaks the circuits of one server. After True from ``allows``, exactly one of the others follows, same stage."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._server = Breaker(clock)
        self._stages = {stage: Breaker(clock) for stage in CallStage}

    def allows(self, stage: CallStage) -> bool:
        """Returns whether the server may be asked at this stage now."""
        if not self._server.allows():
            return False
        if self._stages[stage].allows():
            return True
        self._server.abandoned()
        return False

    def succeeded(self, stage: CallStage) -> None:
        self._server.succeeded()
        self._stages[stage].succeeded()

    def unreachable(self, stage: CallStage) -> None:
        """Notes that no stage can be asked; of this one nothing was learned."""
        self._server.failed()
        self._stages[stage].abandoned()

    def failed(self, stage: CallStage) -> None:
        """Notes that the server was there, but gave no good answer at this stage."""
        self._server.succeeded()
        self._stages[stage].failed()

    def abandoned(self, stage: CallStage) -> None:
        self._server.abandoned()
        self._stages[stage].abandoned()
