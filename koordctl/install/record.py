"""The record of an installation: each step with what was there before, on the disk before the step is begun.

One JSON value per line; the first names the format and says whether Koord's state directory was there already, and
whether koord-qosd.service is to run; files of another koord-qosd in that directory outlive the record. The record
comes and goes by one rename of the outermost directory that we made, so a kill leaves the whole record or none, and
``sweep`` removes what was being made or taken away. A torn last line belongs to a step that was not begun.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from koord.model.locations import STATE_DIRECTORY as STATE
from koord.service import lockfile
from koordctl.install.disk import Before, Content, NodeDisk, UnwantedFile
from koordctl.install.machine import InstallError
from koordctl.install.steps import Step

FORMAT = 1
_LOCK = "/run/koord-install.lock"
_DIRECTORY = f"{STATE}/install"
_FILE = f"{_DIRECTORY}/record.jsonl"
_STAGED = {STATE: "/var/lib/.koord.koord-new", _DIRECTORY: f"{STATE}/.install.koord-new"}


class _Header(msgspec.Struct, frozen=True, tag="koord-install"):
    format: int
    version: str
    state_was_there: bool
    with_daemon: bool = True


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """A step that was begun, and perhaps done."""

    step: Step
    before: Before


class _Complete(msgspec.Struct, frozen=True, tag="complete"):
    """All steps so far are done."""


_Line = _Header | Begun | _Complete
_LINES: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


class Record:
    """The record on ``disk``; ``lines`` are what it holds."""

    def __init__(self, disk: NodeDisk, header: _Header, lines: list[Begun | _Complete], torn: bool = False) -> None:
        self._disk, self._header, self._lines, self._torn = disk, header, lines, torn

    @property
    def steps(self) -> tuple[Begun, ...]:
        """Returns every step that was begun, in order."""
        return tuple(line for line in self._lines if isinstance(line, Begun))

    @property
    def unfinished(self) -> tuple[Begun, ...]:
        """Returns the steps of an installation, or of a change of it, that was not finished."""
        steps: list[Begun] = []
        for line in self._lines:
            steps = [*steps, line] if isinstance(line, Begun) else []
        return tuple(steps)

    @property
    def with_daemon(self) -> bool:
        """Returns whether koord-qosd.service is to be started; yes if an older record does not say."""
        return self._header.with_daemon

    @property
    def complete(self) -> bool:
        return bool(self._lines) and isinstance(self._lines[-1], _Complete)

    @property
    def installed(self) -> bool:
        """Returns whether it was complete once, before the steps that were begun since."""
        return any(isinstance(line, _Complete) for line in self._lines)

    @property
    def own_paths(self) -> frozenset[str]:
        """Returns the paths of the files and links that completed steps made."""
        paths: set[str] = set()
        for begun in self.steps[: len(self.steps) - len(self.unfinished)]:
            for place in begun.step.places:
                (paths.discard if isinstance(place, UnwantedFile) else paths.add)(place.path)
        return frozenset(paths)

    def begin(self, step: Step, before: Before) -> None:
        """Notes that ``step`` is about to be done."""
        self._add(Begun(step, before))

    def finish(self) -> None:
        """Notes that all steps so far are done."""
        self._add(_Complete())

    def forget_unfinished(self) -> bool:
        """Drops the steps that were undone; False if none is left (then the record can be erased)."""
        kept = self._lines[: len(self._lines) - len(self.unfinished)]
        if kept:
            self._lines = kept
            self._rewrite()
        return bool(kept)

    def erase(self) -> tuple[str, ...]:
        """Removes the record, and the state directory if there was none before; returns a sentence if that stays."""
        why = self._why_state_stays()
        top = _DIRECTORY if why else STATE
        self._disk.rename(top, _STAGED[top])
        self._disk.remove_tree(_STAGED[top])
        return (f"{STATE} stays: {why}",) if why else ()

    def _why_state_stays(self) -> str:
        if self._header.state_was_there:
            return "it was there before"
        if self.with_daemon:
            return ""
        others = [name for name in self._disk.names(STATE) if f"{STATE}/{name}" != _DIRECTORY]
        return f"it holds {', '.join(others)}" if others else ""

    def _add(self, line: Begun | _Complete) -> None:
        if self._torn:
            self._rewrite()
        self._disk.append(_FILE, _encoded(line))
        self._lines.append(line)

    def _rewrite(self) -> None:
        self._disk.put(_FILE, _content(b"".join(_encoded(line) for line in (self._header, *self._lines))))
        self._torn = False


def create(disk: NodeDisk, version: str, with_daemon: bool = True) -> Record:
    """Makes a new record; ``version``: of the Koord that is installed."""
    header = _Header(FORMAT, version, disk.exists(STATE), with_daemon)
    top = _DIRECTORY if header.state_was_there else STATE
    staged = _STAGED[top]
    file = staged + _FILE.removeprefix(top)
    for directory in (*disk.missing(staged), staged, *([f"{staged}/install"] if top == STATE else [])):
        disk.make_directory(directory, 0o700 if directory.startswith(staged) else 0o755)
    disk.stage(file, _content(_encoded(header)))
    disk.rename(staged, top)
    return Record(disk, header, [])


def load(disk: NodeDisk) -> Record | None:
    """Returns the record that is there; None without one. Raises InstallError if it is not understood."""
    file = disk.look(_FILE)
    if not isinstance(file, Content):
        return None
    *whole, torn = file.content.split(b"\n")
    first, *rest = whole or [b""]
    try:
        header = _LINES.decode(first)
        lines = [_LINES.decode(line) for line in rest]
    except msgspec.DecodeError as error:
        raise InstallError(f"{_FILE} is not understood: {error}") from error
    if not isinstance(header, _Header) or header.format != FORMAT:
        raise InstallError(f"{_FILE} is of another Koord: use the koordctl that installed this node")
    return Record(disk, header, [line for line in lines if not isinstance(line, _Header)], bool(torn))


def sweep(disk: NodeDisk) -> None:
    """Removes a record that was being made or taken away when an installation was killed."""
    for staged in _STAGED.values():
        if disk.exists(staged):
            disk.remove_tree(staged)


@contextmanager
def alone(disk: NodeDisk) -> Iterator[None]:
    """Keeps a second koordctl away; raises InstallError if there is one. Leaves no file."""
    try:
        with lockfile.held(disk.at(_LOCK)):
            yield
    except BlockingIOError as error:
        raise InstallError("another koordctl installs or uninstalls at this moment") from error


def _encoded(line: _Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def _content(text: bytes) -> Content:
    return Content(text, 0o600, os.geteuid(), os.getegid())
