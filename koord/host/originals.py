"""What kubelet requested where Koord had the runtime make a container with something else.

Such a value is in the file before Koord ever looks at it, so reading does not tell what to put back; this does. It is
said row by row in the files' own terms: what the file would hold if nobody had edited the request. ``edited`` is one
of our values whoever writes it: the runtime keeps it in the container's specification and may apply it again later.
Invariant: plain values, no files; rows that an edit did not change are not listed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from koord.host.files import Value


class Pending(StrEnum):
    """What of a value is not settled yet: what the undo record says of its file has not heard of it."""

    NONE = ""
    CREATED = "created"
    """The container is made with it, so it is there when the container runs, unless somebody wrote since."""
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
        """Whether the container is, its pod's list of containers tells."""
        return True

    def settled(self, row: str, cgroup: str) -> Originals:
        """The same, seen in ``cgroup``, with nothing pending of ``row``."""
        known = self.values[row]
        values = {**self.values, row: Original(known.requested, known.edited)}
        return Originals(self.key, values, cgroup)


def base_of(original: Original, held: Value | None) -> Value:
    """The base of a file that holds ``original.edited``; ``held``: the base that is known of it, None if it is free."""
    return original.requested if held is None or original.pending else held
