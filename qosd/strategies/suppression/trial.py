"""Does a step help? Pain before and after it, and how sure one can be of the difference.

A step that does nothing, or harm, looks like one that helps if only luck is on its side; so it counts as help only if
the mean pain falls by more than the noise of both means (twice the standard error of their difference), and by more
than ``LEAST_PART`` of what it was. Samples of the first ``SETTLE_NS`` show both states and count for neither. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import msgspec

SECOND_NS = 1_000_000_000
SETTLE_NS = 2 * SECOND_NS
DWELL_NS = 12 * SECOND_NS
"""How long a step is tried, its settling included."""
SAMPLES = 8
"""Of either state, at least."""
LEAST_PART = 0.1
_ERRORS = 2.0


class Verdict(Enum):
    OPEN = "open"
    HELPS = "helps"
    NO_HELP = "no help"


class Sample(msgspec.Struct, frozen=True):
    at_ns: int
    pain: float


class Trial(msgspec.Struct, frozen=True):
    """A step that was taken at ``since_ns``; ``before``: pain until then."""

    since_ns: int
    before: tuple[float, ...]
    after: tuple[float, ...] = ()

    def continued(self, sample: Sample) -> Trial:
        """With one sample more."""
        if sample.at_ns - self.since_ns < SETTLE_NS:
            return self
        return Trial(self.since_ns, self.before, (*self.after, sample.pain))

    def verdict(self, now_ns: int) -> Verdict:
        """Before its time only harm is sure."""
        if len(self.after) < SAMPLES or now_ns - self.since_ns < DWELL_NS:
            return Verdict.OPEN if not self._harms else Verdict.NO_HELP
        fall = mean(self.before) - mean(self.after)
        noise = _ERRORS * math.sqrt(_error(self.before) + _error(self.after))
        return Verdict.HELPS if fall > max(noise, LEAST_PART * mean(self.before)) else Verdict.NO_HELP

    @property
    def _harms(self) -> bool:
        """Is it clearly worse already?"""
        if len(self.after) < SAMPLES // 2:
            return False
        rise = mean(self.after) - mean(self.before)
        return rise > max(mean(self.before), 2 * _ERRORS * math.sqrt(_error(self.before) + _error(self.after)))


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _error(values: Sequence[float]) -> float:
    """The square of the standard error of their mean."""
    if len(values) < 2:
        return math.inf
    middle = mean(values)
    return sum((value - middle) ** 2 for value in values) / (len(values) - 1) / len(values)
