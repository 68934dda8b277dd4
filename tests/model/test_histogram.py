from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model.histogram import (
    CPU_CORES,
    CPU_HALF_LIFE_S,
    MEMORY_BYTES,
    Checkpoint,
    CheckpointError,
    DecayingHistogram,
    Scale,
)

MIB = 2**20
NOW_S = 1_790_000_000.0


def cpu() -> DecayingHistogram:
    return DecayingHistogram(CPU_CORES, CPU_HALF_LIFE_S)


@pytest.mark.parametrize(("scale", "buckets"), [(CPU_CORES, 158), (MEMORY_BYTES, 205)])
def test_number_of_buckets(scale: Scale, buckets: int) -> None:
    assert scale.buckets == buckets


@pytest.mark.parametrize(
    ("scale", "value", "bucket", "end"),
    [
        (CPU_CORES, 0, 0, 0.025),
        (CPU_CORES, 0.1, 3, 0.107753),
        (CPU_CORES, 0.5, 14, 0.539464),
        (CPU_CORES, 1, 22, 1.035762),
        (CPU_CORES, 4, 45, 4.217129),
        (CPU_CORES, 16, 71, 16.272567),
        (CPU_CORES, 64, 99, 65.250629),
        (CPU_CORES, 1024, 156, 1060.437886),
        (CPU_CORES, 5000, 157, 1060.437886),
        (MEMORY_BYTES, 100 * MIB, 14, 107.893 * MIB),
        (MEMORY_BYTES, 1024 * MIB, 49, 1046.740 * MIB),
        (MEMORY_BYTES, 4096 * MIB, 76, 4181.304 * MIB),
        (MEMORY_BYTES, 65536 * MIB, 132, 65692.559 * MIB),
    ],
)
def test_buckets_and_their_ends(scale: Scale, value: float, bucket: int, end: float) -> None:
    assert scale.index(value) == bucket
    assert scale.end(bucket) == pytest.approx(end, rel=1e-5)


def test_without_samples_there_is_no_peak() -> None:
    assert cpu().is_empty
    assert cpu().percentile(0.95) == 0


def test_later_samples_outweigh_earlier_ones() -> None:
    histogram = cpu()
    for _ in range(10):
        histogram.add(8, NOW_S)
    for _ in range(10):
        histogram.add(1, NOW_S + 24 * 3600)
    assert histogram.percentile(0.79) == pytest.approx(1.035762, rel=1e-5)
    assert histogram.percentile(0.81) == pytest.approx(8.394850, rel=1e-5)
    assert histogram.checkpoint().weights == {22: 10000, 58: 2500}


@pytest.mark.parametrize(
    ("later_s", "left"), [(0, 4.0), (CPU_HALF_LIFE_S, 2.0), (2 * CPU_HALF_LIFE_S, 1.0), (-CPU_HALF_LIFE_S, 4.0)]
)
def test_evidence_fades(later_s: float, left: float) -> None:
    histogram = cpu()
    for _ in range(4):
        histogram.add(2, NOW_S)
    assert histogram.weight_at(NOW_S + later_s) == pytest.approx(left)


@pytest.mark.parametrize(
    ("saved", "why"),
    [
        (Checkpoint(0, {158: 1}, 1), "bucket 158: there are 158"),
        (Checkpoint(0, {-1: 1}, 1), "bucket -1"),
        (Checkpoint(0, {3: 0}, 1), "weight 0 of bucket 3"),
        (Checkpoint(0, {3: 10001}, 1), "weight 10001"),
        (Checkpoint(0, {3: 1}, float("nan")), "total nan"),
        (Checkpoint(0, {3: 1}, -1), "total -1"),
        (Checkpoint(float("inf"), {3: 1}, 1), "reference inf"),
        (Checkpoint(0, {3: 1}, 0), "total 0 for weights that sum up to 1"),
        (Checkpoint(0, {}, 5), "total 5 for weights"),
        (Checkpoint(0, {3: 1}, 1, float("nan")), "newest sample at nan"),
    ],
)
def test_a_bad_checkpoint_changes_nothing(saved: Checkpoint, why: str) -> None:
    histogram = cpu()
    histogram.add(1, NOW_S)
    with pytest.raises(CheckpointError, match=why):
        histogram.restore(saved)
    assert histogram.percentile(0.5) == pytest.approx(1.035762, rel=1e-5)


samples = st.lists(st.tuples(st.floats(0, 5000), st.floats(0, 400 * CPU_HALF_LIFE_S)), min_size=1, max_size=50)


