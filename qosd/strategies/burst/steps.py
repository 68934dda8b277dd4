"""Decides by how much a container's CFS quota grows or shrinks at a round; has the formulas of all values.

    case                                        operation on the quota
    policy without quota bursts                 reset    back to its base
    no tokens are left                          down     * 0.8
    throttled, and the share pool is idle       up       * 1.2
    throttled, pool cooling or unknown          remain
    not throttled, or unknown                   remain
    either of them, and the pool is overloaded  down     * 0.8

Never below the base, never above ``base * cfsQuotaBurstPercent / 100``. Arithmetic is on integers and rounds down,
which is exactly what upstream's floats come to.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from koord.model.formulas import FORMULA, Formula, Inputs, number
from koord.model.lattice import Value
from qosd.strategies.burst.sharepool import PoolState

QUOTA_FORMULA, BUFFER_FORMULA, SUM_FORMULA = "cpu_burst_quota", "cpu_burst_buffer", "cpu_burst_sum"


class Operation(Enum):
    """An operation on a quota; the value is the percentage of it that stays."""

    UP = 120
    REMAIN = 100
    DOWN = 80
    RESET = 0


_BY_POOL: Mapping[tuple[PoolState, Operation], Operation] = MappingProxyType(
    {
        (PoolState.OVERLOAD, Operation.UP): Operation.DOWN,
        (PoolState.OVERLOAD, Operation.REMAIN): Operation.DOWN,
        (PoolState.COOLING, Operation.UP): Operation.REMAIN,
        (PoolState.UNKNOWN, Operation.UP): Operation.REMAIN,
    }
)


def operation(is_on: bool, is_allowed: bool, throttled_ratio: float | None, pool: PoolState) -> Operation:
    """Returns the operation. ``is_on``: does the policy want quota bursts? ``is_allowed``: are there tokens?"""
    if not is_on:
        return Operation.RESET
    if not is_allowed:
        return Operation.DOWN
    wish = Operation.UP if throttled_ratio is not None and throttled_ratio > 0 else Operation.REMAIN
    return _BY_POOL.get((pool, wish), wish)


def ceiling_us(base_us: int, burst_percent: int) -> int:
    return base_us * burst_percent // 100


def next_us(previous_us: int, change_percent: int, base_us: int, most_us: int) -> int:
    """Returns the quota after one operation."""
    return max(base_us, min(most_us, previous_us * change_percent // 100))


def buffer_us(quota_us: int, percent: int, most_us: int | None = None) -> int:
    """Returns the kernel's burst buffer: ``percent`` of a quota."""
    wanted_us = quota_us * percent // 100
    return wanted_us if most_us is None else min(wanted_us, most_us)


def _next(inputs: Inputs) -> Value:
    return next_us(
        number(inputs, "previous_us"),
        number(inputs, "change_percent"),
        number(inputs, "base_us"),
        number(inputs, "ceiling_us"),
    )


def _buffer(inputs: Inputs) -> Value:
    return buffer_us(number(inputs, "quota_us"), number(inputs, "percent"), number(inputs, "at_most_us"))


def _sum(inputs: Inputs) -> Value:
    return sum(number(inputs, name) for name in inputs if name != FORMULA)


FORMULAS = (
    Formula(
        QUOTA_FORMULA,
        "floor(previous_us * change_percent / 100), at least base_us, at most ceiling_us",
        _next,
    ),
    Formula(BUFFER_FORMULA, "floor(quota_us * percent / 100), at most at_most_us", _buffer),
    Formula(SUM_FORMULA, "the sum over the pod's containers, by their names", _sum),
)
