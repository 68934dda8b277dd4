"""Keeps the tasks of cgroups in the resctrl groups where the strategies want them, and gives them back.

A cgroup is looked at when the opinion on it changes, then after 0.5, 1, 2, 4 and 8 seconds, and every ``RECHECK_S``
from there on, for processes that come from outside (``kubectl exec``). All cgroups that are due at once are compared
with one reading of the resctrl groups. A tick at which nothing is due costs a comparison of identity per strategy.

Invariants: ``plan`` changes nothing, and ``apply`` moves tasks only of cgroups that the plan showed, each cgroup's
until none is missing any more; the undo record names a cgroup before its first task is moved. Nothing that the
kernel or another writer does raises here. The journal has one entry per cgroup and change; latecomers are added up and
told every ``REPORT_S`` at most.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from koord.host import placement
from koord.host.files import Target
from koord.host.placement import TASKS, Census, Membership, Moved, Placed, count
from koord.host.reconcile.plan import DONE, REFUSED, Notice, result_of
from koord.host.reconcile.reconciler import EARLIER_RUN
from koord.host.reconcile.state import backoff_ns
from koord.host.undo import UndoError, UndoRecord
from koord.host.writer import Writer
from qosd.act.actor import Actor, entry_of
from qosd.act.desired import DesiredActs
from qosd.act.journal import JournalWriter
from qosd.act.misplaced import examine
from qosd.act.moves import NEVER_NS, MoveFinding, MoveOutcome, MoveReport, Moves, PlannedMove, TasksState
from qosd.decide.runner import Decisions
from qosd.hooks.resctrl import CLASS_GROUPS

RECHECK_S = 10.0
REPORT_S = 600.0
_FIRST_S = 0.5
_S = 1_000_000_000
_Wanted = tuple[str, Membership]
_log = logging.getLogger(__name__)


class TaskMover(Actor[Moves]):
    """Moves tasks through ``writer``. ``classes``: the resctrl groups that it may take from. One thread at a time.

    ``placed``: the resctrl group in which the tasks of each cgroup are kept now; replaced whole.
    """

    def __init__(
        self, writer: Writer, undo: UndoRecord, journal: JournalWriter, classes: Collection[str] = CLASS_GROUPS
    ) -> None:
        self._writer, self._undo, self._journal, self._classes = writer, undo, journal, classes
        self._held = {one.cgroup: TasksState(EARLIER_RUN, placed=one) for one in undo.all(Placed)}
        self._applied = DesiredActs(Membership)
        self._due_ns = NEVER_NS
        self.placed: Mapping[str, str] = MappingProxyType({})

    @property
    def follows(self) -> tuple[type[Membership]]:
        return (Membership,)

    @property
    def report(self) -> MoveReport:
        return MoveReport(self._writer.tree.resctrl, self.placed)

    def plan(self, decisions: Decisions) -> Moves:
        """Returns the moves that ``apply`` would begin with now. Reads kernel files; changes nothing."""
        desired = self._applied.now(decisions)
        is_new, is_due = not desired.are(self._applied), decisions.monotonic_ns >= self._due_ns
        if not (is_new or is_due):
            return Moves(desired)
        wanted = _merged(desired)
        chosen = dict.fromkeys(self._changed(wanted, bool(desired.undecided)) if is_new else ())
        if is_due:
            due = [cgroup for cgroup, held in self._held.items() if held.due_ns <= decisions.monotonic_ns]
            chosen.update(dict.fromkeys(due))
        tree = self._writer.tree
        census = Census(tree.resctrl, self._classes)
        findings = tuple(
            examine(
                tree, census, cgroup, self._state_of(cgroup, wanted.get(cgroup)), self._why_released(cgroup, decisions)
            )
            for cgroup in chosen
        )
        moves = tuple(one.move for one in findings if one.move is not None)
        return Moves(desired, moves, findings)

    def apply(self, decisions: Decisions, moves: Moves) -> tuple[MoveOutcome, ...]:
        """Makes the moves, each until no task is missing any more."""
        self._applied = moves.desired
        execution = _Execution(self._writer, self._undo, self._journal, self._classes, decisions)
        outcomes = []
        for finding in moves.findings:
            if finding.move is None:
                after = execution.settle(finding)
            else:
                after, outcome = execution.carry_out(finding, finding.move)
                outcomes.append(outcome)
            if after is None:
                self._held.pop(finding.cgroup, None)
            else:
                self._held[finding.cgroup] = after
        if moves.findings:
            self._due_ns = min((one.due_ns for one in self._held.values()), default=NEVER_NS)
            kept = {cgroup: one.wanted.resctrl_group for cgroup, one in self._held.items() if one.wanted is not None}
            self.placed = MappingProxyType(kept)
        return tuple(outcomes)

    def _changed(self, wanted: Mapping[str, _Wanted], some_undecided: bool) -> Iterator[str]:
        """Yields the cgroups whose opinion has changed; an earlier run's stay until all strategies have decided."""
        for cgroup, (_, membership) in wanted.items():
            held = self._held.get(cgroup)
            if held is None or held.wanted is None or held.wanted.resctrl_group != membership.resctrl_group:
                yield cgroup
        for cgroup, held in self._held.items():
            if cgroup not in wanted and not (held.owner == EARLIER_RUN and some_undecided):
                yield cgroup

    def _state_of(self, cgroup: str, wanted: _Wanted | None) -> TasksState:
        """Returns the state of ``cgroup``, with the present opinion."""
        held = self._held.get(cgroup)
        if wanted is None:
            return TasksState("") if held is None else replace(held, wanted=None)
        owner, membership = wanted
        if held is None or held.wanted is None or held.wanted.resctrl_group != membership.resctrl_group:
            late = 0 if held is None else held.late
            return TasksState(owner, membership.pod, membership, None if held is None else held.placed, late=late)
        return replace(held, owner=owner, pod=membership.pod, wanted=membership)

    def _why_released(self, cgroup: str, decisions: Decisions) -> str:
        held = self._held.get(cgroup)
        owner = "" if held is None else held.owner
        off = [result.sentence for result in decisions.results if result.name == owner and result.is_off]
        return f"back to the root group: {f'{owner} is {off[0]}' if off else 'no strategy wants it elsewhere any more'}"


