"""Renders writes that will come (plan) and that have been (journal)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.fields import Listing, ListingField, ListingLayout, Visibility
from koordctl.plain import member
from koordctl.values import NONE, human
from koordctl.views import node as node_view

_UNREMARKABLE = ("active", "switched off")
"""A strategy whose feature gate is off has no part in what will come; ``koordctl node`` lists it."""
_Write = inspect.PlannedWrite | inspect.JournalEntry


def _pod(write: _Write) -> str:
    return write.pod or "node"


def _before(write: _Write) -> str:
    return human(write.unit, write.name, member(write, "before"))


def _after(write: _Write) -> str:
    return human(write.unit, write.name, member(write, "after"))


def _clock(entry: inspect.JournalEntry) -> str:
    """Returns local time with milliseconds."""
    when = datetime.fromtimestamp(entry.unix_ns // 1_000_000_000).astimezone()
    return f"{when:%Y-%m-%d %H:%M:%S}.{entry.unix_ns // 1_000_000 % 1000:03d}"


WRITES: Listing[inspect.PlannedWrite] = Listing(
    "writes",
    (
        ListingField("pod", "POD", _pod),
        ListingField("name", "VALUE"),
        ListingField("before", "BEFORE", _before),
        ListingField("after", "AFTER", _after),
        ListingField("owner", "BY"),
        ListingField("why", "WHY", lambda write: write.why if write.final else f"(on the way) {write.why}"),
        ListingField("inputs", "INPUTS", visibility=Visibility.WIDE),
        ListingField("path", "FILE"),
        ListingField("final", "FINAL", visibility=Visibility.NAMED),
        ListingField("cgroup", "CGROUP", visibility=Visibility.NAMED),
        ListingField("unit", "UNIT", visibility=Visibility.NAMED),
    ),
)
EVICTIONS: Listing[inspect.Eviction] = Listing(
    "evictions",
    (
        ListingField("pod", "EVICT"),
        ListingField("strategy", "BY"),
        ListingField("why", "WHY"),
        ListingField("uid", "UID", visibility=Visibility.WIDE),
    ),
)
ENTRIES: Listing[inspect.JournalEntry] = Listing(
    "entries",
    (
        ListingField("unix_ns", "TIME", _clock),
        ListingField("pod", "POD", _pod),
        ListingField("name", "VALUE"),
        ListingField("before", "BEFORE", _before),
        ListingField("after", "AFTER", _after),
        ListingField("result", "RESULT"),
        ListingField("owner", "BY", lambda entry: entry.owner or NONE),
        ListingField("path", "FILE"),
        ListingField("why", "WHY", lambda entry: entry.why or NONE, Visibility.WIDE),
        ListingField("inputs", "INPUTS", visibility=Visibility.WIDE),
        ListingField("tick", "TICK", visibility=Visibility.NAMED),
        ListingField("unit", "UNIT", visibility=Visibility.NAMED),
    ),
    "No entries.",
)


def plan(answer: inspect.PlanResponse, layout: ListingLayout[Any]) -> str:
    """Renders the writes in their order, evictions, and strategies that do not act."""
    sections = [layout.table(answer.writes), layout.on(EVICTIONS).table(answer.evictions)]
    if not any(sections):
        sections.append(f"Nothing to do: after tick {answer.tick} every file is as decided.")
    resting = [each for each in answer.strategies if each.state not in _UNREMARKABLE]
    sections += [layout.on(node_view.STRATEGIES).table(resting), node_view.doubtful_policy(answer.policy)]
    return "\n\n".join(section for section in sections if section)


def journal(answer: inspect.JournalResponse, layout: ListingLayout[Any]) -> str:
    """Renders one line per write, the newest last."""
    return layout.table(answer.entries[::-1])
