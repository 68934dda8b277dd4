"""Kernel values as people read them."""

from __future__ import annotations

import pytest

from koordctl.values import human


@pytest.mark.parametrize(
    ("unit", "name", "text", "shown"),
    [
        ("bytes", "memory_limit_in_bytes", "4294967296", "4Gi"),
        ("bytes", "memory_limit_in_bytes", "-1", "none"),
        ("bytes", "memory_limit_in_bytes", "1500", "1500"),
        ("us", "cpu_quota", "-1", "none"),
        ("", "cpuset_cpus", "", "all"),
        ("", "cpuset_mems", "", "all"),
        ("", "cpu.bvt_warp_ns", "-1", "-1"),
        ("bytes", "memory.high", "max", "max"),
        ("bytes", "memory.min", "0", "0"),
    ],
)
def test_values_for_people(unit: str, name: str, text: str, shown: str) -> None:
    assert human(unit, name, text) == shown
