"""Tokens: upstream's numbers, and that they depend on time and use alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qosd.strategies.burst.bucket import Bucket
from tests.fakes.clock import S

PERCENT_S = S
"""One token for people: a percent for a second."""


def bucket(tokens_percent_s: float, period_s: int = 60, percent: int = 300) -> Bucket:
    return Bucket(period_s, percent, round(tokens_percent_s * PERCENT_S))


@pytest.mark.parametrize(
    ("before", "usage_percent", "seconds", "after"),
    [
        (12_000, 250, 1, 11_850),
        (12_000, 250, 80, 0),
        (0, 20, 1, 80),
        (0, 20, 0.5, 40),
        (0, 59, 1, 41),
        (100, 60, 100, 100),
        (100, 99, 100, 100),
        (100, 100, 100, 100),
        (100, 101, 10, 90),
        (11_990, 0, 1, 12_000),
        (-11_900, 300, 1, -12_000),
        (500, 250, 0, 500),
    ],
    ids=[
        "250 % takes 150 a second", "so that a full one lasts 80 s", "20 % gives 80", "in half a second half",
        "59 % still gives", "60 % does not", "99 % takes nothing", "100 % neither", "101 % does",
        "never more than full", "never owes more than full", "no time, no change",
    ],
)  # fmt: skip
def test_what_use_takes_and_rest_gives(before: float, usage_percent: int, seconds: float, after: float) -> None:
    found = bucket(before).after(usage_percent, round(seconds * S))
    assert found.tokens_percent_s == after
    assert found.allows is (after > 0)


def test_a_bucket_that_does_not_change_stays_the_same_object() -> None:
    full = bucket(12_000)
    assert full.after(20, S) is full and full.after(80, S) is full


@pytest.mark.parametrize(("period_s", "percent", "capacity"), [(60, 300, 12_000), (0, 300, 0), (60, 100, 0)])
def test_capacity(period_s: int, percent: int, capacity: int) -> None:
    made = Bucket.of("c-1", period_s, percent)
    assert made.capacity_percent_ns == capacity * PERCENT_S
    if not capacity:
        assert not made.allows and not made.after(0, 1000 * S).allows, "never"


def test_a_new_one_is_filled_by_its_containers_id() -> None:
    filled = [Bucket.of(f"{number:064x}", 60, 300).tokens_percent_s for number in range(200)]
    assert all(0 <= tokens < 6_000 for tokens in filled)
    assert min(filled) < 300 and max(filled) > 5_700 and len(set(filled)) == 200
    assert Bucket.of("a", 60, 300) == Bucket.of("a", 60, 300) != Bucket.of("b", 60, 300)


BUCKETS = st.builds(
    lambda period_s, percent, part: bucket(period_s * (percent - 100) * part, period_s, percent),
    st.integers(0, 1000), st.integers(100, 1000), st.floats(-1, 1),
)  # fmt: skip


@given(BUCKETS, st.integers(0, 5000), st.integers(0, 10**11), st.integers(0, 10**11))
def test_a_time_in_two_parts_is_one_time(before: Bucket, usage_percent: int, first_ns: int, second_ns: int) -> None:
    once = before.after(usage_percent, first_ns + second_ns)
    assert before.after(usage_percent, first_ns).after(usage_percent, second_ns) == once
    assert abs(once.tokens_percent_ns) <= once.capacity_percent_ns
