"""An actor: plans, does, journals, notes for undoing, and explains one kind of thing that decisions change.

Kernel files, tasks in resctrl groups, attributes of tasks, one-shot writes and evictions are actors; ``actuator`` lists
them. Invariants of each: ``plan`` reads and changes nothing; ``apply`` does what the plan has shown and no more, raises
for nothing that kernel, runtime or another writer does, and notes what is to be undone before it does it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

import msgspec

from koord.host.files import Target
from koord.host.reconcile.plan import Notice, Outcome, PlannedWrite
from qosd.act.journal import JournalEntry
from qosd.decide.decision import Act
from qosd.decide.runner import Decisions
from qosd.model.snapshot import PodView

P = TypeVar("P", bound="Part")


class Part(Protocol):
    """One actor's part of a plan."""

    @property
    def writes(self) -> tuple[PlannedWrite, ...]:
        """The acts that it will do, each as if it wrote a value."""


class ExplainedAct(msgspec.Struct, frozen=True):
    """An act as ``explain`` shows it, as if a file held a value: ``owner`` wants ``result``, ``actual`` is there."""

    target: Target
    path: str
    owner: str
    result: str
    why: str
    actual: str
    pod: str = ""
    age_s: float | None = None


class ActReport(msgspec.Struct, frozen=True, eq=False):
    """An actor's state at the end of a tick, for readers in any thread. Immutable.

    ``decisions``: those of that tick.
    """

    def of_pod(self, decisions: Decisions, pod: PodView) -> Iterable[ExplainedAct]:
        """Returns the acts on ``pod`` and its containers."""
        return ()


_NOTHING_LEFT = ActReport()


class Actor(Protocol[P]):
    """An actor. ``apply`` takes what ``plan`` has returned for the same decisions.

    Actors derive from it; a member with a value here is a default.
    """

    @property
    def follows(self) -> tuple[type[Act], ...]:
        """The kinds of acts that it carries out."""
        return ()

    @property
    def report(self) -> ActReport:
        """The report, made in the loop's own thread, read in any. Its mappings are replaced whole, never copied."""
        return _NOTHING_LEFT

    def plan(self, decisions: Decisions, /) -> P: ...

    def apply(self, decisions: Decisions, part: P, /) -> tuple[Outcome, ...]:
        """Does the acts of ``part`` and journals them; returns an outcome for each, in their order."""


def entry_of(decisions: Decisions, act: PlannedWrite | Notice, result: str, why: str) -> JournalEntry:
    """Returns the journal's row about ``act``, with the clocks of the decisions' tick."""
    return JournalEntry(
        wall_ns=decisions.wall_ns,
        monotonic_ns=decisions.monotonic_ns,
        tick=decisions.tick,
        owner=act.by,
        pod=act.pod,
        cgroup=act.target.cgroup,
        name=act.target.name,
        path=act.path,
        before=act.before,
        after=act.after,
        result=result,
        why=why,
        inputs=act.inputs,
    )
