"""The kinds of things that the undo record notes: one shape for all, a kind, a key, and what undoing it takes.

A kind is a struct with ``key`` and ``is_there``. A new kind is a struct here and an entry in ``KINDS``; how it is
undone says ``koord.host.restoring``.
"""

from __future__ import annotations

import os

import msgspec

from koord.host.evictions import NotedEviction
from koord.host.files import Target, Value
from koord.host.originals import Originals
from koord.host.placement import Placed

Key = tuple[str | int, ...]
TASKS, GROUP = "resctrl.tasks", "resctrl.group"
"""Stand for a row's name where a cgroup's tasks, or whether a resctrl group is there, is told: no value of a file."""
ABSENT, PRESENT = "absent", "present"


class Entry(msgspec.Struct, frozen=True, tag="file"):
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

    @property
    def key(self) -> Key:
        return self.group, self.name

    @property
    def is_there(self) -> bool:
        return os.path.exists(self.path)


class DropIn(msgspec.Struct, frozen=True, tag="drop-in"):
    """A file that was not there before systemd was told of a value."""

    path: str

    @property
    def key(self) -> Key:
        return (self.path,)

    @property
    def is_there(self) -> bool:
        return os.path.exists(self.path)


class MadeGroup(msgspec.Struct, frozen=True, tag="resctrl group"):
    """A resctrl group that was not there before Koord made it. ``inode`` 0: it may not have come to that."""

    name: str
    path: str
    inode: int = 0

    @property
    def key(self) -> Key:
        return (self.name,)

    @property
    def is_there(self) -> bool:
        return os.path.exists(self.path)

    @property
    def is_ours(self) -> bool:
        """Is the directory the very one that was made?"""
        try:
            return self.inode in (0, os.stat(self.path).st_ino)
        except OSError:
            return False


class Dropped(msgspec.Struct, frozen=True, tag="dropped"):
    """What was noted of ``kind`` and ``key`` is undone, or has nothing left to undo."""

    kind: str
    key: Key


Note = Entry | Placed | Originals | DropIn | MadeGroup | NotedEviction
KINDS: tuple[type[Note], ...] = (Entry, Placed, Originals, DropIn, MadeGroup, NotedEviction)


def kind_of(note: type[Note]) -> str:
    """As the record's lines name it."""
    return str(note.__struct_config__.tag)
