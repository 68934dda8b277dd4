"""Makes a plan of the wanted values and of what the kernel holds. Reads, never writes, and changes no state.

Invariant: the same intents, states and kernel files give the same plan. A file that cannot be read, or a value that the
kernel would refuse, costs that file only; it is in the plan's notices or refusals.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from koord.host import files, systemd
from koord.host.cgroup import ReadError
from koord.host.files import KernelFile, ParseError, Target, UnknownRow, Value, ValueRefused
from koord.host.order import BURST, CPUS, SHARES, Change, Step, above_of, order
from koord.host.originals import ContainerKey, Original, Pending, base_of
from koord.host.reconcile.due import Due, look_at
from koord.host.reconcile.followers import (
    SELDOM,
    SWAPS,
    burst_beside_quota,
    may_hinder,
    step_beside_idle,
    swap_beside_memory,
    with_partners,
)
from koord.host.reconcile.plan import (
    ADOPTED,
    FOREIGN,
    LEFTOVER,
    UNREADABLE,
    UNSUPPORTED,
    YIELDED,
    Inheritance,
    Leftover,
    Notice,
    Plan,
    PlannedWrite,
    Takeover,
)
from koord.host.reconcile.state import FREE, FileState, FileStates, Look, Phase, Retry
from koord.host.reconcile.step import Observed, Transition
from koord.host.reconcile.wanted import Intent, Intents, Wanted, no_wider
from koord.host.undo import UndoRecord
from koord.host.writer import Reading, Writer

THE_RUNTIME, ANOTHER_AGENT = "the runtime", "another agent"
_UNSUPPORTED_FOR_NS = 600 * 1_000_000_000


class OriginalsSource(Protocol):
    """The values that kubelet requested of containers that were made otherwise. ``due``: files whose original is
    pending."""

    @property
    def due(self) -> tuple[Target, ...]: ...
    def find(self, target: Target) -> tuple[ContainerKey, Original] | None: ...


class _NoOriginals:
    due: tuple[Target, ...] = ()

    def find(self, target: Target) -> None:
        return None


NO_ORIGINALS = _NoOriginals()
"""The runtime made every container as requested."""


class LeftoverSource(Protocol):
    """The values that kubelet writes into files that another agent may have written before Koord was there.

    ``due``: the files to look at now.
    """

    @property
    def due(self) -> tuple[Target, ...]: ...
    def base(self, target: Target, found: Value) -> Value | None:
        """Returns kubelet's value; None where the file is not looked at, where the value is not certain, or where
        ``found`` is as good."""

    def done(self, targets: Iterable[Target]) -> None:
        """These were looked at, and what was found is noted."""

    def failed(self, targets: Iterable[Target], now_ns: int) -> None:
        """What was found there could not be noted: the source gives the files again later."""


class _NoLeftovers:
    due: tuple[Target, ...] = ()

    def base(self, target: Target, found: Value) -> None:
        return None

    def done(self, targets: Iterable[Target]) -> None:
        return None

    def failed(self, targets: Iterable[Target], now_ns: int) -> None:
        return None


NO_LEFTOVERS = _NoLeftovers()
"""No other agent wrote files before."""


class Planner:
    """Plans for one tree; ``states`` are the reconciler's own, and are only read."""

    def __init__(
        self,
        writer: Writer,
        undo: UndoRecord,
        originals: OriginalsSource,
        leftovers: LeftoverSource,
        page_bytes: int,
        states: FileStates,
    ) -> None:
        self.writer, self.undo, self.originals, self.leftovers = writer, undo, originals, leftovers
        self.page_bytes, self.states = page_bytes, states

    def plan(self, intents: Intents, due: Due, edition: int, now_ns: int) -> Plan:
        """Returns the writes that bring the files that are ``due`` to their wanted values."""
        draft = _Draft(self, intents, now_ns)
        looks = {target: look_at(path) for target, path in due.paths.items()}
        new = [target for target, look in looks.items() if look is None or self.states[target].good != look]
        chosen = dict.fromkeys((*due.changed, *new, *self.originals.due, *self.leftovers.due))
        for target in with_partners(chosen):
            is_seldom = target.name in SELDOM and target not in chosen and not self._is_ours(target)
            if not is_seldom or may_hinder(target, draft.transitions):
                draft.examine(target, looks.get(target))
        return Plan(
            edition,
            now_ns,
            due,
            draft.writes(),
            tuple(draft.notices),
            draft.transitions,
            draft.unreadable,
            draft.refused,
            draft.takeovers,
        )

    def _is_ours(self, target: Target) -> bool:
        return self.states.get(target, FREE).is_held or self.originals.find(target) is not None


