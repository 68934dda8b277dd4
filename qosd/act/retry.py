"""Files that could not be brought to their value: when to try again, so that a hopeless write costs little."""

from __future__ import annotations

import msgspec

from koord.host.files import Value

_MOST_S = 60
_S = 1_000_000_000


class Retry(msgspec.Struct, frozen=True):
    """A file that could not be brought to ``desired``: not tried again before ``due_ns`` (monotonic)."""

    desired: Value | None
    failures: int
    due_ns: int
    why: str


def backoff_ns(failures: int) -> int:
    """1, 2, 4, … 60 seconds after that many failures."""
    return int(min(_MOST_S, 2 ** min(failures - 1, 10))) * _S
