"""Plan and Journal: the writes that will come and those that have been."""

from __future__ import annotations

from collections.abc import Sequence

from koord.host.evictions import EVICTION
from koord.host.files import Value
from koord.host.reconcile.plan import PlannedWrite
from koord.pb.koord import inspect_pb2 as inspect
from qosd.act.journal import Entry, Journal
from qosd.act.plan import Plan
from qosd.inspect import convert

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000


def plan(plan: Plan | None, policy: inspect.Policy) -> inspect.PlanResponse:
    """The next tick's writes and evictions; of ``plan`` None, before the first tick, nothing."""
    if plan is None:
        return inspect.PlanResponse(policy=policy)
    return inspect.PlanResponse(
        tick=plan.decisions.tick,
        observed_unix_ns=plan.decisions.wall_ns,
        writes=[_planned(act) for act in plan.shown if act.target.name != EVICTION],
        evictions=[
            inspect.Eviction(pod=each.pod, uid=each.uid, strategy=who, why=each.why)
            for who, each in plan.decisions.evictions
        ],
        strategies=convert.strategies(plan.decisions),
        policy=policy,
    )


def _planned(write: PlannedWrite) -> inspect.PlannedWrite:
    return inspect.PlannedWrite(
        path=write.path,
        group=write.target.group,
        name=write.target.name,
        unit=convert.unit_of(write.target.name),
        before=_text(write.before),
        after=str(write.after),
        final=write.final,
        who=write.by,
        why=write.why,
        pod=write.pod,
        inputs=convert.inputs(write.inputs),
    )


def journal(journal: Journal, request: inspect.JournalRequest) -> inspect.JournalResponse:
    """What the journal has, newest first; blocks on the disk."""
    entries = journal.query(
        pod=request.pod,
        file=request.file,
        strategy=request.strategy,
        since_ns=request.since_unix_ns,
        limit=min(request.limit or DEFAULT_LIMIT, MAX_LIMIT),
    )
    return inspect.JournalResponse(entries=_entries(entries), dropped=journal.dropped, problem=journal.problem)


def _entries(entries: Sequence[Entry]) -> list[inspect.JournalEntry]:
    return [
        inspect.JournalEntry(
            unix_ns=each.wall_ns,
            tick=each.tick,
            who=each.who,
            pod=each.pod,
            path=each.path,
            name=each.name,
            unit=convert.unit_of(each.name),
            before=_text(each.before),
            after=_text(each.after),
            result=each.result,
            why=each.why,
            inputs=convert.inputs(each.inputs),
        )
        for each in entries
    ]


def _text(value: Value | None) -> str | None:
    return None if value is None else str(value)