class RowRules:
    """How the values of ``target`` compare on this node."""

    def __init__(self, planner: Planner, target: Target, row: KernelFile) -> None:
        self._planner, self._target, self._row = planner, target, row

    def same(self, wanted: Value, actual: Value) -> bool:
        """Returns whether the file says what is wanted. Shares compare by the node's own mapping once that is known,
        because siblings have it."""
        writer = self._planner.writer
        if self._row.name != SHARES or writer.version == 1 or self._planner.undo.weights is None:
            return self._reads_as(wanted, actual)
        return actual in (wanted, writer.weights.shares(writer.weights.weight(int(wanted))))

    def comes_of(self, written: Value, actual: Value) -> bool:
        """Returns whether the value in the file may come from the one that was written, however it was spelled then.

        True also where systemd wrote its unit anew and cannot know the value: that is no other writer.
        """
        is_undone = self._planner.writer.version == 2 and systemd.undoes(self._row.name, self._target.cgroup, actual)
        return is_undone or self._reads_as(written, actual)

    def _reads_as(self, value: Value, actual: Value) -> bool:
        return self._row.same(value, actual, self._planner.page_bytes, self._planner.writer.version)

    def attainable(self, value: Value) -> Value:
        """Returns the nearest value that the kernel still takes."""
        return self._planner.writer.attainable(self._target, value)


