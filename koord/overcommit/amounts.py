"""CPU and memory side by side, as every formula of overcommit has them: read from an object's amounts, and as text.

CPU is counted in thousandths and memory in bytes, whatever the resource is called: native, mid or batch. What a pod or
a report says is rounded up to these units, since it is taken away from what a node offers.

Invariant: an amount that cannot be read is never taken for another one: it is None, and a sentence says why.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from koord.model import quantity
from koord.model.core import Amount, Amounts
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY
from koord.model.problem import Bad, Problem
from koord.model.quantity import QuantityError

_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class Names(NamedTuple):
    """The names of the two resources."""

    cpu: str
    memory: str


NATIVE = Names(CPU, MEMORY)
MID = Names(MID_CPU, MID_MEMORY)
BATCH = Names(BATCH_CPU, BATCH_MEMORY)


class CPUMemory(msgspec.Struct, frozen=True, gc=False):
    cpu_milli: int = 0
    memory_bytes: int = 0

    def __add__(self, other: CPUMemory) -> CPUMemory:
        return CPUMemory(self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes)

    def __sub__(self, other: CPUMemory) -> CPUMemory:
        return CPUMemory(self.cpu_milli - other.cpu_milli, self.memory_bytes - other.memory_bytes)

    def min(self, other: CPUMemory) -> CPUMemory:
        """Returns the smaller one of each resource."""
        return CPUMemory(min(self.cpu_milli, other.cpu_milli), min(self.memory_bytes, other.memory_bytes))

    def max(self, other: CPUMemory) -> CPUMemory:
        """Returns the larger one of each resource."""
        return CPUMemory(max(self.cpu_milli, other.cpu_milli), max(self.memory_bytes, other.memory_bytes))

    def percent(self, cpu: int, memory: int) -> CPUMemory:
        """Returns so many percent of each resource; fractions are dropped, towards 0."""
        return CPUMemory(_percent(self.cpu_milli, cpu), _percent(self.memory_bytes, memory))


ZERO = CPUMemory()


class ParsedAmounts(NamedTuple):
    """None: not stated, or not readable, which ``problems`` say."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    problems: tuple[str, ...] = ()

    def noted(self, place: str, bad: Bad) -> ParsedAmounts:
        """Tells ``bad`` of each problem at ``place``, and returns itself."""
        for problem in self.problems:
            bad(Problem(place, problem))
        return self

    def filled(self, absent: CPUMemory = ZERO) -> CPUMemory:
        """Returns both amounts, those of ``absent`` in place of None."""
        return CPUMemory(
            absent.cpu_milli if self.cpu_milli is None else self.cpu_milli,
            absent.memory_bytes if self.memory_bytes is None else self.memory_bytes,
        )


def read(amounts: Amounts, names: Names = NATIVE) -> ParsedAmounts:
    """Reads the two resources in ``amounts``."""
    cpu, memory = amounts.get(names.cpu), amounts.get(names.memory)
    try:
        return ParsedAmounts(_cpu_milli(names.cpu, cpu), _memory_bytes(memory))
    except QuantityError:
        return _read_each(names, cpu, memory)


def cpu_text(milli: int) -> str:
    """Writes thousandths of a CPU for people."""
    return f"{milli}m"


def memory_text(amount_bytes: int) -> str:
    """Writes bytes for people: in the largest binary unit, rounded to two decimals."""
    power = min(max(0, (abs(amount_bytes).bit_length() - 1) // 10), len(_SUFFIXES) - 1)
    if power == 0:
        return str(amount_bytes)
    shown = f"{amount_bytes / (1 << 10 * power):.2f}".rstrip("0").rstrip(".")
    return f"{shown}{_SUFFIXES[power]}"


def _read_each(names: Names, cpu: Amount | None, memory: Amount | None) -> ParsedAmounts:
    problems = []
    cpu_milli = memory_bytes = None
    try:
        cpu_milli = _cpu_milli(names.cpu, cpu)
    except QuantityError as error:
        problems.append(f"{names.cpu} {error}")
    try:
        memory_bytes = _memory_bytes(memory)
    except QuantityError as error:
        problems.append(f"{names.memory} {error}")
    return ParsedAmounts(cpu_milli, memory_bytes, tuple(problems))


def _cpu_milli(name: str, amount: Amount | None) -> int | None:
    if amount is None:
        return None
    count = quantity.cpu_milli if name == CPU else quantity.extended_cpu_milli
    return count(quantity.from_json(amount))


def _memory_bytes(amount: Amount | None) -> int | None:
    return None if amount is None else quantity.memory_bytes(quantity.from_json(amount))


def _percent(amount: int, percent: int) -> int:
    hundredfold = amount * percent
    return hundredfold // 100 if hundredfold >= 0 else -(-hundredfold // 100)
