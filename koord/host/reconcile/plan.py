"""A plan: the writes of one run in the kernel's order, each with who and why, made without writing anything.

The writes follow from what is wanted and what the kernel holds, so a dry run shows exactly what the run would do.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

import msgspec

from koord.host.files import Target, Value, ValueRefused
from koord.host.originals import ContainerKey, Original
from koord.host.reconcile.due import Due
from koord.host.reconcile.state import FileState
from koord.host.reconcile.step import Transition
from koord.host.reconcile.wanted import Refusals
from koord.host.undo import UndoError
from koord.host.writer import Reading, Unsupported, Vanished, WriteError
from koord.model.formulas import NO_INPUTS, Inputs

DONE, STARTED, VANISHED, UNSUPPORTED, REFUSED, YIELDED, FOREIGN, ADOPTED, LEFTOVER = (
    "done",
    "started",
    "vanished",
    "unsupported",
    "refused",
    "yielded",
    "foreign",
    "adopted",
    "leftover",
)
"""Results in the journal. A write that the kernel refused is ``failed`` with its errno. Of these only ``done`` and
``failed …`` are writes that took place; ``foreign`` tells of someone else's (``after`` is what they wrote), ``adopted``
of the runtime's, which wrote a value of ours (``before`` is what kubelet requested), ``leftover`` of one that another
agent wrote before Koord was there (``before`` is what kubelet would have written). ``started`` is an act that takes
its time: another row says what it came to."""
FAILED, UNREADABLE = "failed", "unreadable"


def result_of(error: Exception) -> str:
    """Returns the result of an act that ended in ``error``: a write, a note before it, or a look at the kernel."""
    if isinstance(error, WriteError):
        if isinstance(error, Vanished):
            return VANISHED
        if isinstance(error, Unsupported):
            return UNSUPPORTED
        number = error.errno or errno.EIO
        return f"{FAILED} {errno.errorcode.get(number, number)}"
    return REFUSED if isinstance(error, UndoError | ValueRefused) else UNREADABLE


class PlannedWrite(msgspec.Struct, frozen=True):
    """One write(2). ``final`` unless it only makes room for a later one of the same file."""

    target: Target
    path: str
    before: Value
    after: Value
    final: bool
    by: str
    why: str
    inputs: Inputs = NO_INPUTS
    pod: str = ""


class Notice(msgspec.Struct, frozen=True):
    """An entry of the journal that is no write: ``result`` tells its kind, ``after`` the value it is about.

    ``is_repeated``: the last attempt gave the same entry.
    """

    target: Target
    path: str
    before: Value | None
    after: Value | None
    result: str
    by: str
    why: str
    inputs: Inputs = NO_INPUTS
    pod: str = ""
    is_repeated: bool = False


class Takeover(msgspec.Struct, frozen=True):
    """A container's file that was looked at with its original in mind.

    ``base``: what to put back of it from now on; None = it holds another value than Koord had the runtime write.
    """

    key: ContainerKey
    original: Original
    reading: Reading
    base: Value | None


class Inheritance(msgspec.Struct, frozen=True):
    """A file of a cgroup that was made below one of ours, and holds what that holds. ``base``: what to put back."""

    reading: Reading
    base: Value


class Leftover(msgspec.Struct, frozen=True):
    """A file in which another agent wrote ``found`` before Koord was there. ``base``: what kubelet writes there."""

    reading: Reading
    found: Value
    base: Value


class Plan(msgspec.Struct, frozen=True):
    """The writes, in order; ``notices``: the other entries for the journal. The rest is for the reconciler that applies
    it."""

    edition: int
    """The state of the reconciler that it was made from."""
    now_ns: int
    due: Due
    writes: tuple[PlannedWrite, ...]
    notices: tuple[Notice, ...]
    transitions: Mapping[Target, Transition]
    unreadable: Mapping[Target, FileState]
    """The states of files that could not be read, with the time of the next attempt."""
    refused: Refusals
    """Opinions left out on the files looked at; an empty tuple where all are followed."""
    takeovers: Mapping[Target, Takeover | Inheritance | Leftover]
    """The files that the runtime, the kernel or another agent wrote, to be noted before anything is written."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of one planned write: one of the results above, with the kernel's explanation.

    ``systemd``: whether systemd knows of it, for people; "" if the file is none of systemd's. ``took_s``: the seconds
    to write and to read back; None if nothing was tried, or no clock was read.
    """

    write: PlannedWrite
    result: str
    detail: str = ""
    systemd: str = ""
    took_s: float | None = None

    @property
    def sentence(self) -> str:
        """For the journal: why it was made, how it went, and whether systemd knows."""
        why = f"{self.write.why}: {self.detail}" if self.detail else self.write.why
        return f"{why}; {self.systemd}" if self.systemd else why
