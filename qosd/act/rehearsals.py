"""The actor of rehearsed relief: shows the steps in plans, journals each once and explains it, and takes none.

Invariant: it writes nothing and stops no pod; there is nothing to undo.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from koord.host.reconcile.plan import Outcome, PlannedWrite
from qosd.act.actor import Actor, ActReport, ExplainedAct, entry_of
from qosd.act.journal import JournalWriter
from qosd.decide.decision import Act
from qosd.decide.rehearsal import Rehearsed
from qosd.decide.runner import Decisions
from qosd.model.snapshot import PodView

DRY_RUN = "dry run"
"""The result of a rehearsed step."""
_NOT_DONE = "not done"
_Acts = tuple[tuple[str, Rehearsed], ...]


class RehearsalPlan(msgspec.Struct, frozen=True):
    """The steps rehearsed now, each with its strategy; ``writes``: those that are new at this tick."""

    acts: _Acts = ()
    writes: tuple[PlannedWrite, ...] = ()


_NOTHING = RehearsalPlan()


class RehearsalReport(ActReport, frozen=True, eq=False):
    acts: _Acts

    def of_pod(self, decisions: Decisions, pod: PodView) -> Iterable[ExplainedAct]:
        for owner, act in self.acts:
            if act.pod == pod.key:
                why = f"{DRY_RUN}: {act.why}"
                yield ExplainedAct(act.target, act.target.cgroup, owner, str(act.value), why, _NOT_DONE, act.pod)


class Rehearsals(Actor[RehearsalPlan]):
    """Remembers the rehearsed steps. For one thread at a time."""

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._acts: _Acts = ()

    @property
    def follows(self) -> tuple[type[Act], ...]:
        return (Rehearsed,)

    @property
    def report(self) -> RehearsalReport:
        return RehearsalReport(self._acts)

    def plan(self, decisions: Decisions) -> RehearsalPlan:
        """Returns the new steps that ``apply`` would journal."""
        acts = tuple(decisions.acts(Rehearsed))
        if not acts:
            return _NOTHING
        known = {(act.target, act.value) for _, act in self._acts}
        new = [each for each in acts if (each[1].target, each[1].value) not in known]
        return RehearsalPlan(acts, tuple([_as_write(owner, act) for owner, act in new]))

    def apply(self, decisions: Decisions, plan: RehearsalPlan) -> tuple[Outcome, ...]:
        """Journals the new steps, and takes none."""
        self._acts = plan.acts
        for write in plan.writes:
            self._journal.record(entry_of(decisions, write, DRY_RUN, write.why))
        return tuple([Outcome(write, DRY_RUN) for write in plan.writes])


def _as_write(owner: str, act: Rehearsed) -> PlannedWrite:
    why = f"{DRY_RUN}: {act.why}"
    return PlannedWrite(act.target, act.target.cgroup, "", act.value, True, owner, why, act.inputs, act.pod)
