"""A histogram of usage that forgets: exponential buckets, and samples that count half as much per half-life.

The node predicts peaks with it and the cluster recommends requests; both read and write the same checkpoints, so the
buckets are upstream's to the last digit: bucket n begins at ``first * (1.05**n - 1) / 0.05``. Invariant: weights are
never negative and their sum is ``total``; a percentile is the end of a bucket, so it is at most 5 % (or the first
bucket) too high and never too low, but in the last bucket, which has no end: there it is the start. Bad checkpoints
raise CheckpointError and change nothing.

Clocks are set back (a node boots with a date of next year until NTP answers), and samples from a future would outweigh
all that come for as long. So no sample is weighed more than a half-life before the newest: see ``follow``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

_GROWTH = 0.05
_EPSILON = 1e-4  # a bucket at either end that weighs less counts as empty
_LARGEST_EXPONENT = 100  # of a sample's weight, before the reference moves
_CHECKPOINT_WEIGHT = 10_000  # of the heaviest bucket


class CheckpointError(ValueError):
    """A checkpoint that does not describe a histogram of this scale."""


@dataclass(frozen=True)
class Scale:
    """Buckets up to ``largest``, the first one ``first`` wide (both in the unit of the samples)."""

    first: float
    largest: float

    @cached_property
    def buckets(self) -> int:
        return math.ceil(self._position(self.largest)) + 1

    def index(self, value: float) -> int:
        """The bucket of ``value``; what is beyond the scale falls into the last one."""
        if value < self.first:
            return 0
        return min(math.floor(self._position(value)), self.buckets - 1)

    def start(self, bucket: int) -> float:
        return self.first * (math.pow(1 + _GROWTH, bucket) - 1) / _GROWTH

    def end(self, bucket: int) -> float:
        """Returns where ``bucket`` ends; the last one has no end, and its start stands for it."""
        return self.start(min(bucket + 1, self.buckets - 1))

    def _position(self, value: float) -> float:
        return math.log(value * _GROWTH / self.first + 1) / math.log(1 + _GROWTH)


CPU_CORES = Scale(first=0.025, largest=1024.0)
MEMORY_BYTES = Scale(first=5 * 2**20, largest=float(2**41))
CPU_HALF_LIFE_S = 12 * 3600.0
MEMORY_HALF_LIFE_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What of a histogram is kept: whole weights, the heaviest 10,000; times are Unix seconds.

    ``newest_s``, the newest sample's, is no part of upstream's; 0 = not known.
    """

    reference_s: float
    weights: Mapping[int, int]
    total: float
    newest_s: float = 0.0


class DecayingHistogram:
    """Samples by value; one that is ``half_life_s`` older counts half. Times are Unix seconds."""

    def __init__(self, scale: Scale, half_life_s: float) -> None:
        self.scale = scale
        self.half_life_s = half_life_s
        self._weights: dict[int, float] = {}
        self._total = 0.0
        self._reference_s = 0.0  # at most half a half-life after the newest
        self.newest_s = 0.0

    @property
    def is_empty(self) -> bool:
        return not self._filled()

    def add(self, value: float, at_s: float, weight: float = 1.0) -> None:
        """Count ``value``, seen at ``at_s``. A sample from a little before the last ones is as welcome as any."""
        self.follow(at_s)
        if at_s - self._reference_s > _LARGEST_EXPONENT * self.half_life_s:
            self._move_reference(at_s)
        decayed = weight * math.exp2((at_s - self._reference_s) / self.half_life_s)
        bucket = self.scale.index(value)
        self._weights[bucket] = self._weights.get(bucket, 0.0) + decayed
        self._total += decayed
        self.newest_s = max(self.newest_s, at_s)

    def follow(self, clock_s: float) -> None:
        """Follows a clock, which shows ``clock_s``, that was set back: what was seen before counts as seen until now.

        "Set back" is more than a half-life before the newest sample; less than that does no harm.
        """
        if self.newest_s - clock_s > self.half_life_s:
            self._weigh_against(self.newest_s)
            self._reference_s = self.newest_s = clock_s

    def percentile(self, fraction: float) -> float:
        """Returns the value below which ``fraction`` (0 to 1) of the weight lies, as the end of its bucket; 0 if
        ``is_empty``.
        """
        filled = self._filled()
        if not filled:
            return 0.0
        wanted, reached = fraction * self._total, 0.0
        for bucket in filled:
            reached += self._weights[bucket]
            if reached >= wanted:
                return self.scale.end(bucket)
        return self.scale.end(filled[-1])

    def weight_at(self, at_s: float) -> float:
        """Returns how many samples of ``at_s`` would weigh as much as all there are: the evidence that is left by then.

        Never more than there was at the newest sample: no evidence comes of a clock that was set back.
        """
        return self._total * math.exp2((self._reference_s - max(at_s, self.newest_s)) / self.half_life_s)

    def checkpoint(self) -> Checkpoint:
        heaviest = max(self._weights.values(), default=0.0)
        if heaviest <= 0:
            return Checkpoint(self._reference_s, {}, 0.0, self.newest_s)
        scaled = {b: round(w / heaviest * _CHECKPOINT_WEIGHT) for b, w in sorted(self._weights.items())}
        kept = {bucket: weight for bucket, weight in scaled.items() if weight}
        return Checkpoint(self._reference_s, kept, self._total, self.newest_s)

    def restore(self, saved: Checkpoint) -> None:
        """Become what was saved. Raises CheckpointError."""
        for bucket, weight in saved.weights.items():
            if not 0 <= bucket < self.scale.buckets:
                raise CheckpointError(f"bucket {bucket}: there are {self.scale.buckets}")
            if not 0 < weight <= _CHECKPOINT_WEIGHT:
                raise CheckpointError(f"weight {weight} of bucket {bucket}: not 1 to {_CHECKPOINT_WEIGHT}")
        if not (math.isfinite(saved.total) and saved.total >= 0 and math.isfinite(saved.reference_s)):
            raise CheckpointError(f"total {saved.total}, reference {saved.reference_s}: not finite and positive")
        if not math.isfinite(saved.newest_s):
            raise CheckpointError(f"newest sample at {saved.newest_s}: not finite")
        whole = sum(saved.weights.values())
        if bool(whole) != bool(saved.total):
            raise CheckpointError(f"total {saved.total} for weights that sum up to {whole}")
        self._weights = {bucket: weight * saved.total / whole for bucket, weight in saved.weights.items()}
        self._total = saved.total
        self._reference_s = saved.reference_s
        self.newest_s = max(saved.newest_s, saved.reference_s - self.half_life_s / 2)

    def _filled(self) -> list[int]:
        """The buckets from the first to the last that weighs something, in order."""
        buckets = sorted(self._weights)
        while buckets and self._weights[buckets[0]] < _EPSILON:
            del buckets[0]
        while buckets and self._weights[buckets[-1]] < _EPSILON:
            del buckets[-1]
        return buckets

    def _move_reference(self, at_s: float) -> None:
        """Weigh everything against a multiple of the half-life near ``at_s``, so that weights stay finite."""
        self._weigh_against(math.floor(at_s / self.half_life_s + 0.5) * self.half_life_s)

    def _weigh_against(self, reference_s: float) -> None:
        factor = math.exp2((self._reference_s - reference_s) / self.half_life_s)
        self._weights = {b: w * factor for b, w in self._weights.items() if w * factor > 0}
        self._total = sum(self._weights.values())
        self._reference_s = reference_s
