"""What to put back: for each kernel file that Koord holds, the last value that someone else wrote there; for each
container that the runtime made by an edited request, what kubelet had requested; the cgroups whose tasks Koord moved
into a resctrl group, which go back to the root group; and the drop-in files of units that systemd made for Koord.

The record is one file on a tmpfs (``/run``), gone after a boot as are the cgroups. It is appended to *before* the
kernel is written or the runtime answered, so whatever a crash leaves behind is known: the file holds the base, one of
the last two values of ours, or something foreign. One JSON value per line; the first names format and boot. Rewriting
goes through a rename. Any thread may use it: hooks note what was requested while the reconciler writes.

Invariants: an entry speaks only for the file with the same path and inode, in the same boot. If a line was not written
whole, no kernel write followed it, so a torn last line is dropped. The file stays within a few times the live entries.
Fails with an UndoError (path, errno); then the kernel must not be written. A file system that is full at the opening
fails no more than the notes that are to be made while it is: the old file is whole until a new one takes its place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from koord.host import files
from koord.host.files import Target, Value
from koord.host.order import SHARES
from koord.host.originals import ContainerKey, Original, Originals
from koord.host.placement import Placed
from koord.host.weights import Weights
from koord.host.writer import Found
from koord.model.cfs import PERIOD_US

FORMAT = 1
TASKS = "resctrl.tasks"
"""Stands for a row's name where it is told about a cgroup's tasks: they are no value of a file."""
_SPARE_LINES = 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)


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
    cfs_period_us: int = PERIOD_US


class _Forgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    group: str
    name: str


class _Displaced(msgspec.Struct, frozen=True, tag="displaced"):
    group: str


class _Gone(msgspec.Struct, frozen=True, tag="gone"):
    """The container no longer exists, or is as requested; its originals are dropped."""

    key: ContainerKey = msgspec.field(name="which")


class _DropIn(msgspec.Struct, frozen=True, tag="drop-in"):
    """A file that was not there before systemd was told of a value."""

    path: str


class _Removed(msgspec.Struct, frozen=True, tag="removed"):
    """The drop-in file is gone."""

    path: str


_Event = Entry | _Forgotten | Placed | _Displaced | Originals | _Gone | _DropIn | _Removed
_EVENTS: msgspec.json.Decoder[_Event] = msgspec.json.Decoder(_Event)


class UndoRecord:
    """The record in ``file``, opened for this process alone; made if it is not there. Raises UndoError.

    ``problems`` are lines about what could not be understood on opening. What speaks for a path that no longer exists
    is dropped then. ``weights``: the mapping by which the shares in it stand for ``cpu.weight`` (v2); None = not told.
    ``cfs_period_us``: the period that the CFS quotas in it are of.
    """

    def __init__(self, file: Path, boot_id: str, page_bytes: int = mmap.PAGESIZE) -> None:
        self._file, self._boot_id, self._page_bytes = file, boot_id, page_bytes
        self._entries: dict[Target, Entry] = {}
        self._placed: dict[str, Placed] = {}
        self._originals: dict[ContainerKey, Originals] = {}
        self._drop_ins: dict[str, _DropIn] = {}
        self._most_drop_ins = _SPARE_LINES
        self._lock = threading.RLock()
        self.originals_changes = 0
        """How often ``originals`` changed since the opening: who saw them at the same number saw all."""
        self.weights: Weights | None = None
        self.cfs_period_us = PERIOD_US
        self._lines = 0
        self._size = 0
        self._append_fd = -1
        self._is_outdated = True  # the file, as it begins: nothing can be appended to it
        self.problems: list[str] = []
        with _errors(file):
            self._lock_fd = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with _errors(file):
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._load()
                self._compact()
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

    @property
    def drop_ins(self) -> tuple[str, ...]:
        """The paths of the drop-in files that systemd made for Koord; those of units that ended may be gone."""
        return tuple(self._drop_ins)

    @property
    def originals(self) -> tuple[Originals, ...]:
        """Of the containers that were made, or are being made, with something else than kubelet requested."""
        with self._lock:
            return tuple(self._originals.values())

    def originals_of(self, key: ContainerKey) -> Originals | None:
        """What kubelet requested for this container; None if it was made so."""
        return self._originals.get(key)

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
        return any(mine is None or self.same(entry.target, entry.path, mine, value) for mine in entry.ours)

    def is_base(self, entry: Entry, value: Value) -> bool:
        """Is ``value`` the entry's base?"""
        return self.same(entry.target, entry.path, entry.base, value)

    def remember(self, target: Target, found: Found, ours: Value | None) -> Value:
        """Note, before writing ``ours``, what to put back one day; returns that base.

        ``found`` is what the file holds now. If that is neither of the values of ours, someone else wrote it, and it
        is the base from now on. ``ours`` None: the file is not written itself, but changes with another one.
        """
        base = self.base_of(target, found)
        entry = Entry(target.group, target.name, found.path, found.inode, base, (ours, found.value))
        if self._entries.get(target) != entry:
            self._note(entry)
        return base

    def take_over(self, target: Target, found: Found, base: Value, key: ContainerKey, seen: Original) -> None:
        """Hold a file of container ``key`` that ``found`` shows with the value ``seen.edited``; nothing is written."""
        with self._lock:
            entry = Entry(target.group, target.name, found.path, found.inode, base, (found.value,))
            self._note(entry, *self._settled(target, key, seen))

    def settle(self, target: Target, key: ContainerKey, seen: Original) -> None:
        """The file of container ``key`` holds something else than ``seen.edited`` by now: nothing is pending."""
        with self._lock:
            self._note(*self._settled(target, key, seen))

    def _settled(self, target: Target, key: ContainerKey, seen: Original) -> tuple[Originals, ...]:
        """The container's entry as it is now; none if there is nothing to note, or an update has come since."""
        known = self._originals.get(key)
        if known is None or known.values.get(target.name) != seen or (not seen.pending and known.group == target.group):
            return ()
        return (known.settled(target.name, target.group),)

    def forget(self, target: Target) -> None:
        """Drop the entry: its file is back at its base, or gone. Nothing to do if there is none."""
        if target in self._entries:
            self._note(_Forgotten(target.group, target.name))

    def place(self, placed: Placed) -> None:
        """Note, before the first task is moved, whose tasks are to be put back one day."""
        if self._placed.get(placed.group) != placed:
            self._note(placed)

    def displace(self, group: str) -> None:
        """The tasks of cgroup ``group`` are back, or gone. Nothing to do if they were never moved."""
        if group in self._placed:
            self._note(_Displaced(group))

    def note_originals(self, originals: Originals) -> None:
        """Note, before the runtime is answered, what kubelet requested; no values: the container is made so."""
        if not originals.values:
            self.forget_originals(originals.key)
        elif self._originals.get(originals.key) != originals:
            self._note(originals)

    def forget_originals(self, key: ContainerKey) -> None:
        """The container is gone, or was never made, or its specification says again what kubelet requested."""
        if key in self._originals:
            self._note(_Gone(key))

    def note_drop_in(self, path: str) -> None:
        """Note, before systemd is told, the file that it makes for that."""
        if path in self._drop_ins:
            return
        self._note(_DropIn(path))
        if len(self._drop_ins) > self._most_drop_ins:  # nobody tells of a unit's end
            with self._lock:
                self._drop_ins = _existing(self._drop_ins)
                self._most_drop_ins = 2 * len(self._drop_ins) + _SPARE_LINES

    def forget_drop_in(self, path: str) -> None:
        """The file was removed."""
        if path in self._drop_ins:
            self._note(_Removed(path))

    def spell(self, weights: Weights | None, cfs_period_us: int) -> None:
        """Note how shares and quotas are read and written from now on, for whoever puts them back.

        The shares that were read from a weight by another mapping are told anew, so that the same weight is put back.
        """
        if (weights, cfs_period_us) != (self.weights, self.cfs_period_us):
            with self._lock, _errors(self._file):
                self._respell(self.weights or Weights.LINEAR, weights or Weights.LINEAR)
                self.weights, self.cfs_period_us = weights, cfs_period_us
                self._is_outdated = True
                self._rewrite()

    def _respell(self, was: Weights, now: Weights) -> None:
        """Give each base the shares that stand for its weight now; one that was requested, not read, is what it was.

        What is ours needs no other words: it is compared by either mapping.
        """
        requested = {(one.group, one.values[SHARES].requested) for one in self.originals if SHARES in one.values}
        for target, entry in self._entries.items() if was is not now else ():
            is_read = target.name == SHARES and (entry.group, entry.base) not in requested
            if is_read and files.row(SHARES).version_of(entry.path) == 2:
                self._entries[target] = replace(entry, base=now.shares(was.weight(int(entry.base))))

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

    def same(self, target: Target, path: str, desired: Value, actual: Value) -> bool:
        """Does ``actual``, read from the file at ``path``, come of ``desired``, rounding by the kernel considered?"""
        row = files.row(target.name)
        return row.same(desired, actual, self._page_bytes, row.version_of(path))

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
            self.weights, self.cfs_period_us = known.weights, known.cfs_period_us
            self._replay(lines)

    def _set_aside(self, why: str) -> None:
        aside = f"{self._file}.unreadable"
        os.replace(self._file, aside)
        self.problems.append(f"{self._file}: {why}; what it held is not known, see {aside}")

    def _replay(self, lines: list[bytes]) -> None:
        for number, line in enumerate(lines, start=2):
            try:
                event = _EVENTS.decode(line)
                _check(event)
                self._take(event)
            except (msgspec.DecodeError, files.UnknownRow) as error:
                self.problems.append(f"{self._file}:{number}: {error}")
        self._entries = {target: entry for target, entry in self._entries.items() if os.path.exists(entry.path)}
        self._placed = {group: placed for group, placed in self._placed.items() if os.path.exists(placed.path)}
        self._drop_ins = _existing(self._drop_ins)

    def _take(self, event: _Event) -> None:
        match event:
            case Originals():
                self._originals[event.key] = event
                self.originals_changes += 1
            case _Gone():
                self._originals.pop(event.key, None)
                self.originals_changes += 1
            case _DropIn():
                self._drop_ins[event.path] = event
            case _Removed():
                self._drop_ins.pop(event.path, None)
            case Placed():
                self._placed[event.group] = event
            case _Displaced():
                self._placed.pop(event.group, None)
            case Entry():
                self._entries[event.target] = event
            case _Forgotten():
                self._entries.pop(Target(event.group, event.name), None)

    def _note(self, *events: _Event) -> None:
        """Append the events, all or none of them, and know them from then on."""
        lines = b"\n".join([*map(msgspec.json.encode, events), b""])
        try:
            with self._lock:
                if self._is_outdated:
                    self._rewrite()
                self._append(lines)
                self._lines += len(events)
                for event in events:
                    self._take(event)
                if self._lines > 2 * sum(map(len, self._known())) + _SPARE_LINES:
                    self._compact()
        except OSError as error:
            raise _undo_error(error, self._file) from error

    def _append(self, lines: bytes) -> None:
        try:
            if os.write(self._append_fd, lines) != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._append_fd, self._size)
            raise
        self._size += len(lines)

    def _known(self) -> tuple[Mapping[Any, _Event], ...]:
        """All that is still to be known."""
        return self._entries, self._placed, self._originals, self._drop_ins

    def _compact(self) -> None:
        """Rewrite the file, if there is room for the new one beside it: the old one says the same in more lines."""
        try:
            self._rewrite()
        except OSError as error:
            if error.errno not in _FULL:
                raise

    def _rewrite(self) -> None:
        """Put a file of only the live entries in the place of the old one."""
        header = _Header(FORMAT, self._boot_id, self.weights, self.cfs_period_us)
        live = (event for known in self._known() for event in known.values())
        lines = [msgspec.json.encode(one) for one in (header, *live)]
        content = b"".join(line + b"\n" for line in lines)
        descriptor = _replaced(self._file, content)
        if self._append_fd >= 0:
            os.close(self._append_fd)
        self._append_fd, self._lines, self._size = descriptor, len(lines), len(content)
        self._is_outdated = False


