"""What of an eviction outlives the run: its note in the undo record, and its steps in the journal."""

from __future__ import annotations

import logging
from collections.abc import Callable

from koord.host.evictions import EVICTION, NotedEviction
from koord.host.undo import UndoError, UndoRecord
from qosd.act.evictioncase import EvictionCase
from qosd.act.evictionreport import RUNNING, STOPPED
from qosd.act.journal import Entry, Recorder
from qosd.model.snapshot import EvictionPhase

_log = logging.getLogger(__name__)


class EvictionNotes:
    """``monotonic`` and ``wall``: nanoseconds, for the journal."""

    def __init__(
        self, undo: UndoRecord, journal: Recorder, monotonic: Callable[[], int], wall: Callable[[], int]
    ) -> None:
        self._undo, self._journal, self._monotonic, self._wall = undo, journal, monotonic, wall

    def earlier(self) -> tuple[NotedEviction, ...]:
        """What earlier runs have left."""
        return tuple(self._undo.all(NotedEviction))

    def note(self, case: EvictionCase) -> None:
        """Raises UndoError."""
        self._undo.note(case.noted)

    def update(self, uid: str, case: EvictionCase | None) -> None:
        """Bring the notes up to date; None: forget it. Where that fails, the next run does too much of it, not less."""
        try:
            if case is None:
                self._undo.drop(NotedEviction, uid)
            else:
                self._undo.note(case.noted)
        except UndoError as error:
            _log.warning("the undo record says of the eviction of %s what it said before: %s", uid, error)

    def tell_beginning(self, case: EvictionCase, remark: str = "") -> None:
        again = f" (attempt {case.state.attempts})" if case.state.attempts > 1 else ""
        self.tell(case, EvictionPhase.STOPPING, f"the containers are being stopped{again}: {case.eviction.why}{remark}")

    def tell(
        self, case: EvictionCase, result: str, why: str, values: tuple[str | None, str | None] = (RUNNING, STOPPED)
    ) -> None:
        """A row of the journal. ``values``: before and after."""
        eviction = case.eviction
        self._journal.record(
            Entry(
                wall_ns=self._wall(),
                monotonic_ns=self._monotonic(),
                tick=case.tick,
                owner=case.owner,
                pod=eviction.pod,
                cgroup=eviction.cgroup,
                name=EVICTION,
                path=eviction.cgroup,
                before=values[0],
                after=values[1],
                result=str(result),
                why=why,
                inputs=eviction.inputs,
            )
        )
