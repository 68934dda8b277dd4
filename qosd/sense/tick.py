"""The input and output of a collector: one batch of one instant.

Invariant: a collector reads, and returns rows; it neither keeps time nor writes into the store. It may use the samples
of earlier collectors of the same batch. It raises NotApplicable if it has nothing to read on this node; any other
exception is a failed run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from qosd.model.metric import Metric
from qosd.sense.row import Panel, Row
from qosd.sense.store import SampleStore
from qosd.sense.targets import SampleTargets

Batch = Iterable[tuple[Panel, Mapping[str, Row]]]


class NotApplicable(Exception):
    """The node lacks what the collector reads; the message names it (``no resctrl mount``)."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The instant, the cgroups to measure, and the samples of earlier collectors at the same instant."""

    at_ns: int
    targets: SampleTargets
    store: SampleStore
    suppresses: bool = False
    """Is best-effort's CPU being suppressed? Then its CPU sets move from second to second."""
    before_ns: int = 0
    """The instant of the batch before; 0 if there was none."""

    def value(self, metric: Metric, subject: str = "") -> float | None:
        """Returns a sample of this batch; None if there is none."""
        return self.values(metric).get(subject)

    def values(self, metric: Metric) -> Mapping[str, float]:
        """Returns all subjects' samples of this batch."""
        return self.store.values(metric, self.at_ns)


class Collector(Protocol):
    """A collector of samples. ``name``: its name in the metric table and in ``ages_s``."""

    @property
    def name(self) -> str: ...
    @property
    def period_s(self) -> float: ...

    @property
    def panels(self) -> Iterable[Panel]:
        """The panels that ``collect`` may fill."""

    def collect(self, tick: Tick) -> Batch:
        """Runs once. The returned rows are all that a panel has now: a subject without a row has no sample."""

    def close(self) -> None:
        """Closes what is kept open; a later run begins anew."""
