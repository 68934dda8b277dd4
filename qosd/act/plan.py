"""A tick's plan, what becomes of it, and both in the words that people are shown."""

from __future__ import annotations

from collections import Counter

import msgspec

from koord.host.reconcile.plan import Outcome, PlannedWrite
from qosd.act.actor import Part
from qosd.decide.runner import Decisions


class TickPlan(msgspec.Struct, frozen=True):
    """What ``decisions`` come to: each actor's part, in the actors' order."""

    decisions: Decisions
    parts: tuple[Part, ...]

    @property
    def writes(self) -> tuple[PlannedWrite, ...]:
        """All acts, in their order, each as if it wrote a value."""
        return tuple(act for part in self.parts for act in part.writes)


class TickResult(msgspec.Struct, frozen=True):
    """One executed plan: an outcome for each act that it showed, in the same order."""

    outcomes: tuple[Outcome, ...]

    @property
    def results(self) -> tuple[str, ...]:
        """The result of each."""
        return tuple(outcome.result for outcome in self.outcomes)

    @property
    def sentence(self) -> str:
        """For people: how many acts came to what."""
        counted = Counter(self.results).items()
        return ", ".join(f"{count} {result}" for result, count in counted) or "nothing to write"