class _Execution:
    """Carries out the findings of one tick; returns the state of each cgroup afterwards, None to forget it."""

    def __init__(
        self,
        writer: Writer,
        undo: UndoRecord,
        journal: JournalWriter,
        classes: Collection[str],
        decisions: Decisions,
    ) -> None:
        self._writer, self._undo, self._journal, self._classes = writer, undo, journal, classes
        self._decisions, self._now_ns = decisions, decisions.monotonic_ns

    def settle(self, finding: MoveFinding) -> TasksState | None:
        """Settles a cgroup without tasks to be moved."""
        held = finding.state
        if finding.problem:
            if finding.problem != held.problem:
                self._tell(finding.cgroup, held, finding.result, finding.problem)
            return self._again(replace(held, problem=finding.problem))
        if held.late and finding.found is None:
            self._tell(finding.cgroup, held, DONE, _latecomers(held))
            held = replace(held, late=0)
        if held.placed is None or held.wanted is None:
            self._displace(finding.cgroup)
        return None if held.wanted is None else self._again(replace(held, problem="", failures=0))

    def carry_out(self, finding: MoveFinding, move: PlannedMove) -> tuple[TasksState | None, MoveOutcome]:
        held = finding.state
        try:
            placed = self._remembered(finding, move)
        except UndoError as error:
            why = f"not moved, because what to put back cannot be noted: {error}"
            return self._failed(held, move, MoveOutcome(move.as_write, REFUSED, why))
        held, moved = replace(held, placed=placed), self._moved(move, placed)
        if moved.error is not None:
            why = f"{moved.error} (after {count(moved.tasks)})" if moved.tasks else str(moved.error)
            return self._failed(held, move, MoveOutcome(move.as_write, result_of(moved.error), why, tasks=moved.tasks))
        outcome = MoveOutcome(move.as_write, DONE, _detail(moved), tasks=moved.tasks)
        held = self._told(held, move, outcome)
        if held.wanted is not None:
            held = replace(held, problem="" if held.failures else held.problem, failures=0)
            return self._again(held if moved.settled else replace(held, wait_s=0.0)), outcome
        if not moved.settled:
            return self._again(replace(held, wait_s=0.0)), outcome
        self._displace(move.cgroup)
        return None, outcome

    def _remembered(self, finding: MoveFinding, move: PlannedMove) -> Placed:
        """Notes the cgroup in the undo record before its tasks are moved. Raises UndoError."""
        held, found = finding.state, finding.found
        assert found is not None
        placed = held.placed or Placed(finding.cgroup, found.path, found.inode, ())
        if move.to and move.to not in placed.resctrl_groups:
            placed = Placed(placed.cgroup, placed.path, placed.inode, (*placed.resctrl_groups, move.to))
        self._undo.note(placed)
        return placed

    def _moved(self, move: PlannedMove, placed: Placed) -> Moved:
        tree = self._writer.tree
        if move.to:
            return placement.move(
                self._writer, move.to, lambda: placement.missing(tree, move.cgroup, move.to, self._classes)
            )
        return placement.move(self._writer, "", lambda: placement.to_put_back(tree, placed) or ())

    def _failed(self, held: TasksState, move: PlannedMove, outcome: MoveOutcome) -> tuple[TasksState, MoveOutcome]:
        """Has a failed move tried again later, and journals it once for each reason."""
        if outcome.detail != held.problem:
            _log.warning("tasks of %s -> %s: %s: %s", move.cgroup, move.after, outcome.result, outcome.detail)
            why = f"{move.why}: {outcome.detail}"
            self._journal.record(entry_of(self._decisions, move.as_write, outcome.result, why))
        failures = held.failures + 1
        due_ns = self._now_ns + backoff_ns(failures)
        return replace(held, problem=outcome.detail, failures=failures, due_ns=due_ns), outcome

    def _told(self, held: TasksState, move: PlannedMove, outcome: MoveOutcome) -> TasksState:
        """Journals the moved tasks, or counts them as latecomers to be journaled later."""
        is_late = held.told_ns is not None and held.wanted is not None
        if not outcome.tasks:
            return held
        if is_late and self._now_ns - (held.told_ns or 0) < REPORT_S * _S:
            return replace(held, late=held.late + outcome.tasks)
        why = f"{move.why}: {outcome.detail}{f'; {_latecomers(held)}' if held.late else ''}"
        self._journal.record(entry_of(self._decisions, move.as_write, DONE, why))
        return replace(held, late=0, told_ns=self._now_ns)

    def _again(self, held: TasksState) -> TasksState:
        """Has the cgroup looked at again, after twice the time."""
        wait_s = min(RECHECK_S, 2 * held.wait_s or _FIRST_S)
        return replace(held, wait_s=wait_s, due_ns=self._now_ns + int(wait_s * _S))

    def _displace(self, cgroup: str) -> None:
        try:
            self._undo.drop(Placed, cgroup)
        except UndoError as error:
            _log.warning("tasks of %s stay in the undo record: %s", cgroup, error)

    def _tell(self, cgroup: str, held: TasksState, result: str, why: str) -> None:
        """Journals a notice about a cgroup whose tasks stay where they are."""
        path, wanted = str(self._writer.tree.resctrl), held.wanted.resctrl_group if held.wanted else placement.ROOT
        notice = Notice(Target(cgroup, TASKS), path, None, wanted, result, held.owner, why, pod=held.pod)
        self._journal.record(entry_of(self._decisions, notice, result, why))


def _merged(desired: DesiredActs[Membership]) -> Mapping[str, _Wanted]:
    """Returns the opinion on each cgroup: of the first strategy that names it."""
    wanted: dict[str, _Wanted] = {}
    for owner, memberships in desired.acts.items():
        for membership in memberships:
            wanted.setdefault(membership.cgroup, (owner, membership))
    return wanted


def _detail(moved: Moved) -> str:
    ended = f", {moved.ended} ended meanwhile" if moved.ended else ""
    return f"{count(moved.tasks)}{ended}{'' if moved.settled else ', and more keep appearing'}"


def _latecomers(held: TasksState) -> str:
    return f"{count(held.late)} that came later had been moved too"
