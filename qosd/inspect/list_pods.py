"""ListPods: the snapshot's pods, the values that the hooks want for each container, and those that the kernel holds.

Desired comes from the same engine that answers the proxy; a value that the actuator composed otherwise (a suppression
cap, say) goes before it. Actual is read from the cgroup files, in a thread. Invariant: a container that goes away
meanwhile costs its own values only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from koord.host.writer import Writer
from koord.http2.grpc import FAILED_PRECONDITION
from koord.http2.server import Refusal
from koord.pb.koord import inspect_pb2 as inspect
from qosd.act.filereport import FileReport
from qosd.hooks import engine
from qosd.inspect import convert, values
from qosd.inspect.inspector import Inspector
from qosd.inspect.values import Wish
from qosd.model.snapshot import NodeSnapshot, PodView
from qosd.report import TickReport
from qosd.sense.store import SampleStore
from qosd.strategies.reconciler import container_cgroup
from qosd.tuning import history
from qosd.tuning.advice import Advice, advise

_ByGroup = Mapping[str, Mapping[str, Wish]]


async def answer(inspector: Inspector, request: inspect.ListPodsRequest) -> inspect.ListPodsResponse:
    node = inspector.node
    return await asyncio.to_thread(
        _list, inspector.report, request, node.writer, inspector.warnings(), node.sense.store
    )


def _list(
    report: TickReport, request: inspect.ListPodsRequest, writer: Writer, warnings: Sequence[str], store: SampleStore
) -> inspect.ListPodsResponse:
    """Returns the pods of ``namespace`` and ``name`` ("" = all), sorted. Raises Refusal before the first tick.

    ``writer`` tells how files are spelled, ``store`` has the samples for advice.
    """
    snapshot = report.snapshot
    if snapshot is None:
        reason = "; ".join(warnings) or "ask again in a second"
        raise Refusal(FAILED_PRECONDITION, f"there is no snapshot yet: {reason}")
    chosen = [
        pod for pod in snapshot.pods if request.namespace in ("", pod.namespace) and request.name in ("", pod.name)
    ]
    composed = _composed(report.files)
    advice = {pod.uid: advise(history.of_pod(report, store, pod)) for pod in chosen} if request.advice else {}
    return inspect.ListPodsResponse(
        pods=[
            _pod(writer, snapshot, pod, composed, advice.get(pod.uid, ()))
            for pod in sorted(chosen, key=lambda pod: pod.key)
        ],
        observed_unix_ns=snapshot.wall_ns,
        warnings=warnings,
    )


def _composed(files: FileReport) -> _ByGroup:
    """Returns by cgroup the values that files are held to."""
    found: dict[str, dict[str, Wish]] = {}
    for target in files.owned:
        composed = files.composed(target)
        if composed is not None and composed.value is not None:
            wish = Wish(str(composed.value), f"{composed.by}: {composed.why}")
            found.setdefault(target.cgroup, {})[target.name] = wish
    return found


def _pod(
    writer: Writer, snapshot: NodeSnapshot, pod: PodView, composed: _ByGroup, advice: Sequence[Advice]
) -> inspect.Pod:
    message = convert.pod(pod, advice)
    containers = [container for container in pod.containers if not container.is_sandbox]
    page_bytes = snapshot.policy.host.page_bytes
    for shown, container in zip(message.containers, containers, strict=True):
        edits = engine.decide(container_cgroup(pod, container, snapshot.policy.node), snapshot.policy)
        wishes = {**values.wishes_of(edits), **composed.get(container.cgroup, {})}
        shown.values.extend(values.compare(writer, container.cgroup, wishes, page_bytes))
    return message
