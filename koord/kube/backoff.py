"""How long to wait before the next try: twice as long each time, up to a bound, and never in step with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Random = Callable[[], float]
"""Evenly in [0, 1)."""

_MAX_DOUBLINGS = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    base_s: float
    max_s: float

    def delay_s(self, failures: int, random: Random) -> float:
        """Before the try after ``failures`` (1 or more) of them: between half and all of the doubled base."""
        doublings = min(max(failures - 1, 0), _MAX_DOUBLINGS)
        return min(self.max_s, self.base_s * 2.0**doublings) * (0.5 + random() / 2)