def _replaced(file: Path, content: bytes) -> int:
    """Put a new file in the place of ``file``, and open it for appending; what fails leaves nothing of it behind."""
    new = Path(f"{file}.new")
    descriptor = -1
    try:
        new.write_bytes(content)
        descriptor = os.open(new, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        new.rename(file)
    except OSError:
        if descriptor >= 0:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    return descriptor


def _check(event: _Event) -> None:
    """Does this Koord know the rows that the event is about? Raises UnknownRow."""
    match event:
        case Originals():
            for name in event.values:
                files.row(name)
        case Entry() | _Forgotten():
            files.row(event.name)


def _existing(drop_ins: Mapping[str, _DropIn]) -> dict[str, _DropIn]:
    return {path: made for path, made in drop_ins.items() if os.path.exists(path)}


@contextlib.contextmanager
def _errors(file: Path) -> Iterator[None]:
    """Any OSError within, as an UndoError about ``file``."""
    try:
        yield
    except OSError as error:
        raise _undo_error(error, file) from error


def _undo_error(error: OSError, file: Path) -> UndoError:
    in_use = isinstance(error, BlockingIOError)
    why = "the undo record is in use by a running koord-qosd" if in_use else f"undo record: {error.strerror}"
    return UndoError(error.errno, why, str(file))
