"""What kubelet asked for where Koord had the runtime make a container with something else.

Such a value is in the file before Koord ever looks at it, so reading does not tell what to put back; this does. It is
said row by row in the files' own terms: what the file would hold if nobody had edited the request. ``given`` is one of
our values whoever writes it: the runtime keeps it in the container's specification and may apply it again at any time.
Invariant: plain values, no files; rows that an edit did not change are not listed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from koord.host.files import Value


class News(StrEnum):
    """What of a value is not settled yet: what the undo record says of its file has not heard of it."""

    NONE = ""
    CREATED = "created"
    """The container is made with it, so it is there when the container runs, unless somebody wrote since."""
    UPDATED = "updated"
    """The container exists, and the runtime writes the value some time later."""


class Given(msgspec.Struct, frozen=True):
    """One value: ``asked`` is what the file would hold without Koord, ``given`` what the runtime was told."""

    asked: Value
    given: Value
    news: News = News.NONE


class Which(NamedTuple):
    """A container as CRI names it before it has an id."""

    pod_uid: str
    container: str
    attempt: int

    def __str__(self) -> str:
        return f"container {self.container} (attempt {self.attempt}) of pod {self.pod_uid}"


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """What was asked for one container, by row. ``group``: its cgroup, "" until a file of it was looked at."""

    which: Which
    values: dict[str, Given]
    group: str = ""

    def settled(self, row: str, group: str) -> Asked:
        """The same, seen in ``group``, without news of ``row``."""
        known = self.values[row]
        values = {**self.values, row: Given(known.asked, known.given)}
        return Asked(self.which, values, group)


def base_of(given: Given, held: Value | None) -> Value:
    """The base of a file that holds ``given``; ``held``: the base that is known of it, None if it is not held."""
    return given.asked if held is None or given.news else held
