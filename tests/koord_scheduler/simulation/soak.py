"""Many lives, one after the other, until so many steps are done."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.koord_scheduler.simulation.kinds import FATES, KINDS, Kind
from tests.koord_scheduler.simulation.life import STEPS_OF_A_LIFE, Life

LIVES_OF_A_SEED = 1 << 32


EXERCISED = (
    "decisions", "bindings sent", "preemptions", "rests", "long rests", "pods that waited at a rest",
    *(f"bindings {fate}" for fate in FATES), "other writes with faults", "requests carried out late",
    "lists and watches refused", "watches cut", "watches expired", "events missed", "events told twice",
    "replicas started", "replicas killed", "replicas ended", "terms", "decisions that miss a former leader's",
    "pods created", "pods deleted", "promised pods deleted", "pods resized", "pods placed by others",
    "nodes gone", "claims bound",
    "members of gangs created", "gangs placed", "members placed beyond a start",
    "events Scheduled", "events FailedScheduling", "events Preempted",
)  # fmt: skip
"""What a long run has to have met, each at least once."""
_FAULTS = (
    *(f"bindings {fate}" for fate in FATES[1:]), "other writes with faults", "lists and watches refused", "watches cut",
    "watches expired", "events missed", "events told twice", "replicas killed", "replicas ended", "nodes gone",
    "pods placed by others",
)  # fmt: skip


@dataclass(slots=True)
class Result:
    """``steps`` that were done in all, ``counts`` of what happened, and the first rule that was broken."""

    steps: int = 0
    lives: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failure: str = ""

    def add(self, other: Result) -> None:
        self.steps += other.steps
        self.lives += other.lives
        self.counts += other.counts
        self.failure = self.failure or other.failure

    def unmet(self) -> list[str]:
        return [name for name in EXERCISED if not self.counts[name]]

    def told(self) -> str:
        return "\n".join(f"  {self.counts[name]:>11,} {name}" for name in EXERCISED)

    def summary(self) -> str:
        faults = sum(self.counts[name] for name in _FAULTS)
        return f"{self.counts['decisions']:,} decisions, {self.counts['bindings sent']:,} bindings, {faults:,} faults"


def lives(seed: int, steps: int, kind: Kind | None = None) -> Result:
    """Run lives of the kind, or of one kind after the other, until there were ``steps``, or something went wrong. The
    same seed gives the same lives.
    """
    result, number, stride = Result(), seed * LIVES_OF_A_SEED, 1
    if kind is not None:
        number, stride = (number // len(KINDS)) * len(KINDS) + KINDS.index(kind), len(KINDS)
    with quiet():
        while result.steps < steps and not result.failure:
            life = Life(number, result.counts)
            result.failure = outcome(life, min(STEPS_OF_A_LIFE, steps - result.steps))
            result.steps += life.steps
            result.lives += 1
            number += stride
    return result


def outcome(life: Life, steps: int = STEPS_OF_A_LIFE) -> str:
    """What went wrong in the life; "" if nothing did."""
    try:
        life.run(steps)
    except Exception as error:  # noqa: BLE001 - whatever it is, the life ends, and how to see it again is told
        causes = list(_leaves(error))
        where = "".join(traceback.format_exception(causes[0])) if not isinstance(causes[0], AssertionError) else ""
        told = "; ".join(f"{type(each).__name__}: {each}" for each in causes)
        return f"life {life.number}, step {life.steps}: {told}\n{where}"
    return ""


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions that a group is of."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


@contextmanager
def quiet() -> Iterator[None]:
    """The scheduler logs what it meets, and here it meets all of it."""
    loggers = [logging.getLogger(name) for name in ("koord_scheduler", "koord.kube", "koord.scheduling")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
