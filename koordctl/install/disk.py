"""Changes the node's files so that a kill never leaves half a file, and puts back what stood there before.

Content is written to a neighbour with a name known in advance (``temporary``), flushed, and renamed. Each method of
NodeDisk that changes something is one such small act, so that a test can stop between any two. Paths given are the
node's own. ``Before`` has what stood in each Place; undoing puts that back, and removes the directories that had to be
made if they are empty.

Invariants: nothing here writes through a symbolic link at the end of a path; what was renamed or removed is so on the
disk, or a power failure could bring back files that the record has forgotten. (Each directory is flushed by itself: a
flush of all file systems would wait for a network volume whose server is gone.) A file that was edited since is never
lost: it stays where it is if it is meant to be edited (``keep``); else it is renamed, and what was there before takes
its place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

EDITED = ".koord-edited"
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY)


class Absent(msgspec.Struct, frozen=True, tag="absent"):
    """There was nothing."""


class Content(msgspec.Struct, frozen=True, tag="file"):
    content: bytes
    mode: int
    uid: int
    gid: int


class Symlink(msgspec.Struct, frozen=True, tag="link"):
    target: str


class Other(msgspec.Struct, frozen=True, tag="other"):
    """A directory, a socket or a device: nothing that is ever replaced."""


Was = Absent | Content | Symlink | Other


def temporary(path: str) -> str:
    """Returns where ``path``'s new content stands until it is complete; systemd reads no file with such a name."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/.{name}.koord-new"


