"""Bounded histories: one ring per object of a panel, all rings of a panel on one time axis.

Numbers are kept as 32-bit floats (24 bits of mantissa: 16 GiB to within 1 KiB), which halves the largest part of
the daemon's memory; the newest samples are kept exactly elsewhere. Invariant: a ring holds what was written at the
last ``capacity`` instants of the axis and nothing else; an instant at which the object had no sample reads as none.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable, Sequence

from qosd.sense.row import NO_SAMPLE

NANOSECONDS = 1_000_000_000


def nearest_rank(values: Iterable[float], quantile: float) -> float | None:
    """Returns the smallest value that at least ``quantile`` (0..1) of all values do not exceed; None without values.

    Index ``ceil(n * quantile) - 1`` of the sorted values. Upstream takes ``int(n * quantile) - 1``, which is one
    too low wherever n * quantile is no whole number.
    """
    ordered = sorted(values)
    if not ordered:
        return None
    rank = math.ceil(len(ordered) * quantile - 1e-9)
    return ordered[min(max(rank, 1), len(ordered)) - 1]


class Ring:
    """The history of one object: ``width`` numbers for each of the axis' last instants."""

    __slots__ = ("cells", "first", "last")

    def __init__(self, capacity: int, width: int, first: int) -> None:
        self.cells = array("f", [NO_SAMPLE]) * (capacity * width)
        self.first = first
        self.last = first - 1


class Rings:
    """All rings of a panel. ``width``: the number of metrics with history."""

    def __init__(self, capacity: int, width: int) -> None:
        self._capacity, self._width = capacity, width
        self._times = array("q", bytes(8 * capacity))
        self._now = -1  # number of the newest instant
        self._rings: dict[str, Ring] = {}
        self._row = struct.Struct(f"{width}f")
        self._gap = array("f", [NO_SAMPLE]) * width

    def __len__(self) -> int:
        return len(self._rings)

    @property
    def size_bytes(self) -> int:
        return sum(ring.cells.itemsize * len(ring.cells) for ring in self._rings.values())

    def write(self, at_ns: int, subjects: Iterable[str], rows: Iterable[Sequence[float]]) -> None:
        """Adds the instant ``at_ns`` with each subject's row (its first ``width`` numbers)."""
        self._now += 1
        now, capacity, width = self._now, self._capacity, self._width
        slot = now % capacity
        self._times[slot] = at_ns
        offset, pack, rings = slot * width * 4, self._row.pack_into, self._rings
        for subject, row in zip(subjects, rows, strict=True):
            ring = rings.get(subject)
            if ring is None:
                ring = rings[subject] = Ring(capacity, width, now)
            if ring.last != now - 1:
                self._skip(ring)
            pack(ring.cells, offset, *row[:width])
            ring.last = now

    def _skip(self, ring: Ring) -> None:
        """Empties the instants at which ``ring`` got no row."""
        for instant in range(max(ring.last + 1, self._now - self._capacity + 1), self._now):
            start = instant % self._capacity * self._width
            ring.cells[start : start + self._width] = self._gap

    def drop(self, subject: str) -> None:
        self._rings.pop(subject, None)

    def drop_ended(self) -> None:
        """Forgets the objects that have no sample left within the axis."""
        oldest = self._now - self._capacity
        for subject in [subject for subject, ring in self._rings.items() if ring.last <= oldest]:
            del self._rings[subject]

    def read(self, subject: str, column: int, since_ns: int) -> list[tuple[int, float]]:
        """Returns (time, value) of each sample of ``subject`` not older than ``since_ns``, oldest first."""
        ring = self._rings.get(subject)
        if ring is None:
            return []
        samples: list[tuple[int, float]] = []
        for instant in range(ring.last, max(ring.first, self._now - self._capacity + 1) - 1, -1):
            slot = instant % self._capacity
            if self._times[slot] < since_ns:
                break
            value = ring.cells[slot * self._width + column]
            if not math.isnan(value):
                samples.append((self._times[slot], value))
        samples.reverse()
        return samples
