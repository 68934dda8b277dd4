"""Plan and Journal: the writes that will come and those that have been."""

from __future__ import annotations

from collections.abc import Sequence

from koord.host.evictions import EVICTION
from koord.host.files import Value
from koord.host.reconcile.plan import PlannedWrite
from koord.pb.koord import inspect_pb2 as inspect
from qosd.act.journal import Entry
from qosd.inspect import convert
from qosd.inspect.sources import Sources

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000


async def plan(sources: Sources) -> inspect.PlanResponse:
    """The next tick's writes and evictions."""
    snapshot = sources.snapshot()
    plan = await sources.plan() if snapshot is not None else None
    decisions = sources.decisions() if plan is None else plan.decisions
    return inspect.PlanResponse(
        tick=0 if snapshot is None else snapshot.tick,
        observed_unix_ns=0 if snapshot is None else snapshot.wall_ns,
        writes=[_planned(act) for act in (() if plan is None else plan.shown) if act.target.name != EVICTION],
        evictions=[
            inspect.Eviction(pod=each.pod, uid=each.uid, strategy=result.name, why=each.why)
            for result in (decisions.results if decisions else ())
            for each in result.evictions
        ],
        strategies=convert.strategies(decisions),
        policy=convert.policy(sources.policy()),
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


def journal(sources: Sources, request: inspect.JournalRequest) -> inspect.JournalResponse:
    """What the journal has, newest first; blocks on the disk."""
    entries = sources.journal.query(
        pod=request.pod,
        file=request.file,
        strategy=request.strategy,
        since_ns=request.since_unix_ns,
        limit=min(request.limit or DEFAULT_LIMIT, MAX_LIMIT),
    )
    problem = sources.journal.problem
    return inspect.JournalResponse(entries=_entries(entries), dropped=sources.journal.dropped, problem=problem)


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
