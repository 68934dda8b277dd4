"""The record of what Koord is to put back: for each kernel file that Koord holds, the last value of another writer; for
each container that the runtime made by an edited request, what kubelet had requested; the cgroups whose tasks Koord
moved into a resctrl group, and which go back to the root group; the drop-in files of units that systemd made for it;
and the evictions that are under way. ``notes`` has the kinds.

The record is one file on a tmpfs (``/run``), gone after a boot as are the cgroups. It is appended to *before* the
kernel is written or the runtime answered, so the record covers whatever a crash leaves behind: the file holds the base,
one of the last two values of ours, what systemd was told before, or another writer's value. One JSON value per line;
the first names format and boot. Any thread may use it: hooks note what was requested while the reconciler writes.

Invariants: an entry speaks only for the file with the same path and inode, in the same boot. If a line was not written
whole, no kernel write followed it, so a torn last line is dropped. The file stays within a few times the live entries.
Fails with an UndoError (path, errno); then the kernel must not be written. A file system that is full at the opening
fails only the notes made while it is full: the old file is whole until a new one takes its place. A value that the
record covers already needs no note: ``base_if_covered``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from koord.host import files, linefile
from koord.host.cgroup import Tree
from koord.host.files import Target, Value
from koord.host.linefile import LineFile
from koord.host.notes import KINDS, DropIn, Dropped, Entry, kind_of
from koord.host.order import SHARES
from koord.host.originals import ContainerKey, Original, Originals
from koord.host.taskattributes import WrittenTasks
from koord.host.undoable import Key, Note
from koord.host.weights import Weights
from koord.host.writer import Reading, Writer
from koord.model.cfs import PERIOD_US

"""In the run directory."""
FORMAT = 2
ASIDE = ".unreadable"
"""Ends the name of a record that was set aside."""

_SPARE_LINES = 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)


UNKNOWN_BOOT = "unknown"
"""The boot in a record where the kernel does not tell the boot's id."""


class UndoError(OSError):
    """The record cannot be read or written: ``filename`` and ``errno`` say which and why."""


class _Header(msgspec.Struct, frozen=True):
    format: int
    boot_id: str
    weights: Weights | None = None
    cfs_period_us: int = PERIOD_US


_N = TypeVar("_N", bound=Note)
_Event = Note | Dropped
_EVENTS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(reduce(or_, KINDS, Dropped))
_BY_NAME: Mapping[str, type[Note]] = {kind_of(each): each for each in KINDS}


