"""A tick's plan and its result."""

from __future__ import annotations

from collections import Counter

import msgspec

from koord.host.reconcile.plan import Outcome, PlannedWrite
from qosd.act.actor import Part
from qosd.decide.runner import Decisions


class TickPlan(msgspec.Struct, frozen=True):
    """The plan for ``decisions``: each actor's part, in the actors' order."""

    decisions: Decisions
    parts: tuple[Part, ...]

    @property
    def writes(self) -> tuple[PlannedWrite, ...]:
        """All acts in their order, each as if it wrote a value."""
        return tuple(act for part in self.parts for act in part.writes)


class TickResult(msgspec.Struct, frozen=True):
    """One executed plan: an outcome for each act that it showed, in the same order."""

    outcomes: tuple[Outcome, ...]

    @property
    def results(self) -> tuple[str, ...]:
        """The result of each act."""
        return tuple(outcome.result for outcome in self.outcomes)

    @property
    def sentence(self) -> str:
        """The number of acts by result, for people."""
        counted = Counter(self.results).items()
        return ", ".join(f"{count} {result}" for result, count in counted) or "nothing to write"
