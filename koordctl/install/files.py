"""Files and links that an installation puts in their places, and how they are taken away again.

What stood there before is known (``Before``), and that is what undoing leaves, with the directories that had to be made
removed if they are empty. Invariant: a file that somebody edited since is never lost. It stays where it is if it is
meant to be edited (``keep``); else it is renamed, and what was there before takes its place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koordctl.install.disk import Absent, Content, Disk, Symlink, Was, temporary

EDITED = ".koord-edited"


class File(msgspec.Struct, frozen=True, tag="file"):
    """A file of root's. ``keep``: the operator may edit it, and then it outlives us."""

    path: str
    text: str
    keep: bool = False
    mode: int = 0o644

    def new(self) -> Was:
        return Content(self.text.encode(), self.mode, os.geteuid(), os.getegid())

    def holds(self, was: Was) -> bool:
        return isinstance(was, Content) and was.content == self.text.encode()


class Link(msgspec.Struct, frozen=True, tag="link"):
    path: str
    target: str
    keep: bool = False

    def new(self) -> Was:
        return Symlink(self.target)

    def holds(self, was: Was) -> bool:
        return was == Symlink(self.target)


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """A file that an installation before made, and that is not wanted any more."""

    path: str
    keep: bool = False

    def new(self) -> Was:
        return Absent()

    def holds(self, was: Was) -> bool:
        return isinstance(was, Absent)


Place = File | Link | Gone


class Before(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was there before a step.

    ``was``: by path. ``missing``: paths and directories that did not exist, the outer ones first. ``active``: units
    that were running.
    """

    was: Mapping[str, Was] = {}
    missing: tuple[str, ...] = ()
    active: tuple[str, ...] = ()


def look(disk: Disk, places: Iterable[Place]) -> Before:
    paths = [place.path for place in places]
    missing = {above: None for path in paths for above in disk.missing(path)}
    return Before({path: disk.look(path) for path in paths}, tuple(missing))


def put(disk: Disk, places: Iterable[Place]) -> bool:
    """Make every place as it should be; was anything changed?"""
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


def put_back(disk: Disk, places: Sequence[Place], before: Before, purge: bool = False) -> tuple[str, ...]:
    """Undo ``put``, however far it came; returns a sentence for each thing that stays."""
    notes = [note for place in reversed(places) if (note := _put_back(disk, place, before.was[place.path], purge))]
    return (*notes, *remove_directories(disk, before.missing))


def remove_directories(disk: Disk, directories: Sequence[str]) -> tuple[str, ...]:
    """Remove directories that we made, the innermost first, as far as they are empty."""
    notes = []
    for directory in reversed(directories):
        if not disk.remove_directory(directory):
            notes.append(f"{directory} stays: it holds {', '.join(disk.names(directory))}")
    return tuple(notes)


def _put_back(disk: Disk, place: Place, was: Was, purge: bool) -> str:
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


def _free(disk: Disk, path: str) -> str:
    return next(name for name in (path, *(f"{path}.{number}" for number in range(1, 1000))) if not disk.exists(name))
