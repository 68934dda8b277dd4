"""The one actuator: plans a tick's writes, carries them out, and knows which files Koord holds.

A write is remembered in the undo record before it is made, read back after it, and told to the journal with its result.
A file that holds what the runtime was given for it at the container's creation is held as if it had been written here.
Invariants: nothing is written that ``plan`` did not show; a file whose undo record cannot be kept is not written; what
this process holds is what the record would put back. Stopping writes nothing; the next start takes over what the record
tells of, and its first tick looks at all of it. Nothing that the kernel or another writer does raises here.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import mmap
from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar

from msgspec.structs import replace

from koord.host import files
from koord.host.asked import Given
from koord.host.cgroup import ReadError
from koord.host.files import ParseError, Target, Value, ValueRefused
from koord.host.order import SHARES, disturbed_by
from koord.host.systemd_units import Told
from koord.host.undo import Entry as UndoEntry
from koord.host.undo import UndoError, UndoRecord
from koord.host.writer import Found, Unsupported, Vanished, WriteError, Writer
from qosd.act.agenda import Agenda
from qosd.act.composition import Composed
from qosd.act.created import Created
from qosd.act.holding import Holding, Verdict
from qosd.act.journal import Entry
from qosd.act.mover import Mover
from qosd.act.ownership import OWNERS, Line
from qosd.act.plan import (
    DONE,
    FAILED,
    REFUSED,
    UNREADABLE,
    UNSUPPORTED,
    VANISHED,
    YIELDED,
    Notice,
    Outcome,
    Plan,
    PlannedWrite,
    Result,
    Taken,
)
from qosd.act.planner import Held, Planner
from qosd.act.retry import Retry, backoff_ns
from qosd.act.telling import Telling, Units
from qosd.act.unchanged import Unchanged
from qosd.decide.frame import Decisions
from qosd.snapshot import PodView

EARLIER_RUN = "an earlier run"
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Recorder(Protocol):
    """The journal, as far as the actuator needs it."""

    def record(self, entry: Entry) -> None: ...


class StalePlan(ValueError):
    """The plan was made from a state that a later tick has changed."""


class Actuator:
    """Writes to the tree of ``writer``. ``owners``: who may speak on which row. One thread at a time.

    ``units``: those of the host's systemd, which is told of what is written to their cgroups; None without one.
    ``refusals``: how many opinions were refused since the start; ``refused``: those that are refused now.
    """

    def __init__(
        self,
        writer: Writer,
        undo: UndoRecord,
        journal: Recorder,
        owners: Mapping[str, Line] = OWNERS,
        page_bytes: int = mmap.PAGESIZE,
        units: Units | None = None,
    ) -> None:
        self._writer, self._undo, self._journal = writer, undo, journal
        self._held = Held({entry.target: _adopted(entry) for entry in undo.entries})
        self._agenda = Agenda({target: holding.path for target, holding in self._held.holdings.items()})
        self._unchanged = Unchanged()
        self._created = Created(undo)
        self._planner = Planner(
            writer, undo, owners, page_bytes, self._held, self._agenda.retries, self._unchanged, self._created
        )
        self._mover = Mover(writer, undo, journal)
        self._telling = Telling(units, self._held.holdings)
        self._not_taken: set[Target] = set()
        self._edition = 0
        self._decisions: Decisions | None = None
        self._refused: dict[Target, tuple[tuple[str, str], ...]] = {}
        self.refusals = 0

    @property
    def owned(self) -> Mapping[Target, Holding]:
        """The files held now."""
        return dict(self._held.holdings)

    @property
    def contested(self) -> Mapping[Target, str]:
        """The files left to another writer, and why: whoever can should enforce the value one level up."""
        return {target: one.why for target, one in self._held.contested.copy().items()}

    @property
    def refused(self) -> Mapping[Target, tuple[tuple[str, str], ...]]:
        """(strategy, why) of the opinions that are not followed, by file."""
        return dict(self._refused)

    @property
    def retries(self) -> Mapping[Target, Retry]:
        """The files that could not be brought to their value, and when that is tried again."""
        return dict(self._agenda.retries)

    @property
    def untold(self) -> str:
        """Why systemd does not know some values that are held; "" if it knows them all."""
        return self._telling.problem

    @property
    def placed(self) -> Mapping[str, str]:
        """The resctrl group in which the tasks of each cgroup are kept now."""
        return self._mover.placed

    def given(self, target: Target) -> Given | None:
        """What was asked and given of a file when the runtime was told of its container; None: nothing else than asked.

        From any thread.
        """
        found = self._created.find(target)
        return None if found is None else found[1]

    def composed(self, target: Target) -> Composed | None:
        """What the newest executed decisions come to for ``target``; None if nobody has an opinion."""
        return None if self._decisions is None else self._planner.composed(target, self._decisions)

    def follow(self, pods: tuple[PodView, ...], monotonic_ns: int) -> None:
        """These are all pods now: which cgroup is which container's, for what was asked for it."""
        self._created.follow(pods, monotonic_ns)

    def touched(self, path: str) -> None:
        """Somebody wrote the file at ``path``: the next tick looks at it. From any thread."""
        self._agenda.touched(path)

    def owns(self, path: str) -> bool:
        """Is the file at ``path`` held, or left to another writer for now? From any thread."""
        return self._agenda.follows(path)

    def respelled(self) -> None:
        """Shares stand for other weights from now on: those that are held are looked at, and written, once more."""
        for entry in self._undo.entries:
            holding = self._held.holdings.get(entry.target)
            if holding is None or entry.name != SHARES:
                continue
            self._held.holdings[entry.target] = replace(holding, base=entry.base)
            self._unchanged.replace({entry.target: None})
            self._agenda.touched(holding.path)

    def plan(self, decisions: Decisions) -> Plan:
        """What ``execute`` would write now. Reads kernel files; changes nothing."""
        plan = self._planner.plan(decisions, self._agenda.peek(decisions), self._edition)
        return replace(plan, moves=self._mover.plan(decisions))

    def tick(self, decisions: Decisions) -> Result:
        """Plan and execute."""
        return self.execute(self.plan(decisions))

    def execute(self, plan: Plan) -> Result:
        """Make the plan's writes, in its order. Raises StalePlan if another was executed since it was made."""
        if plan.edition != self._edition:
            raise StalePlan(f"made from state {plan.edition}, which is {self._edition} by now")
        self._edition += 1
        self._decisions = plan.decisions
        before = set(self._held.holdings)
        self._not_taken = {target for target, taken in plan.taken.items() if not self._take_over(target, taken)}
        for target, verdict in plan.verdicts.items():
            if target not in self._not_taken:
                self._settle(target, verdict)
        for target, refused in plan.refused.items():
            self._note_refused(target, refused)
        for target, retry in plan.retries.items():
            self._agenda.put_off(target, retry)
        for notice in plan.notices:
            self._say(plan, notice)
            self._tell(plan.decisions, notice, notice.result, notice.why)
        outcomes = tuple(self._carry_out(plan, write) for write in plan.writes)
        written = {outcome.write.target for outcome in outcomes if outcome.result == DONE}
        told = self._tell_systemd(plan.decisions, written | (before - self._held.holdings.keys()))
        for outcome in outcomes:
            self._tell(plan.decisions, outcome.write, outcome.result, _said(outcome, told.get(outcome.write.target)))
        self._agenda.commit(plan.decisions, plan.due, plan.verdicts)
        self._unchanged.replace(plan.looks)
        self._agenda.settle()
        return Result(outcomes, self._mover.execute(plan.decisions, plan.moves))

    def _say(self, plan: Plan, notice: Notice) -> None:
        """What stays as it is for long, in the log, once; the journal has every time."""
        retry = plan.retries.get(notice.target)
        is_new = retry is None or retry.failures == 1
        level = logging.WARNING if is_new and notice.result in (UNREADABLE, YIELDED) else logging.DEBUG
        _log.log(level, "%s: %s: %s", notice.path, notice.result, notice.why)

    def _take_over(self, target: Target, taken: Taken) -> bool:
        """Note what to put back of a file that the runtime wrote for us; False if it cannot be noted."""
        try:
            if taken.base is None:
                self._undo.settle(target, taken.which, taken.given)
            else:
                self._undo.take_over(target, taken.found, taken.base, taken.which, taken.given)
        except UndoError as error:
            _log.warning("%s/%s is not taken over: %s", target.group, target.name, error)
            return False
        return True

    def _settle(self, target: Target, verdict: Verdict) -> None:
        """The state of a file as it is without the writes."""
        if verdict.new_base:
            self._forget(target)
        _put(self._held.holdings, target, verdict.holding)
        _put(self._held.contested, target, verdict.contested)
        if verdict.found is None or (verdict.holding is None and verdict.contested is None):
            self._agenda.leave(target)
            return
        self._agenda.follow(target, verdict.found.path)
        if verdict.holding is None:
            return
        if verdict.holding.adopted:
            self._agenda.unclaimed(target)
        else:
            self._agenda.claimed(target)

    def _note_refused(self, target: Target, refused: tuple[tuple[str, str], ...]) -> None:
        if refused == self._refused.get(target, ()):
            return
        if not refused:
            del self._refused[target]
            return
        self._refused[target] = refused
        self.refusals += len(refused)
        for who, why in refused:
            _log.warning("%s/%s: opinion of %s refused: %s", target.group, target.name, who, why)

    def _carry_out(self, plan: Plan, write: PlannedWrite) -> Outcome:
        verdict = plan.verdicts[write.target]
        before = self._agenda.retries.get(write.target)
        result, detail = self._attempt(plan, write, verdict)
        if result == DONE:
            self._agenda.put_off(write.target, None)
        else:
            failures = 1 if before is None else before.failures + 1
            desired = None if result == VANISHED else verdict.desired
            due_ns = plan.decisions.monotonic_ns + backoff_ns(failures)
            self._agenda.put_off(write.target, Retry(desired, failures, due_ns, detail))
            level = logging.DEBUG if result == VANISHED else logging.WARNING
            _log.log(level, "%s <- %s: %s: %s", write.path, write.after, result, detail)
        return Outcome(write, result, detail)

    def _attempt(self, plan: Plan, write: PlannedWrite, verdict: Verdict) -> tuple[str, str]:
        """One write: result and detail."""
        target = write.target
        if target in self._not_taken:
            return REFUSED, "not written, because what kubelet asked for cannot be noted as its base"
        try:
            base = self._remember(plan, write, verdict)
            self._writer.write(target, write.after)
        except UndoError as error:
            return REFUSED, f"not written, because what to put back cannot be noted: {error}"
        except ValueRefused as error:
            return self._not_written(target, REFUSED, str(error))
        except Vanished as error:
            self._drop(target)
            return VANISHED, str(error)
        except Unsupported as error:
            return self._not_written(target, UNSUPPORTED, str(error))
        except WriteError as error:
            number = error.errno or errno.EIO
            return self._not_written(target, f"{FAILED} {errno.errorcode.get(number, number)}", str(error))
        return self._verify(plan.decisions, write, verdict, base)

    def _remember(self, plan: Plan, write: PlannedWrite, verdict: Verdict) -> Value:
        """Note what to put back of the file, which is returned, and of those that the kernel changes along with it.

        Looks once more: an earlier write of this tick, or someone else, may have changed the file. Raises UndoError.
        """
        for other in disturbed_by(write.target):
            along = plan.verdicts.get(other)
            if along is not None and along.found is not None and other in self._held.holdings:
                self._undo.remember(other, along.found, None)
        inode = 0 if verdict.found is None else verdict.found.inode
        found = Found(write.path, inode, write.before)
        with contextlib.suppress(ReadError, ParseError):
            found = self._writer.look(write.target) or found
        return self._undo.remember(write.target, found, write.after)

    def _not_written(self, target: Target, result: str, detail: str) -> tuple[str, str]:
        if target not in self._held.holdings:
            self._forget(target)
        return result, detail

    def _verify(self, decisions: Decisions, write: PlannedWrite, verdict: Verdict, base: Value) -> tuple[str, str]:
        """Read back, and hold or free the file by what it says."""
        target = write.target
        try:
            found = self._writer.look(target)
        except (ReadError, ParseError) as error:
            return f"{FAILED} readback", str(error)
        if found is None:
            self._drop(target)
            return DONE, "gone right after it was written"
        as_written = self._planner.same(files.row(target.name), write.after, found.value)
        if as_written and write.final and verdict.claim is None:
            self._drop(target)
            return DONE, ""
        ours = write.after if as_written else found.value
        if not as_written:
            self._own(target, Found(found.path, found.inode, write.after), found.value)
        claim = verdict.claim or verdict.holding
        if claim is not None:
            self._held.holdings[target] = replace(
                claim, inode=found.inode, base=base, ours=ours, since_ns=decisions.monotonic_ns, adopted=False
            )
            self._held.contested.pop(target, None)
            self._agenda.follow(target, write.path)
            self._agenda.claimed(target)
        return (DONE, "") if as_written else (f"{FAILED} readback", f"reads back {found.value!s}")

    def _tell_systemd(self, decisions: Decisions, changed: Collection[Target]) -> Mapping[Target, Told]:
        """Tell systemd of what was written and freed; what it keeps instead of a value of ours is ours as well."""
        told = self._telling.after(changed, self._held.holdings, decisions.monotonic_ns)
        for target, one in told.items():
            holding = self._held.holdings.get(target)
            if holding is not None and holding.kept != one.kept:
                self._held.holdings[target] = replace(holding, kept=one.kept)
        return told

    def _drop(self, target: Target) -> None:
        """The file is free, or no more."""
        self._held.holdings.pop(target, None)
        self._held.contested.pop(target, None)
        self._agenda.leave(target)
        self._forget(target)

    def _own(self, target: Target, written: Found, value: Value) -> None:
        """The kernel made ``value`` of what was written: that is ours as well."""
        with contextlib.suppress(UndoError):
            self._undo.remember(target, written, value)

    def _forget(self, target: Target) -> None:
        try:
            self._undo.forget(target)
        except UndoError as error:
            _log.warning("%s/%s stays in the undo record: %s", target.group, target.name, error)

    def _tell(self, decisions: Decisions, about: PlannedWrite | Notice, result: str, why: str) -> None:
        self._journal.record(
            Entry(
                wall_ns=decisions.wall_ns,
                monotonic_ns=decisions.monotonic_ns,
                tick=decisions.tick,
                who=about.who,
                pod=about.pod,
                group=about.target.group,
                name=about.target.name,
                path=about.path,
                before=about.before,
                after=about.after,
                result=result,
                why=why,
                inputs=about.inputs,
            )
        )


def _adopted(entry: UndoEntry) -> Holding:
    """What the record says of an earlier run's file; which of its values is there, the first look tells."""
    ours = entry.ours[0] if entry.ours else None
    return Holding(
        entry.path,
        entry.inode,
        entry.base,
        entry.base if ours is None else ours,
        EARLIER_RUN,
        0,
        follows=ours is None,
        adopted=True,
    )


def _said(outcome: Outcome, told: Told | None) -> str:
    """What the journal says of a write: why it was made, how it went, and whether systemd knows."""
    why = f"{outcome.write.why}: {outcome.detail}" if outcome.detail else outcome.write.why
    return f"{why}; {told.sentence}" if told is not None and outcome.write.final and outcome.result == DONE else why


def _put(known: dict[Target, _T], target: Target, value: _T | None) -> None:
    if value is None:
        known.pop(target, None)
    else:
        known[target] = value
