"""The history of every write: an SQLite file, filled by a thread of its own through a bounded queue.

Recording never waits and never fails: an entry that the queue cannot take is dropped and counted. A full disk or a
broken database is logged once and tried again with back-off, while the queue keeps what it can; a file that is no
database, or of another schema, is set aside and a new one begun. Invariants: entries are in the order in which they
were recorded, whatever the clocks do; there are at most ``max_rows`` of them and a batch.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from koord.host.files import Value
from koord.model.formulas import NO_INPUTS, Inputs

SCHEMA = 1
ASIDE, OF_SQLITE = ".broken", ("-journal", "-wal", "-shm")
"""The ends of the names of a journal that was set aside, and of SQLite's files beside one."""

MAX_ROWS = 100_000
_QUEUE = 8192
_BATCH = 512
_PRUNE_EVERY = 1024
_MAX_PAUSE_S = 60.0
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SHM_BYTES = 32 << 10
"""The size of a WAL's shared memory file; without room for it, SQLite reports an I/O error."""
_CREATE = f"""
BEGIN;
CREATE TABLE entries (id INTEGER PRIMARY KEY, wall_ns INTEGER, monotonic_ns INTEGER, tick INTEGER, who TEXT, pod TEXT,
 cgroup TEXT, name TEXT, path TEXT, before BLOB, after BLOB, result TEXT, why TEXT, inputs TEXT);
CREATE INDEX by_pod ON entries (pod);
CREATE INDEX by_path ON entries (path);
CREATE INDEX by_cgroup ON entries (cgroup, name);
PRAGMA user_version = {SCHEMA};
COMMIT;
"""
_INSERT = f"INSERT INTO entries VALUES (NULL{', ?' * 13})"
_COLUMNS = "wall_ns, monotonic_ns, tick, who, pod, cgroup, name, path, before, after, result, why, inputs"
_log = logging.getLogger(__name__)


class JournalEntry(msgspec.Struct, frozen=True):
    """One row: a write with its result, or a notice (see ``koord.host.reconcile.plan``).

    ``cgroup`` and ``name`` are the target's, ``path`` is its file. ``after``: the value written or meant to be.
    """

    wall_ns: int
    monotonic_ns: int
    tick: int
    owner: str
    pod: str
    cgroup: str
    name: str
    path: str
    before: Value | None
    after: Value | None
    result: str
    why: str
    inputs: Inputs = NO_INPUTS


class JournalWriter(Protocol):
    """The journal, as far as actors need it."""

    def record(self, entry: JournalEntry) -> None: ...


class _OtherSchema(sqlite3.DatabaseError):
    """The file's schema version is not ours."""


