"""koordlet's metrics as Prometheus text: the one place that renders them, straight from the table of rows.

A family stands on the page while its row has samples. Invariant: a row's source is asked once per scrape, and nothing
is kept between two but the text of labels, as long as the measured objects are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from koord.service.metrics import Histogram, Snapshot
from qosd.koordlet.scrape import ObjectLabels, Sample, Scrape
from qosd.koordlet.table import KOORDLET, PREFIX, KoordletMetric
from qosd.report import TickReport
from qosd.sense.exposition import head, label_text
from qosd.sense.store import SampleStore
from qosd.sense.targets import SampleTargets

_HELP = "What koordlet exports under this name: {}"


class ScrapeInputs(NamedTuple):
    """The event loop's state at the moment of a scrape. ``counted``: the daemon's own metrics."""

    report: TickReport
    targets: SampleTargets
    counted: Snapshot
    runtime: str


class KoordletPage:
    """``node``: the node's name."""

    def __init__(self, store: SampleStore, node: str, started_unix_s: float) -> None:
        self._store, self._started_unix_s = store, started_unix_s
        self._node = label_text({"node": node})
        self._labels = ObjectLabels(SampleTargets(), "")

    def render(self, inputs: ScrapeInputs) -> bytes:
        """Returns Prometheus text (version 0.0.4)."""
        labels = self._labels
        if labels.targets is not inputs.targets or labels.runtime != inputs.runtime:
            self._labels = labels = ObjectLabels(inputs.targets, inputs.runtime)
        counted = {family.name: values for family, values in inputs.counted}
        scrape = Scrape(inputs.report, labels, self._store.newest(), counted, self._started_unix_s)
        lines = [line for metric in KOORDLET for line in self._family(metric, scrape)]
        return ("\n".join(lines) + "\n").encode() if lines else b""

    def _family(self, metric: KoordletMetric, scrape: Scrape) -> Iterator[str]:
        if metric.source is None:
            return
        name, node, is_first = PREFIX + metric.name, self._node if metric.by_node else "", True
        for sample in metric.source(scrape):
            if is_first:
                yield from head(name, _HELP.format(metric.meaning), metric.kind)
                is_first = False
            yield from _lines(name, node, sample)


def _lines(name: str, node: str, sample: Sample) -> Iterator[str]:
    text, value = sample
    labels = f"{node},{text}" if node and text else node or text
    if not isinstance(value, Histogram):
        yield f"{name}{{{labels}}} {value!r}" if labels else f"{name} {value!r}"
        return
    for bound, count in value.cumulative():
        yield f'{name}_bucket{{{labels},le="{bound}"}} {count!r}'
    yield f"{name}_sum{{{labels}}} {value.sum!r}"
    yield f"{name}_count{{{labels}}} {float(sum(value.counts))!r}"
