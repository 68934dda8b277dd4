"""The report of a tick: one immutable value from which koordctl's answers and the metrics are made.

Invariants: it is published whole, by one assignment, so that no reader in any thread sees half a tick; nothing in it
changes afterwards. The actors, the store and the strategies replace its mappings whole and never copy them, so it
costs a tick a few objects, whatever the node holds. A tick that an error of our own ends publishes none.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from qosd.act.actor import ActReport
from qosd.act.filereport import FileReport
from qosd.decide.runner import Decisions
from qosd.model.snapshot import NodeSnapshot, PressureTrigger
from qosd.sense.sampler import CollectorHealth

NOT_DECIDED = Decisions(0, 0, 0, ())


class TickReport(msgspec.Struct, frozen=True, eq=False):
    """The node after its newest tick.

    ``act_reports``: the report of each actor, in the actors' order. ``collectors``: the health of each. ``snapshot``:
    what ``decisions`` were made from; None before the first tick. ``triggers``: what wakes the loop from now on.
    ``ended_ns``: when the tick ended, by the monotonic clock. ``is_dismissed``: see ``TickInputs``.
    """

    act_reports: tuple[ActReport, ...]
    collectors: Mapping[str, CollectorHealth]
    snapshot: NodeSnapshot | None = None
    decisions: Decisions = NOT_DECIDED
    triggers: tuple[PressureTrigger, ...] = ()
    ended_ns: int | None = None
    is_dismissed: bool | None = None

    @property
    def files(self) -> FileReport:
        """The report about kernel files."""
        return next(each for each in self.act_reports if isinstance(each, FileReport))
