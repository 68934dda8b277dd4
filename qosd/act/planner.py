"""From decisions and what the kernel holds to a plan. Reads, never writes, and changes no state.

Invariant: the same decisions, state and kernel files give the same plan. A file that cannot be read, or an opinion
that cannot be followed, costs that file only; it is in the plan's notices or refusals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from koord.host import files
from koord.host.asked import News, base_of
from koord.host.cgroup import ReadError
from koord.host.files import KernelFile, ParseError, Target, UnknownRow, Value, ValueRefused
from koord.host.order import IDLE, MEMORY, SHARES, Change, Step, order
from koord.host.undo import UndoRecord
from koord.host.writer import Found, Writer
from qosd.act.agenda import SWAPS, Due, with_partners
from qosd.act.composition import Composed, compose
from qosd.act.created import Created
from qosd.act.holding import Case, Contested, Holding, Verdict, judge, judge_shares
from qosd.act.ownership import Hearing, Line, hear
from qosd.act.plan import ADOPTED, FOREIGN, UNREADABLE, UNSUPPORTED, YIELDED, Notice, Plan, PlannedWrite, Taken
from qosd.act.retry import Retry, backoff_ns
from qosd.act.unchanged import Unchanged, look_at
from qosd.decide.decision import Release
from qosd.decide.frame import Decisions, State

THE_RUNTIME = "the runtime"
_UNSUPPORTED_FOR_NS = 600 * 1_000_000_000


@dataclass(slots=True)
class Held:
    """What the actuator knows of each file, between ticks."""

    holdings: dict[Target, Holding] = field(default_factory=dict)
    contested: dict[Target, Contested] = field(default_factory=dict)


class Planner:
    """Plans for one tree; ``held``, ``retries``, ``unchanged``, ``created`` are the actuator's own, looked at only."""

    def __init__(
        self,
        writer: Writer,
        undo: UndoRecord,
        owners: Mapping[str, Line],
        page_bytes: int,
        held: Held,
        retries: Mapping[Target, Retry],
        unchanged: Unchanged,
        created: Created,
    ) -> None:
        self.writer, self.undo, self.owners, self.created = writer, undo, owners, created
        self.page_bytes, self.held, self.retries, self.unchanged = page_bytes, held, retries, unchanged

    def plan(self, decisions: Decisions, due: Due, edition: int) -> Plan:
        """The writes that ``decisions`` ask for on what is ``due``."""
        draft = _Draft(self, decisions)
        looks = {target: look_at(path) for target, path in due.seen.items()}
        new = [target for target, look in looks.items() if not self.unchanged.is_known(target, look)]
        wanted = dict.fromkeys((*due.changed, *new, *self.created.due))
        for target in with_partners(wanted):
            if target.name not in SWAPS or target in wanted or self._is_ours(target):
                draft.examine(target)
        return Plan(
            decisions,
            edition,
            draft.writes(),
            tuple(draft.notices),
            due,
            {target: looks.get(target) if draft.is_well(target) else None for target in draft.verdicts},
            draft.verdicts,
            draft.retries,
            draft.refused,
            draft.taken,
        )

    def composed(self, target: Target, decisions: Decisions) -> Composed | None:
        """What ``decisions`` come to for ``target``; None if nobody has an opinion."""
        holding = self.held.holdings.get(target)
        hearing = self.hearing(target, decisions, holding)
        base = None if holding is None else holding.base
        return compose(target.name, hearing.spoken, base) if hearing.spoken else None

    def hearing(self, target: Target, decisions: Decisions, holding: Holding | None) -> Hearing:
        before, adopted = ((), False) if holding is None else (holding.heard, holding.adopted)
        return hear(target, decisions.turns, self.owners, before, adopted)

    def _is_ours(self, target: Target) -> bool:
        return target in self.held.holdings or self.created.find(target) is not None

    def attainable(self, target: Target, base: Value) -> Value:
        """The base, or what comes nearest; the base itself where the kernel does not tell: then the write may fail."""
        try:
            return self.writer.attainable(target, base)
        except (ReadError, ParseError):
            return base

    def same(self, row: KernelFile, wanted: Value, found: Value) -> bool:
        """Does the file say what is wanted? Shares by the node's own mapping once that is known: siblings have it."""
        known = self.undo.weights if row.name == SHARES and self.writer.version == 2 else None
        if known is None:
            return self.comes_of(row, wanted, found)
        return found in (wanted, known.shares(known.weight(int(wanted))))

    def comes_of(self, row: KernelFile, written: Value, found: Value) -> bool:
        """May what is in the file have become of what was written, by whoever and however it was spelled then?"""
        return row.same(written, found, self.page_bytes, self.writer.version)


