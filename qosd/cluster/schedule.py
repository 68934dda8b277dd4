"""When a report is written: an interval after the last try, or sooner to make good for one that failed.

Pure; instants are seconds of one monotonic clock. Invariants: no try is later than an interval after the last one,
whatever failed; the pause after a failure doubles while it goes on, and is no shorter than the server said, if that is
within the interval.
"""

from __future__ import annotations

from koord.kube.backoff import Backoff, Random

RETRY = Backoff(base_s=10.0, max_s=30.0)


class Schedule:
    """``failures``: how many tries in a row have failed until now."""

    def __init__(self, now_s: float) -> None:
        self._last_s, self._pause_s = now_s, float("inf")
        self.failures = 0
        self.tried_s: float | None = None

    def due_s(self, interval_s: float) -> float:
        return self._last_s + min(self._pause_s, interval_s)

    def written(self, now_s: float) -> None:
        self.tried_s = self._last_s = now_s
        self._pause_s, self.failures = float("inf"), 0

    def failed(self, now_s: float, random: Random, retry_after_s: float | None) -> None:
        self.tried_s = self._last_s = now_s
        self.failures += 1
        self._pause_s = max(RETRY.delay_s(self.failures, random), retry_after_s or 0.0)

    def put_off(self, now_s: float, pause_s: float) -> None:
        """Puts the next try off, as there was nothing to write."""
        self._last_s, self._pause_s = now_s, pause_s
