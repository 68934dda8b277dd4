"""The kinds of notes in the undo record, and the order in which they are undone.

A new kind of act is a file of its own, of the shape that ``undoable`` gives, and a row of ``UNDOABLE``. The other kinds
are undone together: the reconciler puts files back, ``restoring.claim`` makes held files of the values that containers
were made with, and ``systemd_units`` removes drop-ins.
"""

from __future__ import annotations

import os

import msgspec

from koord.host.evictions import NotedEviction
from koord.host.files import Target, Value
from koord.host.originals import Originals
from koord.host.placement import Placed
from koord.host.taskattributes import WrittenTasks
from koord.host.undoable import Key, Note, Undoable


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, tag="file"):
    """One held file. ``ours``: the value that Koord meant to write last, then the one found before that write, then the
    value that systemd was told last, if it is neither.

    None in ``ours`` stands for any value that the kernel gives the file when another file is written. ``lasting``: the
    value is temporary, and this one is to be written when Koord ends; None: the value stays.
    """

    cgroup: str = msgspec.field(name="group")
    name: str
    path: str
    inode: int
    base: Value
    ours: tuple[Value | None, ...]
    lasting: Value | None = None

    @property
    def target(self) -> Target:
        return Target(self.cgroup, self.name)

    @property
    def key(self) -> Key:
        return self.cgroup, self.name

    @property
    def systemd_value(self) -> Value | None:
        """None if it is one of the first two."""
        return self.ours[2] if len(self.ours) > 2 else None

    @property
    def is_there(self) -> bool:
        return os.path.exists(self.path)


class DropIn(msgspec.Struct, frozen=True, tag="drop-in"):
    """A drop-in file that was not there before Koord told systemd of a value."""

    path: str

    @property
    def key(self) -> Key:
        return (self.path,)

    @property
    def is_there(self) -> bool:
        return os.path.exists(self.path)


class Dropped(msgspec.Struct, frozen=True, tag="dropped"):
    """The note of ``kind`` and ``key`` is undone, or nothing of it is left to undo."""

    kind: str
    key: Key


UNDOABLE: tuple[type[Undoable], ...] = (Placed, WrittenTasks, NotedEviction)
"""The kinds that are undone after all files, in this order."""
KINDS: tuple[type[Note], ...] = (Entry, Originals, DropIn, *UNDOABLE)


def kind_of(note: type[Note]) -> str:
    """Returns the name of a kind in the record's lines."""
    return str(note.__struct_config__.tag)
