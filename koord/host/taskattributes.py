"""Attributes that every task has for itself: the act of a strategy, the note in the undo record, and how they go back.

    oom_score_adj    of processes
    sched_slice_us   of threads: how long one runs in one go (Linux 6.12); 0 = as long as the kernel chooses

Forks inherit them. So the note of a cgroup names the tasks that were written, with the value that each had before: id
and start time tell a task from another of the same id. Another task of the cgroup with a value of ours has inherited
it, and gets back what the first task had. A named task that has another value by now has chosen for itself, and is left
alone. Where the kernel has a value of its own, which most tasks have, tasks that had that value are not named: one that
chooses another later is taken for new, so it is written again, and then gets back what it chose.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import msgspec

from koord.host import placement
from koord.host.cgroup import ReadError
from koord.host.files import ParseError, Target
from koord.host.placement import PROCESSES, THREADS, Cgroup
from koord.host.sched import SLICE
from koord.host.undoable import Restored, RestoreOutcome
from koord.host.writer import Reading, Vanished, WriteError, Writer

OOM_SCORE = "oom_score_adj"


class Attribute(NamedTuple):
    """``listed_in``: the file of a cgroup that lists the tasks. ``noun``: the word for one of them.

    ``kernels_own``: the value that a task has until a process chooses one; None: there is no such value.
    """

    listed_in: str
    noun: str
    kernels_own: int | None = None


ATTRIBUTES = {
    OOM_SCORE: Attribute(PROCESSES, "process"),
    SLICE: Attribute(THREADS, "thread", kernels_own=0),
}
"""By the attribute's name, which takes a row's place where all tasks of a cgroup are meant."""


class TaskAttribute(msgspec.Struct, frozen=True):
    """The tasks of ``cgroup`` have ``value`` of the attribute ``name``.

    ``tasks``: how many tasks the cgroup had at the last count; another number means that some may have come.
    """

    name: str
    cgroup: str
    value: int
    why: str
    pod: str = ""
    tasks: int | None = None

    @property
    def target(self) -> Target:
        return Target(self.cgroup, self.name)


class WrittenTask(msgspec.Struct, frozen=True, array_like=True):
    """A task that began ``started`` clock ticks after boot, and had ``original`` before it was written."""

    id: int
    started: int
    original: int


class WrittenTasks(msgspec.Struct, frozen=True, tag="attributes"):
    """Tasks of ``cgroup`` that Koord gave one of ``values`` of the attribute ``name``, the newest first.

    ``path`` and ``inode`` are the directory's. ``original``: what a task that has inherited such a value would have
    else.
    """

    name: str
    cgroup: str
    path: str
    inode: int
    values: tuple[int, ...]
    original: int
    tasks: tuple[WrittenTask, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return (self.name, self.cgroup)

    @property
    def target(self) -> Target:
        return Target(self.cgroup, self.name)

    @property
    def is_there(self) -> bool:
        return os.path.exists(self.path)

    @property
    def originals(self) -> dict[tuple[int, int], int]:
        """Returns what each named task had, by id and start time."""
        return {(each.id, each.started): each.original for each in self.tasks}

    def is_of(self, found: Cgroup) -> bool:
        """Is it this very cgroup?"""
        return (self.path, self.inode) == (found.path, found.inode)

    def planned(self, writer: Writer) -> Restored:
        """Returns one line, as if all tasks had one value."""
        line = Restored(self.target, self.path, RestoreOutcome.GONE, self.original)
        try:
            changed = to_put_back(writer, self)
        except (ReadError, ParseError, ValueError) as error:
            return replace(line, outcome=RestoreOutcome.FAILED, why=str(error))
        if changed is None:
            return line
        if not changed:
            return replace(line, outcome=RestoreOutcome.ALREADY_BASE, before=self.original, after=self.original)
        value = self.values[0]
        return replace(
            line, outcome=RestoreOutcome.RESTORED, before=value, after=value, why=count(self.name, len(changed))
        )

    def undo(self, writer: Writer) -> Restored:
        """Give each task back what it had."""
        line = self.planned(writer)
        if line.outcome is not RestoreOutcome.RESTORED:
            return line
        done = 0
        try:
            for task in to_put_back(writer, self) or ():
                done += write(writer, self.name, task.id, task.original)
        except (ReadError, ParseError, ValueError, WriteError) as error:
            return replace(line, outcome=RestoreOutcome.FAILED, why=f"{count(self.name, done)}, then: {error}")
        return replace(line, after=self.original, why=count(self.name, done))


def look(writer: Writer, name: str, task: int) -> Reading | None:
    """The attribute of a task, with its start time as the reading's inode; None if it has ended. Raises ReadError."""
    reading = writer.look_at_task(name, task)
    return reading if reading is not None and reading.inode else None


