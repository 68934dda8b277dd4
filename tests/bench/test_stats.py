"""Percentiles and intervals of the measurements, against the plain definition."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import stats

SAMPLES = st.floats(0, 1e6, allow_nan=False)
TURNS = st.lists(st.lists(SAMPLES, min_size=1, max_size=6), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("percent", "count", "rank"),
    [
        (50, 1, 1),
        (50, 2, 1),
        (50, 3, 2),
        (99, 100, 99),
        (99, 101, 100),
        (99.9, 1000, 999),
        (99.9, 999, 999),
        (99.9, 10_000, 9990),
        (0, 5, 1),
        (100, 5, 5),
    ],
)
def test_nearest_rank(percent: float, count: int, rank: int) -> None:
    assert stats.rank(percent, count) == rank
    assert stats.percentile(reversed(range(1, count + 1)), percent) == rank


@given(TURNS, st.data())
def test_percentiles_of_a_resample_are_those_of_its_samples(turns: list[list[float]], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(0, 3), min_size=len(turns), max_size=len(turns)).filter(any))
    resample = [sample for turn, weight in zip(turns, weights, strict=True) for sample in turn * weight]
    percents = (99.9, 50, 99, 0, 100)
    found = stats._Side(turns).percentiles(percents, weights)
    assert found == [stats.percentile(resample, percent) for percent in percents]


@given(TURNS, st.floats(-1e3, 1e3))
def test_a_shift_is_found_whatever_is_resampled(turns: list[list[float]], shift: float) -> None:
    later = [[sample + shift for sample in turn] for turn in turns]
    for estimate in stats.added_percentiles(turns, later, resamples=40):
        assert (estimate.value, estimate.low, estimate.high) == pytest.approx((shift,) * 3, abs=1e-6)


@given(st.lists(st.lists(st.floats(1, 1e6), min_size=1, max_size=20), min_size=1, max_size=8), st.floats(0.5, 4))
def test_a_ratio_is_found_whatever_is_resampled(turns: list[list[float]], factor: float) -> None:
    slower = [[sample * factor for sample in turn] for turn in turns]
    estimate = stats.percentile_ratio(turns, slower, 99, resamples=40)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((factor,) * 3)


def test_slow_calls_that_come_in_one_turn_make_the_interval_wide() -> None:
    even = [[1.0] * 100 for _ in range(40)]
    spread = [[1.0] * 97 + [50.0] * 3 for _ in range(40)]
    bunched = [[50.0] * 100, *([[1.0] * 99 + [50.0]] * 20), *([[1.0] * 100] * 19)]
    sure, unsure = (stats.added_percentiles(even, side, (99.0,))[0] for side in (spread, bunched))
    assert (sure.value, sure.half_width) == (49, 0)
    assert unsure.half_width > 0


@pytest.mark.parametrize(("direct", "proxied"), [([], []), ([[1.0]], []), ([[1.0]], [[]]), ([[1.0]], [[1.0]] * 2)])
def test_turns_that_cannot_be_compared(direct: stats.Turns, proxied: stats.Turns) -> None:
    with pytest.raises(ValueError, match="turns"):
        stats.added_percentiles(direct, proxied)


def test_drift_does_not_count_in_pairs() -> None:
    direct = [float(minute * minute) for minute in range(100)]
    proxied = [value + 3 for value in direct]
    assert stats.paired(stats.added, direct, proxied) == stats.Estimate(3, 3, 3)
    assert stats.added_percent(direct, proxied) == pytest.approx(300 / statistics.median(direct))


def test_interval_holds_the_median_and_narrows_with_more_pairs() -> None:
    def estimate(count: int) -> stats.Estimate:
        return stats.paired(stats.added, [0.0] * count, [float(index * 37 % 101) for index in range(count)])

    few, many = estimate(25), estimate(400)
    assert few.low <= few.value <= few.high
    assert many.low <= many.value <= many.high
    assert many.half_width < few.half_width


def test_lists_of_unequal_length_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="zip"):
        stats.paired(stats.added, [1.0, 2.0], [1.0])


@pytest.mark.parametrize(("old", "new", "ratio"), [(15.0, 12.5, 0.5), (12.0, 14.0, 2.0), (10.0, 11.0, math.inf)])
def test_ratio_of_what_two_versions_add(old: float, new: float, ratio: float) -> None:
    assert stats.ratio_of_added([10.0] * 3, [old] * 3, [new] * 3) == ratio


@pytest.mark.parametrize(
    ("count", "lengths"), [(1, [1, 2, 3]), (2, [3, 3]), (3, [6]), (9, [6])], ids=["one", "two", "all", "more"]
)
def test_turns_are_merged_in_order(count: int, lengths: list[int]) -> None:
    merged = stats.merged([[1.0], [2.0, 3.0], [4.0, 5.0, 6.0]], count)
    assert [len(turn) for turn in merged] == lengths
    assert stats.all_of(merged) == [1, 2, 3, 4, 5, 6]
