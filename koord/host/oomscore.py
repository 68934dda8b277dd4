"""The OOM score adjustment of a container's processes: what a strategy says of it, what is noted, how it goes back.

It is each process's own, and forks inherit it. So the note of a container names every process that was written, with
what it had before: pid and start time tell a process from another of the same pid. Whoever else of the container has a
score of ours has inherited it, and gets back what the first one had. A process that has another score by now has chosen
for itself, and is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import msgspec

from koord.host import placement
from koord.host.cgroup import ReadError
from koord.host.files import ParseError, Target
from koord.host.placement import PROCESSES, Cgroup
from koord.host.undoable import Outcome, Restored
from koord.host.writer import Reading, Vanished, WriteError, Writer

SCORES = "oom_score_adj"
"""The row of a process's file; stands for it, without a pid, where all processes of a cgroup are told of."""


class OOMScore(msgspec.Struct, frozen=True):
    """The processes of ``cgroup`` have OOM score adjustment ``score``.

    ``tasks``: how many the cgroup had when they were last counted; another number says that some may have come.
    """

    cgroup: str
    score: int
    why: str
    pod: str = ""
    tasks: int | None = None


class ScoredProcess(msgspec.Struct, frozen=True, array_like=True):
    """A process that began ``started`` clock ticks after boot, and had score ``original`` before it was written."""

    pid: int
    started: int
    original: int


class ScoredCgroup(msgspec.Struct, frozen=True, tag="scores"):
    """Processes of ``cgroup`` have one of ``scores``, the newest first, by Koord's doing.

    ``path`` and ``inode`` are the directory's. ``original``: what whoever has inherited a score would have else.
    """

    cgroup: str
    path: str
    inode: int
    scores: tuple[int, ...]
    original: int
    processes: tuple[ScoredProcess, ...] = ()

    @property
    def key(self) -> tuple[str]:
        return (self.cgroup,)

    @property
    def is_there(self) -> bool:
        return os.path.exists(self.path)

    @property
    def written(self) -> dict[tuple[int, int], int]:
        """What each process that was written had, by pid and start time."""
        return {(each.pid, each.started): each.original for each in self.processes}

    def is_of(self, found: Cgroup) -> bool:
        """Is it this very cgroup?"""
        return (self.path, self.inode) == (found.path, found.inode)

    def planned(self, writer: Writer) -> Restored:
        """As if the container had one score."""
        line = Restored(Target(self.cgroup, SCORES), self.path, Outcome.GONE, self.original)
        try:
            changed = to_put_back(writer, self)
        except (ReadError, ParseError, ValueError) as error:
            return replace(line, outcome=Outcome.FAILED, why=str(error))
        if changed is None:
            return line
        if not changed:
            return replace(line, outcome=Outcome.ALREADY_BASE, before=self.original, after=self.original)
        score = self.scores[0]
        return replace(line, outcome=Outcome.RESTORED, before=score, after=score, why=count(len(changed)))

    def undo(self, writer: Writer) -> Restored:
        """Give each process back what it had."""
        line = self.planned(writer)
        if line.outcome is not Outcome.RESTORED:
            return line
        done = 0
        try:
            for process in to_put_back(writer, self) or ():
                done += write(writer, process.pid, process.original)
        except (ReadError, ParseError, ValueError, WriteError) as error:
            return replace(line, outcome=Outcome.FAILED, why=f"{count(done)}, then: {error}")
        return replace(line, after=self.original, why=count(done))


def look(writer: Writer, pid: int) -> Reading | None:
    """The score of a process, with its start time as the reading's inode; None if it has ended. Raises ReadError."""
    reading = writer.look(_of(pid))
    return reading if reading is not None and reading.inode else None


def write(writer: Writer, pid: int, score: int) -> bool:
    """False if the process has ended. Raises WriteError."""
    try:
        writer.write(_of(pid), score)
    except Vanished:
        return False
    return True


def to_score(writer: Writer, scored: ScoredCgroup, found: Cgroup) -> list[ScoredProcess]:
    """The processes of the cgroup that are to be written for all to have the newest score."""
    score, written = scored.scores[0], scored.written
    to_write = []
    for pid, reading in _readings(writer, found.tasks):
        inherited = scored.original if reading.value in scored.scores else int(reading.value)
        original = written.get((pid, reading.inode), inherited)
        has_chosen = reading.value not in (*scored.scores, original)
        if reading.value != score and not has_chosen:
            to_write.append(ScoredProcess(pid, reading.inode, original))
    return to_write


def to_put_back(writer: Writer, scored: ScoredCgroup) -> list[ScoredProcess] | None:
    """The processes that have a score of ours, with what each is to have; None if the cgroup is gone."""
    found = placement.look(writer.tree, scored.cgroup, PROCESSES)
    inside = found.tasks if found is not None and scored.is_of(found) else frozenset[int]()
    written = scored.written
    pids = inside.union(each.pid for each in scored.processes)
    to_write = []
    for pid, reading in _readings(writer, pids):
        original = written.get((pid, reading.inode), scored.original if pid in inside else None)
        if original is not None and reading.value in scored.scores and original != reading.value:
            to_write.append(ScoredProcess(pid, reading.inode, original))
    return to_write if to_write or inside else None


def alive(writer: Writer, processes: tuple[ScoredProcess, ...]) -> tuple[ScoredProcess, ...]:
    """Those that have not ended."""
    started = {pid: reading.inode for pid, reading in _readings(writer, {each.pid for each in processes})}
    return tuple([each for each in processes if started.get(each.pid) == each.started])


def _readings(writer: Writer, pids: frozenset[int] | set[int]) -> Iterator[tuple[int, Reading]]:
    for pid in sorted(pids):
        reading = look(writer, pid)
        if reading is not None:
            yield pid, reading


def count(processes: int) -> str:
    return f"{processes} process{'' if processes == 1 else 'es'}"


def _of(pid: int) -> Target:
    return Target("", f"{SCORES}@{pid}")