class _Draft:
    """One plan in the making."""

    def __init__(self, planner: Planner, intents: Intents, now_ns: int) -> None:
        self._planner, self._intents, self._now_ns = planner, intents, now_ns
        self.transitions: dict[Target, Transition] = {}
        self.unreadable: dict[Target, FileState] = {}
        self.notices: list[Notice] = []
        self.refused: dict[Target, tuple[tuple[str, str], ...]] = {}
        self.takeovers: dict[Target, Takeover | Inheritance | Leftover] = {}

    def examine(self, target: Target, look: Look | None) -> None:
        """``look``: what the file was like a moment ago, if it was looked at."""
        planner = self._planner
        before = planner.states.get(target, FREE)
        intent = self._intents.of(target, before)
        try:
            row = files.row(target.name)
            reading = planner.writer.look(target)
        except (ReadError, ParseError) as error:
            self._cannot_be_read(target, before, intent, error)
        except (UnknownRow, ValueError) as error:
            self.refused[target] = (*((by, str(error)) for by in intent.by), *intent.wanted(None).refused)
        else:
            state = before
            if reading is not None:
                state = self._settled(target, before, reading)
                state = self._taken_over(target, row, state, reading)
                if state is not before:
                    intent = self._intents.of(target, state)
            self._step(target, row, intent, before, state, reading, look)

    def _settled(self, target: Target, state: FileState, reading: Reading) -> FileState:
        """Returns the state, with the one of its two values that an earlier run left in the file."""
        if not (state.is_held and state.adopted and state.is_of(reading)):
            return state
        entry = self._planner.undo.entry_for(target, reading)
        if entry is not None and self._planner.undo.is_ours(entry, reading.value):
            return replace(state, written=reading.value)
        return replace(FREE, retry=state.retry)

    def _taken_over(self, target: Target, row: KernelFile, state: FileState, reading: Reading) -> FileState:
        """Returns the state of a file in which the runtime wrote a value of ours; else ``state``."""
        known = self._planner.originals.find(target)
        if known is None and not state.is_contested:
            return self._inherited(target, row, reading) or self._left(target, row, state, reading)
        if known is None or known[1].edited == "" or state.is_contested:
            return state
        (key, original), rules = known, RowRules(self._planner, target, row)
        held = state if state.is_held and state.is_of(reading) else None
        if not rules.comes_of(original.edited, reading.value):
            if original.pending in (Pending.CREATED, Pending.STARTED):
                self.takeovers[target] = Takeover(key, original, reading, None)
            return state
        if held is not None and not original.pending and rules.comes_of(held.written, reading.value):
            return held
        base = base_of(original, None if held is None else held.base)
        self.takeovers[target] = Takeover(key, original, reading, base)
        if held is not None:
            return replace(held, base=base, written=reading.value)
        return FileState(
            Phase.HELD,
            reading.path,
            reading.inode,
            base,
            reading.value,
            THE_RUNTIME,
            self._now_ns,
            adopted=True,
            retry=state.retry,
        )

    def _inherited(self, target: Target, row: KernelFile, reading: Reading) -> FileState | None:
        """Returns the state of a file that is not held, if the kernel gave it the value that Koord holds further
        above."""
        states = self._planner.states
        if not row.is_inherited or row.default is None or target in states or reading.value == row.default:
            return None
        above = next((state for each in above_of(target) if (state := states.get(each, FREE)).is_held), FREE)
        if not above.is_held or above.written != reading.value:
            return None
        self.takeovers[target] = Inheritance(reading, row.default)
        return FileState(
            Phase.HELD, reading.path, reading.inode, row.default, reading.value, above.by, self._now_ns, adopted=True
        )

    def _left(self, target: Target, row: KernelFile, state: FileState, reading: Reading) -> FileState:
        """Returns the state of a file in which another agent left a value; else ``state``.

        Kubelet's value may become known after Koord has written its own: then only the base changes.
        """
        rules, held = RowRules(self._planner, target, row), state if state.is_held and state.is_of(reading) else None
        found = reading.value if held is None else held.base
        base = self._planner.leftovers.base(target, found)
        if base is None or any(rules.comes_of(each, found) for each in (base, rules.attainable(base))):
            return state
        self.takeovers[target] = Leftover(reading, found, base)
        if held is not None:
            return replace(held, base=base, good=None)
        by, retry = ANOTHER_AGENT, state.retry
        return FileState(
            Phase.HELD, reading.path, reading.inode, base, found, by, self._now_ns, adopted=True, retry=retry
        )

    def _step(
        self,
        target: Target,
        row: KernelFile,
        intent: Intent,
        before: FileState,
        state: FileState,
        reading: Reading | None,
        look: Look | None,
    ) -> None:
        observed = Observed(
            state,
            reading,
            partial(self._wanted, target, row, intent, None if reading is None else reading.value),
            intent.speakers,
            RowRules(self._planner, target, row),
            self._now_ns,
        )
        transition = step_beside_idle(target, observed, self.transitions)
        if before.is_held and not state.is_held:
            transition = replace(transition, is_outdated=True)
        self.refused[target] = transition.wanted.refused
        if reading is None:
            transition = replace(transition, state=self._missing(target, before, intent, transition.wanted))
        else:
            transition = self._paced(before, transition, look)
            self._notice(target, transition, before)
        self.transitions[target] = transition

    def _wanted(
        self, target: Target, row: KernelFile, intent: Intent, actual: Value | None, base: Value | None
    ) -> Wanted:
        """Returns what is wanted; a value that the kernel would refuse counts as none, and the file is left as it is.
        ``actual``: what it holds."""
        wanted = intent.wanted(base)
        if wanted.value is not None:
            try:
                row.check(wanted.value, self._planner.writer.version)
            except ValueRefused as error:
                refused = (*wanted.refused, (wanted.by, str(error)))
                wanted = Wanted(None, wanted.by, wanted.why, pod=wanted.pod, keep=True, refused=refused)
        if target.name == CPUS and self._intents.why_no_wider:
            return no_wider(wanted, base, actual, self._intents.why_no_wider)
        if target.name in SWAPS:
            state = self._planner.states.get(target, FREE)
            return swap_beside_memory(target, wanted, actual, state, self.transitions)
        if target.name == BURST:
            left = actual if wanted.keep else base
            burst_us = left if wanted.value is None else wanted.value
            return burst_beside_quota(target, wanted, burst_us, self.transitions)
        return wanted

    def _paced(self, before: FileState, transition: Transition, look: Look | None) -> Transition:
        """Returns the transition without its write while it is too early to try that again, and with the look at a file
        in good order."""
        retry, state = before.retry, transition.state
        if transition.write is None:
            is_well = state.is_held and retry is None and state is before
            state = _with(state, None, look if is_well else None)
            return transition if state is transition.state else replace(transition, state=state)
        state = _with(state, retry, None)
        if retry is not None and retry.value == transition.write and self._now_ns < retry.due_ns:
            return replace(transition, state=state, write=None, after=FREE)
        return replace(transition, state=state)

    def _missing(self, target: Target, before: FileState, intent: Intent, wanted: Wanted) -> FileState:
        """Returns the state of a file that is not there: gone, not there yet, or not on this kernel."""
        retry = before.retry
        if intent.is_release:
            return FREE
        path = self._planner.writer.path(target)
        if path is not None and path.parent.is_dir():
            why = "the kernel has no such file here"
            if retry is None or retry.why != why:
                self.notices.append(_about(target, str(path), UNSUPPORTED, wanted, why))
            return replace(FREE, retry=Retry(wanted.value, 1, self._now_ns + _UNSUPPORTED_FOR_NS, why))
        waiting = replace(FREE, retry=retry)
        if retry is not None and retry.due_ns > self._now_ns:
            return waiting
        return waiting.delayed(None, self._now_ns, "the cgroup is not there")

    def _cannot_be_read(self, target: Target, before: FileState, intent: Intent, error: Exception) -> None:
        if before.retry is not None and before.retry.due_ns > self._now_ns:
            return
        self.unreadable[target] = before.delayed(None, self._now_ns, str(error))
        path, by = self._planner.writer.path(target), ", ".join(intent.by)
        self.notices.append(
            Notice(
                target,
                "" if path is None else str(path),
                None,
                None,
                UNREADABLE,
                by,
                str(error),
                is_repeated=before.retry is not None,
            )
        )

    def _notice(self, target: Target, transition: Transition, before: FileState) -> None:
        reading, wanted = transition.reading, transition.wanted
        takeover = self.takeovers.get(target)
        if takeover is not None and takeover.base is not None:
            by, result, after = wanted.by or THE_RUNTIME, ADOPTED, takeover.reading.value
            if isinstance(takeover, Leftover):
                by, result, after = ANOTHER_AGENT, LEFTOVER, takeover.found
            why = _why_taken_over(takeover, before)
            self.notices.append(
                Notice(target, takeover.reading.path, takeover.base, after, result, by, why, pod=wanted.pod)
            )
        if reading is None or not before.is_held:
            return
        if transition.is_foreign:
            by, pod = wanted.by or before.by, wanted.pod or before.pod
            why = "another writer changed it"
            self.notices.append(Notice(target, reading.path, before.written, reading.value, FOREIGN, by, why, pod=pod))
        if transition.gives_up:
            self.notices.append(
                _about(target, reading.path, YIELDED, wanted, transition.state.contested, reading.value)
            )

    def writes(self) -> tuple[PlannedWrite, ...]:
        """All writes, in the order in which the kernel takes them."""
        held: dict[Target, Reading] = {}
        changes = []
        for target, transition in self.transitions.items():
            if transition.reading is not None and transition.write is not None:
                held[target] = transition.reading
                changes.append(Change(target, transition.reading.value, transition.write))
        writes = []
        for each in order(changes, self._planner.writer.version) if changes else ():
            writes.append(self._write(each, held[each.target]))
            held[each.target] = Reading(held[each.target].path, held[each.target].inode, each.value)
        return tuple(writes)

    def _write(self, each: Step, reading: Reading) -> PlannedWrite:
        transition = self.transitions[each.target]
        wanted, state = transition.wanted, transition.state
        planned = PlannedWrite(
            each.target,
            reading.path,
            reading.value,
            each.value,
            each.final,
            wanted.by,
            wanted.why,
            wanted.inputs,
            wanted.pod,
        )
        if wanted.value is not None or not state.is_held:
            return planned
        is_left = state.by == ANOTHER_AGENT
        cause = "another agent left it" if is_left else self._intents.why_released(state, wanted)
        why = f"back to its base: {cause}"
        return replace(planned, by=wanted.by or state.by, why=why, pod=state.pod)


def _with(state: FileState, retry: Retry | None, good: Look | None) -> FileState:
    """``state`` with these; the same object if nothing differs."""
    if state.retry == retry and state.good == good:
        return state
    return replace(state, retry=retry, good=good)


def _why_taken_over(takeover: Takeover | Inheritance | Leftover, before: FileState) -> str:
    if isinstance(takeover, Leftover):
        return f"another agent left it; kubelet writes {takeover.base!s}"
    if isinstance(takeover, Inheritance):
        return "made with what the cgroup above it holds"
    if not before.is_held:
        is_start = takeover.original.pending is Pending.STARTED
        when = "before the container started" if is_start else "at creation by the runtime"
        return f"set {when}, requested {takeover.original.requested}"
    if takeover.original.pending is Pending.UPDATED:
        return f"an update of the container was edited, requested {takeover.original.requested}"
    return "the runtime applied again what the container was made with"


def _about(target: Target, path: str, result: str, wanted: Wanted, why: str, before: Value | None = None) -> Notice:
    return Notice(
        target,
        path,
        before,
        wanted.value,
        result,
        wanted.by,
        f"{wanted.why}: {why}",
        wanted.inputs,
        wanted.pod,
    )
