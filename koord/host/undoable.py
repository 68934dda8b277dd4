"""The shape of all notes in the undo record: what an act notes, and how it is undone.

A kind of act that is no kernel file's value has its file in ``koord.host``: what a strategy returns to want it, what is
noted before it is done, and how it is undone from that note alone. ``notes`` lists the kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol

from msgspec.structs import StructConfig

from koord.host.files import Target, Value
from koord.host.writer import Writer

Key = tuple[str | int, ...]


class RestoreOutcome(StrEnum):
    """What became of one note."""

    RESTORED = "restored"
    ALREADY_BASE = "already base"
    GONE = "gone"
    FOREIGN = "foreign value left alone"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Restored:
    """One line of the report: ``before`` and ``after`` are what the file held, ``why`` explains failures.

    For an act that is no file's value, ``target`` and ``path`` are those of the act in the journal.
    """

    target: Target
    path: str
    outcome: RestoreOutcome
    base: Value
    before: Value | None = None
    after: Value | None = None
    why: str = ""


class Note(Protocol):
    """A struct whose tag is the name of its kind in the record."""

    __struct_config__: ClassVar[StructConfig]

    @property
    def key(self) -> Key: ...

    @property
    def is_there(self) -> bool:
        """Returns whether the object of the note is still there. Notes of other objects are dropped at the next
        start."""


class Undoable(Note, Protocol):
    """A note that says how it is undone, whatever else is noted. Neither method raises for what it finds."""

    def planned(self, writer: Writer) -> Restored | None:
        """Returns what ``undo`` would do: RESTORED stands for "to be put back". Writes nothing. None: nothing to
        report."""

    def undo(self, writer: Writer) -> Restored | None:
        """Undo it; FAILED: it is to be tried again."""
