"""ListPods: the snapshot's pods, what the hooks want for each container, and what the kernel holds.

Desired comes from the same engine that answers the proxy; where the actuator composed something else (a suppression
cap, say), its word counts. Actual is read from the cgroup files, in a thread. Invariant: one container that goes away
while it is looked at costs its own values only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koord.host.writer import Writer
from koord.http2.grpc import FAILED_PRECONDITION
from koord.http2.server import Refusal
from koord.pb.koord import inspect_pb2 as inspect
from qosd.act.filereport import FileReport
from qosd.hooks import context, engine
from qosd.inspect import values
from qosd.inspect.values import Wish
from qosd.report import TickReport
from qosd.snapshot import NodeSnapshot, PodView

_ByGroup = Mapping[str, Mapping[str, Wish]]


def answer(
    report: TickReport, request: inspect.ListPodsRequest, writer: Writer, warnings: Sequence[str]
) -> inspect.ListPodsResponse:
    """Pods of ``namespace`` and ``name`` ("" = all), by namespace and name. Refusal before the first tick.

    ``writer`` tells how files are spelled.
    """
    snapshot = report.snapshot
    if snapshot is None:
        reason = "; ".join(warnings) or "ask again in a second"
        raise Refusal(FAILED_PRECONDITION, f"there is no snapshot yet: {reason}")
    chosen = [
        pod for pod in snapshot.pods if request.namespace in ("", pod.namespace) and request.name in ("", pod.name)
    ]
    composed = _composed(report.files)
    return inspect.ListPodsResponse(
        pods=[_pod(writer, snapshot, pod, composed) for pod in sorted(chosen, key=lambda pod: pod.key)],
        observed_unix_ns=snapshot.wall_ns,
        warnings=warnings,
    )


def _composed(files: FileReport) -> _ByGroup:
    """What files are held to, by cgroup."""
    found: dict[str, dict[str, Wish]] = {}
    for target in files.owned:
        composed = files.composed(target)
        if composed is not None and composed.value is not None:
            wish = Wish(str(composed.value), f"{composed.by}: {composed.why}")
            found.setdefault(target.group, {})[target.name] = wish
    return found


def head(pod: PodView) -> inspect.Pod:
    """The pod without its containers' values."""
    return inspect.Pod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        sandbox_id=pod.sandbox_id,
        state=pod.state,
        qos_class=pod.qos,
        qos_source=pod.qos_source,
        priority_class=pod.priority_class,
        sub_priority=pod.sub_priority,
        cgroup_parent=pod.group,
        containers=[
            inspect.Container(name=each.name, id=each.id, state=each.state, cgroup_path=each.group)
            for each in pod.containers
            if not each.is_sandbox
        ],
        problems=pod.problems,
    )


def _pod(writer: Writer, snapshot: NodeSnapshot, pod: PodView, composed: _ByGroup) -> inspect.Pod:
    message = head(pod)
    containers = [container for container in pod.containers if not container.is_sandbox]
    page_bytes = snapshot.rules.host.page_bytes
    for shown, container in zip(message.containers, containers, strict=True):
        requested_of = pod.context.at(context.Stage.CREATE, container.requested, container.name, container.annotations)
        wishes = {**values.wishes_of(engine.decide(requested_of, snapshot.rules)), **composed.get(container.group, {})}
        shown.values.extend(values.compare(writer, container.group, wishes, page_bytes))
    return message
