"""Acts on a tick's decisions: every actor plans its part, then each does its part, in the actors' order.

Invariant: ``execute`` does what ``plan`` showed, act by act. An act that no actor follows is logged.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Mapping
from typing import Any

from koord.host.systemd_units import Units
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from qosd.act.actor import Actor, ActReport
from qosd.act.evictor import Evictor
from qosd.act.fileactor import FileActor
from qosd.act.journal import JournalWriter
from qosd.act.mover import TaskMover
from qosd.act.oneshots import OneShotWriter
from qosd.act.ownership import OWNERS, Ownership
from qosd.act.plan import TickPlan, TickResult
from qosd.act.rehearsals import Rehearsals
from qosd.act.taskattributes import TaskAttributeWriter
from qosd.decide.runner import Decisions

_log = logging.getLogger(__name__)


class Actuator:
    """``actors``: all there are, in the order in which they act. One thread at a time.

    ``owners``: which strategy may have opinions on which row. ``units``: those of the host's systemd, which is told of
    writes to their cgroups; None without one. ``evictor``: evicts pods; None: every eviction is refused.
    """

    def __init__(
        self,
        writer: Writer,
        undo: UndoRecord,
        journal: JournalWriter,
        owners: Mapping[str, Ownership] = OWNERS,
        page_bytes: int = mmap.PAGESIZE,
        units: Units | None = None,
        evictor: Evictor | None = None,
        one_shots: OneShotWriter | None = None,
    ) -> None:
        self.files = FileActor(writer, undo, journal, owners, page_bytes, units)
        self.tasks = TaskMover(writer, undo, journal)
        self.one_shots = one_shots or OneShotWriter(writer, journal)
        self.evictions = evictor or Evictor(undo, journal)
        attributes, rehearsals = TaskAttributeWriter(writer, undo, journal), Rehearsals(journal)
        self.actors: tuple[Actor[Any], ...] = (
            self.files, self.tasks, attributes, self.one_shots, self.evictions, rehearsals,
        )  # fmt: skip
        self._followed = {kind for actor in self.actors for kind in actor.follows}

    @property
    def reports(self) -> tuple[ActReport, ...]:
        """The actors' reports, in their order."""
        return tuple([actor.report for actor in self.actors])

    def plan(self, decisions: Decisions) -> TickPlan:
        """Returns what ``execute`` would do now. Reads; changes nothing."""
        return TickPlan(decisions, tuple(actor.plan(decisions) for actor in self.actors))

    def execute(self, plan: TickPlan) -> TickResult:
        """Does what the plan shows. Raises StalePlan if another was executed since it was made."""
        self._warn_of_unfollowed(plan.decisions)
        acts = zip(self.actors, plan.parts, strict=True)
        return TickResult(tuple(outcome for actor, part in acts for outcome in actor.apply(plan.decisions, part)))

    def tick(self, decisions: Decisions) -> TickResult:
        """Plans and executes."""
        return self.execute(self.plan(decisions))

    def _warn_of_unfollowed(self, decisions: Decisions) -> None:
        """Logs each kind of act that no actor follows, once."""
        for result in decisions.results:
            for kind in {type(act) for act in result.decision.acts} - self._followed:
                self._followed.add(kind)
                _log.error("strategy %s: no actor follows a %s, so it is ignored", result.name, kind.__name__)
