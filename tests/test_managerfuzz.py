"""What ``make fuzz-manager`` fails for: each of its bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from integration.managerfuzz.__main__ import LEAST_PERCENT, MOST_MIB, MOST_STALL_S, Row

KEPT = Row("a", MOST_STALL_S, MOST_MIB, LEAST_PERCENT, LEAST_PERCENT, True, 0.1, "")


def test_a_row_at_its_bounds_passes_none() -> None:
    assert KEPT.passed == []
    assert "<-" not in KEPT.text()


@pytest.mark.parametrize(
    ("row", "bound"),
    [
        (replace(KEPT, stall_s=MOST_STALL_S + 0.01), f"stall > {MOST_STALL_S:g} s"),
        (replace(KEPT, most_mib=MOST_MIB + 1), "memory > 400 MiB"),
        (replace(KEPT, reviews_percent=LEAST_PERCENT - 0.1), "reviews < 99 %"),
        (replace(KEPT, reports_percent=LEAST_PERCENT - 0.1), "reports < 99 %"),
        (replace(KEPT, leads=False), "leadership lost"),
    ],
)
def test_a_bound_that_is_passed_is_named(row: Row, bound: str) -> None:
    assert row.passed == [bound]
    assert f"<- {bound}" in row.text()
