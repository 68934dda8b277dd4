"""Sets of CPU (or memory node) numbers in the text form the kernel reads and prints: "0-3,8", "0-31:2/4".

A set is one Python integer with a bit per CPU, so the operations are the machine's own and a set is hashable and
immutable by nature. The canonical text is the kernel's: ascending ranges, no spaces.

Invariant: numbers are at most ``MAX_CPU`` and texts at most ``MAX_TEXT`` long, so hostile input costs little.
Fails with ``CPUSetError``, which names the text and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_CPU = 65535
MAX_TEXT = 1 << 18
_ELEMENT = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9})/([0-9]{1,9}))?)?", re.ASCII)


class CPUSetError(ValueError):
    """``text`` is not a CPU list; ``why`` says which rule it breaks."""

    def __init__(self, text: object, why: str) -> None:
        self.text, self.why = text, why
        shown = repr(text)
        super().__init__(f"{shown if len(shown) <= 80 else shown[:80] + '…'} {why}")


@dataclass(frozen=True, slots=True)
class CPUSet:
    """An immutable set of CPU numbers; ``mask`` has bit n set when n is a member. ``str()`` is the canonical text."""

    mask: int = 0

    @classmethod
    def of(cls, cpus: Iterable[int]) -> CPUSet:
        """The set of ``cpus``, each 0..65535."""
        mask = 0
        for cpu in cpus:
            if not 0 <= cpu <= MAX_CPU:
                raise CPUSetError(cpu, f"is not a CPU number in 0..{MAX_CPU}")
            mask |= 1 << cpu
        return cls(mask)

    def __or__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask | other.mask)

    def __and__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask & other.mask)

    def __sub__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask & ~other.mask)

    def __le__(self, other: CPUSet) -> bool:
        """Whether every member is also one of ``other``."""
        return self.mask & ~other.mask == 0

    def __contains__(self, cpu: int) -> bool:
        return cpu >= 0 and bool(self.mask >> cpu & 1)

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __iter__(self) -> Iterator[int]:
        """The members, ascending."""
        for first, last in self.ranges():
            yield from range(first, last + 1)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The maximal runs of members as (first, last), ascending."""
        ascending_bits = f"{self.mask:b}"[::-1]
        for run in re.finditer("1+", ascending_bits):
            yield run.start(), run.end() - 1

    def __str__(self) -> str:
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in self.ranges())


EMPTY = CPUSet()


def parse(text: str) -> CPUSet:
    """The set that ``text`` lists; blank text is the empty set.

    An element is ``N``, ``A-B`` or ``A-B:used/group`` (of every ``group`` CPUs from A on, the first ``used``), as in
    the kernel's bitmap lists. The kernel's ``N`` and ``all`` for "every CPU there is" are refused: a set must mean
    the same on every machine.
    """
    if len(text) > MAX_TEXT:
        raise CPUSetError(text, f"is not a CPU list: longer than {MAX_TEXT} characters")
    stripped = text.strip()
    mask = 0
    for element in stripped.split(",") if stripped else ():
        mask |= _element_mask(text, element.strip())
    return CPUSet(mask)


def render(cpus: CPUSet) -> str:
    """The canonical text of ``cpus``: what the kernel prints."""
    return str(cpus)


def _element_mask(text: str, element: str) -> int:
    match = _ELEMENT.fullmatch(element)
    if match is None:
        raise CPUSetError(text, f"is not a CPU list: {element[:40]!r} is neither N, A-B nor A-B:used/group")
    first = int(match.group(1))
    last = first if match.group(2) is None else int(match.group(2))
    if last > MAX_CPU or first > MAX_CPU:
        raise CPUSetError(text, f"is not a CPU list: {element!r} goes beyond CPU {MAX_CPU}")
    if first > last:
        raise CPUSetError(text, f"is not a CPU list: {element!r} runs backwards")
    if match.group(3) is None:
        return _run(last - first + 1) << first
    used, group = int(match.group(3)), int(match.group(4))
    if not 0 < used <= group:
        raise CPUSetError(text, f"is not a CPU list: {element!r} must use 1..group CPUs of each group")
    return _strided(last - first + 1, used, group) << first


def _run(length: int) -> int:
    return (1 << length) - 1


def _strided(length: int, used: int, group: int) -> int:
    """The first ``used`` bits of each ``group``, up to bit ``length``; doubling keeps it logarithmic."""
    mask, filled = _run(min(used, length)), group
    while filled < length:
        mask |= mask << filled
        filled *= 2
    return mask & _run(length)
