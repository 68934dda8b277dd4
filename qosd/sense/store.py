"""Keeps the newest sample of every metric, and a bounded history of some.

One thread writes (the sampler), others read. Invariants: what ``newest`` returned never changes afterwards, so a
snapshot may keep it; an object that is gone leaves neither sample nor ring. Nothing here knows a clock: instants are
the monotonic nanoseconds of the batch that brought the rows.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from types import MappingProxyType

from qosd.model.metric import Metric, Scope
from qosd.sense.ring import NANOSECONDS, Rings, nearest_rank
from qosd.sense.row import Panel, Row

_NO_SAMPLES: Mapping[str, float] = MappingProxyType({})


class SampleStore:
    """Takes rows; gives samples and histories by metric and subject. ``panels``: all that may ever be written."""

    def __init__(self, panels: Iterable[Panel]) -> None:
        self._lock = threading.Lock()
        self._rings: dict[Panel, Rings] = {panel: Rings(panel.capacity, panel.kept) for panel in panels}
        self._columns = {
            metric: (panel, column) for panel in self._rings for column, metric in enumerate(panel.metrics)
        }
        self._newest: Mapping[Metric, Mapping[str, float]] = MappingProxyType({})
        self._written_ns: dict[Panel, int] = {}

    def put(self, panel: Panel, at_ns: int, rows: Mapping[str, Row]) -> None:
        """Stores each subject's row of a batch. Subjects that are not in ``rows`` lose their newest sample."""
        newest = dict(self._newest)
        for column, metric in enumerate(panel.metrics):
            newest[metric] = {subject: value for subject, row in rows.items() if (value := row[column]) == value}
        with self._lock:
            rings = self._rings[panel]
            if panel.kept:
                rings.write(at_ns, rows, rows.values())
                if len(rings) > len(rows):
                    rings.drop_ended()
            self._newest = MappingProxyType(newest)
            self._written_ns[panel] = at_ns

    def withdraw(self, panel: Panel) -> None:
        """Removes the newest samples of ``panel``, which are no longer true. The history stays."""
        with self._lock:
            rest = {metric: rows for metric, rows in self._newest.items() if metric not in panel.metrics}
            self._newest = MappingProxyType(rest)
            self._written_ns.pop(panel, None)

    def newest(self) -> Mapping[Metric, Mapping[str, float]]:
        """Returns the newest samples by metric, then by subject. The mapping never changes."""
        return self._newest

    def value(self, metric: Metric, subject: str = "") -> float | None:
        """Returns the newest sample of ``metric`` for ``subject``."""
        return self._newest.get(metric, _NO_SAMPLES).get(subject)

    def values(self, metric: Metric, at_ns: int) -> Mapping[str, float]:
        """Returns the newest samples of ``metric`` if they are of the batch at ``at_ns``. KeyError: no such metric."""
        panel, _ = self._columns[metric]
        return self._newest.get(metric, _NO_SAMPLES) if self._written_ns.get(panel) == at_ns else _NO_SAMPLES

    def series(self, metric: Metric, subject: str = "", since_ns: int = 0) -> list[tuple[int, float]]:
        """Returns (monotonic ns, value), oldest first, within the metric's retention. KeyError: no such metric."""
        panel, column = self._columns[metric]
        if column >= panel.kept:
            return []
        with self._lock:
            return self._rings[panel].read(subject, column, since_ns)

    def histories(self, metric: Metric, since_ns: int) -> Mapping[str, Sequence[tuple[int, float]]]:
        """Returns ``series`` of every subject that has a newest sample."""
        panel, column = self._columns[metric]
        if column >= panel.kept:
            return {}
        subjects = self._newest.get(metric, _NO_SAMPLES)
        with self._lock:
            rings = self._rings[panel]
            return {subject: rings.read(subject, column, since_ns) for subject in subjects}

    def subjects(self, metric: Metric) -> Collection[str]:
        """Returns the subjects with a newest sample of ``metric``, in an immutable view. KeyError: no such metric."""
        if metric not in self._columns:
            raise KeyError(metric)
        return self._newest.get(metric, _NO_SAMPLES).keys()

    def percentile(self, metric: Metric, subject: str, quantile: float, window_s: float, now_ns: int) -> float | None:
        """Returns the nearest-rank percentile (``quantile`` 0..1) of the samples of the last ``window_s`` seconds."""
        samples = self.series(metric, subject, now_ns - int(window_s * NANOSECONDS))
        return nearest_rank((value for _, value in samples), quantile)

    def drop(self, scope: Scope, subjects: Collection[str]) -> None:
        """Forgets everything about objects of ``scope`` that are gone."""
        panels = [panel for panel in self._rings if panel.scope is scope]
        newest = dict(self._newest)
        for metric in (metric for panel in panels for metric in panel.metrics if metric in newest):
            newest[metric] = {subject: value for subject, value in newest[metric].items() if subject not in subjects}
        with self._lock:
            for panel, subject in product(panels, subjects):
                self._rings[panel].drop(subject)
            self._newest = MappingProxyType(newest)

    @property
    def history_bytes(self) -> int:
        """The memory of all rings."""
        with self._lock:
            return sum(rings.size_bytes for rings in self._rings.values())

    @property
    def series_count(self) -> int:
        """The number of newest samples and rings, which must not grow when objects come and go."""
        with self._lock:
            return sum(map(len, self._newest.values())) + sum(map(len, self._rings.values()))
