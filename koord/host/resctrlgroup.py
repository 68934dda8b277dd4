"""A resctrl group of Koord's own: what a strategy says to have one, what is noted of it, and how it goes again."""

from __future__ import annotations

import os
from dataclasses import replace

import msgspec

from koord.host.files import Target, ValueRefused
from koord.host.undoable import Outcome, Restored
from koord.host.writer import Vanished, WriteError, Writer

GROUP = "resctrl.group"
"""Stands for a row's name where it is told whether a resctrl group is there: that is no value of a file."""
ABSENT, PRESENT = "absent", "present"


class ResctrlGroup(msgspec.Struct, frozen=True):
    """A resctrl group that shall be there; one that Koord made goes when nobody wants it any more."""

    name: str
    why: str


class MadeGroup(msgspec.Struct, frozen=True, tag="resctrl group"):
    """A resctrl group that was not there before Koord made it. ``inode`` 0: it may not have come to that."""

    name: str
    path: str
    inode: int = 0

    @property
    def key(self) -> tuple[str]:
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

    def planned(self, writer: Writer) -> Restored:
        """As if a file said that the group is there."""
        line = Restored(Target("", f"{GROUP}@{self.name}"), self.path, Outcome.GONE, ABSENT)
        if not self.is_there:
            return line
        outcome = Outcome.RESTORED if self.is_ours else Outcome.FOREIGN
        return replace(line, outcome=outcome, before=PRESENT, after=PRESENT)

    def undo(self, writer: Writer) -> Restored:
        """Remove the group."""
        line = self.planned(writer)
        if line.outcome is not Outcome.RESTORED:
            return line
        try:
            writer.remove_group(self.name)
        except Vanished:
            line = replace(line, outcome=Outcome.GONE)
        except (WriteError, ValueRefused) as error:
            return replace(line, outcome=Outcome.FAILED, why=str(error))
        return replace(line, after=ABSENT)
