"""Keys out of flat files, and differences of counters."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qosd.sense.flatkeys import FlatKeys
from qosd.sense.rates import per_second, per_second_wrapping, ratio

KEYS = [b"a", b"bb", b"ccc", b"total_a", b"x1", b"x2", b"x3"]


@pytest.mark.parametrize("text", [b"", b"a\n", b"b 1\n", b"a one\n", b"aa 1\n"])
def test_a_required_key_that_is_not_there(text: bytes) -> None:
    assert FlatKeys((b"a",)).numbers(text) is None


@given(st.permutations(KEYS), st.permutations(KEYS), st.lists(st.integers(0, 2**63), min_size=7, max_size=7))
def test_keys_are_found_in_any_order_and_again_after_it_changed(
    first: list[bytes], second: list[bytes], numbers: list[int]
) -> None:
    keys = FlatKeys((b"a", b"ccc"), (b"x2", b"missing"))
    for order in (first, first, second, first):
        values = dict(zip(order, numbers, strict=True))
        text = b"".join(b"%b %d\n" % item for item in values.items())
        assert keys.numbers(text) == [values[b"a"], values[b"ccc"], values[b"x2"], 0]


NAN = math.nan


@pytest.mark.parametrize(
    ("before", "after", "elapsed_s", "expected"),
    [
        (0, 50, 1, 50.0),
        (100, 150, 2, 25.0),
        (7, 7, 1, 0.0),
        (150, 100, 1, NAN),  # reset
        (0, 10, 0, NAN),
        (0, 10, -1, NAN),
    ],
)
def test_per_second(before: int, after: int, elapsed_s: int, expected: float) -> None:
    assert per_second(before, after, elapsed_s * 10**9) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [((0, 0), (5, 10), 0.5), ((2, 10), (2, 10), 0.0), ((2, 10), (3, 10), 0.0), ((2, 10), (0, 1), NAN)],
)
def test_ratio_without_periods_is_zero(before: tuple[int, int], after: tuple[int, int], expected: float) -> None:
    assert ratio(before[0], after[0], before[1], after[1]) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("before", "after", "expected"), [(2**64 - 10, 5, 15.0), (1000, 5, NAN), (10, 25, 15.0), (2**63, 5, NAN)]
)
def test_a_fall_by_more_than_half_is_a_wrap(before: int, after: int, expected: float) -> None:
    assert per_second_wrapping(before, after, 10**9) == pytest.approx(expected, nan_ok=True)
