"""The end of temporary values, in the journal like any other write."""

from __future__ import annotations

import time

from koord.host import temporary
from koord.host.reconcile.systemd_sync import Units
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from qosd.act.actor import entry_of
from qosd.act.journal import Recorder
from qosd.decide.runner import Decisions


def end(writer: Writer, undo: UndoRecord, journal: Recorder, units: Units | None) -> None:
    """Take them back. No reconciler of this process may be used on the record afterwards, but one that is made anew."""
    now = Decisions(0, time.time_ns(), time.monotonic_ns(), ())
    for outcome in temporary.take_back(writer, undo, units):
        journal.record(entry_of(now, outcome.write, outcome.result, outcome.sentence))
