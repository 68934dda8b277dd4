"""Where the policy in force comes from, and how old it is: for koordctl, the metrics and the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Origin(StrEnum):
    SOURCE = "source"
    """What the source says now."""
    LAST_GOOD = "last good"
    """What the source said last: it is away, or what it says now cannot be used."""
    DEFAULTS = "built-in defaults"
    """There never was a source."""
    UNKNOWN = "unknown"
    """There was or is a policy, and nobody can tell it: everything stays as it is."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """``taken_unix_s``: when the source last said it; None of what no source said. ``problem``: of the source now."""

    origin: Origin
    source: str
    taken_unix_s: float | None = None
    problem: str = ""

    def age_s(self, now_unix_s: float) -> float | None:
        return None if self.taken_unix_s is None else max(0.0, now_unix_s - self.taken_unix_s)