def boot_id(proc: Path = Path("/proc")) -> str:
    """Returns the kernel's id of this boot; "" if it does not tell."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def lock_file(file: Path) -> Path:
    """Returns the file that the process which uses the record ``file`` has locked."""
    return file.with_name(f"{file.name}.lock")


def open_lock(file: Path) -> int:
    """A descriptor of the file whose flock(2) says who may use the record in ``file``. Raises OSError."""
    return os.open(lock_file(file), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def is_in_use(file: Path) -> bool:
    """Returns whether a koord-qosd holds the lock of the record ``file``. Looking creates nothing. Only root can
    tell."""
    try:
        descriptor = os.open(lock_file(file), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class UndoRecord:
    """The record in ``file``, opened for this process alone; made if it is not there. Raises UndoError.

    ``problems`` are lines about what could not be understood on opening. What speaks for a path that no longer exists
    is dropped then. ``weights``: the mapping by which the shares in it stand for ``cpu.weight`` (v2); None = not told.
    ``cfs_period_us``: the period that the CFS quotas in it are of. ``lock_fd``: from ``open_lock``, held by the caller;
    the record's from now on. ``is_shared``: it is only read, beside the process that has it; nothing can be noted.
    ``sets_aside``: a record that cannot be read makes room for a new one; else it stays, and UndoError says so.
    """

    def __init__(
        self,
        file: Path,
        boot_id: str,
        page_bytes: int = mmap.PAGESIZE,
        lock_fd: int | None = None,
        is_shared: bool = False,
        sets_aside: bool = True,
    ) -> None:
        self._is_shared, self._sets_aside = is_shared, sets_aside and not is_shared
        self._file, self._boot_id, self._page_bytes = file, boot_id, page_bytes
        self._notes: dict[type[Any], dict[Key, Any]] = {kind: {} for kind in KINDS}
        self._most_drop_ins = _SPARE_LINES
        self._lock = threading.RLock()
        self.originals_changes = 0
        """How often ``originals`` changed since the opening: at the same number they are the same."""
        self.weights: Weights | None = None
        self.cfs_period_us = PERIOD_US
        self._lines = LineFile(file)
        self._is_outdated = True  # the file, as it begins: nothing can be appended to it
        self.problems: list[str] = []
        self._lock_fd = -1
        if is_shared:
            with _errors(file):
                self._load()
            return
        with _errors(file):
            self._lock_fd = open_lock(file) if lock_fd is None else lock_fd
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
        """The held files."""
        return self.all(Entry)

    @property
    def originals(self) -> tuple[Originals, ...]:
        """The originals of containers that were made, or are being made, otherwise than kubelet requested."""
        return self.all(Originals)

    @property
    def is_empty(self) -> bool:
        """Returns whether nothing is left that could be undone. In a cgroup that is gone nothing can, whether a tick
        has seen that or not."""
        with self._lock:
            others = [note for kind in KINDS if kind is not Originals for note in self._of(kind).values()]
            return not any(note.is_there for note in others) and all(map(_is_settled, self._of(Originals).values()))

    def writer(self, tree: Tree) -> Writer:
        """Returns a writer that spells shares and quotas as the record does."""
        return Writer(tree, self.weights or Weights.LINEAR, self.cfs_period_us)

    def all(self, kind: type[_N]) -> tuple[_N, ...]:
        """Returns the notes of one kind."""
        with self._lock:
            return tuple(self._of(kind).values())

    def find(self, kind: type[_N], *key: str | int) -> _N | None:
        """Returns the note of one kind under this key."""
        return self._of(kind).get(key)

    def note(self, note: Note) -> None:
        """Notes an act before it is done, so that it can be undone."""
        if self._notes[type(note)].get(note.key) != note:
            self._append(note)
            if isinstance(note, DropIn):
                self._prune_drop_ins()

    def drop(self, kind: type[Note], *key: str | int) -> None:
        """Drops a note: it is undone, or nothing of it is left. Nothing to do if it was never noted."""
        if key in self._notes[kind]:
            self._append(Dropped(kind_of(kind), key))

    def _of(self, kind: type[_N]) -> dict[Key, _N]:
        return self._notes[kind]

    def _prune_drop_ins(self) -> None:
        """Drops the drop-ins that are gone: no event tells of a unit's end."""
        with self._lock:
            if len(self._notes[DropIn]) > self._most_drop_ins:
                self._notes[DropIn] = _existing(self._notes[DropIn])
                self._most_drop_ins = 2 * len(self._notes[DropIn]) + _SPARE_LINES

    def originals_of(self, key: ContainerKey) -> Originals | None:
        """What kubelet requested for this container; None if it was made so."""
        return self.find(Originals, *key)

    def entry_for(self, target: Target, reading: Reading) -> Entry | None:
        """The entry that speaks for the very file ``reading``; None if there is none."""
        entry = self.find(Entry, target.cgroup, target.name)
        return entry if entry is not None and (entry.path, entry.inode) == (reading.path, reading.inode) else None

    def base_of(self, target: Target, reading: Reading) -> Value:
        """Returns the last value that another writer wrote to the file: by the record, or else the one found."""
        entry = self.entry_for(target, reading)
        return entry.base if entry is not None and self.is_ours(entry, reading.value) else reading.value

    def base_if_covered(self, target: Target, reading: Reading, value: Value | None) -> Value | None:
        """Returns the base, if the record covers already all values that the file may hold once ``value`` is written;
        else None.

        Such a write takes something back, and needs no room for a note. ``value`` None: as for ``remember``.
        """
        entry = self.entry_for(target, reading)
        if entry is None or not self._tells_of(entry, value) or not self._tells_of(entry, reading.value):
            return None
        return entry.base

    def _tells_of(self, entry: Entry, value: Value | None) -> bool:
        if value is None:
            return None in entry.ours
        return self.is_ours(entry, value) or self.is_base(entry, value)

    def is_ours(self, entry: Entry, value: Value) -> bool:
        """Does ``value`` come from us, rounding by the kernel considered?"""
        ours = entry.ours if entry.lasting is None else (*entry.ours, entry.lasting)
        return any(mine is None or self.same(entry.target, entry.path, mine, value) for mine in ours)

    def is_base(self, entry: Entry, value: Value) -> bool:
        """Is ``value`` the entry's base?"""
        return self.same(entry.target, entry.path, entry.base, value)

    def remember(
        self,
        target: Target,
        reading: Reading,
        ours: Value | None,
        systemd_value: Value | None = None,
        lasting: Value | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Value:
        """Notes, before ``ours`` is written, what to put back one day; returns that base.

        ``reading`` is what the file holds now. If that is none of our values, another writer wrote it, and it is the
        base from now on. ``ours`` None: the file is not written itself, but changes with another one.
        ``systemd_value``: the value that systemd was told last; None: the noted one stays. ``lasting``: as in Entry;
        unset: the noted one stays.
        """
        base, before = self.base_of(target, reading), self.entry_for(target, reading)
        told = before.systemd_value if before is not None and systemd_value is None else systemd_value
        values = (ours, reading.value, *([] if told is None or told in (ours, reading.value) else [told]))
        if lasting is msgspec.UNSET:
            lasting = before.lasting if before is not None and self.is_ours(before, reading.value) else None
        elif lasting is None and before is not None and before.lasting is not None and before.lasting == ours:
            lasting = ours  # until it stands there: the write may fail
        self.note(Entry(target.cgroup, target.name, reading.path, reading.inode, base, values, lasting))
        return base

    def rebase(self, target: Target, reading: Reading, base: Value) -> None:
        """Note that ``base`` is to be put back of a file that holds another agent's value, or already one of ours."""
        known = self.entry_for(target, reading)
        if known is not None and self.is_ours(known, reading.value):
            self.note(replace(known, base=base))
        else:
            self.note(Entry(target.cgroup, target.name, reading.path, reading.inode, base, (reading.value,)))

    def take_over(self, target: Target, reading: Reading, base: Value, key: ContainerKey, original: Original) -> None:
        """Hold a file of container ``key`` that shows the value ``original.edited``; nothing is written."""
        with self._lock:
            entry = Entry(target.cgroup, target.name, reading.path, reading.inode, base, (reading.value,))
            self._append(entry, *self._settled(target, key, original))

    def settle(self, target: Target, key: ContainerKey, original: Original) -> None:
        """The file of container ``key`` holds something else than ``original.edited`` by now: nothing is pending."""
        with self._lock:
            self._append(*self._settled(target, key, original))

    def _settled(self, target: Target, key: ContainerKey, original: Original) -> tuple[Originals, ...]:
        """The container's entry as it is now; none if there is nothing to note, or an update has come since."""
        known = self.originals_of(key)
        if (
            known is None
            or known.values.get(target.name) != original
            or (not original.pending and known.cgroup == target.cgroup)
        ):
            return ()
        return (known.settled(target.name, target.cgroup),)

    def forget(self, target: Target) -> None:
        """Drop the entry: its file is back at its base, or gone. Nothing to do if there is none."""
        self.drop(Entry, target.cgroup, target.name)

    def note_originals(self, originals: Originals) -> None:
        """Note, before the runtime is answered, what kubelet requested; no values: the container is made so."""
        if originals.values:
            self.note(originals)
        else:
            self.forget_originals(originals.key)

    def forget_originals(self, key: ContainerKey) -> None:
        """The container is gone, or was never made, or its specification says again what kubelet requested."""
        self.drop(Originals, *key)

    def spell(self, weights: Weights | None, cfs_period_us: int) -> None:
        """Notes how shares and quotas are read and written from now on, so that a restore puts back the same.

        Shares that were read from a weight by another mapping are noted anew, so that the same weight is put back.
        """
        if (weights, cfs_period_us) != (self.weights, self.cfs_period_us):
            with self._lock, _errors(self._file):
                self._respell(self.weights or Weights.LINEAR, weights or Weights.LINEAR)
                self.weights, self.cfs_period_us = weights, cfs_period_us
                self._is_outdated = True
                self._rewrite()

    def _respell(self, was: Weights, now: Weights) -> None:
        """Gives each base the shares that stand for its weight now; a base that was requested, not read, stays.

        Our own values need no change: either mapping counts when they are compared.
        """
        requested = {(one.cgroup, one.values[SHARES].requested) for one in self.originals if SHARES in one.values}
        entries = self._of(Entry)
        for key, entry in entries.items() if was is not now else ():
            is_read = entry.name == SHARES and (entry.cgroup, entry.base) not in requested
            if is_read and files.row(SHARES).version_of(entry.path) == 2:
                entries[key] = replace(entry, base=now.shares(was.weight(int(entry.base))))

    def close(self) -> None:
        """Releases the record; its content stays."""
        self._lines.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._lock_fd = -1

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
            header, *lines = linefile.read(self._file) or [b""]
        except FileNotFoundError:
            return
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
        if not self._sets_aside:
            raise OSError(errno.EBADMSG, f"{why}; what it holds is not known")
        aside = f"{self._file}{ASIDE}"
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
        self._notes = {kind: _existing(notes) for kind, notes in self._notes.items()}

    def _take(self, event: _Event) -> None:
        if isinstance(event, Dropped):
            kind = _BY_NAME[event.kind]
            self._notes[kind].pop(event.key, None)
        else:
            kind = type(event)
            self._notes[kind][event.key] = event
        self.originals_changes += kind is Originals

    def _append(self, *events: _Event) -> None:
        """Append the events, all or none of them, and know them from then on."""
        if self._is_shared:
            raise UndoError(errno.EROFS, "the undo record is another process's", str(self._file))
        lines = [*map(msgspec.json.encode, events)]
        try:
            with self._lock:
                if self._is_outdated:
                    self._rewrite()
                self._lines.append(lines)
                for event in events:
                    self._take(event)
                if self._lines.lines > 2 * sum(map(len, self._notes.values())) + _SPARE_LINES:
                    self._compact()
        except OSError as error:
            raise _undo_error(error, self._file) from error

    def _compact(self) -> None:
        """Rewrites the file, if there is room for the new one beside it; else the old one stays, which says the same in
        more lines."""
        try:
            self._rewrite()
        except OSError as error:
            if error.errno not in _FULL:
                raise

    def _rewrite(self) -> None:
        """Put a file of only the live entries in the place of the old one."""
        header = _Header(FORMAT, self._boot_id, self.weights, self.cfs_period_us)
        live = (event for notes in self._notes.values() for event in notes.values())
        self._lines.replace([msgspec.json.encode(one) for one in (header, *live)])
        self._is_outdated = False


def held_rows(file: Path) -> frozenset[str]:
    """Returns the rows of the kernel files in the record ``file``."""
    return frozenset(each.name.partition("@")[0] for each in held(file))


def held(file: Path) -> tuple[Entry | WrittenTasks, ...]:
    """Returns the held files and the written tasks in the record ``file``, whichever process has it open.

    Lines that cannot be read or understood are left out.
    """
    found: dict[tuple[str, Key], Entry | WrittenTasks] = {}
    with contextlib.suppress(OSError):
        for line in linefile.read(file)[1:]:
            with contextlib.suppress(msgspec.DecodeError):
                event = _EVENTS.decode(line)
                if isinstance(event, Dropped):
                    found.pop((event.kind, event.key), None)
                elif isinstance(event, Entry | WrittenTasks):
                    found[kind_of(type(event)), event.key] = event
    return tuple(found.values())


def _check(event: _Event) -> None:
    """Raises UnknownRow for an event about a row or a kind that this version does not know."""
    match event:
        case Originals():
            for name in event.values:
                files.row(name)
        case Entry():
            files.row(event.name)
        case Dropped() if event.kind not in _BY_NAME:
            raise files.UnknownRow(event.kind)


def _is_settled(originals: Originals) -> bool:
    """Returns whether the held files tell all: the container was seen, and no value of it is pending."""
    return bool(originals.cgroup) and not any(original.pending for original in originals.values.values())


def _existing(notes: Mapping[Key, _N]) -> dict[Key, _N]:
    return {key: note for key, note in notes.items() if note.is_there}


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
