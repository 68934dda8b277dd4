"""What to put back: for each kernel file that Koord holds, the last value that someone else wrote there, and the
cgroups whose tasks Koord moved into a resctrl group; those go back to the root group.

The record is one file on a tmpfs (``/run``), gone after a boot as are the cgroups. It is appended to *before* the
kernel is written, so whatever a crash leaves behind is known: the file holds the base, one of the last two values of
ours, or something foreign. One JSON value per line; the first names format and boot. Rewriting goes through a rename.

Invariants: an entry speaks only for the file with the same path and inode, in the same boot. If a line was not written
whole, no kernel write followed it, so a torn last line is dropped. The file stays within a few times the live entries.
Fails with an UndoError (path, errno); then the kernel must not be written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import msgspec

from koord.host import files, placement
from koord.host.cgroup import ReadError
from koord.host.files import Target, Value
from koord.host.order import Change, Step, disturbed_by, order
from koord.host.placement import Placed
from koord.host.weights import Weights
from koord.host.writer import Found, WriteError, Writer

FORMAT = 1
TASKS = "resctrl.tasks"
"""Stands for a row's name where it is told about a cgroup's tasks: they are no value of a file."""
_SPARE_LINES = 1024


class UndoError(OSError):
    """The record cannot be read or written: ``filename`` and ``errno`` say which and why."""


class Entry(msgspec.Struct, frozen=True, tag="held"):
    """One held file. ``ours``: the value last meant to be written, then the one found before that write.

    None among them stands for whatever the kernel makes of the file when another is written.
    """

    group: str
    name: str
    path: str
    inode: int
    base: Value
    ours: tuple[Value | None, ...]

    @property
    def target(self) -> Target:
        return Target(self.group, self.name)


class _Header(msgspec.Struct, frozen=True):
    format: int
    boot_id: str
    weights: Weights | None = None


class _Forgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    group: str
    name: str


class _Displaced(msgspec.Struct, frozen=True, tag="displaced"):
    group: str


_Event = Entry | _Forgotten | Placed | _Displaced
_EVENTS: msgspec.json.Decoder[_Event] = msgspec.json.Decoder(_Event)


class UndoRecord:
    """The record in ``file``, opened for this process alone; made if it is not there. Raises UndoError.

    ``problems`` are lines about what could not be understood on opening. What speaks for a path that no longer exists
    is dropped then. ``weights``: the mapping by which the shares in it stand for ``cpu.weight`` (v2); None = not told.
    """

    def __init__(self, file: Path, boot_id: str, page_bytes: int = mmap.PAGESIZE) -> None:
        self._file, self._boot_id, self._page_bytes = file, boot_id, page_bytes
        self._entries: dict[Target, Entry] = {}
        self._placed: dict[str, Placed] = {}
        self.weights: Weights | None = None
        self._lines = 0
        self._size = 0
        self._append_fd = -1
        self.problems: list[str] = []
        with _errors(file):
            self._lock_fd = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with _errors(file):
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._load()
                self._rewrite()
        except UndoError:
            self.close()
            raise

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries.values())

    @property
    def placements(self) -> tuple[Placed, ...]:
        """The cgroups whose tasks Koord moved."""
        return tuple(self._placed.values())

    def entry_for(self, target: Target, found: Found) -> Entry | None:
        """The entry that speaks for the very file ``found``; None if there is none."""
        entry = self._entries.get(target)
        return entry if entry is not None and (entry.path, entry.inode) == (found.path, found.inode) else None

    def base_of(self, target: Target, found: Found) -> Value:
        """The last value that someone else wrote to the file: of the record, or else what was found."""
        entry = self.entry_for(target, found)
        return entry.base if entry is not None and self.is_ours(entry, found.value) else found.value

    def is_ours(self, entry: Entry, value: Value) -> bool:
        """Does ``value`` come from us, rounding by the kernel considered?"""
        return any(mine is None or self._same(entry.target, mine, value) for mine in entry.ours)

    def is_base(self, entry: Entry, value: Value) -> bool:
        """Is ``value`` the entry's base?"""
        return self._same(entry.target, entry.base, value)

    def remember(self, target: Target, found: Found, ours: Value | None) -> Value:
        """Note, before writing ``ours``, what to put back one day; returns that base.

        ``found`` is what the file holds now. If that is neither of the values of ours, someone else wrote it, and it
        is the base from now on. ``ours`` None: the file is not written itself, but changes with another one.
        """
        base = self.base_of(target, found)
        entry = Entry(target.group, target.name, found.path, found.inode, base, (ours, found.value))
        if self._entries.get(target) != entry:
            self._append(entry)
            self._entries[target] = entry
            self._compact()
        return base

    def forget(self, target: Target) -> None:
        """Drop the entry: its file is back at its base, or gone. Nothing to do if there is none."""
        if target in self._entries:
            self._append(_Forgotten(target.group, target.name))
            del self._entries[target]
            self._compact()

    def place(self, placed: Placed) -> None:
        """Note, before the first task is moved, whose tasks are to be put back one day."""
        if self._placed.get(placed.group) != placed:
            self._append(placed)
            self._placed[placed.group] = placed
            self._compact()

    def displace(self, group: str) -> None:
        """The tasks of cgroup ``group`` are back, or gone. Nothing to do if they were never moved."""
        if group in self._placed:
            self._append(_Displaced(group))
            del self._placed[group]
            self._compact()

    def spell(self, weights: Weights) -> None:
        """Note by which mapping shares are read and written from now on, for whoever puts them back."""
        if weights is not self.weights:
            self.weights = weights
            with _errors(self._file):
                self._rewrite()

    def close(self) -> None:
        """Give the record free; what it says stays."""
        for descriptor in (self._append_fd, self._lock_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self._append_fd = self._lock_fd = -1

    def __enter__(self) -> UndoRecord:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _same(self, target: Target, desired: Value, actual: Value) -> bool:
        return files.row(target.name).same(desired, actual, self._page_bytes)

    def _load(self) -> None:
        try:
            content = self._file.read_bytes()
        except FileNotFoundError:
            return
        header, *lines = content.split(b"\n")[:-1] or [b""]
        try:
            known = msgspec.json.decode(header, type=_Header)
        except msgspec.DecodeError:
            self._set_aside("does not begin as an undo record")
            return
        if known.format != FORMAT:
            self._set_aside(f"format {known.format} is not {FORMAT}")
        elif known.boot_id == self._boot_id:
            self.weights = known.weights
            self._replay(lines)

    def _set_aside(self, why: str) -> None:
        aside = f"{self._file}.unreadable"
        os.replace(self._file, aside)
        self.problems.append(f"{self._file}: {why}; what it held is not known, see {aside}")

    def _replay(self, lines: list[bytes]) -> None:
        for number, line in enumerate(lines, start=2):
            try:
                self._take(_EVENTS.decode(line))
            except (msgspec.DecodeError, files.UnknownRow) as error:
                self.problems.append(f"{self._file}:{number}: {error}")
        self._entries = {target: entry for target, entry in self._entries.items() if os.path.exists(entry.path)}
        self._placed = {group: placed for group, placed in self._placed.items() if os.path.exists(placed.path)}

    def _take(self, event: _Event) -> None:
        match event:
            case Placed():
                self._placed[event.group] = event
            case _Displaced():
                self._placed.pop(event.group, None)
            case Entry():
                files.row(event.name)
                self._entries[event.target] = event
            case _Forgotten():
                files.row(event.name)
                self._entries.pop(Target(event.group, event.name), None)

    def _append(self, event: _Event) -> None:
        line = msgspec.json.encode(event) + b"\n"
        with _errors(self._file):
            try:
                if os.write(self._append_fd, line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                os.ftruncate(self._append_fd, self._size)
                raise
        self._size += len(line)
        self._lines += 1

    def _compact(self) -> None:
        if self._lines > 2 * (len(self._entries) + len(self._placed)) + _SPARE_LINES:
            with _errors(self._file):
                self._rewrite()

    def _rewrite(self) -> None:
        """Put a file of only the live entries in the place of the old one."""
        live = (_Header(FORMAT, self._boot_id, self.weights), *self._entries.values(), *self._placed.values())
        lines = [msgspec.json.encode(one) for one in live]
        content = b"".join(line + b"\n" for line in lines)
        new = Path(f"{self._file}.new")
        new.write_bytes(content)
        descriptor = os.open(new, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            new.rename(self._file)
        except OSError:
            os.close(descriptor)
            raise
        if self._append_fd >= 0:
            os.close(self._append_fd)
        self._append_fd, self._lines, self._size = descriptor, len(lines), len(content)


@contextlib.contextmanager
def _errors(file: Path) -> Iterator[None]:
    """Any OSError within, as an UndoError about ``file``."""
    try:
        yield
    except BlockingIOError as error:
        raise UndoError(error.errno, "the undo record is in use by a running koord-qosd", str(file)) from error
    except OSError as error:
        raise UndoError(error.errno, f"undo record: {error.strerror}", str(file)) from error


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


def planned(writer: Writer, record: UndoRecord) -> tuple[Restored, ...]:
    """What ``restore`` would do, one line per entry: RESTORED stands for "to be put back". Writes nothing."""
    lines = {entry.target: _classify(writer, record, entry) for entry in record.entries}
    chosen = [target for target, line in lines.items() if line.outcome is Outcome.RESTORED]
    for along in (other for target in chosen for other in disturbed_by(target) if other in lines):
        if lines[along].outcome in (Outcome.ALREADY_BASE, Outcome.FOREIGN):
            lines[along] = replace(lines[along], outcome=Outcome.RESTORED)
    return (*lines.values(), *(_of_tasks(writer, placed) for placed in record.placements))


def restore(writer: Writer, record: UndoRecord) -> tuple[Restored, ...]:
    """Put every file that still holds a value of ours back to its base, in the kernel's order, then every task.

    One line per entry.
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
    for target, line in held.items():
        lines[target] = _verified(writer, record, entries[target], line, wanted[target], refused.get(target, ""))
    for line in lines.values():
        if line.outcome is not Outcome.FAILED:
            record.forget(line.target)
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
