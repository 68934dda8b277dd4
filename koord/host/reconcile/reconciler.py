"""Plans writes, makes them, and knows which files Koord holds: the one way to a kernel file and back.

A write is noted in the undo record before it is made, and read back after it. A file that the runtime wrote by an
edited request is held as if it had been written here. Invariants: nothing is written that ``plan`` did not show; a file
whose undo record cannot be kept is not written, unless the record covers the value already, and that is done on a full
disk too; the files that this process holds are those that the record would put back. Stopping writes nothing; the next
start takes over the files of the record, and its first run looks at all of them. Nothing that the kernel or another
writer does raises here.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import time
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from koord.host import files
from koord.host.cgroup import ReadError
from koord.host.files import ParseError, Target, Value, ValueRefused
from koord.host.notes import Entry
from koord.host.order import SHARES, disturbed_by, reset_by
from koord.host.originals import Pending
from koord.host.reconcile.due import LookQueue
from koord.host.reconcile.plan import (
    ADOPTED,
    DONE,
    FAILED,
    LEFTOVER,
    REFUSED,
    UNREADABLE,
    VANISHED,
    YIELDED,
    Inheritance,
    Leftover,
    Notice,
    Outcome,
    Plan,
    PlannedWrite,
    Takeover,
    result_of,
)
from koord.host.reconcile.planner import (
    NO_LEFTOVERS,
    NO_ORIGINALS,
    LeftoverSource,
    OriginalsSource,
    Planner,
    RowRules,
)
from koord.host.reconcile.state import FREE, FileState, FileStates, Phase
from koord.host.reconcile.step import Transition
from koord.host.reconcile.systemd_sync import SystemdSync
from koord.host.reconcile.wanted import Intents
from koord.host.systemd_units import Units
from koord.host.undo import UndoError, UndoRecord
from koord.host.writer import Reading, Vanished, WriteError, Writer

EARLIER_RUN = "an earlier run"
_TAKEN = (ADOPTED, LEFTOVER)
_log = logging.getLogger(__name__)


class StalePlan(ValueError):
    """The plan was made from a state that a later run has changed."""


class Reconciler:
    """Writes to the tree of ``writer``. One thread at a time, but for ``touched`` and ``follows``.

    ``units``: those of the host's systemd, which is told of what is written to their cgroups; None without one.
    ``clock``: seconds, by which writes are timed.
    """

    def __init__(
        self,
        writer: Writer,
        undo: UndoRecord,
        originals: OriginalsSource = NO_ORIGINALS,
        page_bytes: int = mmap.PAGESIZE,
        units: Units | None = None,
        clock: Callable[[], float] = time.perf_counter,
        leftovers: LeftoverSource = NO_LEFTOVERS,
    ) -> None:
        self._writer, self._undo, self._clock, self._leftovers = writer, undo, clock, leftovers
        self._states = FileStates({entry.target: _adopted(entry) for entry in undo.entries})
        self._queue = LookQueue(self._states)
        self._planner = Planner(writer, undo, originals, leftovers, page_bytes, self._states)
        self._systemd = SystemdSync(units, list(self._states))
        self._released: dict[Target, FileState] = {}  # in this run or before, and the record still tells of them
        self._edition = 0
        self.notices: tuple[Notice, ...] = ()
        """The notices of the plan that was applied last, without takeovers that could not be noted."""

    @property
    def states(self) -> FileStates:
        """The state of each file."""
        return self._states

    @property
    def unsynced(self) -> str:
        """Why systemd does not know some values that are held; "" if it knows them all."""
        return self._systemd.problem

    @property
    def unanswered(self) -> Mapping[Target, str]:
        """The files of which systemd has not heard yet, and why: the record keeps them, also those that are free."""
        return self._systemd.unanswered

    def touched(self, path: str) -> None:
        """Notes that a process wrote the file at ``path``: the next run looks at it. From any thread."""
        self._queue.touched(path)

    def follows(self, path: str) -> bool:
        """Is the file at ``path`` held, or left to another writer for now? From any thread."""
        return bool(self._states.at(path))

    def respelled(self) -> None:
        """Notes that shares stand for other weights from now on: held shares are looked at, and written, once more."""
        for entry in self._undo.entries:
            state = self._states.get(entry.target, FREE)
            if state.is_held and entry.name == SHARES:
                self._states.put(entry.target, replace(state, base=entry.base, good=None))
                self._queue.touched(state.path)

    def plan(self, intents: Intents, changed: Iterable[Target], now_ns: int) -> Plan:
        """Returns what ``apply`` would write now. ``changed``: files on which the opinions differ from those applied
        last.

        Reads kernel files; changes nothing.
        """
        return self._planner.plan(intents, self._queue.due(changed, now_ns), self._edition, now_ns)

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """Make the plan's writes, in its order. Raises StalePlan if another was applied since it was made."""
        if plan.edition != self._edition:
            raise StalePlan(f"made from state {plan.edition}, which is {self._edition} by now")
        self._edition += 1
        held_before = [target for target in plan.transitions if self._states.get(target, FREE).is_held]
        not_taken = {target for target, takeover in plan.takeovers.items() if not self._take_over(target, takeover)}
        self._leftovers.failed([each for each in not_taken if isinstance(plan.takeovers[each], Leftover)], plan.now_ns)
        self._leftovers.done(plan.transitions.keys() - not_taken)
        for target, transition in plan.transitions.items():
            if target not in not_taken:
                self._settle(target, transition)
        for target, state in plan.unreadable.items():
            self._states.put(target, state)
        self.notices = tuple(
            [each for each in plan.notices if each.target not in not_taken or each.result not in _TAKEN]
        )
        for notice in self.notices:
            _log_notice(notice)
        outcomes = [self._carry_out(plan, write, write.target in not_taken) for write in plan.writes]
        written = {outcome.write.target for outcome in outcomes if outcome.result == DONE}
        written |= {target for target, takeover in plan.takeovers.items() if _is_news_to_systemd(takeover)} - not_taken
        freed = {target for target in held_before if not self._states.get(target, FREE).is_held}
        sentences = self._sync_systemd(written | freed, plan.now_ns)
        changed = self._finish_releases(sentences)
        self._queue.done(plan.due, plan.transitions, plan.now_ns)
        return tuple(_finished(outcome, sentences, changed) for outcome in outcomes)

    def _settle(self, target: Target, transition: Transition) -> None:
        """Takes over the state of a file as it is without a write."""
        is_released = not transition.state.is_held and transition.write is None and transition.reading is not None
        if transition.is_outdated and is_released:
            self._released[target] = FREE
        elif transition.is_outdated:
            self._forget(target)
        before = self._states.get(target, FREE)
        self._states.put(target, transition.state)
        if transition.write is None and transition.state.is_held and transition.state.lasting != before.lasting:
            self._note_lasting(target, transition)

    def _note_lasting(self, target: Target, transition: Transition) -> None:
        """Notes another lasting value of a file whose present value stays."""
        state, reading = transition.state, transition.reading
        assert reading is not None
        try:
            self._undo.remember(target, reading, state.written, state.systemd_value, state.lasting)
        except UndoError as error:
            _log.warning("%s/%s is given back otherwise than it is wanted: %s", target.cgroup, target.name, error)

    def _take_over(self, target: Target, takeover: Takeover | Inheritance | Leftover) -> bool:
        """Notes what to put back of a file that another process wrote; False if it cannot be noted."""
        try:
            if isinstance(takeover, Leftover):
                self._undo.rebase(target, takeover.reading, takeover.base)
            elif isinstance(takeover, Inheritance):
                found = takeover.reading
                self._undo.remember(target, Reading(found.path, found.inode, takeover.base), found.value)
            elif takeover.base is None:
                self._undo.settle(target, takeover.key, takeover.original)
            else:
                self._undo.take_over(target, takeover.reading, takeover.base, takeover.key, takeover.original)
        except UndoError as error:
            _log.warning("%s/%s is not taken over: %s", target.cgroup, target.name, error)
            return False
        return True

    def _carry_out(self, plan: Plan, write: PlannedWrite, is_not_taken: bool) -> Outcome:
        transition, before = plan.transitions[write.target], self._states.get(write.target, FREE)
        took_s: float | None = None
        if is_not_taken:
            result, detail = REFUSED, "not written, because what kubelet requested cannot be noted as its base"
        else:
            began_s = self._clock()
            result, detail = self._attempt(plan, write, transition)
            took_s = None if result == REFUSED else self._clock() - began_s
        state = self._states.get(write.target, FREE)
        if result == DONE:
            state = replace(state, retry=None)
            self._look_again(reset_by(write.target))
        else:
            value = None if result == VANISHED else transition.write
            state = replace(state, retry=before.retry).delayed(value, plan.now_ns, detail)
            level = logging.DEBUG if result == VANISHED else logging.WARNING
            _log.log(level, "%s <- %s: %s: %s", write.path, write.after, result, detail)
        self._states.put(write.target, state)
        return Outcome(write, result, detail, took_s=took_s)

    def _look_again(self, row: str) -> None:
        """The next run looks at every held file of that row; "": at none more."""
        for target, state in self._states.items() if row else ():
            if target.name == row:
                self._queue.touched(state.path)

    def _attempt(self, plan: Plan, write: PlannedWrite, transition: Transition) -> tuple[str, str]:
        """One write: result and detail."""
        target = write.target
        try:
            base = self._note(plan, write, transition)
            self._writer.write(target, write.after)
        except UndoError as error:
            return REFUSED, f"not written, because what to put back cannot be noted: {error}"
        except Vanished as error:
            self._drop(target)
            return VANISHED, str(error)
        except (ValueRefused, WriteError) as error:
            if not self._states.get(target, FREE).is_held:
                self._forget(target)
            return result_of(error), str(error)
        return self._verify(plan.now_ns, write, transition, base)

    def _note(self, plan: Plan, write: PlannedWrite, transition: Transition) -> Value:
        """Notes what to put back of the file, which is returned, and of those that the kernel changes along with it.

        Looks once more: an earlier write of this run, or another writer, may have changed the file. Raises UndoError.
        """
        for other in disturbed_by(write.target):
            along = plan.transitions.get(other)
            if along is not None and along.reading is not None and self._states.get(other, FREE).is_held:
                self._remember(other, along.reading, None)
        inode = 0 if transition.reading is None else transition.reading.inode
        reading = Reading(write.path, inode, write.before)
        with contextlib.suppress(ReadError, ParseError):
            reading = self._writer.look(write.target) or reading
        systemd_value = self._states.get(write.target, FREE).systemd_value
        return self._remember(write.target, reading, write.after, systemd_value, transition.wanted.lasting)

    def _remember(
        self,
        target: Target,
        reading: Reading,
        ours: Value | None,
        systemd_value: Value | None = None,
        lasting: Value | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Value:
        """As the record's. Raises UndoError only where the write would leave a value that the record does not cover."""
        try:
            return self._undo.remember(target, reading, ours, systemd_value, lasting)
        except UndoError:
            base = self._undo.base_if_covered(target, reading, ours)
            if base is None:
                raise
            return base

    def _verify(self, now_ns: int, write: PlannedWrite, transition: Transition, base: Value) -> tuple[str, str]:
        """Read back, and hold or free the file by what it says.

        The kernel may still be about to take a value that does not read back: either of the two is ours then.
        """
        target = write.target
        try:
            reading = self._writer.look(target)
        except (ReadError, ParseError) as error:
            return f"{FAILED} readback", str(error)
        if reading is None:
            self._drop(target)
            return DONE, "gone right after it was written"
        as_written = self._rules(target).same(write.after, reading.value)
        if as_written and write.final and not transition.after.is_held:
            self._released[target] = replace(transition.state, written=write.after, adopted=False, good=None)
            self._states.put(target, FREE)
            return DONE, ""
        if not as_written:
            self._own(target, Reading(reading.path, reading.inode, write.after), reading.value)
        claim = transition.after if transition.after.is_held else transition.state
        if claim.is_held:
            written = write.after if as_written else reading.value
            claim = replace(claim, inode=reading.inode, base=base, written=written, since_ns=now_ns)
            self._states.put(target, replace(claim, adopted=not as_written, good=None))
        return (DONE, "") if as_written else (f"{FAILED} readback", f"reads back {reading.value!s}")

    def _sync_systemd(self, changed: set[Target], now_ns: int) -> Mapping[Target, str]:
        """Tells systemd of the files that were written and freed; a value that systemd writes from now on for a held
        file is ours too."""
        synced = self._systemd.after(changed, self._states, now_ns)
        for target, one in synced.items():
            state = self._states.get(target, FREE)
            if state.is_held and one.value is not None and state.systemd_value != one.value:
                self._states.put(target, replace(state, systemd_value=one.value))
        return {target: one.sentence for target, one in synced.items()}

    def _finish_releases(self, synced: Collection[Target]) -> Mapping[Target, Value]:
        """Deletes the undo notes of the files that were given back; where systemd keeps a copy, once it has answered.

        Returns the files, with their values, that no longer hold what was put back after systemd was told: they keep
        their notes and are held again, so that the next run puts the base back.
        """
        changed: dict[Target, Value] = {}
        unanswered = self._systemd.unanswered if self._released else {}
        for target, state in list(self._released.items()):
            if target in unanswered:
                continue
            del self._released[target]
            if self._states.get(target, FREE).is_held:
                continue
            value = self._changed_by_systemd(target, state) if target in synced else None
            if value is None:
                self._forget(target)
            else:
                changed[target] = value
                self._states.put(target, replace(state, written=value))
        return changed

    def _changed_by_systemd(self, target: Target, state: FileState) -> Value | None:
        """Returns what the file holds instead of the value that was put back; None if it holds that, or is gone."""
        if not state.is_held:
            return None
        with contextlib.suppress(ReadError, ParseError):
            reading = self._writer.look(target)
            if (
                reading is not None
                and state.is_of(reading)
                and not self._rules(target).same(state.written, reading.value)
            ):
                return reading.value
        return None

    def _rules(self, target: Target) -> RowRules:
        return RowRules(self._planner, target, files.row(target.name))

    def _drop(self, target: Target) -> None:
        """The file is free, or no more."""
        self._states.put(target, FREE)
        self._forget(target)

    def _own(self, target: Target, written: Reading, value: Value) -> None:
        """Notes that the kernel made ``value`` of what was written: that is ours as well."""
        with contextlib.suppress(UndoError):
            self._undo.remember(target, written, value)

    def _forget(self, target: Target) -> None:
        try:
            self._undo.forget(target)
        except UndoError as error:
            _log.warning("%s/%s stays in the undo record: %s", target.cgroup, target.name, error)


def _adopted(entry: Entry) -> FileState:
    """Returns the state of an earlier run's file by the record; the first look tells which of its values is there."""
    ours = entry.ours[0] if entry.ours else None
    return FileState(
        Phase.HELD,
        entry.path,
        entry.inode,
        entry.base,
        entry.base if ours is None else ours,
        EARLIER_RUN,
        follows=ours is None,
        adopted=True,
        systemd_value=entry.systemd_value,
        lasting=entry.lasting,
    )


def _is_news_to_systemd(takeover: Takeover | Inheritance | Leftover) -> bool:
    """Koord wrote the value before the container started; the runtime never told systemd of it."""
    return isinstance(takeover, Takeover) and takeover.base is not None and takeover.original.pending is Pending.STARTED


def _log_notice(notice: Notice) -> None:
    """Logs a problem that may stay for long, once; the journal has every time."""
    is_news = not notice.is_repeated and notice.result in (UNREADABLE, YIELDED)
    level = logging.WARNING if is_news else logging.DEBUG
    _log.log(level, "%s: %s: %s", notice.path, notice.result, notice.why)


def _finished(outcome: Outcome, sentences: Mapping[Target, str], changed: Mapping[Target, Value]) -> Outcome:
    """Returns the outcome with the result of telling systemd."""
    target = outcome.write.target
    if not outcome.write.final or outcome.result != DONE:
        return outcome
    if target in changed:
        return replace(outcome, result=f"{FAILED} readback", detail=f"holds {changed[target]!s} afterwards")
    return replace(outcome, systemd=sentences.get(target, ""))
