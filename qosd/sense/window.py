"""Works out the declared windows: mean, percentile, slope and count of the samples in the rings.

A window covers every object of its metric, and at most ticks no strategy reads it; so it is worked out for an object
when it is read, once. Invariants: a sample counts in every window that is long enough for it, in none after it
has left and in none that ended before it; an object that is gone is in none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from qosd.model.snapshot import Aggregate, Window
from qosd.sense.ring import NANOSECONDS, nearest_rank
from qosd.sense.store import SampleStore


def aggregates(store: SampleStore, windows: Iterable[Window], now_ns: int) -> Mapping[Window, Mapping[str, Aggregate]]:
    """Returns the aggregates of every window, by object. Raises KeyError for a metric of no collector."""
    return {window: Aggregates(store, window, now_ns) for window in windows}


class Aggregates(Mapping[str, Aggregate]):
    """The aggregates of ``window`` at ``now_ns``, by object, of the objects with samples in it."""

    def __init__(self, store: SampleStore, window: Window, now_ns: int) -> None:
        self._store, self._window, self._now_ns = store, window, now_ns
        self._since_ns = now_ns - int(window.over_s * NANOSECONDS) + 1  # one that is just as old has left the window
        self._subjects = store.subjects(window.metric)
        self._found: dict[str, Aggregate | None] = {}

    def __getitem__(self, subject: str) -> Aggregate:
        aggregate = self._found[subject] if subject in self._found else self._look(subject)
        if aggregate is None:
            raise KeyError(subject)
        return aggregate

    def __iter__(self) -> Iterator[str]:
        return (subject for subject in self._subjects if subject in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _look(self, subject: str) -> Aggregate | None:
        samples: Sequence[tuple[int, float]] = ()
        if subject in self._subjects:
            series = self._store.series(self._window.metric, subject, self._since_ns)
            samples = [sample for sample in series if sample[0] <= self._now_ns]
        aggregate = _aggregate(samples, self._window.quantile) if samples else None
        self._found[subject] = aggregate
        return aggregate


def _aggregate(samples: Sequence[tuple[int, float]], quantile: float) -> Aggregate:
    values = [value for _, value in samples]
    mean = sum(values) / len(values)
    percentile = nearest_rank(values, quantile)
    assert percentile is not None
    span_s = (samples[-1][0] - samples[0][0]) / NANOSECONDS
    return Aggregate(len(values), mean, percentile, _slope_per_s(samples, mean), span_s)


def _slope_per_s(samples: Sequence[tuple[int, float]], mean: float) -> float:
    """Returns the slope by least squares."""
    origin_ns = samples[0][0]
    times_s = [(at_ns - origin_ns) / NANOSECONDS for at_ns, _ in samples]
    middle_s = sum(times_s) / len(times_s)
    spread = sum((time_s - middle_s) ** 2 for time_s in times_s)
    if not spread:
        return 0.0
    return (
        sum((time_s - middle_s) * (value - mean) for time_s, (_, value) in zip(times_s, samples, strict=True)) / spread
    )