def write(writer: Writer, name: str, task: int, value: int) -> bool:
    """False if the task has ended. Raises WriteError."""
    try:
        writer.write_task(name, task, value)
    except Vanished:
        return False
    return True


def members(writer: Writer, name: str, cgroup: str) -> Cgroup | None:
    """Returns the cgroup with its tasks of the attribute's kind; None if it is gone. Raises ReadError, ParseError."""
    return placement.look(writer.tree, cgroup, ATTRIBUTES[name].listed_in)


def to_write(writer: Writer, written: WrittenTasks, found: Cgroup) -> list[WrittenTask]:
    """Returns the tasks of ``found`` that have another value than the newest of ``written``, each with what it gets
    back; without those that were written and have chosen a value since.
    """
    value, originals = written.values[0], written.originals
    tasks = []
    for task, reading in _readings(writer, written.name, found.tasks):
        inherited = written.original if reading.value in written.values else int(reading.value)
        original = originals.get((task, reading.inode), inherited)
        has_chosen = reading.value not in (*written.values, original)
        if reading.value != value and not has_chosen:
            tasks.append(WrittenTask(task, reading.inode, original))
    return tasks


def to_put_back(writer: Writer, written: WrittenTasks) -> list[WrittenTask] | None:
    """Returns the tasks that have a value of ours, with the value that each gets back; None if the cgroup is gone."""
    found = members(writer, written.name, written.cgroup)
    inside = found.tasks if found is not None and written.is_of(found) else frozenset[int]()
    originals = written.originals
    ids = inside.union(each.id for each in written.tasks)
    tasks = []
    for task, reading in _readings(writer, written.name, ids):
        original = originals.get((task, reading.inode), written.original if task in inside else None)
        if original is not None and reading.value in written.values and original != reading.value:
            tasks.append(WrittenTask(task, reading.inode, original))
    return tasks if tasks or inside else None


def unwritten(wanted: TaskAttribute, found: Cgroup) -> WrittenTasks:
    """Returns the note of a cgroup before any of its tasks is written."""
    own = ATTRIBUTES[wanted.name].kernels_own
    original = wanted.value if own is None else own
    return WrittenTasks(wanted.name, wanted.cgroup, found.path, found.inode, (wanted.value,), original)


def noted(written: WrittenTasks, writer: Writer, tasks: list[WrittenTask]) -> WrittenTasks:
    """Returns the note with the tasks that are about to be written, and with those of its tasks that still live."""
    own = ATTRIBUTES[written.name].kernels_own
    original = written.original if written.tasks or own is not None else tasks[0].original
    new = [each for each in tasks if own is None or each.original != own]
    named = {(each.id, each.started): each for each in (*_alive(writer, written), *new)}
    return msgspec.structs.replace(written, original=original, tasks=tuple(named.values()))


def _alive(writer: Writer, written: WrittenTasks) -> tuple[WrittenTask, ...]:
    ids = frozenset(each.id for each in written.tasks)
    started = {task: reading.inode for task, reading in _readings(writer, written.name, ids)}
    return tuple([each for each in written.tasks if started.get(each.id) == each.started])


def _readings(writer: Writer, name: str, ids: frozenset[int]) -> Iterator[tuple[int, Reading]]:
    for task in sorted(ids):
        reading = look(writer, name, task)
        if reading is not None:
            yield task, reading


def count(name: str, tasks: int) -> str:
    noun = ATTRIBUTES[name].noun
    return f"{tasks} {noun}" if tasks == 1 else f"{tasks} {noun}{'es' if noun.endswith('s') else 's'}"
