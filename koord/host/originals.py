"""The values that kubelet requested of containers which the runtime made with edited ones.

The runtime writes the edited value before Koord first looks at the file, so reading the file does not tell what to put
back; these records do. They tell it by row, as the file would hold it if the request had not been edited. ``edited``
counts as a value of ours even where the runtime writes it: the runtime keeps it in the container's specification and
may apply it again later. Invariant: plain values, no files; rows that an edit did not change are not listed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from koord.host.files import Value


class Pending(StrEnum):
    """Why the undo record does not tell of a value's file yet."""

    NONE = ""
    CREATED = "created"
    """The runtime makes the container with it, so it is in the file when the container runs, unless another writer
    wrote since."""
    STARTED = "started"
    """The runtime makes the container as requested, and Koord writes the value before its program starts."""
    UPDATED = "updated"
    """The container exists, and the runtime writes the value some time later."""


class Original(msgspec.Struct, frozen=True):
    """One value: ``requested`` is what the file would hold without Koord, ``edited`` what is written instead."""

    requested: Value
    edited: Value
    pending: Pending = Pending.NONE


class ContainerKey(NamedTuple):
    """A container as CRI names it before it has an id."""

    pod_uid: str
    container: str
    attempt: int

    def __str__(self) -> str:
        return f"container {self.container} (attempt {self.attempt}) of pod {self.pod_uid}"


class Originals(msgspec.Struct, frozen=True, tag="container"):
    """What kubelet requested for one container, by row. ``cgroup``: its cgroup, "" until a file of it was looked at."""

    key: ContainerKey
    values: dict[str, Original]
    cgroup: str = msgspec.field(default="", name="group")

    @property
    def is_there(self) -> bool:
        """The list of the pod's containers tells whether the container is still there."""
        return True

    def settled(self, row: str, cgroup: str) -> Originals:
        """The same, seen in ``cgroup``, with nothing pending of ``row``."""
        known = self.values[row]
        values = {**self.values, row: Original(known.requested, known.edited)}
        return Originals(self.key, values, cgroup)


def base_of(original: Original, held: Value | None) -> Value:
    """Returns the base of a file that holds ``original.edited``; ``held``: the base that is known, None if the file is
    free."""
    return original.requested if held is None or original.pending else held
