"""``koordctl explain pod`` in a cluster: the pod, its Events and the cluster's state, and the cause as a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from koord.kube.client import Client, Selection
from koord.kube.errors import APIError
from koord.kube.kind import Key
from koordctl.cluster import cause, state
from koordctl.cluster.cause import Cause
from koordctl.cluster.objects import DETAILED_POD, EVENT, DetailedPod, Event

_WORKLOAD_OWNERS = ("ReplicaSet", "Job", "StatefulSet", "DaemonSet", "ReplicationController")


@dataclass(frozen=True, slots=True)
class Explanation:
    """``siblings``: what became of other pods of its controller; "" if nothing is to be said of them."""

    cause: Cause
    siblings: str = ""

    def page(self) -> str:
        """Without a final line break."""
        lines = [self.cause.sentence, *(f"  what helps: {remedy}" for remedy in self.cause.remedies)]
        return "\n".join([*lines, *([self.siblings] if self.siblings else [])])

    def document(self) -> dict[str, Any]:
        """For programs."""
        document: dict[str, Any] = {"cause": self.cause.sentence, "remedies": list(self.cause.remedies)}
        return document | ({"siblings": self.siblings} if self.siblings else {})


async def explain(client: Client, namespace: str, name: str) -> Explanation | None:
    """None for a pod that is not there, and of which no Event tells that it was evicted. Raises KubeError."""
    key = Key(namespace, name)
    pod = await _pod(client, key)
    events = await _events(client, key.namespace)
    own = _of(events, key, pod)
    now = await state.read(client)
    found = cause.of_absent(key.namespace, key.name, own, now.now_s) if pod is None else cause.of_pod(pod, now, own)
    return None if found is None else Explanation(found, cause.of_siblings(_controller(pod), events))


async def _pod(client: Client, key: Key) -> DetailedPod | None:
    try:
        return await client.get(DETAILED_POD, key)
    except APIError as error:
        if error.is_not_found:
            return None
        raise


async def _events(client: Client, namespace: str) -> list[Event]:
    page = await client.list(EVENT, Selection(namespace, fields="involvedObject.kind=Pod"))
    return [entry.object for entry in page.entries if entry.object is not None]


def _of(events: Iterable[Event], key: Key, pod: DetailedPod | None) -> Sequence[Event]:
    """Of this very pod, or of the last one of that name."""
    uid = "" if pod is None else pod.metadata.uid
    named = [event for event in events if event.involved_object.name == key.name]
    return [event for event in named if not uid or event.involved_object.uid in ("", uid)]


def _controller(pod: DetailedPod | None) -> str:
    """The name of the workload that makes its pods anew, "" for a pod that nobody does."""
    owner = None if pod is None else pod.metadata.controller
    return owner.name if owner is not None and owner.kind in _WORKLOAD_OWNERS else ""
