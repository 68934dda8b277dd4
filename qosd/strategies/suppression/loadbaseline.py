"""Fits a straight line to a container's waits for CPUs (y) over what best-effort pods use (x).

Its value at 0 is what the container would wait without them, because of its own threads or of others like it. The fit
is by least squares; a sample counts half as much after ``HALF_LIFE`` more. Pure. A line that falls as best-effort work
grows counts as flat: then all of the wait has other reasons.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

HALF_LIFE = 200
_KEPT = 0.5 ** (1 / HALF_LIFE)
_LEAST_SPREAD = 1e-3
"""The least variance of x, by its mean square, that tells a slope."""


class LoadBaseline(msgspec.Struct, frozen=True):
    """Weighted sums over samples of (x, y)."""

    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    @classmethod
    def through(cls, samples: Iterable[tuple[float, float]]) -> LoadBaseline:
        baseline = cls()
        for x, y in samples:
            baseline = baseline.fed(x, y)
        return baseline

    def fed(self, x: float, y: float) -> LoadBaseline:
        """Returns the sums with one more sample."""
        return LoadBaseline(
            _KEPT * self.weight + 1,
            _KEPT * self.x + x,
            _KEPT * self.y + y,
            _KEPT * self.xx + x * x,
            _KEPT * self.xy + x * y,
        )

    @property
    def at_zero(self) -> float:
        """The line's y at x = 0, at least 0; 0 if the samples tell no slope."""
        if not self.weight:
            return 0.0
        x, y = self.x / self.weight, self.y / self.weight
        spread = self.xx / self.weight - x * x
        if spread <= _LEAST_SPREAD * self.xx / self.weight:
            return 0.0
        slope = max(0.0, (self.xy / self.weight - x * y) / spread)
        return max(0.0, y - slope * x)
