"""What is wrong with what a node states: each sentence is one Warning Event, for as long as it holds.

A look at a node makes a list of all that it finds wrong; only what the look before did not find is said. Invariant: the
seconds in a sentence are another matter with each look, and make no other sentence of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from koord.kube.kind import NODE
from koord.kube.recorder import EventRecorder, EventType, Subject
from koord.model.core import Node

_SECONDS = re.compile(r"\d+ s\b", re.ASCII)


class Complaint(NamedTuple):
    """``reason``: the Event's."""

    reason: str
    message: str

    @property
    def lasting(self) -> Complaint:
        """The part of it that stays the same from look to look."""
        return Complaint(self.reason, _SECONDS.sub("some s", self.message))


Complain = Callable[[Complaint], None]


def subject(node: Node) -> Subject:
    return Subject.of(NODE, node.metadata)


def tell(
    recorder: EventRecorder, node: Node, found: Iterable[Complaint], before: frozenset[Complaint]
) -> frozenset[Complaint]:
    """Makes Events of the news about ``node``; returns what is to be remembered of the look."""
    found = tuple(found)
    for complaint in news(found, before):
        recorder.record(subject(node), EventType.WARNING, *complaint)
    return kept(found)


def news(found: Iterable[Complaint], before: frozenset[Complaint]) -> tuple[Complaint, ...]:
    """Returns the complaints to record. ``before``: what `kept` returned for the look before."""
    return tuple(complaint for complaint in found if complaint.lasting not in before)


def kept(found: Iterable[Complaint]) -> frozenset[Complaint]:
    """Returns what is to be remembered of a look."""
    return frozenset(complaint.lasting for complaint in found)
