"""Journal: the writes that have been."""

from __future__ import annotations

import asyncio

from koord.pb.koord import inspect_pb2 as inspect
from qosd.act.journal import Journal
from qosd.inspect import convert
from qosd.inspect.inspector import Inspector

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000


async def answer(inspector: Inspector, request: inspect.JournalRequest) -> inspect.JournalResponse:
    return await asyncio.to_thread(_read, inspector.node.journal, request)


def _read(journal: Journal, request: inspect.JournalRequest) -> inspect.JournalResponse:
    """Returns the journal's entries, newest first; blocks on the disk."""
    entries = journal.query(
        pod=request.pod,
        file=request.file,
        strategy=request.strategy,
        since_ns=request.since_unix_ns,
        limit=min(request.limit or DEFAULT_LIMIT, MAX_LIMIT),
    )
    messages = [
        inspect.JournalEntry(
            unix_ns=each.wall_ns,
            tick=each.tick,
            owner=each.owner,
            pod=each.pod,
            path=each.path,
            name=each.name,
            unit=convert.unit_of(each.name),
            before=convert.text(each.before),
            after=convert.text(each.after),
            result=each.result,
            why=each.why,
            inputs=convert.inputs(each.inputs),
        )
        for each in entries
    ]
    return inspect.JournalResponse(entries=messages, dropped=journal.dropped, problem=journal.problem)