class Journal:
    """The journal in ``file``. ``dropped`` and ``failures`` count since the start; ``problem``: what is wrong now."""

    def __init__(self, file: Path, max_rows: int = MAX_ROWS, queue_size: int = _QUEUE, pause_s: float = 1.0) -> None:
        self._file, self._max_rows, self._pause_s = file, max_rows, pause_s
        self._queue: queue.Queue[JournalEntry | None] = queue.Queue(queue_size)
        self._closing = threading.Event()
        self.dropped = 0
        self.failures = 0
        self.problem = ""
        self._unpruned = _PRUNE_EVERY
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def record(self, entry: JournalEntry) -> None:
        """Queues ``entry`` to be written soon; never waits."""
        try:
            self._queue.put_nowait(entry)
        except queue.Full:
            self.dropped += 1

    def query(
        self, *, pod: str = "", file: str = "", strategy: str = "", since_ns: int = 0, limit: int = 100
    ) -> Sequence[JournalEntry]:
        """Returns entries, newest first; blocks on the disk. After a failed read it returns none and sets ``problem``.

        ``file``: a path, ``<cgroup>/<row name>``, or a row name. ``since_ns``: wall clock.
        """
        conditions, arguments = _conditions(pod, file, strategy, since_ns)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        select = f"SELECT {_COLUMNS} FROM entries {where} ORDER BY id DESC LIMIT ?"
        try:
            with contextlib.closing(sqlite3.connect(f"{self._file.absolute().as_uri()}?mode=ro", uri=True)) as database:
                return [_entry(row) for row in database.execute(select, (*arguments, limit))]
        except sqlite3.Error as error:
            self.problem = f"{self._file} cannot be read: {error}"
            return []

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Waits until all that was recorded so far is on disk; False if it is not by then."""
        with self._queue.all_tasks_done:
            return self._queue.all_tasks_done.wait_for(lambda: not self._queue.unfinished_tasks, timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Writes what is queued if that can be done now, logs how much could not be written, and ends."""
        self._closing.set()
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(timeout_s)
        if self.dropped:
            _log.warning("journal: %d entries are lost", self.dropped)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        """Runs the thread, until the journal is closed and the queue empty."""
        database = self._write_out(None, [])
        while not (self._closing.is_set() and self._queue.empty()):
            taken = self._take()
            database = self._write_out(database, [entry for entry in taken if entry is not None])
            for _ in taken:
                self._queue.task_done()
        if database is not None:
            database.close()

    def _take(self) -> list[JournalEntry | None]:
        """Returns what is queued, at most a batch; waits for the first entry."""
        taken = [self._queue.get()]
        with contextlib.suppress(queue.Empty):
            while len(taken) < _BATCH:
                taken.append(self._queue.get_nowait())
        return taken

    def _write_out(self, database: sqlite3.Connection | None, batch: list[JournalEntry]) -> sqlite3.Connection | None:
        """Stores ``batch``, by as many attempts as it takes; once closing, by one more attempt only."""
        pause_s = self._pause_s
        while True:
            try:
                database = database or self._open()
                self._store(database, batch)
            except (sqlite3.Error, OSError) as error:
                self._failed(database, error)
                database = None
                if self._closing.wait(pause_s):
                    self.dropped += len(batch)
                    return None
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)
            else:
                self.problem = ""
                return database

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._file)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("PRAGMA cache_size = -256")
            version = int(database.execute("PRAGMA user_version").fetchone()[0])
            if version == 0:
                database.executescript(_CREATE)
            elif version != SCHEMA:
                raise _OtherSchema(f"schema {version} is not {SCHEMA}")
        except sqlite3.Error:
            database.close()
            raise
        return database

    def _store(self, database: sqlite3.Connection, batch: list[JournalEntry]) -> None:
        """Stores the batch in one transaction, and now and then prunes old rows in it."""
        if not batch:
            return
        with database:
            database.executemany(_INSERT, map(_row, batch))
            if self._unpruned + len(batch) > _PRUNE_EVERY:
                database.execute("DELETE FROM entries WHERE id <= (SELECT max(id) FROM entries) - ?", (self._max_rows,))
        self._unpruned = (self._unpruned + len(batch)) % (_PRUNE_EVERY + 1)

    def _failed(self, database: sqlite3.Connection | None, error: sqlite3.Error | OSError) -> None:
        """Counts a failure, logs it once, and sets a file aside that no attempt will ever open."""
        self.failures += 1
        if database is not None:
            with contextlib.suppress(sqlite3.Error):
                database.close()
        problem = f"{self._file}: {error}{self._full(error)}"
        if isinstance(error, _OtherSchema) or getattr(error, "sqlite_errorcode", None) in _BROKEN:
            problem += self._set_aside()
        if problem != self.problem:
            _log.warning("journal: %s", problem)
        self.problem = problem

    def _full(self, error: sqlite3.Error | OSError) -> str:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_IOERR:
            return ""
        with contextlib.suppress(OSError):
            disk = os.statvfs(self._file.parent)
            if disk.f_bfree * disk.f_frsize < _SHM_BYTES:
                return ", for its disk is full"
        return ""

    def _set_aside(self) -> str:
        aside = f"{self._file}{ASIDE}"
        try:
            os.replace(self._file, aside)
            for suffix in ("-wal", "-shm"):
                Path(f"{self._file}{suffix}").unlink(missing_ok=True)
        except OSError as error:
            return f"; it cannot be set aside: {error.strerror}"
        return f"; it is set aside as {aside}"


def _conditions(pod: str, file: str, strategy: str, since_ns: int) -> tuple[list[str], list[Value]]:
    """Returns SQL conditions and their arguments."""
    conditions: list[str] = []
    arguments: list[Value] = []
    if pod:
        conditions.append("pod = ?")
        arguments.append(pod)
    if file:
        cgroup, slash, name = file.rpartition("/")
        conditions.append("(path = ? OR (cgroup = ? AND name = ?))" if slash else "name = ?")
        arguments += [file, cgroup, name] if slash else [file]
    if strategy:
        conditions.append("instr(', ' || who || ',', ', ' || ? || ',')")
        arguments.append(strategy)
    if since_ns:
        conditions.append("wall_ns >= ?")
        arguments.append(since_ns)
    return conditions, arguments


def _row(entry: JournalEntry) -> tuple[Value | None, ...]:
    fields = (getattr(entry, name) for name in JournalEntry.__struct_fields__[:-1])
    return (*map(_storable, fields), msgspec.json.encode(dict(entry.inputs)).decode())


def _storable(value: Value | None) -> Value | None:
    """Returns the value as SQLite can store it, whose integers have 64 bits."""
    return str(value) if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 else value


def _entry(row: tuple[Any, ...]) -> JournalEntry:
    return JournalEntry(
        **dict(zip(JournalEntry.__struct_fields__, (*row[:-1], msgspec.json.decode(row[-1])), strict=True))
    )
