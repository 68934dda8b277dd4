"""A generator of choices that is cheap to seed: each step of a run has one of its own, so that a step can be left
out of a trace without changing what the others do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1


class Dice:
    __slots__ = ("state",)

    def __init__(self, seed: int) -> None:
        mixed = (seed + 0x9E3779B97F4A7C15) & _MASK
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        self.state = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK

    def roll(self) -> int:
        """31 random bits."""
        self.state = state = (self.state * 6364136223846793005 + 1442695040888963407) & _MASK
        return state >> 33

    def below(self, limit: int) -> int:
        return self.roll() % limit

    def one_in(self, chances: int) -> bool:
        return self.roll() % chances == 0

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.roll() % len(choices)]
