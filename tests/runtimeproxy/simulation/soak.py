"""Many lives, one after the other, until so many steps are done."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.runtimeproxy.simulation.life import guarded
from tests.runtimeproxy.simulation.raw import life_of
from tests.runtimeproxy.simulation.shrink import Failure

LIVES_OF_A_SEED = 1 << 32
_SHOWN = (
    "connections", "calls", "answered", "asked", "edited", "held and answered", "rewritten", "refused", "reset",
    "cancelled", "not taken", "cut off", "drain", "runtime_goaway", "bypass", "client_settings", "runtime_settings",
    "client_ping", "client_hangs_up", "runtime_hangs_up", "raw", "blind", "rest",
)  # fmt: skip


@dataclass(slots=True)
class Result:
    """``steps`` that were done in all, ``counts`` of what they were, and the first thing that went wrong."""

    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failure: Failure | None = None

    def told(self) -> str:
        counts = ", ".join(f"{name.replace('_', ' ')} {self.counts[name]}" for name in _SHOWN)
        return f"{self.steps} steps: {counts}"


def lives(seed: int, steps: int) -> Result:
    """Run lives until there were ``steps``, or something went wrong. The same seed gives the same lives."""
    result = Result()
    number = seed * LIVES_OF_A_SEED
    with quiet():
        while result.steps < steps and result.failure is None:
            life = life_of(number)
            error = guarded(life, life.run)
            result.steps += life.steps
            result.counts += life.counts
            if error is not None:
                result.failure = Failure(number, error, life.trace)
            number += 1
    return result


@contextmanager
def quiet() -> Iterator[None]:
    """The relay logs what it meets, and here it meets all of it."""
    logger = logging.getLogger("koord.relay")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
