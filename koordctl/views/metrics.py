"""Metrics as lines: metric, object, value, and its history as bars."""

from __future__ import annotations

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.table import align
from koordctl.views.values import amount, sparkline

_WIDTH = 40


def table(answer: inspect.MetricsResponse) -> str:
    """One line per metric and object."""
    rows = []
    for metric in answer.metrics:
        for sample in metric.samples:
            subject = sample.label or sample.subject or "node"
            bars = sparkline([point.value for point in sample.history], _WIDTH)
            rows.append((metric.name, subject, amount(metric.unit, sample.value), metric.unit, bars))
    if not rows:
        return "No samples."
    history = any(row[4] for row in rows)
    header = ("METRIC", "OBJECT", "VALUE", "UNIT", *(("HISTORY",) if history else ()))
    return align(header, [row[: len(header)] for row in rows])
