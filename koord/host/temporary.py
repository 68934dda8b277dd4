"""Takes temporary values back: what Koord does for a time only (a pod stands still, or is held down) ends with Koord.

The undo record tells for each such file what it is to hold afterwards (``Entry.lasting``). The process that ends
koord-qosd, or finds that it has ended, writes that: koord-qosd on its way out and at its next start, systemd after it,
a pod's preStop hook beside it. Every other value stays. Invariants: a file that another writer wrote since is left
alone, and nothing here needs room on the disk.
"""

from __future__ import annotations

import time

from koord.host.files import Target, Value
from koord.host.reconcile.plan import Outcome
from koord.host.reconcile.reconciler import Reconciler
from koord.host.reconcile.state import FileState, Speakers
from koord.host.reconcile.wanted import Wanted
from koord.host.systemd_units import Units
from koord.host.undo import UndoRecord
from koord.host.writer import Writer

_WHY = "koord-qosd has ended, and the value was for a time only"


def take_back(writer: Writer, record: UndoRecord, units: Units | None = None) -> tuple[Outcome, ...]:
    """Writes what each file with a temporary value is to hold afterwards; returns the result of each write.

    ``units``: those of the host's systemd.
    """
    temporary = [entry.target for entry in record.entries if entry.lasting is not None]
    if not temporary:
        return ()
    reconciler = Reconciler(writer, record, units=units)
    return reconciler.apply(reconciler.plan(_LastingOnly(), temporary, time.monotonic_ns()))


class _LastingOnly:
    """Files with a temporary value are wanted at their lasting one, and no other file is changed."""

    why_no_wider = ""

    def of(self, target: Target, state: FileState) -> _Intent:
        return _Intent(state)

    def why_released(self, state: FileState, wanted: Wanted) -> str:
        return _WHY


class _Intent:
    speakers: Speakers = ()
    is_release = True

    def __init__(self, state: FileState) -> None:
        self._state = state
        self.by = (state.by,)

    def wanted(self, base: Value | None) -> Wanted:
        lasting = self._state.lasting
        if lasting is None:
            return Wanted(keep=True)
        return Wanted(None if lasting == base else lasting, self._state.by, _WHY)
