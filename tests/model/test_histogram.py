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
    ("later_s", "left"), [(0, 4.0), (CPU_HALF_LIFE_S, 2.0), (2 * CPU_HALF_LIFE_S, 1.0), (-CPU_HALF_LIFE_S, 8.0)]
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
