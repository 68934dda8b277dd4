"""How a container's waiting for CPUs goes with what best-effort pods use: a straight line, and where it meets zero.

There it shows what the container would wait without them, because of its own threads or of others like it. Least
squares over what was seen, of which a sample counts half as much after ``HALF_LIFE`` more. Pure. A line that would fall
as best-effort work grows is none: then all of the waiting has other reasons.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

HALF_LIFE = 200
_KEPT = 0.5 ** (1 / HALF_LIFE)
_LEAST_SPREAD = 1e-3
"""Of the variance of what was used, by its mean square: less tells no slope."""


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
        """With one sample more."""
        return LoadBaseline(
            _KEPT * self.weight + 1,
            _KEPT * self.x + x,
            _KEPT * self.y + y,
            _KEPT * self.xx + x * x,
            _KEPT * self.xy + x * y,
        )

    @property
    def at_zero(self) -> float:
        """y at x = 0, at least 0; 0 where the samples tell no slope."""
        if not self.weight:
            return 0.0
        x, y = self.x / self.weight, self.y / self.weight
        spread = self.xx / self.weight - x * x
        if spread <= _LEAST_SPREAD * self.xx / self.weight:
            return 0.0
        slope = max(0.0, (self.xy / self.weight - x * y) / spread)
        return max(0.0, y - slope * x)
