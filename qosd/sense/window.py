"""What declared windows come to: mean, percentile, slope and count of the samples that the rings hold.

Invariant: a sample counts in every window that is long enough for it, and in none after it has left; an object that is
gone is in none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from qosd.model.snapshot import Aggregate, Window
from qosd.sense.ring import NANOSECONDS, nearest_rank
from qosd.sense.store import Store


def aggregates(store: Store, windows: Iterable[Window], now_ns: int) -> Mapping[Window, Mapping[str, Aggregate]]:
    """Of every window, by object. Raises KeyError for a metric that nobody measures."""
    return {window: _by_object(store, window, now_ns) for window in windows}


def _by_object(store: Store, window: Window, now_ns: int) -> Mapping[str, Aggregate]:
    since_ns = now_ns - int(window.over_s * NANOSECONDS) + 1  # one that is just as old as the window has left it
    histories = store.histories(window.metric, since_ns)
    return {subject: _aggregate(samples, window.quantile) for subject, samples in histories.items() if samples}


def _aggregate(samples: Sequence[tuple[int, float]], quantile: float) -> Aggregate:
    values = [value for _, value in samples]
    mean = sum(values) / len(values)
    percentile = nearest_rank(values, quantile)
    assert percentile is not None
    span_s = (samples[-1][0] - samples[0][0]) / NANOSECONDS
    return Aggregate(len(values), mean, percentile, _slope_per_s(samples, mean), span_s)


def _slope_per_s(samples: Sequence[tuple[int, float]], mean: float) -> float:
    """Least squares."""
    origin_ns = samples[0][0]
    times_s = [(at_ns - origin_ns) / NANOSECONDS for at_ns, _ in samples]
    middle_s = sum(times_s) / len(times_s)
    spread = sum((time_s - middle_s) ** 2 for time_s in times_s)
    if not spread:
        return 0.0
    return (
        sum((time_s - middle_s) * (value - mean) for time_s, (_, value) in zip(times_s, samples, strict=True)) / spread
    )
