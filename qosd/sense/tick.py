"""What a collector is given and gives: one batch of one instant.

Invariant: a collector reads, and answers with rows; it neither keeps time nor writes into the store. Of earlier
collectors of the same batch it may see the samples. That a node has nothing for it to read is NotApplicable; any
other exception is a failed run.
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
    """This node lacks what the collector reads; the message says what (``no resctrl mount``)."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The instant, whom to measure, and what earlier collectors measured at the same instant."""

    at_ns: int
    targets: SampleTargets
    store: SampleStore
    suppresses: bool = False
    """Is best-effort's CPU being suppressed? Then its CPU sets move from second to second."""
    before_ns: int = 0
    """The instant of the batch before; 0 if there was none."""

    def value(self, metric: Metric, subject: str = "") -> float | None:
        """A sample of this very batch; None if there is none."""
        return self.values(metric).get(subject)

    def values(self, metric: Metric) -> Mapping[str, float]:
        """All subjects' samples of this very batch."""
        return self.store.values(metric, self.at_ns)


class Collector(Protocol):
    """``name`` is its name in the metric table and in ``ages_s``."""

    @property
    def name(self) -> str: ...
    @property
    def period_s(self) -> float: ...

    @property
    def panels(self) -> Iterable[Panel]:
        """What ``collect`` may fill."""

    def collect(self, tick: Tick) -> Batch:
        """One run. The rows of a panel are all it has now: a subject that is missing has no sample."""

    def close(self) -> None:
        """Give back what is kept open; the next run, if there is one, begins anew."""
