"""Of which nodes the manager knows figures that count, at any moment of a simulation. Instants are seconds."""

from __future__ import annotations

import math
from itertools import accumulate

from koord.model.nodelink import STALE_S


class Freshness:
    """Nodes are numbers. A node that reports is fresh, and ``STALE_S`` longer than it does."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._begun_s: list[float | None] = [None] * nodes
        self._until_s = [0.0] * nodes
        self._spans: list[tuple[float, float]] = []

    def told(self, node: int, now_s: float) -> None:
        """It reports from now on."""
        begun_s, until_s = self._begun_s[node], self._until_s[node]
        if begun_s is not None and until_s < now_s:
            self._spans.append((begun_s, until_s))
            begun_s = None
        self._begun_s[node] = now_s if begun_s is None else begun_s
        self._until_s[node] = math.inf

    def silent(self, node: int, last_s: float) -> None:
        """It does not report any more, for the last time at ``last_s``."""
        self._until_s[node] = min(self._until_s[node], last_s + STALE_S)

    def forget(self, now_s: float) -> None:
        """The manager that knew has gone."""
        self._until_s = [min(until_s, now_s) for until_s in self._until_s]

    def share(self, begin_s: float, end_s: float) -> float:
        """Of the nodes' time between."""
        fresh_s = sum(max(0.0, min(until_s, end_s) - max(begun_s, begin_s)) for begun_s, until_s in self._all())
        return fresh_s / (self.nodes * (end_s - begin_s))

    def reached_s(self, share: float, begin_s: float, end_s: float) -> float:
        """How long after ``begin_s`` such a share of the nodes was fresh, in whole seconds; infinite: never."""
        seconds = math.ceil(end_s - begin_s)
        changes = [0] * (seconds + 1)
        for begun_s, until_s in self._all():
            first, last = (min(seconds, max(0, math.ceil(each - begin_s))) for each in (begun_s, min(until_s, end_s)))
            changes[first] += 1
            changes[last] -= 1
        fresh = accumulate(changes)
        return next((second for second, count in enumerate(fresh) if count >= share * self.nodes), math.inf)

    def _all(self) -> list[tuple[float, float]]:
        now = [(begun, until) for begun, until in zip(self._begun_s, self._until_s, strict=True) if begun is not None]
        return self._spans + now
