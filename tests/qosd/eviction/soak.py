"""Many lives, one after the other, until so many steps are done; and what they must have met."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from tests.qosd.eviction.demands import STRATEGIES
from tests.qosd.eviction.life import Life

STEPS_OF_A_LIFE = 300
LIVES_OF_A_SEED = 1 << 32
EXERCISED = (
    *(f"{gate} evictions" for gate in STRATEGIES),
    "reclaims", "throttles", "freezes", "evicts",
    "throttles of memory by memory.high", "throttles of memory by little CPU",
    "reclaims that could free nothing", "steps that would have been too late", "steps that waited",
    "pods that were stopped because they grow", "thaws of pods that were killed first", "pods held at the floor",
    "evictions beyond the rate", "evictions for cpu that rested", "evictions for memory that rested",
    "evictions that owners decided", "evictions that lost work decided",
    "evictions that spared Kata pods", "evictions that spared SYSTEM pods", "evictions that spared static pods",
    "evictions that spared pods above the threshold", "evictions that spared pods that are not labelled",
    "evictions that spared pods that forbid it", "evictions that spared pods without a sample",
    "evictions that spared pods whose priority nobody has confirmed", "evictions that spared pods that go already",
    "evictions that spared pods that were evicted lately",
    "evictions that failed", "orders that were lost", "pods that kubelet started again", "pods that came",
    "pods that went", "pods that ended", "pods that are deleted", "restarts of the daemon", "rules that changed",
    "samples of dentries and inodes", "samples of page cache", "pods that write files",
    "freezes of nobody, since nobody grew", "demands that no eviction could meet",
    "demands that did not wait for a grace period",
    "settings that are missing", "kubelet silent", "runtime silent", "samples that were missing",
    "steps without a pod list in force", "steps that were rehearsed", "wall clocks that jumped",
)  # fmt: skip
"""What a long run has to have met, each at least once."""


@dataclass(slots=True)
class Result:
    """``steps`` that were done in all, ``counts`` of what happened, and the first rule that was broken."""

    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failure: str = ""

    def unmet(self) -> list[str]:
        return [name for name in EXERCISED if not self.counts[name]]

    def told(self) -> str:
        return "\n".join(f"  {self.counts[name]:>11,} {name}" for name in EXERCISED)


def lives(seed: int, steps: int) -> Result:
    """Run lives until there were ``steps``, or something went wrong. The same seed gives the same lives."""
    result, number = Result(), seed * LIVES_OF_A_SEED
    while result.steps < steps and not result.failure:
        life = Life(Random(number), result.counts)
        result.failure = outcome(life, number, min(STEPS_OF_A_LIFE, steps - result.steps))
        result.steps += life.steps
        number += 1
    return result


def outcome(life: Life, number: int, steps: int = STEPS_OF_A_LIFE) -> str:
    """What went wrong in the life of that number; "" if nothing did."""
    try:
        life.run(steps)
    except Exception as error:  # noqa: BLE001 - whatever it is, the life ends, and how to see it again is told
        where = "" if isinstance(error, AssertionError) else f"\n{traceback.format_exc()}"
        return f"life {number}, step {life.steps}: {type(error).__name__}: {error}{where}"
    return ""
