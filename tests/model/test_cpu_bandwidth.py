"""CPU bandwidth numbers against values that were worked out by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import cfs
from koord.model.quantity import MilliCPU


@pytest.mark.parametrize("text", ["", "0", "0.00", "-1", "1.2.3", "1e3", "nan", "inf", "1_0", " 1", "1/2", "9999999"])
def test_refuses_ratios(text: str) -> None:
    with pytest.raises(cfs.RatioError, match="positive decimal ratio"):
        cfs.parse_ratio(text)


@pytest.mark.parametrize(
    ("milli", "shares"), [(0, 2), (1, 2), (2, 2), (500, 512), (1000, 1024), (1500, 1536), (10**6, 262144)]
)
def test_shares(milli: int, shares: int) -> None:
    assert cfs.shares(MilliCPU(milli)) == shares


@pytest.mark.parametrize(
    ("milli", "quota_us"),
    [(None, -1), (0, -1), (-5, -1), (1, 1000), (10, 1000), (11, 1100), (1000, 100000), (2000, 200000)],
)
def test_quota(milli: int | None, quota_us: int) -> None:
    assert cfs.quota_us(None if milli is None else MilliCPU(milli)) == quota_us


def test_quota_of_another_period() -> None:
    assert cfs.quota_us(MilliCPU(2000), period_us=50_000) == 100_000


@pytest.mark.parametrize(
    ("quota_us", "ratio", "normalized_us"),
    [
        (200000, "1.2", 166667), (100000, "1.20", 83334), (100000, "1.25", 80000), (1000, "5.00", 1000),
        (100000, "1.00", 100000), (100000, "0.5", 100000), (-1, "1.2", -1), (0, "1.2", 0),
    ],
)  # fmt: skip
def test_normalization(quota_us: int, ratio: str, normalized_us: int) -> None:
    assert cfs.normalize_quota_us(quota_us, cfs.parse_ratio(ratio)) == normalized_us


def test_ratio_is_exact() -> None:
    assert cfs.parse_ratio("1.20") == Fraction(6, 5)


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(0, 1), (2, 1), (256, 10), (1024, 39), (1536, 59), (2048, 79), (4096, 157), (262144, 10000), (10**9, 10000)],
)
def test_weight(shares: int, weight: int) -> None:
    assert cfs.weight_linear(shares) == weight


@given(st.integers(2, 262_143))
def test_weight_grows_with_shares(shares: int) -> None:
    assert cfs.weight_linear(shares) <= cfs.weight_linear(shares + 1)


@pytest.mark.parametrize(
    ("period_us", "made_with_us", "factor"),
    [
        (100_000, 100_000, 1),
        (200_000, 100_000, 2),
        (800_000, 100_000, 8),
        (40_000, 5_000, 8),
        (640_000, 5_000, 128),
        (50_000, 100_000, 1),
        (300_000, 100_000, 1),
        (250_000, 100_000, 1),
        (1_000_000, 500_000, 1),
        (0, 100_000, 1),
    ],
)
def test_stretched_by_the_kernel(period_us: int, made_with_us: int, factor: int) -> None:
    assert cfs.stretch(period_us, made_with_us) == factor
