"""Keeps the tasks of containers at the attributes that strategies want, and gives them back: OOM scores, time slices.

A container is looked at when the opinion on it changes or the number of its tasks does, and every ``RECHECK_S`` for
tasks that come from outside (``kubectl exec``): forks inherit the value. A tick at which nothing is due
costs a comparison of identity per strategy.

Invariants: ``plan`` changes nothing, and ``apply`` writes only to containers that the plan showed; the undo record has
a task and its value before it is written; at most ``MOST_TASKS`` of a container are written at a time. Nothing that the
kernel does raises here. A refusal is journaled once for each pod, attribute and reason, and the write tried again after
1, 2, 4 … 60 seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from koord.host import taskattributes
from koord.host.cgroup import ReadError
from koord.host.files import Target
from koord.host.placement import Cgroup
from koord.host.reconcile.plan import DONE, REFUSED, UNREADABLE, Notice, Outcome, PlannedWrite, result_of
from koord.host.reconcile.reconciler import EARLIER_RUN
from koord.host.reconcile.state import NEVER_NS, backoff_ns
from koord.host.taskattributes import TaskAttribute, WrittenTask, WrittenTasks, count
from koord.host.undo import UndoError, UndoRecord
from koord.host.writer import WriteError, Writer
from qosd.act.actor import Actor, ActReport, ExplainedAct, entry_of
from qosd.act.desired import DesiredActs
from qosd.act.journal import JournalWriter
from qosd.decide.runner import Decisions
from qosd.model.snapshot import PodView

RECHECK_S = 60.0
MOST_TASKS = 1024
_S = 1_000_000_000
_Wanted = tuple[str, TaskAttribute]
_log = logging.getLogger(__name__)


class AttributeState(msgspec.Struct, frozen=True):
    """The state of one attribute of a container between ticks.

    ``wanted`` None: written by an earlier run, or to be given back. ``written`` None: none of its tasks was written.
    """

    owner: str
    pod: str = ""
    wanted: TaskAttribute | None = None
    written: WrittenTasks | None = None
    due_ns: int = 0
    failures: int = 0


class AttributeFinding(msgspec.Struct, frozen=True):
    """One attribute of a container as a plan found it; ``found`` None: the container is gone.

    ``state``: the state with the present opinion. ``written``: the note for the undo record before ``tasks`` are
    written. ``problem``: why it cannot be looked at.
    """

    target: Target
    state: AttributeState
    found: Cgroup | None = None
    written: WrittenTasks | None = None
    tasks: tuple[WrittenTask, ...] = ()
    act: PlannedWrite | None = None
    problem: str = ""

    @property
    def is_more(self) -> bool:
        """Are more tasks to be written than may be written at a time?"""
        return len(self.tasks) == MOST_TASKS


class AttributePlan(msgspec.Struct, frozen=True):
    """The containers whose tasks are to be written; ``desired`` is for ``apply``."""

    desired: DesiredActs[TaskAttribute]
    findings: tuple[AttributeFinding, ...] = ()

    @property
    def writes(self) -> tuple[PlannedWrite, ...]:
        return tuple([finding.act for finding in self.findings if finding.act is not None])


class AttributeReport(ActReport, frozen=True, eq=False):
    """``held``: the states, by the container's cgroup and the attribute."""

    held: Mapping[Target, AttributeState]

    def of_pod(self, decisions: Decisions, pod: PodView) -> Iterable[ExplainedAct]:
        """Yields the attributes that are wanted for each container's tasks."""
        cgroups = {container.cgroup for container in pod.containers if container.cgroup}
        for owner, wanted in decisions.acts(TaskAttribute):
            if wanted.cgroup in cgroups:
                state = self.held.get(wanted.target)
                actual = "unknown" if state is None or state.failures else str(wanted.value)
                path = "" if state is None or state.written is None else state.written.path
                yield ExplainedAct(wanted.target, path, owner, str(wanted.value), wanted.why, actual, wanted.pod)


