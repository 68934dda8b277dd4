"""Renders metrics as lines: metric, object, value, and its history as bars."""

from __future__ import annotations

from dataclasses import dataclass

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.fields import Listing, ListingField, Visibility
from koordctl.values import amount, sparkline

_WIDTH = 40


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One metric of one object."""

    metric: inspect.Metric
    sample: inspect.Sample


METRICS: Listing[MetricLine] = Listing(
    "metrics",
    (
        ListingField("name", "METRIC", value="metric.name"),
        ListingField("object", "OBJECT", value=lambda line: line.sample.label or line.sample.subject or "node"),
        ListingField("value", "VALUE", lambda line: amount(line.metric.unit, line.sample.value), value="sample.value"),
        ListingField("unit", "UNIT", value="metric.unit"),
        ListingField(
            "history",
            "HISTORY",
            lambda line: sparkline([point.value for point in line.sample.history], _WIDTH),
            Visibility.FILLED,
            "sample.history",
        ),
        ListingField("scope", "SCOPE", visibility=Visibility.WIDE, value="metric.scope"),
        ListingField("help", "HELP", visibility=Visibility.WIDE, value="metric.help"),
        ListingField("subject", "SUBJECT", visibility=Visibility.NAMED, value="sample.subject"),
        ListingField("label", "LABEL", visibility=Visibility.NAMED, value="sample.label"),
    ),
    "No samples.",
    lambda answer: [MetricLine(metric, sample) for metric in answer.metrics for sample in metric.samples],
)
