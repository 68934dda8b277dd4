"""A figure over time, and whether it has been above a mark for long.

Advice that comes and goes with every sample is worse than none. So a figure counts by its mean over the last minute,
and between two marks the answer stays: it is high from ``on``, until the mean is below ``off``. Nothing is remembered
for that between two questions. The switch is replayed over the samples that are kept, so that every caller gets the
same answer, and a restart of the daemon costs a minute. Invariant: a figure that stays between the marks changes the
answer at most once, when the sample that was above ``on`` is no longer kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from qosd.sense.ring import NANOSECONDS, nearest_rank

Series = Sequence[tuple[int, float]]
"""(monotonic ns, value), oldest first."""
OVER_NS = 60 * NANOSECONDS


class Hysteresis(NamedTuple):
    """The two marks: a figure is high from ``on``, until it is below ``off``."""

    on: float
    off: float


def is_high(series: Series, band: Hysteresis) -> bool:
    """Returns whether the figure is high now; False before there is a minute of samples."""
    state = False
    for mean_over_minute in _trailing_means(series):
        state = mean_over_minute >= band.on or (state and mean_over_minute >= band.off)
    return state


def _trailing_means(series: Series) -> Iterator[float]:
    """Yields the mean over the last minute, at each sample that has a minute before it."""
    within: deque[tuple[int, float]] = deque()
    total = 0.0
    for at_ns, value in series:
        within.append((at_ns, value))
        total += value
        while at_ns - within[0][0] > OVER_NS:
            total -= within.popleft()[1]
        if at_ns - series[0][0] >= OVER_NS:
            yield total / len(within)


def mean(series: Series) -> float:
    """Returns the mean; 0 without samples."""
    return sum(value for _, value in series) / len(series) if series else 0.0


def percentile(series: Series, quantile: float) -> float:
    """Returns the percentile by nearest rank; 0 without samples."""
    return nearest_rank((value for _, value in series), quantile) or 0.0


def span_s(series: Series) -> float:
    return (series[-1][0] - series[0][0]) / NANOSECONDS if series else 0.0


def per_sample(first: Series, second: Series) -> Iterator[tuple[int, float, float]]:
    """Yields both figures at the instants at which there are both."""
    others: Mapping[int, float] = dict(second)
    return ((at_ns, value, others[at_ns]) for at_ns, value in first if at_ns in others)


def total(series: Series) -> float:
    """Returns the sum over time of a figure per second: each sample stands for the time since the one before."""
    return sum(value * (at_ns - before_ns) / NANOSECONDS for (before_ns, _), (at_ns, value) in pairwise(series))
