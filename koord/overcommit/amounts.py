"""CPU and memory side by side, as every formula of overcommit has them, and how they are read from an object's amounts.

CPU is counted in thousandths and memory in bytes, whatever the resource is called: native, mid or batch. What a pod or
a report says is rounded up to these units, since it is taken away from what a node offers.

Invariant: an amount that cannot be read is never taken for another one: it is None, and a sentence says why.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from koord.model import quantity
from koord.model.annotations.decode import Bad
from koord.model.core import Amount, Amounts
from koord.model.priority import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY
from koord.model.quantity import QuantityError


class Names(NamedTuple):
    """What the two resources are called."""

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

    def meet(self, other: CPUMemory) -> CPUMemory:
        """The smaller one of each."""
        return CPUMemory(min(self.cpu_milli, other.cpu_milli), min(self.memory_bytes, other.memory_bytes))

    def join(self, other: CPUMemory) -> CPUMemory:
        """The larger one of each."""
        return CPUMemory(max(self.cpu_milli, other.cpu_milli), max(self.memory_bytes, other.memory_bytes))

    def percent(self, cpu: int, memory: int) -> CPUMemory:
        """So many percent of each; fractions are dropped, towards 0."""
        return CPUMemory(_percent(self.cpu_milli, cpu), _percent(self.memory_bytes, memory))


NOTHING = CPUMemory()


def shown(offered: CPUMemory | None, held: CPUMemory, taken: CPUMemory = NOTHING) -> CPUMemory | None:
    """What a Node shows: what is left of ``offered`` without what others have taken, and at least what its pods hold.

    None: the resources are to be removed, since nothing is offered and nothing is held.
    """
    if offered is None:
        return None if held == NOTHING else held
    return (offered - taken).join(held)


class Reading(NamedTuple):
    """None: not stated, or stated so that it cannot be read, which ``problems`` tell."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    problems: tuple[str, ...] = ()

    def report(self, place: str, bad: Bad) -> Reading:
        """Itself, once ``bad`` has been told of each problem at ``place``."""
        for problem in self.problems:
            bad(f"{place}: {problem}")
        return self

    def filled(self, absent: CPUMemory = NOTHING) -> CPUMemory:
        """With the amounts of ``absent`` for those that are None."""
        return CPUMemory(
            absent.cpu_milli if self.cpu_milli is None else self.cpu_milli,
            absent.memory_bytes if self.memory_bytes is None else self.memory_bytes,
        )


def read(amounts: Amounts, names: Names = NATIVE) -> Reading:
    """The two resources in ``amounts``."""
    cpu, memory = amounts.get(names.cpu), amounts.get(names.memory)
    try:
        return Reading(_cpu_milli(names.cpu, cpu), _memory_bytes(memory))
    except QuantityError:
        return _read_each(names, cpu, memory)


def _read_each(names: Names, cpu: Amount | None, memory: Amount | None) -> Reading:
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
    return Reading(cpu_milli, memory_bytes, tuple(problems))


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
