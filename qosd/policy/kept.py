"""The last good policy on disk, so that a restart, or a source that is away, never means "no policy".

One file: a comment line that says version, source, time, length and checksum, and below it the document as its source
spelled it, so it can be read and copied by people. It is replaced as a whole (``koord.service.wholefile``). Invariants:
a recalled document is whole and was good once; a copy that is damaged, foreign or of another version counts as none and
is told, and stays where it is, because it shows that there was a policy. Nothing here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import stat
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from koord.model.schema import MAX_JSON
from koord.service import wholefile

VERSION = 1
MAX_BYTES = MAX_JSON
"""The most bytes of a policy document, from any source."""
RETRY_S = 60.0
_MARK = b"# koord policy "
_MAX_HEADER_BYTES = 8192
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """A policy as ``source`` spelled it (YAML or JSON), good at Unix time ``taken_unix_s``."""

    text: str
    source: str
    taken_unix_s: float


class CopyUnusable(Exception):
    """There is a copy, and it cannot be used; the message names the file and says why."""


def encode(document: PolicyDocument) -> bytes:
    """Returns the copy's content."""
    text = document.text.encode()
    header = {
        "version": VERSION,
        "source": document.source,
        "taken_unix_s": document.taken_unix_s,
        "bytes": len(text),
        "sha256": hashlib.sha256(text).hexdigest(),
    }
    return _MARK + json.dumps(header).encode() + b"\n" + text


def read(file: Path) -> PolicyDocument | None:
    """Returns the document in ``file``; None if there is no such file. Raises CopyUnusable."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CopyUnusable(f"{file}: cannot be opened: {error.strerror}") from error
    try:
        why = _foreign(os.fstat(descriptor))
        if why:
            raise CopyUnusable(f"{file}: {why}")
        with os.fdopen(descriptor, "rb", closefd=False) as opened:
            content = opened.read(_MAX_HEADER_BYTES + MAX_BYTES + 1)
    except OSError as error:
        raise CopyUnusable(f"{file}: cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return _decode(content, file)


def _foreign(status: os.stat_result) -> str:
    """Returns why the file may not be ours; "" if it is."""
    if not stat.S_ISREG(status.st_mode):
        return "is no regular file"
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}"
    return "may be written by others" if status.st_mode & _WRITABLE_BY_OTHERS else ""


def _decode(content: bytes, file: Path) -> PolicyDocument:
    first, _, text = content.partition(b"\n")
    try:
        header = json.loads(first.removeprefix(_MARK)) if first.startswith(_MARK) else {}
        if header.get("version") != VERSION:
            raise CopyUnusable(f"{file}: version {header.get('version')!r}, this daemon reads {VERSION}")
        if len(text) != header["bytes"] or hashlib.sha256(text).hexdigest() != header["sha256"]:
            raise CopyUnusable(f"{file}: is damaged: its text is not the one that was written")
        return PolicyDocument(text.decode(), str(header["source"]), float(header["taken_unix_s"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CopyUnusable(f"{file}: is damaged: {type(error).__name__}: {error}") from error


class Keeper:
    """Keeps the newest document in ``file``, in the background of the event loop, until the disk has taken it.

    ``disk`` runs the writes. ``problem`` says why the newest is not kept; "" = it is, or it is on its way.
    """

    def __init__(self, file: Path, disk: Executor, loop: asyncio.AbstractEventLoop) -> None:
        self._file, self._disk, self._loop = file, disk, loop
        self._unsaved: PolicyDocument | None = None
        self._writing = False
        self._retry: asyncio.TimerHandle | None = None
        self.problem = ""

    def recall(self) -> PolicyDocument | None:
        """Returns the document that an earlier run kept; None if there is none. Raises CopyUnusable."""
        return read(self._file)

    def keep(self, document: PolicyDocument) -> None:
        """Stores ``document`` soon; of several that wait, the newest."""
        self._unsaved = document
        self._store()

    def close(self) -> None:
        """Stores what is not stored yet, now. The executor has ended."""
        if self._retry is not None:
            self._retry.cancel()
        if self._unsaved is not None:
            self._told(_attempt(self._unsaved, self._file))
            self._unsaved = None

    def _store(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        document = self._unsaved
        if self._writing or document is None:
            return
        self._writing = True
        future = self._loop.run_in_executor(self._disk, _attempt, document, self._file)
        future.add_done_callback(lambda done: self._stored(document, "" if done.cancelled() else done.result()))

    def _stored(self, document: PolicyDocument, problem: str) -> None:
        self._writing = False
        self._told(problem)
        if document is not self._unsaved:
            self._store()
        elif problem:
            self._retry = self._loop.call_later(RETRY_S, self._store)
        else:
            self._unsaved = None

    def _told(self, problem: str) -> None:
        if problem and problem != self.problem:
            _log.warning("%s", problem)
        self.problem = problem


def _attempt(document: PolicyDocument, file: Path) -> str:
    """Stores the document. Returns why it could not; "" if it could."""
    try:
        wholefile.write(encode(document), file)
    except OSError as error:
        return f"the policy in force is not kept for a restart: {file}: {error.strerror}"
    return ""
