"""What a unit's weight is in cgroup v1's shares."""

from __future__ import annotations

import pytest

from bench.saturation import DEFAULT_WEIGHT, cpu_weight, koord_weight, shares_of_weight


@pytest.mark.parametrize(
    ("weight", "shares"), [(1, 10), (20, 204), (100, 1024), (1000, 10240), (10_000, 102_400), (1 << 30, 262_144)]
)
def test_shares_as_systemd_writes_them(weight: int, shares: int) -> None:
    assert shares_of_weight(weight) == shares


@pytest.mark.parametrize(
    ("unit", "weight"),
    [
        ("[Slice]\nCPUWeight=1000\n", 1000),
        ("[Unit]\nDescription=x\n[Slice]\n# CPUWeight=1\nCPUWeight = 300\nMemoryMin=64M\n", 300),
        ("[Slice]\nCPUWeight=200\nCPUWeight=400\n", 400),
        ("[Slice]\nCPUWeight=200\nCPUWeight=\n", 100),
        ("[Service]\nCPUWeight=200\n", 100),
        ("", 100),
    ],
    ids=["one", "among others", "the last counts", "reset", "another section", "none"],
)
def test_weight_of_a_slice(unit: str, weight: int) -> None:
    assert cpu_weight(unit) == weight


def test_the_units_slice_says_its_weight() -> None:
    assert koord_weight() > DEFAULT_WEIGHT
