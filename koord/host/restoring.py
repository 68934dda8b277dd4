"""Puts back all that the undo record tells of: first every file that still holds a value of ours, then every other
note, in the order of ``notes.UNDOABLE``.

Files go through the reconciler with no value wanted. So each write is noted in the record before it is made, as any
other of ours, and this can die at any moment and be run again. A file that another agent wrote since is left alone.
What fails stays in the record. Where systemd was told of values, it is told of what the files hold in the end,
whichever process wrote that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from koord.host import files
from koord.host.cgroup import ReadError
from koord.host.files import Target
from koord.host.notes import UNDOABLE, Entry
from koord.host.originals import ContainerKey, Original, Originals, base_of
from koord.host.reconcile.plan import DONE, VANISHED, Plan
from koord.host.reconcile.reconciler import Reconciler
from koord.host.reconcile.wanted import NothingWanted
from koord.host.systemd_units import Units
from koord.host.undo import UndoRecord
from koord.host.undoable import Restored, RestoreOutcome, Undoable
from koord.host.writer import Writer

_NOTHING = NothingWanted("koordctl restore")


def claim(writer: Writer, record: UndoRecord, cgroups: Mapping[ContainerKey, str] = MappingProxyType({})) -> None:
    """Notes as held the files whose values containers were made with and still have; writes no kernel file.

    ``cgroups``: cgroups of containers of which the record has none yet. Raises UndoError.
    """
    for originals in record.originals:
        cgroup = originals.cgroup or cgroups.get(originals.key, "")
        for name in originals.values if cgroup else ():
            _claim(writer, record, originals.key, originals.values[name], Target(cgroup, name))


def _claim(writer: Writer, record: UndoRecord, key: ContainerKey, original: Original, target: Target) -> None:
    try:
        reading = writer.look(target)
    except (ReadError, files.ParseError):
        return
    if reading is None or not any(
        record.same(target, reading.path, value, reading.value)
        for value in (original.edited, writer.attainable(target, original.edited))
    ):
        return
    entry = record.entry_for(target, reading)
    if entry is None or original.pending or not record.is_ours(entry, reading.value):
        base = base_of(original, None if entry is None else entry.base)
        record.take_over(target, reading, base, key, original)


def expect(writer: Writer, record: UndoRecord, originals: Originals) -> None:
    """Notes that the runtime is going to write the requested values: they are no other agent's. Raises UndoError."""
    for name, original in originals.values.items():
        target = Target(originals.cgroup, name)
        try:
            reading = writer.look(target) if originals.cgroup else None
        except (ReadError, files.ParseError):
            continue
        if reading is not None and record.entry_for(target, reading) is not None:
            record.remember(target, reading, writer.attainable(target, original.requested))


def planned(writer: Writer, record: UndoRecord) -> tuple[Restored, ...]:
    """Returns what ``restore`` would do, one line per note: RESTORED stands for "to be put back". Writes nothing."""
    reconciler = Reconciler(writer, record)
    plan = reconciler.plan(_NOTHING, reconciler.states, 0)
    lines = [note.planned(writer) for note in _undoable(record)]
    return (*_lines(record, plan), *(line for line in lines if line is not None))


def restore(writer: Writer, record: UndoRecord, units: Units | None = None) -> tuple[Restored, ...]:
    """Puts every file that still holds a value of ours back to its base, in the kernel's order, then undoes the rest.

    Returns one line per note. ``units``: those of the host's systemd. A note is forgotten where the value was put back,
    or is gone or foreign; it stays in the record where that failed, so that it can be tried again. Raises UndoError if
    the record cannot be written.
    """
    reconciler = Reconciler(writer, record, units=units)
    plan = reconciler.plan(_NOTHING, reconciler.states, 0)
    lines = _lines(record, plan)
    failed = {each.write.target: each.detail for each in reconciler.apply(plan) if each.result not in (DONE, VANISHED)}
    if units is not None:
        units.clear()
    files_ = [_afterwards(writer, reconciler, line, failed.get(line.target, "")) for line in lines]
    return (*files_, *_undone(writer, record))


def _undoable(record: UndoRecord) -> Iterator[Undoable]:
    return (note for kind in UNDOABLE for note in record.all(kind))


def _undone(writer: Writer, record: UndoRecord) -> Iterator[Restored]:
    for note in _undoable(record):
        line = note.undo(writer)
        if line is None or line.outcome is not RestoreOutcome.FAILED:
            record.drop(type(note), *note.key)
        if line is not None:
            yield line


def _lines(record: UndoRecord, plan: Plan) -> list[Restored]:
    """Returns what each file holds before anything is written, and what the plan makes of it."""
    return [_line(record, entry, plan) for entry in record.entries]


def _line(record: UndoRecord, entry: Entry, plan: Plan) -> Restored:
    line = Restored(entry.target, entry.path, RestoreOutcome.GONE, entry.base)
    state, transition = plan.unreadable.get(entry.target), plan.transitions.get(entry.target)
    if state is not None and state.retry is not None:
        return replace(line, outcome=RestoreOutcome.FAILED, why=state.retry.why)
    reading = None if transition is None else transition.reading
    if transition is None or reading is None or record.entry_for(entry.target, reading) is None:
        return line
    if transition.write is not None:
        outcome = RestoreOutcome.RESTORED
    elif record.is_base(entry, reading.value):
        outcome = RestoreOutcome.ALREADY_BASE
    else:
        outcome = RestoreOutcome.RESTORED if record.is_ours(entry, reading.value) else RestoreOutcome.FOREIGN
    return replace(line, outcome=outcome, before=reading.value, after=reading.value)


def _afterwards(writer: Writer, reconciler: Reconciler, line: Restored, why: str) -> Restored:
    """The file's last line of the report, from what it holds after all writes."""
    if line.outcome is RestoreOutcome.RESTORED:
        line = _read_back(writer, line, why)
    unanswered = reconciler.unanswered.get(line.target)
    if unanswered is not None and line.outcome is not RestoreOutcome.GONE:
        return replace(line, outcome=RestoreOutcome.FAILED, why=unanswered)
    return line


def _read_back(writer: Writer, line: Restored, why: str) -> Restored:
    try:
        reading = writer.look(line.target)
    except (ReadError, files.ParseError) as error:
        return replace(line, outcome=RestoreOutcome.FAILED, after=None, why=str(error))
    if reading is None:
        return replace(line, outcome=RestoreOutcome.GONE, after=None)
    if why:
        return replace(line, outcome=RestoreOutcome.FAILED, after=reading.value, why=why)
    if line.base == "" and reading.value != "":
        why = f"its CPU set cannot be emptied while it has processes; it was given all, {reading.value}"
    return replace(line, after=reading.value, why=why)
