"""Finds evictions of pods, in Events and in the condition that Kubernetes leaves on a pod.

What the condition ``DisruptionTarget`` says is an Event here, since an eviction is a reason, a message and a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from koord.model import core, eventreasons
from koordctl.cluster.objects import DetailedPod, Event
from koordctl.values import age

_CONDITION = "DisruptionTarget"
_RESTART = "let its controller start it again, and keep what it has done (checkpoints)"
_REQUEST = "request what it uses: a pod that uses more memory than it requests is evicted first"
_FOR_WANT = (eventreasons.EVICTED, eventreasons.EVICTED_BY_KUBELET)
"""The reasons of evictions from nodes that lack something."""


def of_pod(pod: DetailedPod, events: Iterable[Event]) -> Event | None:
    """Returns the last eviction that the pod's Events tell of, else the pod itself; None if there is none."""
    return newest(among(events)) or _by_condition(pod)


def of_siblings(controller: str, events: Iterable[Event]) -> str:
    """Says how often pods of a controller have been evicted, by the Events; "" if never, or for no controller."""
    found = [event for event in among(events) if is_pod_of(controller, event.involved_object.name)]
    last = newest(found)
    if last is None:
        return ""
    count = sum(event.count or 1 for event in found)
    return f"of {controller}'s pods, {count} were evicted as far as Events tell, last because: {_why(last)}"


def is_pod_of(controller: str, name: str) -> bool:
    """Returns whether a controller gives such names: ``train-x7k2p``, or ``train-3-x7k2p`` for an indexed Job."""
    return re.fullmatch(rf"{re.escape(controller)}-(\d+-)?[^-]+", name, re.ASCII) is not None


def among(events: Iterable[Event]) -> list[Event]:
    """Returns the Events that tell of an eviction."""
    return [event for event in events if event.reason in eventreasons.EVICTIONS and not _is_cancelled(event)]


def newest(events: Iterable[Event]) -> Event | None:
    """Returns the Event that happened last; None if there is none."""
    return max(events, key=lambda event: core.unix_s(event.last_time) or 0.0, default=None)


def sentence(subject: str, eviction: Event, now_s: float) -> str:
    """Says when and why ``subject``, the pod, was evicted."""
    return f"{subject} was evicted {since(eviction, now_s)}: {_why(eviction)}"


def remedies(reason: str) -> tuple[str, ...]:
    """Returns what may be done about evictions of a reason."""
    return (_RESTART, _REQUEST) if reason in _FOR_WANT else (_RESTART,)


def since(event: Event, now_s: float) -> str:
    """Says how long ago an Event happened."""
    happened_s = core.unix_s(event.last_time)
    return "at an unknown time" if happened_s is None else f"{age(max(0.0, now_s - happened_s))} ago"


def _by_condition(pod: DetailedPod) -> Event | None:
    said = pod.status.condition(_CONDITION)
    if said is None or said.status != "True":
        return None
    reason = pod.status.reason or said.reason
    return Event(reason=reason, message=said.message or said.reason, last_timestamp=said.last_transition_time)


def _is_cancelled(event: Event) -> bool:
    is_taint = event.reason == eventreasons.TAINT_MANAGER_EVICTION
    return is_taint and event.message.startswith(eventreasons.TAINT_MANAGER_CANCELS)


def _why(eviction: Event) -> str:
    """Returns the message, but for one that says only that the pod is deleted."""
    if eviction.reason == eventreasons.TAINT_MANAGER_EVICTION:
        return "its node has a NoExecute taint that it does not tolerate"
    return eviction.message
