"""An actor: one kind of thing that decisions change, with its plan, its doing, its journal rows and its undo notes.

Kernel files, tasks in resctrl groups, resctrl groups, orders to the kernel and evictions are actors; ``actuator`` lists
them. Invariants of each: ``plan`` reads and changes nothing; ``apply`` does what the plan has shown and no more, raises
for nothing that kernel, runtime or another writer does, and notes what is to be undone before it does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from koord.host.reconcile.plan import Notice, Outcome, PlannedWrite
from qosd.act.journal import Entry
from qosd.decide.runner import Decisions

P = TypeVar("P", bound="Part")


class Part(Protocol):
    """One actor's part of a plan."""

    @property
    def shown(self) -> tuple[PlannedWrite, ...]:
        """What it will do, each act as if it wrote a value."""


class Actor(Protocol[P]):
    """``apply`` takes what ``plan`` has returned for the same decisions."""

    def plan(self, decisions: Decisions, /) -> P: ...

    def apply(self, decisions: Decisions, part: P, /) -> tuple[Outcome, ...]:
        """One outcome for each act that is shown, in that order; each act, or what it comes to, is journaled."""


def are_same(some: Mapping[str, object], others: Mapping[str, object]) -> bool:
    """Are the values, by strategy, the very same objects? Then nothing has changed since they were applied."""
    return len(some) == len(others) and all(others.get(name) is value for name, value in some.items())


def entry_of(decisions: Decisions, act: PlannedWrite | Notice, result: str, why: str) -> Entry:
    """The journal's row about ``act``, with the clocks of the decisions' tick."""
    return Entry(
        wall_ns=decisions.wall_ns,
        monotonic_ns=decisions.monotonic_ns,
        tick=decisions.tick,
        who=act.by,
        pod=act.pod,
        group=act.target.group,
        name=act.target.name,
        path=act.path,
        before=act.before,
        after=act.after,
        result=result,
        why=why,
        inputs=act.inputs,
    )
