"""One-shot writes: values that are written once, hold nothing and cannot be given back (``memory.reclaim``).

The kernel may work for seconds on such a write, so a thread of its own makes them, in their order. Invariants: a tick
never waits for one; at most one is under way for each file, and at most ``MOST_UNDER_WAY`` in all; more are refused and
journaled; each that is made has one row in the journal when it is done. A restart forgets those under way: there is
nothing to undo.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import msgspec

from koord.host import files
from koord.host.files import Target
from koord.host.reconcile.plan import DONE, REFUSED, STARTED, Outcome, PlannedWrite, result_of
from koord.host.writer import WriteError, Writer
from qosd.act.actor import Actor, entry_of
from qosd.act.journal import JournalWriter
from qosd.decide.decision import OneShot
from qosd.decide.runner import Decisions

MOST_UNDER_WAY = 64
MOST_REMEMBERED = 256
_log = logging.getLogger(__name__)


class OneShotPlan(msgspec.Struct, frozen=True):
    """The one-shot writes of one tick."""

    writes: tuple[PlannedWrite, ...] = ()


_NOTHING = OneShotPlan()


class OneShotWriter(Actor[OneShotPlan]):
    """Writes through ``writer``; ``executor``: the thread, else one is made with the first write."""

    def __init__(self, writer: Writer, journal: JournalWriter, executor: Executor | None = None) -> None:
        self._writer, self._journal, self._executor = writer, journal, executor
        self._under_way: set[Target] = set()
        self._lock = threading.Lock()
        self.ended: Mapping[Target, str] = MappingProxyType({})
        """The result of the newest write to each file, the last ``MOST_REMEMBERED``; replaced whole."""

    def plan(self, decisions: Decisions) -> OneShotPlan:
        """Returns the writes of the decisions: one a file, the last one, and none where one is under way."""
        writes = {
            one_shot.target: self._as_write(result.name, one_shot)
            for result in decisions.results
            for one_shot in result.decision.one_shots
            if one_shot.target not in self._under_way
        }
        return OneShotPlan(tuple(writes.values())) if writes else _NOTHING

    def _as_write(self, strategy: str, one_shot: OneShot) -> PlannedWrite:
        try:
            path = str(self._writer.path(one_shot.target) or "")
        except (files.UnknownRow, ValueError):
            path = ""  # it will be refused
        return PlannedWrite(
            one_shot.target, path, "", one_shot.value, True, strategy, one_shot.why, one_shot.inputs, one_shot.pod
        )

    def apply(self, decisions: Decisions, plan: OneShotPlan) -> tuple[Outcome, ...]:
        """Hands the writes to the thread."""
        return tuple([self._begun(decisions, write) for write in plan.writes])

    def _begun(self, decisions: Decisions, write: PlannedWrite) -> Outcome:
        problem = self._problem(write)
        if problem:
            self._journal.record(entry_of(decisions, write, REFUSED, f"{write.why}: {problem}"))
            return Outcome(write, REFUSED, problem)
        with self._lock:
            self._under_way.add(write.target)
        self._submit(lambda: self._carry_out(decisions, write))
        return Outcome(write, STARTED)

    def _problem(self, write: PlannedWrite) -> str:
        """Returns why the write cannot be made; "" if it can."""
        if len(self._under_way) >= MOST_UNDER_WAY:
            return f"{MOST_UNDER_WAY} orders are under way"
        try:
            row = files.row(write.target.name)
        except files.UnknownRow:
            return "is no kernel file that Koord knows"
        return "" if row.is_one_shot else "is a value and no order"

    def _submit(self, work: Callable[[], Any]) -> None:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="orders")
        self._executor.submit(work)

    def _carry_out(self, decisions: Decisions, write: PlannedWrite) -> None:
        """Makes the write, in the thread."""
        try:
            result, detail = self._attempt(write)
        finally:
            with self._lock:
                self._under_way.discard(write.target)
        self._remember(write.target, result)
        if result != DONE:
            _log.info("%s <- %s: %s: %s", write.path, write.after, result, detail)
        self._journal.record(entry_of(decisions, write, result, f"{write.why}: {detail}" if detail else write.why))

    def _remember(self, target: Target, result: str) -> None:
        others = [(each, its) for each, its in self.ended.items() if each != target]
        self.ended = MappingProxyType(dict([*others[1 - MOST_REMEMBERED :], (target, result)]))

    def _attempt(self, write: PlannedWrite) -> tuple[str, str]:
        """Makes the write. Returns its result and the error, "" if there is none."""
        try:
            self._writer.write(write.target, write.after)
        except WriteError as error:
            return result_of(error), str(error)
        except ValueError as error:  # what the row refuses, and a path that leaves the tree
            return REFUSED, str(error)
        return DONE, ""

    def close(self) -> None:
        """Begins no more writes; one that the kernel works on ends by itself."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
