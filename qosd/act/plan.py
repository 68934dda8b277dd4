"""A plan: the writes of one tick in the kernel's order, each with who and why, made without writing anything.

The writes follow from the decisions and what the kernel holds, so a dry run shows exactly what the tick would do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from koord.host import placement
from koord.host.asked import Given, Which
from koord.host.files import Target, Value
from koord.host.writer import Found
from koord.model.formulas import Inputs
from qosd.act.agenda import Due
from qosd.act.holding import Verdict
from qosd.act.moves import MoveOutcome, Moves, PlannedMove
from qosd.act.retry import Retry
from qosd.act.unchanged import Look
from qosd.decide.frame import Decisions

_NO_INPUTS: Inputs = MappingProxyType({})

DONE, VANISHED, UNSUPPORTED, REFUSED, YIELDED, FOREIGN, ADOPTED = (
    "done",
    "vanished",
    "unsupported",
    "refused",
    "yielded",
    "foreign",
    "adopted",
)
"""Results in the journal. A write that the kernel refused is ``failed`` with its errno. Of these only ``done`` and
``failed …`` are writes that took place; ``foreign`` tells of someone else's (``after`` is what they wrote), ``adopted``
of the runtime's, which wrote a value of ours (``before`` is what kubelet asked for)."""
FAILED, UNREADABLE = "failed", "unreadable"


class PlannedWrite(msgspec.Struct, frozen=True):
    """One write(2). ``final`` unless it only makes room for a later one of the same file."""

    target: Target
    path: str
    before: Value
    after: Value
    final: bool
    who: str
    why: str
    inputs: Inputs = _NO_INPUTS
    pod: str = ""


class Notice(msgspec.Struct, frozen=True):
    """Something for the journal that is no write: ``result`` says what, ``after`` the value it is about."""

    target: Target
    path: str
    before: Value | None
    after: Value | None
    result: str
    who: str
    why: str
    inputs: Inputs = _NO_INPUTS
    pod: str = ""


class Taken(msgspec.Struct, frozen=True):
    """A container's file that was looked at with its asked value in mind.

    ``base``: what to put back of it from now on; None = it holds another value than the runtime was given.
    """

    which: Which
    given: Given
    found: Found
    base: Value | None


class Plan(msgspec.Struct, frozen=True):
    """The writes, in order; ``notices``: what else the journal will say. The rest is for whoever executes it."""

    decisions: Decisions
    edition: int
    """Which state of the actuator it was made from."""
    writes: tuple[PlannedWrite, ...]
    notices: tuple[Notice, ...]
    due: Due
    looks: Mapping[Target, Look | None]
    """What files in good order looked like; None of those in which something is to be done."""
    verdicts: Mapping[Target, Verdict]
    retries: Mapping[Target, Retry | None]
    """What to note of files that nothing is written to; None: nothing is in the way any more."""
    refused: Mapping[Target, tuple[tuple[str, str], ...]]
    """Opinions left out on the files looked at: (strategy, why)."""
    taken: Mapping[Target, Taken] = MappingProxyType({})
    """What the runtime wrote for us, to be noted before anything is written."""
    moves: Moves = Moves()
    """Of tasks between resctrl groups, after the writes."""

    @property
    def shown(self) -> tuple[PlannedWrite, ...]:
        """For people: the writes, then each move as if a cgroup's resctrl group were a value."""
        return (*self.writes, *map(_as_write, self.moves.moves))


def _as_write(move: PlannedMove) -> PlannedWrite:
    why = f"{move.why}: {placement.count(move.tasks)}"
    return PlannedWrite(move.target, move.path, move.before, move.after, True, move.who, why, pod=move.pod)


class Outcome(msgspec.Struct, frozen=True):
    """What became of one planned write: one of the results above, with the kernel's explanation."""

    write: PlannedWrite
    result: str
    detail: str = ""


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
