"""The statistics of a window's samples: mean, percentiles, and the time that they cover.

Pure, over a ``SampleStore``. Its lock is taken once per metric, not per object: the sampler waits for it.
Invariant: a sample counts in every window that is long enough for it, and in none after it has left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import fsum
from operator import itemgetter

from qosd.model.metric import Metric
from qosd.sense.ring import NANOSECONDS, nearest_rank
from qosd.sense.store import SampleStore

Samples = Sequence[tuple[int, float]]
"""(monotonic ns, value), oldest first."""

QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""By upstream's names of the aggregations."""


def begin_ns(now_ns: int, window_s: float) -> int:
    """Returns the instant of the oldest sample that a window of ``window_s`` may hold: one just as old has left it."""
    return now_ns - int(window_s * NANOSECONDS) + 1


def since(samples: Samples, since_ns: int) -> Samples:
    """Returns the samples that are not older than ``since_ns``."""
    return samples[bisect_left(samples, since_ns, key=itemgetter(0)) :]


def mean(samples: Samples) -> float | None:
    """Returns the mean of the values; None without samples."""
    return fsum([value for _, value in samples]) / len(samples) if samples else None


def span_s(samples: Samples) -> float:
    """Returns the seconds from the oldest sample to the newest."""
    return (samples[-1][0] - samples[0][0]) / NANOSECONDS if samples else 0.0


def aggregations(samples: Samples) -> Mapping[str, float]:
    """Returns "avg" and ``QUANTILES``, by name; the quantiles are by nearest rank. Nothing without samples."""
    values = sorted(value for _, value in samples)
    if not values:
        return {}
    percentiles = {name: nearest_rank(values, quantile) for name, quantile in QUANTILES.items()}
    known = {name: value for name, value in percentiles.items() if value is not None}
    return {"avg": fsum(values) / len(values), **known}


def means(store: SampleStore, metric: Metric, since_ns: int) -> Mapping[str, float]:
    """Returns the mean of each object that has a newest sample and one since then."""
    histories = store.histories(metric, since_ns)
    return {subject: value for subject, samples in histories.items() if (value := mean(samples)) is not None}