class NodeDisk:
    """Makes all changes of the node's files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def look(self, path: str) -> Was:
        here = self.at(path)
        try:
            status = here.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return Absent()
        if stat.S_ISLNK(status.st_mode):
            return Symlink(os.readlink(here))
        if stat.S_ISREG(status.st_mode):
            return Content(here.read_bytes(), stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
        return Other()

    def exists(self, path: str) -> bool:
        return not isinstance(self.look(path), Absent)

    def missing(self, path: str) -> tuple[str, ...]:
        """Returns the directories above ``path`` that do not exist, the outermost first."""
        above = [str(parent) for parent in Path(path).parents]
        return tuple(reversed([parent for parent in above if not self.at(parent).exists()]))

    def names(self, directory: str) -> list[str]:
        """Returns what ``directory`` holds, by name; [] if there is no such directory."""
        try:
            return sorted(os.listdir(self.at(directory)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def put(self, path: str, new: Was) -> None:
        """Makes ``path`` what ``new`` says, in one rename."""
        match new:
            case Absent():
                self.unlink(path)
            case Content():
                self.stage(temporary(path), new)
                self.rename(temporary(path), path)
            case Symlink():
                self.unlink(temporary(path))
                self.link(temporary(path), new.target)
                self.rename(temporary(path), path)
            case Other():
                raise FileExistsError(errno.EEXIST, "is neither a file nor a link", path)

    def stage(self, path: str, new: Content) -> None:
        """Writes ``path`` as a whole; a kill may leave part of it."""
        here = self.at(path)
        descriptor = os.open(here, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(new.content)
            file.flush()
            status = os.fstat(descriptor)
            if (status.st_uid, status.st_gid) != (new.uid, new.gid):
                os.fchown(descriptor, new.uid, new.gid)
            os.fchmod(descriptor, new.mode)
            self.sync(descriptor)

    def link(self, path: str, target: str) -> None:
        os.symlink(target, self.at(path))

    def rename(self, old: str, new: str) -> None:
        os.rename(self.at(old), self.at(new))
        self._sync_directory(new)

    def append(self, path: str, line: bytes) -> None:
        """Adds ``line`` to a file; it is on the disk when this returns. A kill may leave part of it."""
        descriptor = os.open(self.at(path), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def make_directory(self, path: str, mode: int = 0o755) -> None:
        """Makes ``path`` if it is not there; its parent must be."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.at(path))
            os.chmod(self.at(path), mode)

    def unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self.at(path).unlink()
            self._sync_directory(path)

    def remove_directory(self, path: str) -> bool:
        """Removes an empty directory; False if it is not empty (or in use), True if it is gone."""
        try:
            self.at(path).rmdir()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
            return False
        self._sync_directory(path)
        return True

    def remove_tree(self, path: str) -> None:
        """Removes ``path``, a file or a directory with all in it."""
        here = self.at(path)
        if here.is_dir() and not here.is_symlink():
            shutil.rmtree(here)
            self._sync_directory(path)
        else:
            self.unlink(path)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def _sync_directory(self, path: str) -> None:
        descriptor = os.open(self.at(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)


# --- places ----------------------------------------------------------------------------------------------------------


class PlacedFile(msgspec.Struct, frozen=True, tag="file"):
    """A file of root's. ``keep``: the operator may edit it, and then it outlives Koord."""

    path: str
    text: str
    keep: bool = False
    mode: int = 0o644

    def new(self) -> Was:
        return Content(self.text.encode(), self.mode, os.geteuid(), os.getegid())

    def holds(self, was: Was) -> bool:
        return isinstance(was, Content) and was.content == self.text.encode()


class PlacedLink(msgspec.Struct, frozen=True, tag="link"):
    path: str
    target: str
    keep: bool = False

    def new(self) -> Was:
        return Symlink(self.target)

    def holds(self, was: Was) -> bool:
        return was == Symlink(self.target)


class UnwantedFile(msgspec.Struct, frozen=True, tag="gone"):
    """A file that an earlier installation made, and that is not wanted any more."""

    path: str
    keep: bool = False

    def new(self) -> Was:
        return Absent()

    def holds(self, was: Was) -> bool:
        return isinstance(was, Absent)


Place = PlacedFile | PlacedLink | UnwantedFile


class Before(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was there before a step: ``was``, by path. ``missing``: paths and directories that did not exist, the outer
    ones first. ``active``: units that were running.
    """

    was: Mapping[str, Was] = {}
    missing: tuple[str, ...] = ()
    active: tuple[str, ...] = ()


def before(disk: NodeDisk, places: Iterable[Place]) -> Before:
    """Returns what is in the ``places``, and which of the directories above them do not exist."""
    paths = [place.path for place in places]
    missing = {above: None for path in paths for above in disk.missing(path)}
    return Before({path: disk.look(path) for path in paths}, tuple(missing))


def put_places(disk: NodeDisk, places: Iterable[Place]) -> bool:
    """Makes every place as it should be; returns whether anything was changed."""
    changed = False
    for place in places:
        was = disk.look(place.path)
        if not place.holds(was):
            for above in disk.missing(place.path):
                disk.make_directory(above)
            new = place.new()
            if isinstance(was, Content) and isinstance(new, Content):
                new = Content(new.content, was.mode, was.uid, was.gid)
            disk.put(place.path, new)
            changed = True
    return changed


def put_back(disk: NodeDisk, places: Sequence[Place], before: Before, purge: bool = False) -> tuple[str, ...]:
    """Undoes ``put_places``, however far it came; returns a sentence for each thing that stays."""
    notes = [note for place in reversed(places) if (note := _put_back(disk, place, before.was[place.path], purge))]
    return (*notes, *remove_directories(disk, before.missing))


def remove_directories(disk: NodeDisk, directories: Sequence[str]) -> tuple[str, ...]:
    """Removes directories that we made, the innermost first, as far as they are empty."""
    notes = []
    for directory in reversed(directories):
        if not disk.remove_directory(directory):
            notes.append(f"{directory} stays: it holds {', '.join(disk.names(directory))}")
    return tuple(notes)


def _put_back(disk: NodeDisk, place: Place, was: Was, purge: bool) -> str:
    path, note = place.path, ""
    if not isinstance(disk.look(temporary(path)), Absent):
        disk.unlink(temporary(path))
    now = disk.look(path)
    if now == was:
        return ""
    if not isinstance(now, Absent) and not place.holds(now) and not purge:
        if place.keep and isinstance(was, Absent):
            return f"{path} stays: it was edited"
        aside = _free(disk, path + EDITED)
        disk.rename(path, aside)
        note = f"{path} was edited: what it held is now {aside}"
    if not isinstance(was, Absent):
        for above in disk.missing(path):
            disk.make_directory(above)
    disk.put(path, was)
    return note


def _free(disk: NodeDisk, path: str) -> str:
    return next(name for name in (path, *(f"{path}.{number}" for number in range(1, 1000))) if not disk.exists(name))
