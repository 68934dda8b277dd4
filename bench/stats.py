"""Medians, and how sure we are of them.

Intervals are 95 % percentile-bootstrap intervals of the median (Efron 1979): resample with replacement, take the
median of each resample, report the 2.5th and 97.5th percentile. Pairs that were measured next to each other are
resampled as pairs, so that drift of the machine does not count.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

RESAMPLES = 2_000
SEED = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % interval, in the unit of what was measured."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def paired(
    direct: Sequence[float], proxied: Sequence[float], figure: Callable[[Sequence[float], Sequence[float]], float]
) -> Estimate:
    """``figure`` of the pairs at equal indices, with its interval; raises ``ValueError`` on lists of unequal length."""
    pairs = list(zip(direct, proxied, strict=True))
    chance = random.Random(SEED)
    resampled = sorted(figure(*zip(*chance.choices(pairs, k=len(pairs)), strict=True)) for _ in range(RESAMPLES))
    return Estimate(figure(direct, proxied), resampled[RESAMPLES * 25 // 1000], resampled[RESAMPLES * 975 // 1000])


def added(direct: Sequence[float], proxied: Sequence[float]) -> float:
    """Median of the paired differences."""
    return statistics.median(theirs - ours for ours, theirs in zip(direct, proxied, strict=True))


def added_percent(direct: Sequence[float], proxied: Sequence[float]) -> float:
    """Median of the paired differences, in % of the direct median."""
    return 100 * added(direct, proxied) / statistics.median(direct)


def ratio(direct: Sequence[float], proxied: Sequence[float]) -> float:
    """Median of proxied / direct."""
    return statistics.median(theirs / ours for ours, theirs in zip(direct, proxied, strict=True))
