"""Resctrl groups: made when a strategy wants them, removed when none does any more and nothing of Koord's is in them.

Invariants: a group that was there before belongs to someone else and is never removed; the undo record names a group
before it is made; a group is removed only after the tasks that are kept in it and the schemata that are held of it
have been given back, so a tick later at the earliest. What an earlier run made stays until all strategies have
decided. A tick at which nothing is wanted, made or due costs a comparison per strategy.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from koord.host import resctrl
from koord.host.files import Target, ValueRefused
from koord.host.reconcile.plan import DONE, UNSUPPORTED, VANISHED, Outcome, PlannedWrite, result_of
from koord.host.reconcile.reconciler import EARLIER_RUN
from koord.host.reconcile.state import backoff_ns
from koord.host.resctrlgroup import ABSENT, GROUP, PRESENT, MadeGroup, ResctrlGroup
from koord.host.undo import UndoError, UndoRecord
from koord.host.writer import WriteError, Writer
from qosd.act.actor import Actor, ActReport, ExplainedAct, entry_of
from qosd.act.desired import DesiredActs
from qosd.act.journal import Recorder
from qosd.decide.runner import Decisions

SCHEMATA = "resctrl.schemata"
RECHECK_S = 10.0
_S = 1_000_000_000
_log = logging.getLogger(__name__)


class GroupPlan(msgspec.Struct, frozen=True):
    """The groups to be made and removed. The rest is for whoever does it; ``is_looked``: somebody looked for them."""

    desired: DesiredActs[ResctrlGroup]
    writes: tuple[PlannedWrite, ...] = ()
    is_looked: bool = False


class GroupReport(ActReport, frozen=True, eq=False):
    """``root``: where the groups are."""

    root: Path

    def of_node(self, decisions: Decisions) -> Iterable[ExplainedAct]:
        """The groups that strategies want."""
        for owner, group in decisions.acts(ResctrlGroup):
            path = self.root / group.name
            actual = PRESENT if path.is_dir() else ABSENT
            yield ExplainedAct(Target("", f"{GROUP}@{group.name}"), str(path), owner, PRESENT, group.why, actual)


class ResctrlGroupMaker(Actor[GroupPlan]):
    """Makes them through ``writer``. One thread at a time.

    ``kept``: in which group the tasks of each cgroup are kept now.
    """

    def __init__(
        self, writer: Writer, undo: UndoRecord, journal: Recorder, kept: Callable[[], Mapping[str, str]]
    ) -> None:
        self._writer, self._undo, self._journal, self._kept = writer, undo, journal, kept
        self._owners: dict[str, str] = {made.name: EARLIER_RUN for made in undo.all(MadeGroup)}
        self._applied = DesiredActs(ResctrlGroup)
        self._due_ns = 0
        self._failures = 0
        self._problems: dict[str, str] = {}

    @property
    def follows(self) -> tuple[type[ResctrlGroup]]:
        return (ResctrlGroup,)

    @property
    def report(self) -> GroupReport:
        return GroupReport(self._writer.tree.resctrl)

    def plan(self, decisions: Decisions) -> GroupPlan:
        """The groups that ``apply`` would make and remove now. Looks for directories; changes nothing."""
        desired = self._applied.now(decisions)
        is_due = decisions.monotonic_ns >= self._due_ns and bool(desired.acts or self._owners)
        if desired.are(self._applied) and not is_due:
            return GroupPlan(desired)
        return GroupPlan(desired, (*self._to_make(desired), *self._to_remove(desired)), is_looked=True)

    def _to_make(self, desired: DesiredActs[ResctrlGroup]) -> list[PlannedWrite]:
        writes: dict[str, PlannedWrite] = {}
        for owner, groups in desired.acts.items():
            for group in groups:
                if group.name not in writes and not self._exists(group.name):
                    writes[group.name] = self._act(group.name, ABSENT, PRESENT, owner, group.why)
        return list(writes.values())

    def _to_remove(self, desired: DesiredActs[ResctrlGroup]) -> list[PlannedWrite]:
        wanted = _names(desired)
        used = self._used() if self._owners.keys() - wanted else frozenset()
        return [
            self._act(made.name, PRESENT, ABSENT, self._owners.get(made.name, EARLIER_RUN), "no strategy wants it")
            for made in self._undo.all(MadeGroup)
            if made.name not in wanted and made.name not in used and not desired.undecided
        ]

    def _used(self) -> frozenset[str]:
        """The groups that have tasks, or schemata, of ours."""
        schemata = (entry.name.partition("@") for entry in self._undo.entries)
        return frozenset(
            (*self._kept().values(), *(of.partition("/")[0] for name, _, of in schemata if name == SCHEMATA))
        )

    def _exists(self, name: str) -> bool:
        return resctrl.is_group_name(name) and (self._writer.tree.resctrl / name).is_dir()

    def _act(self, name: str, before: str, after: str, strategy: str, why: str) -> PlannedWrite:
        path = str(self._writer.tree.resctrl / name)
        return PlannedWrite(Target("", f"{GROUP}@{name}"), path, before, after, True, strategy, why)

    def apply(self, decisions: Decisions, plan: GroupPlan) -> tuple[Outcome, ...]:
        """Make and remove them."""
        self._applied = plan.desired
        if not plan.is_looked:
            return ()
        outcomes = tuple([self._carry_out(decisions, act) for act in plan.writes])
        failed = any(outcome.result not in (DONE, VANISHED) for outcome in outcomes)
        self._failures = self._failures + 1 if failed else 0
        self._due_ns = decisions.monotonic_ns + self._wait_ns(_names(plan.desired))
        return outcomes

    def _wait_ns(self, wanted: frozenset[str]) -> int:
        """Until the next look. What is still used when nobody wants it any more is looked at in the next tick."""
        if self._failures:
            return backoff_ns(self._failures)
        return 0 if self._owners.keys() - wanted else int(RECHECK_S * _S)

    def _carry_out(self, decisions: Decisions, act: PlannedWrite) -> Outcome:
        name = act.target.name.partition("@")[2]
        is_made = act.after == PRESENT
        try:
            self._make(name, act) if is_made else self._remove(name)
            result, detail = DONE, ""
        except (UndoError, ValueRefused, WriteError) as error:
            result, detail = result_of(error), str(error)
            if result == VANISHED:
                self._forget(name)
                result = UNSUPPORTED if is_made else VANISHED  # made where there is no resctrl
        if result in (DONE, VANISHED) or detail != self._problems.get(name):
            why = f"{act.why}: {detail}" if detail else act.why
            self._journal.record(entry_of(decisions, act, result, why))
        self._problems[name] = detail
        return Outcome(act, result, detail)

    def _make(self, name: str, act: PlannedWrite) -> None:
        note = MadeGroup(name, act.path)
        self._undo.note(note)
        try:
            inode = self._writer.make_group(name)
        except (ValueRefused, WriteError):
            self._undo.drop(MadeGroup, name)
            raise
        self._owners[name] = act.by
        with contextlib.suppress(UndoError):  # it is noted already, less exactly
            self._undo.note(msgspec.structs.replace(note, inode=inode))

    def _remove(self, name: str) -> None:
        made = self._undo.find(MadeGroup, name)
        if made is not None and made.is_ours:
            self._writer.remove_group(name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._owners.pop(name, None)
        try:
            self._undo.drop(MadeGroup, name)
        except UndoError as error:
            _log.warning("resctrl group %s stays in the undo record: %s", name, error)


def _names(desired: DesiredActs[ResctrlGroup]) -> frozenset[str]:
    return frozenset([group.name for groups in desired.acts.values() for group in groups])
