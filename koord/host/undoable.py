"""What the undo record notes of an act, and what undoing it comes to: the protocol of all kinds.

A kind of act that is no kernel file's value has its file in ``koord.host``: what a strategy says to have it, what is
noted before it is done, and how it is undone from that note alone. ``notes`` lists them.
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

    Of what is no file, ``target`` and ``path`` are what the journal says of it.
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
        """Is what it speaks of still there? What is not is forgotten at the next start."""


class Undoable(Note, Protocol):
    """A note that says how it is undone, whatever else is noted. Neither method raises for what it finds."""

    def planned(self, writer: Writer) -> Restored | None:
        """What ``undo`` would do: RESTORED stands for "to be put back". Writes nothing. None: nothing to be told."""

    def undo(self, writer: Writer) -> Restored | None:
        """Undo it; FAILED: it is to be tried again."""
