"""Writes that will come (plan) and that have been (journal)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.output import inputs
from koordctl.table import align
from koordctl.views import node as node_view
from koordctl.views.values import NONE, human

_PLAN = ("POD", "VALUE", "BEFORE", "AFTER", "BY", "WHY", "FILE")
_JOURNAL = ("TIME", "POD", "VALUE", "BEFORE", "AFTER", "RESULT", "BY", "FILE")
_JOURNAL_WIDE = (*_JOURNAL, "WHY", "INPUTS")


def plan(answer: inspect.PlanResponse) -> str:
    """The writes in their order, evictions, and strategies that do not act."""
    sections = [align(_PLAN, [_planned(each) for each in answer.writes])] if answer.writes else []
    if answer.evictions:
        rows = [(each.pod, each.strategy, each.why) for each in answer.evictions]
        sections.append(align(("EVICT", "BY", "WHY"), rows))
    if not sections:
        sections.append(f"Nothing to do: after tick {answer.tick} every file is as decided.")
    resting = [each for each in answer.strategies if each.state != "active"]
    if resting:
        sections.append(node_view.strategies(resting))
    sections.append(node_view.doubtful_policy(answer.policy))
    return "\n\n".join(section for section in sections if section)


def _planned(each: inspect.PlannedWrite) -> tuple[str, ...]:
    before = human(each.unit, each.name, each.before) if each.HasField("before") else NONE
    why = each.why if each.final else f"(on the way) {each.why}"
    return each.pod or "node", each.name, before, human(each.unit, each.name, each.after), each.who, why, each.path


def journal(answer: inspect.JournalResponse) -> str:
    """One line per write, the newest last."""
    return _entries(answer.entries, _JOURNAL)


def journal_wide(answer: inspect.JournalResponse) -> str:
    """With reason and inputs."""
    return _entries(answer.entries, _JOURNAL_WIDE)


def _entries(entries: Sequence[inspect.JournalEntry], header: Sequence[str]) -> str:
    if not entries:
        return "No entries."
    return align(header, [_entry(each)[: len(header)] for each in reversed(entries)])


def _entry(each: inspect.JournalEntry) -> tuple[str, ...]:
    fed = ", ".join(f"{key}={value}" for key, value in inputs(each.inputs).items())
    return (
        _clock(each.unix_ns),
        each.pod or "node",
        each.name,
        human(each.unit, each.name, each.before) if each.HasField("before") else NONE,
        human(each.unit, each.name, each.after) if each.HasField("after") else NONE,
        each.result,
        each.who or NONE,
        each.path,
        each.why or NONE,
        fed or NONE,
    )


def _clock(unix_ns: int) -> str:
    """Local time with milliseconds."""
    when = datetime.fromtimestamp(unix_ns // 1_000_000_000).astimezone()
    return f"{when:%Y-%m-%d %H:%M:%S}.{unix_ns // 1_000_000 % 1000:03d}"
