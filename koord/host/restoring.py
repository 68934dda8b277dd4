"""Putting back what the undo record tells of: every file that still holds a value of ours, then every moved task.

Invariant: each write is noted in the record before it is made, as any other of ours, so this can die at any moment and
be run again. A file that someone else wrote since is left alone. What fails stays in the record. Where systemd was told
of values it is told of what the files hold in the end, whoever wrote that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from koord.host import files, placement
from koord.host.asked import Asked, Which, base_of
from koord.host.cgroup import ReadError
from koord.host.files import Target, Value
from koord.host.order import Change, Step, disturbed_by, order
from koord.host.placement import Placed
from koord.host.systemd_units import Units
from koord.host.undo import TASKS, Entry, UndoRecord
from koord.host.writer import WriteError, Writer


class Outcome(StrEnum):
    """What became of one file."""

    RESTORED = "restored"
    ALREADY_BASE = "already base"
    GONE = "gone"
    FOREIGN = "foreign value left alone"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Restored:
    """One line of the report: ``before`` and ``after`` are what the file held, ``why`` explains failures.

    Of a cgroup's tasks (row TASKS) they are names of resctrl groups, and ``path`` is the cgroup's directory.
    """

    target: Target
    path: str
    outcome: Outcome
    base: Value
    before: Value | None = None
    after: Value | None = None
    why: str = ""


def claim(writer: Writer, record: UndoRecord, groups: Mapping[Which, str] = MappingProxyType({})) -> None:
    """Note as held what containers still hold of the values that they were made with; writes no kernel file.

    ``groups``: cgroups of containers of which the record has none yet. Raises UndoError.
    """
    for asked in record.asked:
        group = asked.group or groups.get(asked.which, "")
        for name in asked.values if group else ():
            _claim(writer, record, asked.which, Target(group, name))


def _claim(writer: Writer, record: UndoRecord, which: Which, target: Target) -> None:
    asked = record.asked_for(which)
    assert asked is not None
    given = asked.values[target.name]
    try:
        found = writer.look(target)
    except (ReadError, files.ParseError):
        return
    if found is None or not any(
        record.same(target, found.path, value, found.value)
        for value in (given.given, _attainable(writer, target, given.given))
    ):
        return
    entry = record.entry_for(target, found)
    if entry is None or given.news or not record.is_ours(entry, found.value):
        base = base_of(given, None if entry is None else entry.base)
        record.take_over(target, found, base, which, given)


def expect(writer: Writer, record: UndoRecord, asked: Asked) -> None:
    """Note that the runtime is going to write what was asked for: those values are no one else's. Raises UndoError."""
    for name, given in asked.values.items():
        target = Target(asked.group, name)
        try:
            found = writer.look(target) if asked.group else None
        except (ReadError, files.ParseError):
            continue
        if found is not None and record.entry_for(target, found) is not None:
            record.remember(target, found, _attainable(writer, target, given.asked))


def planned(writer: Writer, record: UndoRecord) -> tuple[Restored, ...]:
    """What ``restore`` would do, one line per entry: RESTORED stands for "to be put back". Writes nothing."""
    lines = {entry.target: _classify(writer, record, entry) for entry in record.entries}
    chosen = [target for target, line in lines.items() if line.outcome is Outcome.RESTORED]
    for along in (other for target in chosen for other in disturbed_by(target) if other in lines):
        if lines[along].outcome in (Outcome.ALREADY_BASE, Outcome.FOREIGN):
            lines[along] = replace(lines[along], outcome=Outcome.RESTORED)
    return (*lines.values(), *(_of_tasks(writer, placed) for placed in record.placements))


def restore(writer: Writer, record: UndoRecord, units: Units | None = None) -> tuple[Restored, ...]:
    """Put every file that still holds a value of ours back to its base, in the kernel's order, then every task.

    One line per entry. ``units``: those of the host's systemd.
    What is put back, gone or foreign is forgotten; what failed stays in the record, so that it can be tried again.
    Raises UndoError if the record cannot be written.
    """
    entries = {entry.target: entry for entry in record.entries}
    lines = {line.target: line for line in planned(writer, record) if line.target.name != TASKS}
    held = {target: line for target, line in lines.items() if line.outcome is Outcome.RESTORED}
    wanted = {target: _attainable(writer, target, line.base) for target, line in held.items()}
    refused: dict[Target, str] = {}
    for step in order([Change(target, held[target].before, wanted[target]) for target in held], writer.version):
        if why := _put_back(writer, record, step):
            refused[step.target] = why
    told = {} if units is None else units.tell(target for target in lines if lines[target].outcome is not Outcome.GONE)
    for target, line in held.items():
        lines[target] = _verified(writer, record, entries[target], line, wanted[target], refused.get(target, ""))
    for target, one in told.items():
        if not one.answered:
            lines[target] = replace(lines[target], outcome=Outcome.FAILED, why=one.sentence)
    for line in lines.values():
        if line.outcome is not Outcome.FAILED:
            record.forget(line.target)
    if units is not None:
        units.clear()
    return (*lines.values(), *(_move_back(writer, record, placed) for placed in record.placements))


