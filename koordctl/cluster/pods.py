"""``koordctl explain pod`` in a cluster: the pod, its Events and the cluster's state, and the cause as a page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from koord.admission import AdmissionContext
from koord.kube.client import Client, Selection
from koord.kube.errors import APIError
from koord.kube.kind import CLUSTER_COLOCATION_PROFILE, NAMESPACE, Key
from koord.model import profile
from koord.model.schedulerpages import PodPage
from koord.model.schema import SchemaError
from koordctl.cluster import cause, evictions, placement, scheduler, state
from koordctl.cluster.cause import Cause
from koordctl.cluster.connection import read_list
from koordctl.cluster.objects import DETAILED_POD, EVENT, DetailedPod, Event
from koordctl.cluster.scheduler import NotAsked, SchedulerChoice

_WORKLOAD_OWNERS = ("ReplicaSet", "Job", "StatefulSet", "DaemonSet", "ReplicationController")


@dataclass(frozen=True, slots=True)
class Explanation:
    """A cause; ``siblings``: what became of other pods of its controller, "" if nothing is to be said of them;
    ``scheduling``: what koord-scheduler says, or ``not_asked``: why it says nothing, where it should.
    """

    cause: Cause
    siblings: str = ""
    scheduling: PodPage | None = None
    not_asked: str = ""

    def page(self) -> str:
        """Renders it, without a final line break."""
        lines = [self.cause.sentence, *(f"  what helps: {remedy}" for remedy in self.cause.remedies)]
        if self.siblings:
            lines.append(self.siblings)
        if self.scheduling is not None:
            lines += placement.lines(self.scheduling, time.time())
        if self.not_asked:
            lines.append(f"koord-scheduler: {self.not_asked}; the above is what the API server has")
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        """Returns it for programs."""
        document: dict[str, Any] = {"cause": self.cause.sentence, "remedies": list(self.cause.remedies)}
        scheduling = None if self.scheduling is None else msgspec.to_builtins(self.scheduling)
        more = {"siblings": self.siblings, "scheduling": scheduling, "not_asked": self.not_asked}
        return document | {name: value for name, value in more.items() if value}


async def explain(client: Client, key: Key, choice: SchedulerChoice) -> Explanation | None:
    """Explains a pod; None for one that is not there and that no Event calls evicted. Raises KubeError."""
    koord_namespace = choice.namespace
    pod = await _pod(client, key)
    events = await read_list(client, EVENT, Selection(key.namespace, fields="involvedObject.kind=Pod"))
    own = _of(events, key, pod)
    if pod is None:
        found = cause.of_absent(key.namespace, key.name, own, time.time())
        return None if found is None else Explanation(found)
    now = await state.read(client, koord_namespace, pod.spec.node_name)
    context = await _admission(client, koord_namespace)
    siblings = evictions.of_siblings(_controller(pod), events)
    scheduling, not_asked = await _scheduling(client, choice, pod)
    return Explanation(cause.of_pod(pod, now, context, own), siblings, scheduling, not_asked)


async def _scheduling(client: Client, choice: SchedulerChoice, pod: DetailedPod) -> tuple[PodPage | None, str]:
    """Returns what koord-scheduler says of the pod, or why it says nothing, where it should."""
    try:
        page = await scheduler.pod(client, choice, Key(pod.metadata.namespace, pod.metadata.name))
    except NotAsked as error:
        is_its = pod.spec.scheduler_name == scheduler.NAME
        return None, str(error) if choice.address or (is_its and not pod.spec.node_name) else ""
    return (None if page.state == "other" else page), ""


async def _admission(client: Client, koord_namespace: str) -> AdmissionContext:
    """Reads what Koord's webhooks know of the cluster. Raises KubeError."""
    profiles = []
    for item in await read_list(client, CLUSTER_COLOCATION_PROFILE):
        try:
            profiles.append(profile.read(item.content))
        except SchemaError:
            continue  # koordctl lint says what is wrong with it; it matches no pod
    return AdmissionContext(
        profiles=tuple(profiles),
        namespaces={each.metadata.name: each.metadata.labels for each in await read_list(client, NAMESPACE)},
        own_namespace=koord_namespace,
    )


async def _pod(client: Client, key: Key) -> DetailedPod | None:
    try:
        return await client.get(DETAILED_POD, key)
    except APIError as error:
        if error.is_not_found:
            return None
        raise


def _of(events: Iterable[Event], key: Key, pod: DetailedPod | None) -> Sequence[Event]:
    """Returns the Events of this very pod, or of the last one of that name."""
    uid = "" if pod is None else pod.metadata.uid
    named = [event for event in events if event.involved_object.name == key.name]
    return [event for event in named if not uid or event.involved_object.uid in ("", uid)]


def _controller(pod: DetailedPod) -> str:
    """Returns the name of the workload that makes its pods anew, "" for a pod without one."""
    owner = pod.metadata.controller
    return owner.name if owner is not None and owner.kind in _WORKLOAD_OWNERS else ""
