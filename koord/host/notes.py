"""The kinds of things that the undo record notes: one shape for all, a kind, a key, and what undoing it takes.

A new kind of act is a file of its own (``undoable`` says what it has to tell) and a row of ``UNDOABLE``. The other
kinds are undone together: the reconciler puts files back, ``restoring.claim`` makes such files of what containers were
made with, and ``systemd_units`` removes drop-ins.
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
    """One held file. ``ours``: the value last meant to be written, then the one found before that write, then what
    systemd was told last, if that is neither.

    None among them stands for whatever the kernel makes of the file when another is written. ``lasting``: the value
    is temporary, and this one is to be written when Koord ends; None: the value stays.
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
        """None: one of the first two."""
        return self.ours[2] if len(self.ours) > 2 else None

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


class Dropped(msgspec.Struct, frozen=True, tag="dropped"):
    """What was noted of ``kind`` and ``key`` is undone, or has nothing left to undo."""

    kind: str
    key: Key


UNDOABLE: tuple[type[Undoable], ...] = (Placed, WrittenTasks, NotedEviction)
"""In the order in which they are undone, after all files."""
KINDS: tuple[type[Note], ...] = (Entry, Originals, DropIn, *UNDOABLE)


def kind_of(note: type[Note]) -> str:
    """As the record's lines name it."""
    return str(note.__struct_config__.tag)