class TaskAttributeWriter(Actor[AttributePlan]):
    """Writes attributes through ``writer``. One thread at a time."""

    def __init__(self, writer: Writer, undo: UndoRecord, journal: JournalWriter) -> None:
        self._writer, self._undo, self._journal = writer, undo, journal
        self._held = {
            one.target: AttributeState(EARLIER_RUN, written=one, due_ns=NEVER_NS) for one in undo.all(WrittenTasks)
        }
        self._applied = DesiredActs(TaskAttribute)
        self._due_ns = NEVER_NS
        self._told: dict[tuple[str, str], str] = {}

    @property
    def follows(self) -> tuple[type[TaskAttribute]]:
        return (TaskAttribute,)

    @property
    def report(self) -> AttributeReport:
        return AttributeReport(self._held)

    def plan(self, decisions: Decisions) -> AttributePlan:
        """Returns the writes that ``apply`` would make now. Reads kernel files; changes nothing."""
        desired = self._applied.now(decisions)
        is_new, is_due = not desired.are(self._applied), decisions.monotonic_ns >= self._due_ns
        if not (is_new or is_due):
            return AttributePlan(desired)
        wanted = _merged(desired)
        chosen = dict.fromkeys(self._changed(wanted, bool(desired.undecided)) if is_new else ())
        if is_due:
            due = [target for target, held in self._held.items() if held.due_ns <= decisions.monotonic_ns]
            chosen.update(dict.fromkeys(due))
        states = {target: self._state_of(target, wanted.get(target)) for target in chosen}
        return AttributePlan(desired, tuple([self._examined(target, states[target], decisions) for target in chosen]))

    def apply(self, decisions: Decisions, part: AttributePlan) -> tuple[Outcome, ...]:
        self._applied = part.desired
        outcomes = []
        held = dict(self._held) if part.findings else self._held
        for finding in part.findings:
            state, outcome = self._carried_out(decisions, finding)
            if outcome is not None:
                outcomes.append(outcome)
            if state is None:
                held.pop(finding.target, None)
            else:
                held[finding.target] = state
        if part.findings:
            self._held = held
            self._due_ns = min((state.due_ns for state in held.values()), default=NEVER_NS)
            subjects = {_subject(target, state) for target, state in held.items()}
            self._told = {subject: result for subject, result in self._told.items() if subject in subjects}
        return tuple(outcomes)

    def _changed(self, wanted: Mapping[Target, _Wanted], some_undecided: bool) -> Iterator[Target]:
        """Yields the targets whose opinion has changed; an earlier run's stay until all strategies have decided."""
        for target, (_, now) in wanted.items():
            held = self._held.get(target)
            before = None if held is None else held.wanted
            if before is None or (before.value, before.tasks) != (now.value, now.tasks):
                yield target
        for target, held in self._held.items():
            if target not in wanted and not (held.owner == EARLIER_RUN and some_undecided):
                yield target

    def _state_of(self, target: Target, wanted: _Wanted | None) -> AttributeState:
        """Returns the state of ``target``, with the present opinion."""
        held = self._held.get(target, AttributeState(""))
        if wanted is None:
            return replace(held, wanted=None)
        owner, attribute = wanted
        return replace(held, owner=owner, pod=attribute.pod, wanted=attribute)

    def _examined(self, target: Target, state: AttributeState, decisions: Decisions) -> AttributeFinding:
        try:
            found = taskattributes.members(self._writer, target.name, target.cgroup)
            written = state.written
            if state.wanted is None:
                back = None if written is None else taskattributes.to_put_back(self._writer, written)
                return self._finding(target, state, found, written, back or [], decisions)
            if found is None:
                return AttributeFinding(target, state)
            written = _of_now(written, found, state.wanted)
            tasks = taskattributes.to_write(self._writer, written, found)
            return self._finding(target, state, found, written, tasks, decisions)
        except (ReadError, ValueError) as error:
            return AttributeFinding(target, state, problem=str(error))

    def _finding(
        self,
        target: Target,
        state: AttributeState,
        found: Cgroup | None,
        written: WrittenTasks | None,
        tasks: list[WrittenTask],
        decisions: Decisions,
    ) -> AttributeFinding:
        tasks = tasks[:MOST_TASKS]
        if written is None or not tasks:
            return AttributeFinding(target, state, found, state.written)
        wanted, first = state.wanted, tasks[0].original
        if wanted is None:
            before, after, why = written.values[0], first, self._why_released(state, decisions)
        else:
            written = taskattributes.noted(written, self._writer, tasks)
            before, after, why = first, wanted.value, wanted.why
        why = f"{why}: {count(target.name, len(tasks))}"
        act = PlannedWrite(target, written.path, before, after, True, state.owner, why, pod=state.pod)
        return AttributeFinding(target, state, found, written, tuple(tasks), act)

    def _why_released(self, state: AttributeState, decisions: Decisions) -> str:
        off = [result.sentence for result in decisions.results if result.name == state.owner and result.is_off]
        return f"back to what they had: {f'{state.owner} is {off[0]}' if off else 'no strategy wants a value any more'}"

    def _carried_out(
        self, decisions: Decisions, finding: AttributeFinding
    ) -> tuple[AttributeState | None, Outcome | None]:
        state, now_ns = finding.state, decisions.monotonic_ns
        if finding.problem:
            self._say(decisions, finding, UNREADABLE, finding.problem)
            return self._again(state, now_ns), None
        if finding.act is None:
            return self._settled(finding, now_ns), None
        result, detail = self._attempt(finding)
        outcome = Outcome(finding.act, result, detail)
        written = self._undo.find(WrittenTasks, finding.target.name, finding.target.cgroup)
        if result != DONE:
            self._say(decisions, finding, result, detail)
            return self._again(replace(state, written=written), now_ns), outcome
        self._journal.record(entry_of(decisions, finding.act, result, finding.act.why))
        return self._settled(msgspec.structs.replace(finding, written=written), now_ns), outcome

    def _settled(self, finding: AttributeFinding, now_ns: int) -> AttributeState | None:
        """Returns the state of an attribute without work left; None: it is to be forgotten."""
        state = replace(finding.state, written=finding.written, failures=0)
        if finding.is_more:
            return replace(state, due_ns=now_ns)
        if state.wanted is not None and finding.found is not None:
            return replace(state, due_ns=now_ns + int(RECHECK_S * _S))
        if state.written is not None:
            self._forget(finding.target)
        return None if state.wanted is None else replace(state, written=None, due_ns=now_ns + int(RECHECK_S * _S))

    def _attempt(self, finding: AttributeFinding) -> tuple[str, str]:
        """Notes the tasks and writes them all, although the kernel may refuse some."""
        wanted, written = finding.state.wanted, finding.written
        assert written is not None
        refused: Exception | None = None
        try:
            if wanted is not None:
                self._undo.note(written)
            for task in finding.tasks:
                try:
                    value = task.original if wanted is None else wanted.value
                    taskattributes.write(self._writer, finding.target.name, task.id, value)
                except WriteError as error:
                    refused = refused or error
        except UndoError as error:
            return REFUSED, f"not written, because what to put back cannot be noted: {error}"
        return (DONE, "") if refused is None else (result_of(refused), str(refused))

    def _again(self, state: AttributeState, now_ns: int) -> AttributeState:
        failures = state.failures + 1
        return replace(state, failures=failures, due_ns=now_ns + backoff_ns(failures))

    def _say(self, decisions: Decisions, finding: AttributeFinding, result: str, why: str) -> None:
        """Logs and journals a failure once for each pod, attribute and result."""
        state, target = finding.state, finding.target
        subject = _subject(target, state)
        if self._told.get(subject) == result:
            return
        self._told[subject] = result
        _log.warning("%s of %s: %s: %s", *subject, result, why)
        wanted = None if state.wanted is None else state.wanted.value
        notice = Notice(target, "", None, wanted, result, state.owner, why, pod=state.pod)
        self._journal.record(entry_of(decisions, notice, result, why))

    def _forget(self, target: Target) -> None:
        try:
            self._undo.drop(WrittenTasks, target.name, target.cgroup)
        except UndoError as error:
            _log.warning("%s of %s stays in the undo record: %s", target.name, target.cgroup, error)


def _subject(target: Target, state: AttributeState) -> tuple[str, str]:
    return target.name, state.pod or target.cgroup


def _merged(desired: DesiredActs[TaskAttribute]) -> Mapping[Target, _Wanted]:
    """Returns the opinion on each container: of the first strategy that names it."""
    wanted: dict[Target, _Wanted] = {}
    for owner, attributes in desired.acts.items():
        for attribute in attributes:
            wanted.setdefault(attribute.target, (owner, attribute))
    return wanted


def _of_now(written: WrittenTasks | None, found: Cgroup, wanted: TaskAttribute) -> WrittenTasks:
    """Returns the note of the cgroup that was found, with the wanted value as the newest."""
    if written is None or not written.is_of(found):
        return taskattributes.unwritten(wanted, found)
    return replace(written, values=tuple(dict.fromkeys((wanted.value, *written.values))))
