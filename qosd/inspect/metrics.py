"""Metrics: the newest samples of the snapshot, with the history that the store keeps."""

from __future__ import annotations

from koord.pb.koord import inspect_pb2 as inspect
from qosd.inspect import convert
from qosd.sense.metric import Metric
from qosd.sense.store import Store
from qosd.sense.table import METRICS
from qosd.snapshot import NodeSnapshot

_MAX_HISTORIES = 500
"""More series than that are answered without history: the answer must stay a few megabytes."""


def answer(snapshot: NodeSnapshot | None, store: Store, request: inspect.MetricsRequest) -> inspect.MetricsResponse:
    """The metrics whose names begin with ``request.metric``, of the objects that contain ``request.subject``."""
    message = inspect.MetricsResponse()
    if snapshot is None:
        return message
    message.observed_unix_ns = snapshot.wall_ns
    labels = {group: "/".join(filter(None, who)) for group, who in convert.labels(snapshot).items()}
    for row in METRICS:
        samples = _samples(snapshot, row, request, labels)
        if samples:
            message.metrics.add(name=row.name, unit=row.unit, help=row.help, scope=str(row.scope), samples=samples)
    if request.history and sum(len(metric.samples) for metric in message.metrics) <= _MAX_HISTORIES:
        _add_history(message, store, snapshot)
    return message


def _samples(
    snapshot: NodeSnapshot, row: Metric, request: inspect.MetricsRequest, labels: dict[str, str]
) -> list[inspect.Sample]:
    if not row.name.startswith(request.metric):
        return []
    return [
        inspect.Sample(subject=subject, label=labels.get(subject, ""), value=value)
        for subject, value in sorted(snapshot.values.get(row.name, {}).items())
        if request.subject in subject or request.subject in labels.get(subject, "")
    ]


def _add_history(message: inspect.MetricsResponse, store: Store, snapshot: NodeSnapshot) -> None:
    for metric in message.metrics:
        for sample in metric.samples:
            sample.history.extend(
                inspect.Point(age_s=(snapshot.monotonic_ns - at_ns) / 1e9, value=value)
                for at_ns, value in store.series(metric.name, sample.subject)
            )
