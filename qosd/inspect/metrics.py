"""Metrics: the newest samples of the snapshot, with the history that the store keeps."""

from __future__ import annotations

import asyncio

from koord.http2.grpc import NOT_FOUND
from koord.http2.server import Refusal
from koord.model.readable import did_you_mean
from koord.pb.koord import inspect_pb2 as inspect
from qosd.inspect import convert
from qosd.inspect.inspector import Inspector
from qosd.model.metric import Metric
from qosd.model.snapshot import NodeSnapshot
from qosd.sense.store import SampleStore
from qosd.sense.table import METRICS

_MAX_HISTORIES = 500
"""More series than that are answered without history: the answer must stay a few megabytes."""


async def answer(inspector: Inspector, request: inspect.MetricsRequest) -> inspect.MetricsResponse:
    """Raises Refusal for a metric that no collector has; one without a sample yet is left out."""
    names = [metric.name for metric in METRICS]
    if not any(name.startswith(request.metric) for name in names):
        meant = did_you_mean(request.metric, names)
        raise Refusal(NOT_FOUND, f"there is no metric that begins with {request.metric!r}{meant}")
    return await asyncio.to_thread(_newest, inspector.report.snapshot, inspector.node.sense.store, request)


def _newest(
    snapshot: NodeSnapshot | None, store: SampleStore, request: inspect.MetricsRequest
) -> inspect.MetricsResponse:
    """Returns the metrics whose names begin with ``request.metric``, of objects that contain ``request.subject``."""
    message = inspect.MetricsResponse()
    if snapshot is None:
        return message
    message.observed_unix_ns = snapshot.wall_ns
    labels = {cgroup: "/".join(filter(None, names)) for cgroup, names in convert.labels(snapshot).items()}
    for metric in METRICS:
        samples = _samples(snapshot, metric, request, labels)
        if samples:
            message.metrics.add(
                name=metric.name, unit=metric.unit, help=metric.help, scope=str(metric.scope), samples=samples
            )
    if request.history and sum(len(metric.samples) for metric in message.metrics) <= _MAX_HISTORIES:
        _add_history(message, store, snapshot)
    return message


def _samples(
    snapshot: NodeSnapshot, metric: Metric, request: inspect.MetricsRequest, labels: dict[str, str]
) -> list[inspect.Sample]:
    if not metric.name.startswith(request.metric):
        return []
    return [
        inspect.Sample(subject=subject, label=labels.get(subject, ""), value=value)
        for subject, value in sorted(snapshot.values.get(metric, {}).items())
        if request.subject in subject or request.subject in labels.get(subject, "")
    ]


def _add_history(message: inspect.MetricsResponse, store: SampleStore, snapshot: NodeSnapshot) -> None:
    by_name = {metric.name: metric for metric in METRICS}
    for metric in message.metrics:
        for sample in metric.samples:
            sample.history.extend(
                inspect.Point(age_s=(snapshot.monotonic_ns - at_ns) / 1e9, value=value)
                for at_ns, value in store.series(by_name[metric.name], sample.subject)
            )
