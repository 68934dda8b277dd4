"""A node as a plant: what latency-sensitive work suffers by what best-effort pods have, some seconds late and noisy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from qosd.strategies.suppression.ladder import LadderState, Rung, Scene, climbed
from qosd.strategies.suppression.pain import Pain
from qosd.strategies.suppression.regulator import SECOND_NS, Bounds

CAPACITY_MILLI = 16_000
EVERY = (Rung.SLICES, Rung.IDLE, Rung.TIME, Rung.CPUS)
Hurt = Callable[["Plant"], float]
"""Pain in ms per second of the present state."""


@dataclass
class Plant:
    """``hurt`` says what the present state makes a service wait; it is seen ``delay_s`` later, with noise.

    ``anyway_ms``: what it waits besides, because of its own threads. ``rest_milli``: what runs on its CPUs besides it
    and best-effort work, so that not all that it waits is put down to that.
    """

    hurt: Hurt
    delay_s: int = 1
    noise: float = 0.1
    load_milli: int = 6_000
    demand_milli: int = CAPACITY_MILLI
    rungs: tuple[Rung, ...] = EVERY
    set_point_ms: float = 20.0
    ceiling_percent: int = 95
    chance: Random = field(default_factory=lambda: Random(1))
    workloads: frozenset[str] = frozenset({"web", "job"})
    anyway_ms: float = 0.0
    rest_milli: int = 0
    state: LadderState = field(default_factory=LadderState)
    now_s: float = 1000.0

    def __post_init__(self) -> None:
        self.pains = deque([self.hurt(self)] * (self.delay_s + 1), maxlen=self.delay_s + 1)
        self.history: list[tuple[float, float, int, frozenset[Rung]]] = []

    @property
    def ceiling_milli(self) -> int:
        return CAPACITY_MILLI * self.ceiling_percent // 100 - self.load_milli

    @property
    def limit_milli(self) -> int:
        """What best-effort pods may have; all there is without a limit."""
        return CAPACITY_MILLI if self.state.limit is None else self.state.limit.milli

    @property
    def used_milli(self) -> int:
        return max(0, min(self.demand_milli, self.limit_milli, CAPACITY_MILLI - self.load_milli))

    def has(self, rung: Rung) -> bool:
        return rung in self.state.in_force

    def tick(self, seconds: float = 1.0) -> None:
        self.now_s += seconds
        self.pains.append(self.hurt(self))
        waits = self.pains[0] + self.anyway_ms
        seen = max(0.0, waits * (1 + self.chance.gauss(0, self.noise)) + self.chance.gauss(0, self.noise))
        part = self.used_milli / (self.used_milli + self.rest_milli) if self.used_milli else 0.0
        scene = Scene(
            now_ns=int(self.now_s * SECOND_NS),
            pains={"web": Pain(1000 * seen * part, 1000 * seen)},
            used_milli=self.used_milli,
            load_milli=self.load_milli,
            bounds=Bounds(20, max(20, self.ceiling_milli), CAPACITY_MILLI, 1000 * self.set_point_ms),
            rungs=self.rungs,
            workloads=self.workloads,
        )
        self.state = climbed(self.state, scene)
        self.history.append((self.now_s, seen, self.limit_milli, self.state.in_force))

    def run(self, seconds: int) -> Plant:
        for _ in range(seconds):
            self.tick()
        return self

    def reversals(self, seconds: int) -> int:
        """How often the limit turned round in the last ``seconds``."""
        limits = [limit for _, _, limit, _ in self.history[-seconds:]]
        moves = [after - before for before, after in pairwise(limits) if after != before]
        return sum((before > 0) != (after > 0) for before, after in pairwise(moves))
