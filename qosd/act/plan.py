"""A tick's plan, what becomes of it, and both in the words that people are shown."""

from __future__ import annotations

from collections import Counter

import msgspec

from koord.host import placement
from koord.host.reconcile import plan as files
from koord.host.reconcile.plan import Outcome, PlannedWrite
from qosd.act.moves import MoveOutcome, Moves, PlannedMove
from qosd.decide.runner import Decisions


class Plan(msgspec.Struct, frozen=True):
    """The writes that ``decisions`` ask for, then the moves of tasks between resctrl groups."""

    decisions: Decisions
    files: files.Plan
    moves: Moves = Moves()

    @property
    def writes(self) -> tuple[PlannedWrite, ...]:
        return self.files.writes

    @property
    def shown(self) -> tuple[PlannedWrite, ...]:
        """For people: the writes, then each move as if a cgroup's resctrl group were a value."""
        return (*self.writes, *map(_as_write, self.moves.moves))


def _as_write(move: PlannedMove) -> PlannedWrite:
    why = f"{move.why}: {placement.count(move.tasks)}"
    return PlannedWrite(move.target, move.path, move.before, move.after, True, move.who, why, pod=move.pod)


class Result(msgspec.Struct, frozen=True):
    """One executed plan: an outcome for each planned write and each planned move, in the same order."""

    outcomes: tuple[Outcome, ...]
    moves: tuple[MoveOutcome, ...] = ()

    @property
    def results(self) -> tuple[str, ...]:
        """The result of each."""
        return (*(outcome.result for outcome in self.outcomes), *(move.result for move in self.moves))

    @property
    def sentence(self) -> str:
        """For people: how many writes and moves came to what."""
        counted = Counter(self.results).items()
        return ", ".join(f"{count} {result}" for result, count in counted) or "nothing to write"