@given(samples, st.floats(0.01, 1))
def test_a_percentile_is_the_end_of_a_sample_s_bucket(seen: list[tuple[float, float]], fraction: float) -> None:
    histogram = cpu()
    for value, after_s in seen:
        histogram.add(value, NOW_S + after_s)
    ends = {CPU_CORES.end(CPU_CORES.index(value)) for value, _ in seen}
    assert histogram.percentile(fraction) in ends
    assert histogram.percentile(1.0) >= histogram.percentile(fraction)


@given(samples)
def test_a_checkpoint_gives_the_same_histogram_back(seen: list[tuple[float, float]]) -> None:
    histogram, again = cpu(), cpu()
    for value, after_s in seen:
        histogram.add(value, NOW_S + after_s)
    again.restore(histogram.checkpoint())
    second = again.checkpoint()
    assert second.weights == histogram.checkpoint().weights
    assert second.total == pytest.approx(histogram.checkpoint().total)


# a clock that was ahead

MINUTE_S, DAY_S = 60.0, 24 * 3600.0
ONE_CORE = CPU_CORES.end(CPU_CORES.index(1))


def fed(histogram: DecayingHistogram, value: float, from_s: float, minutes: int) -> float:
    """A sample of ``value`` a minute; the time after the last."""
    for minute in range(minutes):
        histogram.add(value, from_s + minute * MINUTE_S)
    return from_s + minutes * MINUTE_S


@pytest.mark.parametrize("learnt_days", [0, 1, 30], ids="learnt for {} days before".format)
@pytest.mark.parametrize("ahead_days", [0.25, 0.6, 7, 49, 51, 365, 20_000], ids="{} days ahead".format)
@pytest.mark.parametrize("is_restarted", [False, True], ids=["", "restarted"])
def test_a_day_after_a_clock_was_ahead_the_peak_is_that_of_the_day(
    learnt_days: int, ahead_days: float, is_restarted: bool
) -> None:
    histogram = cpu()
    now_s = fed(histogram, 1, NOW_S, learnt_days * 1440)
    fed(histogram, 100, now_s + ahead_days * DAY_S, 5)
    if is_restarted:
        saved, histogram = histogram.checkpoint(), cpu()
        histogram.restore(saved)
    now_s = fed(histogram, 1, now_s, 1440)
    assert histogram.percentile(0.95) == ONE_CORE
    assert histogram.newest_s <= now_s
    assert histogram.weight_at(now_s) == pytest.approx(780, rel=0.35)  # as after any day, and a part of what was before


@pytest.mark.parametrize("ahead_days", [7, 365])
def test_five_samples_of_a_clock_that_was_ahead_are_no_more_evidence_than_five(ahead_days: float) -> None:
    histogram = cpu()
    fed(histogram, 100, NOW_S + ahead_days * DAY_S, 5)
    assert histogram.weight_at(NOW_S) == pytest.approx(5, rel=0.01)
    histogram.follow(NOW_S)
    assert histogram.weight_at(NOW_S) == pytest.approx(5, rel=0.01)
    assert histogram.weight_at(NOW_S + CPU_HALF_LIFE_S) == pytest.approx(2.5, rel=0.01)


def test_what_was_learnt_by_a_clock_that_was_always_ahead_is_kept() -> None:
    ahead, right = cpu(), cpu()
    for one, begins_s in ((ahead, NOW_S + 365 * DAY_S), (right, NOW_S)):
        fed(one, 2, begins_s, 720)
        fed(one, 4, begins_s + DAY_S / 2, 720)
    ahead.follow(right.newest_s)
    for fraction in (0.1, 0.3, 0.5, 0.95):
        assert ahead.percentile(fraction) == right.percentile(fraction)
    assert ahead.weight_at(right.newest_s) == pytest.approx(right.weight_at(right.newest_s))


def test_an_old_checkpoint_does_not_know_the_newest_sample_but_near_which_it_was() -> None:
    histogram, again = cpu(), cpu()
    histogram.add(1, NOW_S)
    saved = histogram.checkpoint()
    again.restore(Checkpoint(saved.reference_s, saved.weights, saved.total))
    assert NOW_S - CPU_HALF_LIFE_S <= again.newest_s <= NOW_S


@given(samples, st.floats(-400 * CPU_HALF_LIFE_S, 400 * CPU_HALF_LIFE_S))
def test_whatever_the_clock_did_evidence_is_never_more_than_was_seen(
    seen: list[tuple[float, float]], now_s: float
) -> None:
    histogram = cpu()
    for value, after_s in seen:
        histogram.add(value, NOW_S + after_s)
    # a sample that the clock puts up to a half-life before the newest weighs less, and none weighs more
    assert 0 < histogram.weight_at(histogram.newest_s) <= len(seen) * 1.0000001
    assert histogram.weight_at(NOW_S + now_s) <= histogram.weight_at(histogram.newest_s)
