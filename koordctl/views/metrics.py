"""Metrics as lines: metric, object, value, and its history as bars."""

from __future__ import annotations

from dataclasses import dataclass

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.fields import Column, Field, Listing
from koordctl.values import amount, sparkline

_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of one object."""

    metric: inspect.Metric
    sample: inspect.Sample


METRICS: Listing[Line] = Listing(
    "metrics",
    (
        Field("name", "METRIC", value="metric.name"),
        Field("object", "OBJECT", value=lambda line: line.sample.label or line.sample.subject or "node"),
        Field("value", "VALUE", lambda line: amount(line.metric.unit, line.sample.value), value="sample.value"),
        Field("unit", "UNIT", value="metric.unit"),
        Field(
            "history",
            "HISTORY",
            lambda line: sparkline([point.value for point in line.sample.history], _WIDTH),
            Column.FILLED,
            "sample.history",
        ),
        Field("scope", "SCOPE", column=Column.WIDE, value="metric.scope"),
        Field("help", "HELP", column=Column.WIDE, value="metric.help"),
        Field("subject", "SUBJECT", column=Column.NAMED, value="sample.subject"),
        Field("label", "LABEL", column=Column.NAMED, value="sample.label"),
    ),
    "No samples.",
    lambda answer: [Line(metric, sample) for metric in answer.metrics for sample in metric.samples],
)