class _Draft:
    """One plan in the making."""

    def __init__(self, planner: Planner, decisions: Decisions) -> None:
        self._planner, self._decisions = planner, decisions
        self._now_ns = decisions.monotonic_ns
        self.verdicts: dict[Target, Verdict] = {}
        self.notices: list[Notice] = []
        self.retries: dict[Target, Retry | None] = {}
        self.refused: dict[Target, tuple[tuple[str, str], ...]] = {}
        self.taken: dict[Target, Taken] = {}

    def examine(self, target: Target) -> None:
        planner = self._planner
        holding = planner.held.holdings.get(target)
        hearing = planner.hearing(target, self._decisions, holding)
        try:
            row = files.row(target.name)
            found = planner.writer.look(target)
        except (ReadError, ParseError) as error:
            self._unreadable(target, hearing, error)
        except (UnknownRow, ValueError) as error:
            self._refuse(target, *((one.who, str(error)) for one in hearing.spoken), *hearing.refused)
        else:
            if found is not None:
                holding = self._settled(target, holding, found)
                holding = self._taken_over(target, row, holding, found)
                hearing = planner.hearing(target, self._decisions, holding)
            self._judge(target, row, hearing, found, holding)

    def is_well(self, target: Target) -> bool:
        """Is the file held, and would another look at it, as long as it is the same, change nothing?"""
        verdict = self.verdicts[target]
        is_held = verdict.holding is not None and verdict.holding is self._planner.held.holdings.get(target)
        return is_held and verdict.desired is None and target not in self._planner.retries

    def _settled(self, target: Target, holding: Holding | None, found: Found) -> Holding | None:
        """A holding of an earlier run with the value that it may have left, whichever of the two it was."""
        if holding is None or not holding.adopted or not holding.is_of(found):
            return holding
        entry = self._planner.undo.entry_for(target, found)
        if entry is not None and self._planner.undo.is_ours(entry, found.value):
            return replace(holding, ours=found.value)
        return None

    def _taken_over(self, target: Target, row: KernelFile, holding: Holding | None, found: Found) -> Holding | None:
        """The holding of a file in which the runtime wrote what we gave it; else ``holding``."""
        known, planner = self._planner.created.find(target), self._planner
        if known is None or known[1].given == "" or target in planner.held.contested:
            return holding
        which, given = known
        if holding is not None and not holding.is_of(found):
            holding = None
        if not planner.comes_of(row, given.given, found.value):
            if given.news is News.CREATED:
                self.taken[target] = Taken(which, given, found, None)
            return holding
        if holding is not None and not given.news and planner.comes_of(row, holding.ours, found.value):
            return holding
        base = base_of(given, None if holding is None else holding.base)
        self.taken[target] = Taken(which, given, found, base)
        if holding is not None:
            return replace(holding, base=base, ours=found.value)
        return Holding(found.path, found.inode, base, found.value, THE_RUNTIME, self._now_ns, adopted=True)

    def _judge(
        self, target: Target, row: KernelFile, hearing: Hearing, found: Found | None, holding: Holding | None
    ) -> None:
        planner, refused = self._planner, list(hearing.refused)

        def composed_from(base: Value | None) -> Composed:
            return self._along(target, self._checked(row, compose(target.name, hearing.spoken, base)))

        case = Case(
            found,
            holding,
            planner.held.contested.get(target),
            composed_from,
            lambda wanted, actual: planner.same(row, wanted, actual),
            lambda written, actual: planner.comes_of(row, written, actual),
            lambda base: planner.attainable(target, base),
            hearing.heard,
            self._now_ns,
        )
        verdict = self._verdict(target, case)
        outdated = holding is None and target in planner.held.holdings
        verdict = self._held_back(target, verdict, outdated)
        self.verdicts[target] = verdict
        refused += verdict.composed.refused if found is not None else ()
        self._refuse(target, *refused)
        if found is None:
            self._missing(target, hearing, verdict.composed)
        else:
            self._notice(target, verdict, planner.held.holdings.get(target))

    def _verdict(self, target: Target, case: Case) -> Verdict:
        idle = self.verdicts.get(Target(target.group, IDLE)) if target.name == SHARES else None
        if idle is None or idle.found is None:
            return judge(case)
        is_idle = idle.found.value == 1
        shall_be = (idle.found.value if idle.desired is None else idle.desired) == 1
        is_ours = (idle.holding if idle.desired is None else idle.claim) is not None
        return judge_shares(case, shall_be, is_ours) if is_idle or shall_be else judge(case)

    def _checked(self, row: KernelFile, composed: Composed) -> Composed:
        """A value that the kernel would refuse is no opinion: the file is left as it is."""
        if composed.value is None:
            return composed
        try:
            row.check(composed.value, self._planner.writer.version)
        except ValueRefused as error:
            refused = (*composed.refused, (composed.who, str(error)))
            return Composed(None, composed.who, composed.why, pod=composed.pod, kept=True, refused=refused)
        return composed

    def _along(self, target: Target, composed: Composed) -> Composed:
        """The limit of swap stays as the runtime made it for as long as somebody wants a limit of memory."""
        if target.name not in SWAPS or composed.value is not None:
            return composed
        of_memory = self.verdicts.get(Target(target.group, MEMORY))
        if of_memory is None:  # nobody can tell what becomes of it
            return replace(composed, kept=True)
        if of_memory.composed.value is None and not of_memory.composed.kept:
            return composed
        by, why = of_memory.composed, "the runtime made it for the memory limit"
        return Composed(None, by.who, why, pod=by.pod, kept=True)

    def _held_back(self, target: Target, verdict: Verdict, outdated: bool) -> Verdict:
        """Without the write, while it is too early to try it again."""
        retry = self._planner.retries.get(target)
        if verdict.desired is None:
            if retry is not None and verdict.found is not None:
                self.retries[target] = None
        elif retry is not None and retry.desired == verdict.desired and self._now_ns < retry.due_ns:
            verdict = replace(verdict, desired=None, claim=None)
        return replace(verdict, new_base=True) if outdated else verdict

    def _missing(self, target: Target, hearing: Hearing, composed: Composed) -> None:
        """The file is not there: gone, not there yet, or not on this kernel."""
        retry = self._planner.retries.get(target)
        if all(isinstance(one.opinion, Release) for one in hearing.spoken):
            if retry is not None:
                self.retries[target] = None
            return
        path = self._planner.writer.path(target)
        if path is not None and path.parent.is_dir():
            why = "the kernel has no such file here"
            if retry is None or retry.why != why:
                self.notices.append(_said(target, str(path), UNSUPPORTED, composed, why))
            self.retries[target] = Retry(composed.value, 1, self._now_ns + _UNSUPPORTED_FOR_NS, why)
        elif retry is None or retry.due_ns <= self._now_ns:
            failures = 1 if retry is None else retry.failures + 1
            self.retries[target] = Retry(None, failures, self._now_ns + backoff_ns(failures), "the cgroup is not there")

    def _unreadable(self, target: Target, hearing: Hearing, error: Exception) -> None:
        retry = self._planner.retries.get(target)
        if retry is not None and retry.due_ns > self._now_ns:
            return
        failures = 1 if retry is None else retry.failures + 1
        self.retries[target] = Retry(None, failures, self._now_ns + backoff_ns(failures), str(error))
        who = ", ".join(one.who for one in hearing.spoken)
        path = self._planner.writer.path(target)
        self.notices.append(Notice(target, "" if path is None else str(path), None, None, UNREADABLE, who, str(error)))

    def _notice(self, target: Target, verdict: Verdict, holding: Holding | None) -> None:
        found, composed = verdict.found, verdict.composed
        taken = self.taken.get(target)
        if taken is not None and taken.base is not None:
            who, why = composed.who or THE_RUNTIME, _why_taken(taken, holding)
            after = taken.found.value
            self.notices.append(
                Notice(target, taken.found.path, taken.base, after, ADOPTED, who, why, pod=composed.pod)
            )
        if found is None or holding is None:
            return
        if verdict.foreign:
            who, pod = composed.who or holding.by, composed.pod or holding.pod
            why = "another writer changed it"
            self.notices.append(Notice(target, found.path, holding.ours, found.value, FOREIGN, who, why, pod=pod))
        if verdict.yielded and verdict.contested is not None:
            self.notices.append(_said(target, found.path, YIELDED, composed, verdict.contested.why, found.value))

    def _refuse(self, target: Target, *refused: tuple[str, str]) -> None:
        self.refused[target] = refused

    def writes(self) -> tuple[PlannedWrite, ...]:
        """All writes, in the order in which the kernel takes them."""
        held: dict[Target, Found] = {}
        changes = []
        for target, verdict in self.verdicts.items():
            if verdict.found is not None and verdict.desired is not None:
                held[target] = verdict.found
                changes.append(Change(target, verdict.found.value, verdict.desired))
        writes = []
        for step in order(changes, self._planner.writer.version) if changes else ():
            writes.append(self._write(step, held[step.target]))
            held[step.target] = Found(held[step.target].path, held[step.target].inode, step.value)
        return tuple(writes)

    def _write(self, step: Step, found: Found) -> PlannedWrite:
        verdict = self.verdicts[step.target]
        composed, holding = verdict.composed, verdict.holding
        planned = PlannedWrite(
            step.target,
            found.path,
            found.value,
            step.value,
            step.final,
            composed.who,
            composed.why,
            composed.inputs,
            composed.pod,
        )
        if composed.value is not None or holding is None:
            return planned
        return replace(
            planned,
            who=composed.who or holding.by,
            why=self._why_released(holding, composed),
            pod=holding.pod,
        )

    def _why_released(self, holding: Holding, composed: Composed) -> str:
        spoke = {name for _, name in holding.heard}
        off = [
            f"{turn.name} is {turn.sentence}"
            for turn in self._decisions.turns
            if turn.name in spoke and turn.state is State.DISABLED
        ]
        return f"back to its base: {'; '.join(off) or composed.why}"


def _why_taken(taken: Taken, holding: Holding | None) -> str:
    if holding is None:
        return f"set at creation by the runtime, asked {taken.given.asked}"
    if taken.given.news:
        return f"an update of the container was edited, asked {taken.given.asked}"
    return "the runtime applied again what the container was made with"


def _said(target: Target, path: str, result: str, composed: Composed, why: str, before: Value | None = None) -> Notice:
    return Notice(
        target,
        path,
        before,
        composed.value,
        result,
        composed.who,
        f"{composed.why}: {why}",
        composed.inputs,
        composed.pod,
    )
