"""Works out rates from two readings of a counter that may start again from 0 between them.

A kernel object that was made anew under the same name counts from 0: a reading below the one before it, or at no
later instant, says nothing about what happened, so there is no sample, and the newer reading becomes the base.
"""

from __future__ import annotations

from qosd.sense.row import NO_SAMPLE

NANOSECONDS = 1_000_000_000


def per_second(before: int, after: int, elapsed_ns: int) -> float:
    """Returns growth per second; NaN if the counter fell or no time has passed."""
    if after < before or elapsed_ns <= 0:
        return NO_SAMPLE
    return (after - before) * NANOSECONDS / elapsed_ns


def ratio(part_before: int, part_after: int, whole_before: int, whole_after: int) -> float:
    """Returns growth of the part by growth of the whole; 0 if the whole did not grow, NaN if either fell."""
    part, whole = part_after - part_before, whole_after - whole_before
    if part < 0 or whole < 0:
        return NO_SAMPLE
    return part / whole if whole else 0.0


def per_second_wrapping(before: int, after: int, elapsed_ns: int) -> float:
    """Works like ``per_second`` for a counter that may pass 2^64: a fall by more than half of that is a wrap."""
    if before - after > 1 << 63:
        after += 1 << 64
    return per_second(before, after, elapsed_ns)
