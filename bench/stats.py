"""Percentiles, and how sure we are of them.

Intervals are 95 % percentile-bootstrap intervals (Efron 1979): resample with replacement, take the figure of each
resample, report the 2.5th and 97.5th percentile of those. What was measured next to each other is resampled together,
so that drift of the machine does not count: pairs, and for percentiles of single calls whole turns (a block bootstrap),
because slow calls come in groups.
"""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

RESAMPLES = 2_000
TURN_RESAMPLES = 1_000
SEED = 1
PERCENTILES = (50.0, 99.0, 99.9)

Turns = Sequence[Sequence[float]]
"""Samples by turn; equal indices of two sides were measured next to each other."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % interval, in the unit of what was measured."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def paired(figure: Callable[..., float], *sides: Sequence[float]) -> Estimate:
    """``figure`` of the lists ``sides``, with its interval; what has the same index in all of them stays together.

    Raises ``ValueError`` on lists of unequal length.
    """
    rows = list(zip(*sides, strict=True))
    chance = random.Random(SEED)
    resampled = [figure(*zip(*chance.choices(rows, k=len(rows)), strict=True)) for _ in range(RESAMPLES)]
    return _estimate(figure(*sides), resampled)


def added(direct: Sequence[float], proxied: Sequence[float]) -> float:
    """Median of the paired differences."""
    return statistics.median(theirs - ours for ours, theirs in zip(direct, proxied, strict=True))


def added_percent(direct: Sequence[float], proxied: Sequence[float]) -> float:
    """Median of the paired differences, in % of the direct median."""
    return 100 * added(direct, proxied) / statistics.median(direct)


def ratio(direct: Sequence[float], proxied: Sequence[float]) -> float:
    """Median of proxied / direct."""
    return statistics.median(theirs / ours for ours, theirs in zip(direct, proxied, strict=True))


def ratio_of_added(direct: Sequence[float], old: Sequence[float], new: Sequence[float]) -> float:
    """The quotient of what ``new`` and ``old`` add to ``direct``; infinite if ``old`` adds nothing."""
    before = added(direct, old)
    return added(direct, new) / before if before else math.inf


def rank(percent: float, count: int) -> int:
    """The nearest rank, from 1: the smallest whose share of ``count`` reaches ``percent`` (ten-thousandths of it)."""
    return max(1, -(-count * round(percent * 10_000) // 1_000_000))


def percentile(values: Iterable[float], percent: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[rank(percent, len(ordered)) - 1]


def all_of(turns: Turns) -> list[float]:
    return [sample for turn in turns for sample in turn]


def merged(turns: Turns, count: int) -> list[list[float]]:
    """``count`` turns that follow each other as one; what is left at the end is a shorter one."""
    return [all_of(turns[start : start + count]) for start in range(0, len(turns), count)]


def added_percentiles(
    direct: Turns, proxied: Turns, percents: Sequence[float] = PERCENTILES, resamples: int = TURN_RESAMPLES
) -> list[Estimate]:
    """For each percentile of single calls, proxied − direct; turns at equal indices are resampled together.

    Raises ``ValueError`` if one side has more turns, or none, or a turn without a sample.
    """
    return _compared(direct, proxied, percents, resamples, lambda ours, theirs: theirs - ours)


def percentile_ratio(direct: Turns, other: Turns, percent: float, resamples: int = TURN_RESAMPLES) -> Estimate:
    """The percentile of single calls of ``other`` by that of ``direct``; otherwise as ``added_percentiles``."""
    (estimate,) = _compared(direct, other, (percent,), resamples, lambda ours, theirs: theirs / ours)
    return estimate


def _compared(
    direct: Turns,
    proxied: Turns,
    percents: Sequence[float],
    resamples: int,
    compare: Callable[[float, float], float],
) -> list[Estimate]:
    if len(direct) != len(proxied) or not direct or not all((*direct, *proxied)):
        raise ValueError(f"{len(direct)} turns against {len(proxied)}, or an empty one")
    sides = _Side(direct), _Side(proxied)

    def differences(weights: Sequence[int]) -> list[float]:
        ours, theirs = (side.percentiles(percents, weights) for side in sides)
        return list(map(compare, ours, theirs))

    chance, count = random.Random(SEED), len(direct)
    resampled = [differences(_weights(chance, count)) for _ in range(resamples)]
    values = differences([1] * count)
    return [_estimate(value, each) for value, each in zip(values, zip(*resampled, strict=True), strict=True)]


def _weights(chance: random.Random, count: int) -> list[int]:
    """How often each of ``count`` turns is in a resample."""
    weights = [0] * count
    for index in chance.choices(range(count), k=count):
        weights[index] += 1
    return weights


class _Side:
    """One side's samples in rising order, each with its turn: a resample needs no sorting, only its weights."""

    def __init__(self, turns: Turns) -> None:
        rising = sorted((sample, index) for index, turn in enumerate(turns) for sample in turn)
        self._samples, self._turns = zip(*rising, strict=True)

    def percentiles(self, percents: Sequence[float], weights: Sequence[int]) -> list[float]:
        """Nearest ranks in the samples of turn i taken ``weights[i]`` times; at least one weight is not 0."""
        passed = list(accumulate(map(weights.__getitem__, self._turns)))
        return [self._samples[bisect_left(passed, rank(percent, passed[-1]))] for percent in percents]


def _estimate(value: float, resampled: Iterable[float]) -> Estimate:
    ordered = sorted(resampled)
    return Estimate(value, ordered[len(ordered) * 25 // 1000], ordered[len(ordered) * 975 // 1000])
