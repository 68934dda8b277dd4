"""Rates of what the kernel counts of one cgroup: the gauge of collectors whose files hold nothing but counters.

Invariant: a rate is between two readings of the same cgroup (same paths and inodes, no failed reading between). A
counter that this kernel does not have, or that fell, costs its own figure only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qosd.sense.host import Host
from qosd.sense.rates import per_second
from qosd.sense.row import NO_SAMPLE, Row

Text = bytes | None
"""Of a file; None if it is not there."""
Count = int | None


@dataclass(frozen=True, slots=True)
class _Reading:
    at_ns: int
    inodes: tuple[int, ...]
    texts: tuple[Text, ...]
    counts: Sequence[Count]


class CounterGauge:
    """``counts``: what the texts of all ``paths`` say; ``row`` is made of their growth per second, in that order."""

    __slots__ = ("_before", "_counts", "_host", "_row", "paths")

    def __init__(
        self,
        paths: Sequence[str],
        counts: Callable[[Sequence[Text]], Sequence[Count]],
        row: Callable[[Sequence[float]], Row],
        host: Host,
    ) -> None:
        self.paths, self._counts, self._row, self._host = tuple(paths), counts, row, host
        self._before: _Reading | None = None

    def sample(self) -> Row | None:
        """None if there is none of the files, or nothing is counted in them. Raises OSError, ValueError."""
        before, self._before = self._before, None
        now = self._before = self._read(before)
        if now is None or all(count is None for count in now.counts):
            return None
        return self._row(_rates(before, now))

    def _read(self, before: _Reading | None) -> _Reading | None:
        """A text that did not change is not parsed again."""
        files = self._host.files
        texts = tuple(files.read(path) for path in self.paths)
        if not any(text is not None for text in texts):
            return None
        counts = before.counts if before is not None and texts == before.texts else self._counts(texts)
        return _Reading(self._host.clock(), tuple(map(files.inode, self.paths)), texts, counts)


def _rates(before: _Reading | None, now: _Reading) -> Sequence[float]:
    if before is None or before.inodes != now.inodes:
        return [NO_SAMPLE] * len(now.counts)
    elapsed_ns = now.at_ns - before.at_ns
    return [
        NO_SAMPLE if was is None or count is None else per_second(was, count, elapsed_ns)
        for was, count in zip(before.counts, now.counts, strict=True)
    ]
