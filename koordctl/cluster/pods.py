"""``koordctl explain pod`` in a cluster: the pod, its Events and the cluster's state, and the cause as a page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from koord.admission import AdmissionContext
from koord.kube.client import Client, Selection
from koord.kube.errors import APIError
from koord.kube.kind import CLUSTER_COLOCATION_PROFILE, NAMESPACE, Key
from koord.model import profile
from koord.model.schema import SchemaError
from koordctl.cluster import cause, evictions, state
from koordctl.cluster.cause import Cause
from koordctl.cluster.connection import read_list
from koordctl.cluster.objects import DETAILED_POD, EVENT, DetailedPod, Event

_WORKLOAD_OWNERS = ("ReplicaSet", "Job", "StatefulSet", "DaemonSet", "ReplicationController")


@dataclass(frozen=True, slots=True)
class Explanation:
    """A cause; ``siblings``: what became of other pods of its controller, "" if nothing is to be said of them."""

    cause: Cause
    siblings: str = ""

    def page(self) -> str:
        """Renders it, without a final line break."""
        lines = [self.cause.sentence, *(f"  what helps: {remedy}" for remedy in self.cause.remedies)]
        return "\n".join([*lines, *([self.siblings] if self.siblings else [])])

    def document(self) -> dict[str, Any]:
        """Returns it for programs."""
        document: dict[str, Any] = {"cause": self.cause.sentence, "remedies": list(self.cause.remedies)}
        return document | ({"siblings": self.siblings} if self.siblings else {})


async def explain(client: Client, key: Key, koord_namespace: str) -> Explanation | None:
    """Explains a pod; None for one that is not there and that no Event calls evicted. Raises KubeError."""
    pod = await _pod(client, key)
    events = await read_list(client, EVENT, Selection(key.namespace, fields="involvedObject.kind=Pod"))
    own = _of(events, key, pod)
    if pod is None:
        found = cause.of_absent(key.namespace, key.name, own, time.time())
        return None if found is None else Explanation(found)
    now = await state.read(client, koord_namespace, pod.spec.node_name)
    context = await _admission(client, koord_namespace)
    return Explanation(cause.of_pod(pod, now, context, own), evictions.of_siblings(_controller(pod), events))


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
