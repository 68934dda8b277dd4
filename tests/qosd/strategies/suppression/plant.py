"""A node as a plant: what latency-sensitive work suffers by what best-effort pods have, some seconds late and noisy."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from qosd.strategies.suppression.cpuwait import CPUWait
from qosd.strategies.suppression.formula import Steady
from qosd.strategies.suppression.regulator import SECOND_NS, LimitBounds
from qosd.strategies.suppression.steps import SuppressionInput, SuppressionState, SuppressionStep, advanced

CAPACITY_MILLI = 16_000
EVERY = (SuppressionStep.SLICES, SuppressionStep.IDLE, SuppressionStep.TIME, SuppressionStep.CPUS)
Hurt = Callable[["Plant"], float]
"""The wait in ms per second of the present state."""
Others = Callable[[float, Random], float]
"""What all others use, in CPUs, at a second of the run, with chance."""


def limit_cycle(low: float, high: float, period_s: float) -> Others:
    """One half of each period the others use ``low``, the other half ``high``."""
    return lambda at_s, _: high if at_s % period_s * 2 < period_s else low


OTHERS: dict[str, Others] = {
    "steady": lambda _, __: 6.0,
    "a thousandth of a CPU": lambda _, chance: 6 + chance.choice([-0.001, 0.001]),
    "noise": lambda _, chance: 6 + chance.uniform(-0.2, 0.2),
    "much noise": lambda _, chance: 6 + chance.uniform(-5, 5),
    "rising": lambda at_s, chance: min(15.0, 2 + at_s / 100 + chance.gauss(0, 0.05)),
    "falling": lambda at_s, chance: max(1.0, 14 - at_s / 60 + chance.gauss(0, 0.05)),
    "steps": lambda at_s, _: Random(int(at_s // 17)).uniform(1, 15),
    "a cycle of 2 s": limit_cycle(3, 12, 2),
    "a cycle of 9 s": limit_cycle(3, 12, 9),
    "a cycle of a minute": limit_cycle(1, 14, 60),
    "a noisy wave": lambda at_s, chance: 7 + 5 * math.sin(at_s / 7) + chance.gauss(0, 0.3),
}


@dataclass
class Plant:
    """``hurt`` says what the present state makes a service wait; it is seen ``delay_s`` later, with noise.

    ``anyway_ms``: what it waits besides, because of its own threads. ``rest_milli``: what runs on its CPUs besides it
    and best-effort work, so that not all that it waits is put down to that. ``others``: moves ``load_milli``.
    """

    hurt: Hurt
    delay_s: int = 1
    noise: float = 0.1
    load_milli: int = 6_000
    demand_milli: int = CAPACITY_MILLI
    steps: tuple[SuppressionStep, ...] = EVERY
    set_point_ms: float = 20.0
    ceiling_percent: int = 95
    chance: Random = field(default_factory=lambda: Random(1))
    workloads: frozenset[str] = frozenset({"web", "job"})
    anyway_ms: float = 0.0
    rest_milli: int = 0
    others: Others | None = None
    state: SuppressionState = field(default_factory=SuppressionState)
    now_s: float = 1000.0

    def __post_init__(self) -> None:
        self.begun_s, self.steady = self.now_s, Steady(self.ceiling_milli)
        self.waits = deque([self.hurt(self)] * (self.delay_s + 1), maxlen=self.delay_s + 1)
        self.history: list[tuple[float, float, int, frozenset[SuppressionStep]]] = []

    @property
    def ceiling_milli(self) -> int:
        return CAPACITY_MILLI * self.ceiling_percent // 100 - self.load_milli

    @property
    def bounds(self) -> LimitBounds:
        return LimitBounds(20, max(20, self.steady.milli), CAPACITY_MILLI, 1000 * self.set_point_ms)

    @property
    def limit_milli(self) -> int:
        """What best-effort pods may have; all there is without a limit."""
        return CAPACITY_MILLI if self.state.limit is None else self.bounds.of(self.state.limit)

    @property
    def used_milli(self) -> int:
        return max(0, min(self.demand_milli, self.limit_milli, CAPACITY_MILLI - self.load_milli))

    def has(self, step: SuppressionStep) -> bool:
        return step in self.state.in_force

    def tick(self, seconds: float = 1.0) -> None:
        self.now_s += seconds
        if self.others is not None:
            self.load_milli = round(1000 * self.others(self.now_s - self.begun_s, self.chance))
        self.steady = self.steady.fed(self.ceiling_milli, CAPACITY_MILLI, int(self.now_s * SECOND_NS))
        self.waits.append(self.hurt(self))
        waits = self.waits[0] + self.anyway_ms
        seen = max(0.0, waits * (1 + self.chance.gauss(0, self.noise)) + self.chance.gauss(0, self.noise))
        part = self.used_milli / (self.used_milli + self.rest_milli) if self.used_milli else 0.0
        inputs = SuppressionInput(
            now_ns=int(self.now_s * SECOND_NS),
            waits={"web": CPUWait(1000 * seen * part, 1000 * seen)},
            used_milli=self.used_milli,
            load_milli=self.load_milli,
            bounds=self.bounds,
            steps=self.steps,
            workloads=self.workloads,
        )
        self.state = advanced(self.state, inputs)
        self.history.append((self.now_s, seen, self.limit_milli, self.state.in_force))

    def run(self, seconds: int) -> Plant:
        for _ in range(seconds):
            self.tick()
        return self

    def moves(self, seconds: int) -> int:
        """How often what best-effort pods may have changed in the last ``seconds``."""
        limits = [limit for _, _, limit, _ in self.history[-seconds:]]
        return sum(before != after for before, after in pairwise(limits))

    def reversals(self, seconds: int) -> int:
        """How often the limit turned round in the last ``seconds``."""
        limits = [limit for _, _, limit, _ in self.history[-seconds:]]
        moves = [after - before for before, after in pairwise(limits) if after != before]
        return sum((before > 0) != (after > 0) for before, after in pairwise(moves))
