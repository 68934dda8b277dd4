"""Durations as Go reads and writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import durations


@pytest.mark.parametrize(
    ("text", "duration_ns", "spelled"),
    [
        ("5m", 300_000_000_000, "5m0s"),
        ("5m0s", 300_000_000_000, "5m0s"),
        ("300s", 300_000_000_000, "5m0s"),
        ("1h30m", 5_400_000_000_000, "1h30m0s"),
        ("1.5h", 5_400_000_000_000, "1h30m0s"),
        ("24h", 86_400_000_000_000, "24h0m0s"),
        (".5s", 500_000_000, "500ms"),
        ("90s", 90_000_000_000, "1m30s"),
        ("1s", 1_000_000_000, "1s"),
        ("1.050s", 1_050_000_000, "1.05s"),
        ("1500us", 1_500_000, "1.5ms"),
        ("10µs", 10_000, "10µs"),
        ("10μs", 10_000, "10µs"),
        ("1s1ns", 1_000_000_001, "1.000000001s"),
        ("7ns", 7, "7ns"),
        ("1.9ns", 1, "1ns"),
    ],
)
def test_a_duration(text: str, duration_ns: int, spelled: str) -> None:
    assert durations.parse_ns(text) == duration_ns
    assert durations.spell(duration_ns) == spelled


@pytest.mark.parametrize(
    "text",
    ["", "5", "m", ".s", "0s", "0.5ns", "-5m", "+5m", "5 m", "1d", "1M", "9999999h", "9" * 400 + "h", "1" * 10**6],
)
def test_what_is_none(text: str) -> None:
    assert durations.parse_ns(text) is None


@given(st.integers(1, 2**63 - 1))
def test_what_is_written_is_read_back(duration_ns: int) -> None:
    assert durations.parse_ns(durations.spell(duration_ns)) == duration_ns
