"""The pods that wait for koord-scheduler, as rows: by the scheduler, or by the API server where it cannot be asked."""

from __future__ import annotations

import time
from typing import Any

from koord.kube.client import Client, Selection
from koord.model.core import unix_s
from koord.model.schedulerpages import QueuePage, QueueRow
from koordctl.cluster import scheduler
from koordctl.cluster.connection import read_list
from koordctl.cluster.objects import DETAILED_POD, DetailedPod
from koordctl.cluster.scheduler import NotAsked, SchedulerChoice
from koordctl.fields import Listing, ListingField, ListingLayout, Visibility
from koordctl.values import NONE, age

_PENDING = Selection(fields="spec.nodeName=,status.phase=Pending")


async def read(client: Client, choice: SchedulerChoice, limit: int) -> tuple[QueuePage, str]:
    """Returns who waits, and why the scheduler could not be asked, "" if it was. Raises KubeError."""
    try:
        return await scheduler.queue(client, choice, limit), ""
    except NotAsked as error:
        pods = [each for each in await read_list(client, DETAILED_POD, _PENDING) if _waits(each)]
        rows = sorted(map(_row, pods), key=lambda row: (-row.priority, row.since))
        return QueuePage({}, tuple(rows[:limit]), max(0, len(rows) - limit)), str(error)


def _waits(pod: DetailedPod) -> bool:
    return not pod.spec.node_name and pod.spec.scheduler_name == scheduler.NAME and not pod.metadata.deletion_timestamp


def _row(pod: DetailedPod) -> QueueRow:
    said = pod.status.condition("PodScheduled")
    message = "" if said is None else said.message or said.reason
    return QueueRow(
        pod.metadata.namespace,
        pod.metadata.name,
        "",
        priority=pod.spec.priority or 0,
        scheduler=pod.spec.scheduler_name,
        since=pod.metadata.creation_timestamp or "",
        waiting_for=message or "the scheduler to look at it",
    )


def text(page: QueuePage, layout: ListingLayout[QueueRow]) -> str:
    """Renders the rows and how many wait in all, without a final line break."""
    lines = [layout.table(page.rows)]
    if page.counts:
        lines.append(", ".join(f"{name}: {count}" for name, count in page.counts.items()))
    if page.left_out_count:
        lines.append(f"{page.left_out_count} more pods: --limit")
    return "\n".join(lines)


def document(page: QueuePage, why_not: str, layout: ListingLayout[QueueRow]) -> dict[str, Any]:
    """Returns it for programs."""
    said: dict[str, Any] = {"counts": dict(page.counts), "rows": layout.objects(page.rows)}
    said["left_out_count"] = page.left_out_count
    return said | ({"not_asked": why_not} if why_not else {})


def _age(row: QueueRow) -> float | None:
    at_s = unix_s(row.since) if row.since else None
    return None if at_s is None else round(max(0.0, time.time() - at_s), 1)


def _age_text(row: QueueRow) -> str:
    return NONE if (seconds := _age(row)) is None else age(seconds)


QUEUE: Listing[QueueRow] = Listing(
    "rows",
    (
        ListingField("namespace", "NAMESPACE"),
        ListingField("pod", "POD", value="name"),
        ListingField("owner", "OWNER", visibility=Visibility.FILLED),
        ListingField("pod_count", "PODS"),
        ListingField("priority", "PRIORITY"),
        ListingField("waited_s", "WAITED", _age_text, value=_age),
        ListingField("since", "SINCE", visibility=Visibility.WIDE),
        ListingField("queue", "QUEUE", visibility=Visibility.FILLED),
        ListingField("attempts", "TRIES", visibility=Visibility.FILLED),
        ListingField("scheduler", "SCHEDULER", visibility=Visibility.WIDE),
        ListingField("waiting_for", "WAITS FOR"),
    ),
    "no pod waits",
    rows_of=lambda page: page.rows,
)
