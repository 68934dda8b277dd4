"""Tells whether a step helps, by how long the container that waits most waits for CPUs before and after the step.

Its whole wait counts, not best-effort's part of it: that part is worked out from what best-effort work uses, and so
falls with anything that takes CPU time from it, even if no container waits less. By chance a step that does nothing, or
harm, can look like one that helps; so it counts as help only if the mean falls by more than the noise of both means
(twice the standard error of their difference), and by more than ``LEAST_PART`` of what it was. Samples of the first
``SETTLE_NS`` show both states and count for neither. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import msgspec

from qosd.strategies.suppression.loadbaseline import LoadBaseline

SECOND_NS = 1_000_000_000
SETTLE_NS = 2 * SECOND_NS
DWELL_NS = 12 * SECOND_NS
"""How long a step is tried, its settling included."""
SAMPLES = 8
"""The least number of samples of each state."""
LEAST_PART = 0.1
_ERRORS = 2.0


class TrialVerdict(Enum):
    OPEN = "open"
    HELPS = "helps"
    NO_HELP = "no help"


class WaitSample(msgspec.Struct, frozen=True):
    """The wait of the ``sufferer`` in µs per second, and what best-effort pods used then."""

    waited: float
    used_milli: float


class Trial(msgspec.Struct, frozen=True):
    """A step that was taken at ``since_ns`` for the sake of ``sufferer``; ``before``: samples until then."""

    since_ns: int
    sufferer: str
    before: tuple[WaitSample, ...]
    after: tuple[WaitSample, ...] = ()

    def continued(self, sample: WaitSample, now_ns: int) -> Trial:
        """Returns the trial with one more sample."""
        if now_ns - self.since_ns < SETTLE_NS:
            return self
        return msgspec.structs.replace(self, after=(*self.after, sample))

    @property
    def waited(self) -> tuple[float, float]:
        """The mean waits before and after."""
        return mean(_waits(self.before)), mean(_waits(self.after))

    @property
    def baseline(self) -> LoadBaseline:
        """The fit of its waits to what best-effort pods used."""
        return LoadBaseline.through((sample.used_milli, sample.waited) for sample in (*self.before, *self.after))

    def verdict(self, now_ns: int) -> TrialVerdict:
        """Returns the verdict; before ``DWELL_NS`` only that the step harms."""
        if len(self.after) < SAMPLES or now_ns - self.since_ns < DWELL_NS:
            return TrialVerdict.OPEN if not self._harms else TrialVerdict.NO_HELP
        before, after = self.waited
        return TrialVerdict.HELPS if before - after > max(self._noise, LEAST_PART * before) else TrialVerdict.NO_HELP

    @property
    def _harms(self) -> bool:
        """Is the wait clearly longer already?"""
        if len(self.after) < SAMPLES // 2:
            return False
        before, after = self.waited
        return after - before > max(before, 2 * self._noise)

    @property
    def _noise(self) -> float:
        return _ERRORS * math.sqrt(_error(_waits(self.before)) + _error(_waits(self.after)))


def _waits(samples: Sequence[WaitSample]) -> list[float]:
    return [sample.waited for sample in samples]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _error(values: Sequence[float]) -> float:
    """Returns the square of the standard error of the mean."""
    if len(values) < 2:
        return math.inf
    middle = mean(values)
    return sum((value - middle) ** 2 for value in values) / (len(values) - 1) / len(values)
