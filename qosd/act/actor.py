"""An actor: one kind of thing that decisions change, with its plan, its doing, its journal rows, its undo notes, and
what is explained of it.

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
        """What it will do, each act as if it wrote a value."""


class ExplainedAct(msgspec.Struct, frozen=True):
    """What ``explain`` shows of an act, as if a file held a value: ``owner`` wants ``result``, ``actual`` is there."""

    target: Target
    path: str
    owner: str
    result: str
    why: str
    actual: str
    pod: str = ""
    age_s: float | None = None


class ActReport(msgspec.Struct, frozen=True, eq=False):
    """What an actor has left at the end of a tick, for whoever asks afterwards, in any thread. Nothing in it changes.

    ``decisions``: those of that tick.
    """

    def of_pod(self, decisions: Decisions, pod: PodView) -> Iterable[ExplainedAct]:
        """What is to be explained of ``pod`` and its containers."""
        return ()


_NOTHING_LEFT = ActReport()


class Actor(Protocol[P]):
    """``apply`` takes what ``plan`` has returned for the same decisions.

    An actor derives from it; what has a value here is the default.
    """

    @property
    def follows(self) -> tuple[type[Act], ...]:
        """The kinds of acts that it carries out."""
        return ()

    @property
    def report(self) -> ActReport:
        """For the loop's own thread; what it returns is for any. Its mappings are replaced whole, never copied."""
        return _NOTHING_LEFT

    def plan(self, decisions: Decisions, /) -> P: ...

    def apply(self, decisions: Decisions, part: P, /) -> tuple[Outcome, ...]:
        """One outcome for each act that is shown, in that order; each act, or what it comes to, is journaled."""


def entry_of(decisions: Decisions, act: PlannedWrite | Notice, result: str, why: str) -> JournalEntry:
    """The journal's row about ``act``, with the clocks of the decisions' tick."""
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
