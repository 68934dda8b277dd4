"""Where the policy in force comes from, and how old it is: for koordctl, the metrics and the log.

The policy is made of layers (the rules file, and with a cluster the NodeSLO and the Node), and each has a provenance of
its own; ``overall`` is the one to worry about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Origin(StrEnum):
    SOURCE = "source"
    """The source says it now."""
    LAST_GOOD = "last good"
    """The source said it last: it is away, or its present answer cannot be used."""
    NONE = "none"
    """The source says now that there is nothing."""
    DEFAULTS = "built-in defaults"
    """There never was a source."""
    UNKNOWN = "unknown"
    """There was or is a policy, and it is not known."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """``taken_unix_s``: when the source last said it; None: no source did. ``problem``: of the source now."""

    origin: Origin
    source: str
    taken_unix_s: float | None = None
    problem: str = ""

    def age_s(self, now_unix_s: float) -> float | None:
        return None if self.taken_unix_s is None else max(0.0, now_unix_s - self.taken_unix_s)


def overall(layers: Iterable[Provenance]) -> Provenance:
    """Returns the highest of ``layers`` (lowest first, of a known policy) that is old, else the highest there is."""
    from_above = sorted(layers, key=lambda layer: layer.origin in (Origin.SOURCE, Origin.LAST_GOOD))[::-1]
    return next((each for each in from_above if each.origin is Origin.LAST_GOOD), from_above[0])
