"""By how much a quota changes: every row of the table, and upstream's own integers."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model.formulas import FORMULA, Inputs, recompute
from qosd.strategies import formulas
from qosd.strategies.burst import steps
from qosd.strategies.burst.sharepool import PoolState
from qosd.strategies.burst.steps import Operation

UP, REMAIN, DOWN, RESET = Operation.UP, Operation.REMAIN, Operation.DOWN, Operation.RESET
IDLE, COOLING, OVERLOAD, UNKNOWN = PoolState.IDLE, PoolState.COOLING, PoolState.OVERLOAD, PoolState.UNKNOWN
CLIMB = (120_000, 144_000, 172_800, 207_360, 248_832, 298_598, 300_000)
FALL = (240_000, 192_000, 153_600, 122_880, 100_000)


@pytest.mark.parametrize(
    ("ratio", "pool", "expected"),
    [
        (0.3, IDLE, UP),
        (0.3, COOLING, REMAIN),
        (0.3, OVERLOAD, DOWN),
        (0.3, UNKNOWN, REMAIN),
        (0.0, IDLE, REMAIN),
        (0.0, COOLING, REMAIN),
        (0.0, OVERLOAD, DOWN),
        (0.0, UNKNOWN, REMAIN),
        (None, IDLE, REMAIN),
        (None, COOLING, REMAIN),
        (None, OVERLOAD, DOWN),
        (None, UNKNOWN, REMAIN),
        (1e-9, IDLE, UP),
    ],
)
def test_operations(ratio: float | None, pool: PoolState, expected: Operation) -> None:
    assert steps.operation(True, True, ratio, pool) is expected


def test_without_tokens_it_goes_down_and_without_the_policy_it_is_reset_whatever_else_is() -> None:
    for ratio, pool in product((None, 0.0, 0.3), PoolState):
        assert steps.operation(True, False, ratio, pool) is DOWN
        assert steps.operation(False, True, ratio, pool) is RESET
        assert steps.operation(False, False, ratio, pool) is RESET


def walk(operation: Operation, start_us: int, rounds: int, base_us: int = 100_000, percent: int = 300) -> list[int]:
    found = [start_us]
    for _ in range(rounds):
        most_us = steps.ceiling_us(base_us, percent)
        found.append(steps.next_us(found[-1], operation.value, base_us, most_us))
    return found[1:]


def test_the_way_up_and_the_way_down() -> None:
    assert tuple(walk(UP, 100_000, 8)) == (*CLIMB, 300_000)
    assert tuple(walk(DOWN, 300_000, 6)) == (*FALL, 100_000)
    assert walk(RESET, 300_000, 1) == [100_000]
    assert walk(REMAIN, 207_360, 2) == [207_360] * 2


def test_of_a_normalized_quota() -> None:
    """A limit of 1 CPU on a node that is 1.2 times as fast."""
    assert walk(UP, 83_334, 8, 83_334) == [
        100_000, 120_000, 144_000, 172_800, 207_360, 248_832, 250_002, 250_002
    ]  # fmt: skip
    assert walk(DOWN, 250_002, 6, 83_334) == [200_001, 160_000, 128_000, 102_400, 83_334, 83_334]


@given(st.integers(1000, 10**9), st.sampled_from([(UP, 1.2), (DOWN, 0.8)]))
def test_the_integers_are_upstreams_floats(quota_us: int, step: tuple[Operation, float]) -> None:
    operation, factor = step
    assert steps.next_us(quota_us, operation.value, 0, 10**12) == int(quota_us * factor)


@given(
    st.integers(1000, 10**8),
    st.integers(100, 1000),
    st.integers(0, 10**9),
    st.lists(st.sampled_from(list(Operation)), max_size=20),
)
def test_within_base_and_ceiling_whatever_happens(
    base_us: int, percent: int, start_us: int, operations: list[Operation]
) -> None:
    quota_us, most_us = start_us, steps.ceiling_us(base_us, percent)
    for operation in operations:
        quota_us = steps.next_us(quota_us, operation.value, base_us, most_us)
        assert base_us <= quota_us <= most_us


@pytest.mark.parametrize(
    ("limit_us", "percent", "most_us", "expected"),
    [
        (200_000, 1000, None, 2_000_000),  # upstream's own, which vendor kernels take
        (200_000, 1000, 200_000, 200_000),
        (200_000, 50, 200_000, 100_000),
        (150_000, 1, 150_000, 1500),
        (83_334, 100, 50_000, 50_000),
    ],
)
def test_burst_buffers(limit_us: int, percent: int, most_us: int | None, expected: int) -> None:
    assert steps.buffer_us(limit_us, percent, most_us) == expected


@pytest.mark.parametrize(
    ("name", "inputs", "result"),
    [
        (
            "cpu_burst_quota",
            {"previous_us": 248_832, "change_percent": 120, "base_us": 100_000, "ceiling_us": 300_000},
            298_598,
        ),
        (
            "cpu_burst_quota",
            {"previous_us": 122_880, "change_percent": 80, "base_us": 100_000, "ceiling_us": 300_000},
            100_000,
        ),
        ("cpu_burst_buffer", {"quota_us": 200_000, "percent": 1000, "at_most_us": 200_000}, 200_000),
        ("cpu_burst_sum", {"main_us": 20_000, "formula_us": 44_000}, 64_000),
    ],
)
def test_formulas(name: str, inputs: Inputs, result: int) -> None:
    assert recompute({FORMULA: name, **inputs}, formulas()) == result
    assert formulas()[name].text
