"""A histogram as Prometheus has them: counts by fixed upper bounds. Adding to one takes a fraction of a microsecond."""

from __future__ import annotations

from bisect import bisect_left

LATENCY_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0)


class Histogram:
    """``counts[i]``: observations up to ``bounds_s[i]`` and over the bound before; the last has no bound."""

    __slots__ = ("bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...] = LATENCY_BOUNDS_S) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.sum_s += seconds

    def copy(self) -> Histogram:
        copied = Histogram(self.bounds_s)
        copied.counts, copied.sum_s = self.counts[:], self.sum_s
        return copied

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' buckets: upper bound as text, and how many were at or below it."""
        total, buckets = 0, []
        for bound, count in zip((*map(str, self.bounds_s), "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets
