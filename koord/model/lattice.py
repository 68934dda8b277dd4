"""Compares two kernel values, and computes a value times a factor or an amount more: numbers, sets of CPUs.

``meet`` is the most that is at most both of two values, ``join`` the least that is at least both. Each kind of value
says them once, for the composition of opinions and for printed results. Arithmetic is exact: a factor is a fraction,
never a float. Values that make no sense fail with a plain ValueError whose text is a reason. Invariants: ``meet`` and
``join`` are commutative, associative and idempotent on values at or above the minimum, and each absorbs the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from koord.model import cpuset
from koord.model.cfs import UNLIMITED

Value = int | str


class Lattice(Protocol):
    """How values of one kind compare. Every method raises ValueError for a value that is not of the kind."""

    def meet(self, a: Value, b: Value) -> Value: ...
    def join(self, a: Value, b: Value) -> Value: ...
    def scale(self, value: Value, factor: Fraction) -> Value: ...
    def add(self, value: Value, amount: Value) -> Value: ...


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers, of which -1 is "no limit" and above all others. Results are at least ``minimum``."""

    minimum: int = 0

    def meet(self, a: Value, b: Value) -> Value:
        limits = [each for each in (_number(a), _number(b)) if each >= 0]
        return max(self.minimum, min(limits)) if limits else UNLIMITED

    def join(self, a: Value, b: Value) -> Value:
        numbers = (_number(a), _number(b))
        return UNLIMITED if min(numbers) < 0 else max(self.minimum, *numbers)

    def scale(self, value: Value, factor: Fraction) -> Value:
        """Rounded towards ``value``; "no limit" stays."""
        number = _number(value)
        if factor <= 0:
            raise ValueError(f"factor {factor} is not positive")
        if number < 0:
            return UNLIMITED
        return max(self.minimum, math.ceil(number * factor) if factor < 1 else math.floor(number * factor))

    def add(self, value: Value, amount: Value) -> Value:
        """Adds ``amount``, which may be negative; "no limit" stays."""
        number, more = _number(value), _number(amount)
        return UNLIMITED if number < 0 else max(self.minimum, number + more)


@dataclass(frozen=True, slots=True)
class CPUSets:
    """Lists of CPUs or memory nodes. "" is all that the parent has, and so above all others."""

    def meet(self, a: Value, b: Value) -> Value:
        """Raises ValueError if nothing is left: the kernel has no empty set for a cgroup with tasks."""
        first, second = cpuset.parse(str(a)), cpuset.parse(str(b))
        if not (first and second):
            return str(first or second)
        if not first & second:
            raise ValueError(f"{first} and {second} have no CPU in common")
        return str(first & second)

    def join(self, a: Value, b: Value) -> Value:
        first, second = cpuset.parse(str(a)), cpuset.parse(str(b))
        return str(first | second) if first and second else ""

    def scale(self, value: Value, factor: Fraction) -> Value:
        raise ValueError("a set of CPUs cannot be scaled")

    def add(self, value: Value, amount: Value) -> Value:
        raise ValueError("a set of CPUs has no amount to add to")


def _number(value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value
