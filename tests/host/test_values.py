"""The kernel's texts against CRI's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host.files import ROWS
from koord.host.values import normalise
from koord.host.weights import weight_quadratic
from koord.model.cfs import weight_linear

PAGE = 4096


@pytest.mark.parametrize(
    ("field", "version", "text", "desired", "want"),
    [
        ("cpu_quota", 2, "max 100000", "-1", "-1"),
        ("cpu_quota", 2, "166667 100000", "166667", "166667"),
        ("cpu_period", 2, "166667 100000", None, "100000"),
        ("cpu_quota", 1, "-1", None, "-1"),
        ("cpu_quota", 2, "", None, ""),
        ("cpu_shares", 1, "1536", None, "1536"),
        ("cpu_shares", 2, "59", "1536", "1536"),
        ("cpu_shares", 2, "59", "2048", "1523"),
        ("cpu_shares", 2, "100", "1024", "1024"),
        ("memory_limit_in_bytes", 1, "9223372036854771712", "-1", "-1"),
        ("memory_limit_in_bytes", 2, "max", None, "-1"),
        ("memory_limit_in_bytes", 2, "4096", "5000", "5000"),
        ("memory_limit_in_bytes", 2, "4096", "9000", "4096"),
        ("memory.high", 2, "max", "max", "max"),
        ("cpuset_cpus", 1, "0-3,4,8", "x", "0-4,8"),
        ("cpuset_cpus", 1, "", None, ""),
        ("cpu.bvt_warp_ns", 2, "-1", "-1", "-1"),
    ],
)
def test_normalise(field: str, version: int, text: str, desired: str | None, want: str) -> None:
    assert normalise(ROWS[field], version, text, desired, PAGE) == want


@pytest.mark.parametrize(("shares", "weight"), [(0, 1), (2, 1), (1024, 100), (262144, 10000), (10**9, 10000)])
def test_newer_runtimes_weights(shares: int, weight: int) -> None:
    assert weight_quadratic(shares) == weight


@given(st.integers(2, 262144))
def test_shares_written_by_either_runtime_count_as_met(shares: int) -> None:
    for weight in (weight_linear(shares), weight_quadratic(shares)):
        assert normalise(ROWS["cpu_shares"], 2, str(weight), str(shares), PAGE) == str(shares)