def _of_tasks(writer: Writer, placed: Placed) -> Restored:
    """Where the tasks are now; RESTORED stands for "to be put back"."""
    line = Restored(Target(placed.group, TASKS), placed.path, Outcome.GONE, placement.ROOT)
    try:
        tasks = placement.to_put_back(writer.tree, placed)
    except (ReadError, ValueError) as error:
        return replace(line, outcome=Outcome.FAILED, why=str(error))
    if tasks is None:
        return line
    if not tasks:
        return replace(line, outcome=Outcome.ALREADY_BASE, before=placement.ROOT, after=placement.ROOT)
    held = ", ".join(placed.resctrl_groups)
    return replace(line, outcome=Outcome.RESTORED, before=held, after=held, why=placement.count(len(tasks)))


def _move_back(writer: Writer, record: UndoRecord, placed: Placed) -> Restored:
    line = _of_tasks(writer, placed)
    if line.outcome is Outcome.RESTORED:
        moved = placement.move(writer, "", lambda: placement.to_put_back(writer.tree, placed) or ())
        if not moved.settled:
            why = str(moved.error or "new tasks keep appearing")
            return replace(line, outcome=Outcome.FAILED, why=f"{placement.count(moved.tasks)} moved, then: {why}")
        line = replace(line, after=placement.ROOT, why=placement.count(moved.tasks))
    if line.outcome is not Outcome.FAILED:
        record.displace(placed.group)
    return line


def _classify(writer: Writer, record: UndoRecord, entry: Entry) -> Restored:
    """What the file holds now, seen alone; RESTORED stands for "to be put back"."""
    try:
        found = writer.look(entry.target)
    except (ReadError, files.ParseError) as error:
        return Restored(entry.target, entry.path, Outcome.FAILED, entry.base, why=str(error))
    if found is None or record.entry_for(entry.target, found) is None:
        return Restored(entry.target, entry.path, Outcome.GONE, entry.base)
    if record.is_base(entry, found.value):
        outcome = Outcome.ALREADY_BASE
    else:
        outcome = Outcome.RESTORED if record.is_ours(entry, found.value) else Outcome.FOREIGN
    return Restored(entry.target, entry.path, outcome, entry.base, found.value, found.value)


def _attainable(writer: Writer, target: Target, base: Value) -> Value:
    try:
        return writer.attainable(target, base)
    except (ReadError, files.ParseError):
        return base


def _put_back(writer: Writer, record: UndoRecord, step: Step) -> str:
    """One write, remembered first; why it failed, or ""."""
    try:
        for target, value in [*((other, None) for other in disturbed_by(step.target)), (step.target, step.value)]:
            found = writer.look(target)
            if found is not None and record.entry_for(target, found) is not None:
                record.remember(target, found, value)
        writer.write(step.target, step.value)
    except (WriteError, ReadError, files.ParseError, files.ValueRefused) as error:
        return str(error)
    return ""


def _verified(
    writer: Writer, record: UndoRecord, entry: Entry, line: Restored, wanted: Value, refused: str
) -> Restored:
    """The file's last line of the report, from what it holds after all writes."""
    now = _classify(writer, record, entry)
    if now.outcome in (Outcome.GONE, Outcome.FAILED):
        return replace(now, before=line.before)
    if now.outcome is Outcome.ALREADY_BASE:
        return replace(now, outcome=Outcome.RESTORED, before=line.before)
    if wanted != entry.base and now.after == wanted:
        why = f"its CPU set cannot be emptied while it has processes; it was given all, {wanted}"
        return replace(now, outcome=Outcome.RESTORED, before=line.before, why=why)
    return replace(now, outcome=Outcome.FAILED, before=line.before, why=refused or f"holds {now.after!r} afterwards")
