"""The schedule of the open loop's client, which call to which socket at which instant: drawn beforehand, without
regard to answers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

TURN_S = 0.5
SEED = 1


@dataclass(frozen=True, slots=True)
class Turn:
    """Calls on one socket; ``due_us`` are the intended instants, counted from the turn's beginning, and rising."""

    side: str
    due_us: tuple[float, ...]


def schedule(sides: Sequence[str], seconds: float, rate_per_s: float, seed: int = SEED) -> list[Turn]:
    """``seconds`` of calls on each of ``sides``, in turns of ``TURN_S``; a round has each side once, in random order.

    Calls are a Poisson process, so that they meet whatever is periodic at every phase. A turn has one call at least.
    """
    chance = random.Random(seed)
    rounds = max(1, round(seconds / TURN_S))
    return [
        Turn(side, tuple(_instants_us(chance, rate_per_s)))
        for _ in range(rounds)
        for side in chance.sample(list(sides), len(sides))
    ]


def _instants_us(chance: random.Random, rate_per_s: float) -> Iterator[float]:
    """The first call is due whenever it comes: its turn is then longer."""
    at_s = chance.expovariate(rate_per_s)
    while True:
        yield at_s * 1e6
        at_s += chance.expovariate(rate_per_s)
        if at_s >= TURN_S:
            return
