"""Writes that will come (plan) and that have been (journal)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.fields import Column, Field, Layout, Listing
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
    """Local time with milliseconds."""
    when = datetime.fromtimestamp(entry.unix_ns // 1_000_000_000).astimezone()
    return f"{when:%Y-%m-%d %H:%M:%S}.{entry.unix_ns // 1_000_000 % 1000:03d}"


WRITES: Listing[inspect.PlannedWrite] = Listing(
    "writes",
    (
        Field("pod", "POD", _pod),
        Field("name", "VALUE"),
        Field("before", "BEFORE", _before),
        Field("after", "AFTER", _after),
        Field("owner", "BY"),
        Field("why", "WHY", lambda write: write.why if write.final else f"(on the way) {write.why}"),
        Field("inputs", "INPUTS", column=Column.WIDE),
        Field("path", "FILE"),
        Field("final", "FINAL", column=Column.NAMED),
        Field("cgroup", "CGROUP", column=Column.NAMED),
        Field("unit", "UNIT", column=Column.NAMED),
    ),
)
EVICTIONS: Listing[inspect.Eviction] = Listing(
    "evictions",
    (Field("pod", "EVICT"), Field("strategy", "BY"), Field("why", "WHY"), Field("uid", "UID", column=Column.WIDE)),
)
ENTRIES: Listing[inspect.JournalEntry] = Listing(
    "entries",
    (
        Field("unix_ns", "TIME", _clock),
        Field("pod", "POD", _pod),
        Field("name", "VALUE"),
        Field("before", "BEFORE", _before),
        Field("after", "AFTER", _after),
        Field("result", "RESULT"),
        Field("owner", "BY", lambda entry: entry.owner or NONE),
        Field("path", "FILE"),
        Field("why", "WHY", lambda entry: entry.why or NONE, Column.WIDE),
        Field("inputs", "INPUTS", column=Column.WIDE),
        Field("tick", "TICK", column=Column.NAMED),
        Field("unit", "UNIT", column=Column.NAMED),
    ),
    "No entries.",
)


def plan(answer: inspect.PlanResponse, layout: Layout[Any]) -> str:
    """The writes in their order, evictions, and strategies that do not act."""
    sections = [layout.table(answer.writes), layout.on(EVICTIONS).table(answer.evictions)]
    if not any(sections):
        sections.append(f"Nothing to do: after tick {answer.tick} every file is as decided.")
    resting = [each for each in answer.strategies if each.state not in _UNREMARKABLE]
    sections += [layout.on(node_view.STRATEGIES).table(resting), node_view.doubtful_policy(answer.policy)]
    return "\n\n".join(section for section in sections if section)


def journal(answer: inspect.JournalResponse, layout: Layout[Any]) -> str:
    """One line per write, the newest last."""
    return layout.table(answer.entries[::-1])
