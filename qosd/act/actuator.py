"""Acts on a tick's decisions: kernel files through the reconciler, tasks through the mover, all of it in the journal.

Invariants: nothing is written that ``plan`` did not show; every write, whatever became of it, and everything that
another writer did to a held file, has its row in the journal. Nothing that the kernel does raises here.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Mapping

from koord.host.files import Target
from koord.host.originals import Original
from koord.host.reconcile.plan import Notice, PlannedWrite
from koord.host.reconcile.reconciler import Reconciler
from koord.host.reconcile.state import FREE, FileState, Retry
from koord.host.reconcile.systemd_sync import Units
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from qosd.act.composition import Composed
from qosd.act.created import CreatedContainers
from qosd.act.intents import Changes, TickIntents
from qosd.act.journal import Entry, Recorder
from qosd.act.mover import TaskMover
from qosd.act.ownership import OWNERS, Ownership
from qosd.act.plan import Plan, Result
from qosd.decide.runner import Decisions
from qosd.snapshot import PodView

_log = logging.getLogger(__name__)


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
        owners: Mapping[str, Ownership] = OWNERS,
        page_bytes: int = mmap.PAGESIZE,
        units: Units | None = None,
    ) -> None:
        self._journal, self._owners = journal, owners
        self._created = CreatedContainers(undo)
        self._files = Reconciler(writer, undo, self._created, page_bytes, units)
        self._mover = TaskMover(writer, undo, journal)
        self._changes = Changes()
        self._decisions: Decisions | None = None
        self._refused: dict[Target, tuple[tuple[str, str], ...]] = {}
        self.refusals = 0

    @property
    def owned(self) -> Mapping[Target, FileState]:
        """The files held now."""
        return {target: state for target, state in self._files.states.copy().items() if state.is_held}

    @property
    def contested(self) -> Mapping[Target, str]:
        """The files left to another writer, and why: whoever can should enforce the value one level up."""
        states = self._files.states.copy()
        return {target: state.contested for target, state in states.items() if state.is_contested}

    @property
    def files(self) -> Mapping[Target, FileState]:
        """All files of which something is known: the same mapping while nothing changes. For the loop's own thread."""
        return self._files.states.frozen()

    @property
    def refused(self) -> Mapping[Target, tuple[tuple[str, str], ...]]:
        """(strategy, why) of the opinions that are not followed, by file."""
        return self._refused.copy()

    @property
    def retries(self) -> Mapping[Target, Retry]:
        """The files that could not be brought to their value, and when that is tried again."""
        states = self._files.states.copy()
        return {target: state.retry for target, state in states.items() if state.retry is not None}

    @property
    def unsynced(self) -> str:
        """Why systemd does not know some values that are held; "" if it knows them all."""
        return self._files.unsynced

    @property
    def placed(self) -> Mapping[str, str]:
        """The resctrl group in which the tasks of each cgroup are kept now."""
        return self._mover.placed

    def original(self, target: Target) -> Original | None:
        """The value kubelet requested and the value we gave the runtime for this file; None if we changed nothing.

        From any thread.
        """
        known = self._created.find(target)
        return None if known is None else known[1]

    def composed(self, target: Target) -> Composed | None:
        """What the newest executed decisions come to for ``target``; None if nobody has an opinion."""
        if self._decisions is None:
            return None
        state = self._files.states.get(target, FREE)
        intent = TickIntents(self._decisions, self._owners).of(target, state)
        return intent.wanted(state.base if state.is_held else None) if intent.by else None

    def follow(self, pods: tuple[PodView, ...], monotonic_ns: int) -> None:
        """These are all pods now: their cgroups are looked up for what kubelet requested of them."""
        self._created.follow(pods, monotonic_ns)

    def touched(self, path: str) -> None:
        """Somebody wrote the file at ``path``: the next tick looks at it. From any thread."""
        self._files.touched(path)

    def owns(self, path: str) -> bool:
        """Is the file at ``path`` held, or left to another writer for now? From any thread."""
        return self._files.follows(path)

    def respelled(self) -> None:
        """Shares stand for other weights from now on: those that are held are looked at, and written, once more."""
        self._files.respelled()

    def plan(self, decisions: Decisions) -> Plan:
        """What ``execute`` would write now. Reads kernel files; changes nothing."""
        changed = self._changes.since(decisions, self._files.states)
        intents = TickIntents(decisions, self._owners)
        return Plan(decisions, self._files.plan(intents, changed, decisions.monotonic_ns), self._mover.plan(decisions))

    def tick(self, decisions: Decisions) -> Result:
        """Plan and execute."""
        return self.execute(self.plan(decisions))

    def execute(self, plan: Plan) -> Result:
        """Make the plan's writes, in its order. Raises StalePlan if another was executed since it was made."""
        outcomes = self._files.apply(plan.files)
        decisions = self._decisions = plan.decisions
        self._changes.applied(decisions)
        for target, refused in plan.files.refused.items():
            self._note_refused(target, refused)
        for notice in plan.files.notices:
            self._record(decisions, notice, notice.result, notice.why)
        for outcome in outcomes:
            self._record(decisions, outcome.write, outcome.result, outcome.sentence)
        return Result(outcomes, self._mover.execute(decisions, plan.moves))

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

    def _record(self, decisions: Decisions, about: PlannedWrite | Notice, result: str, why: str) -> None:
        self._journal.record(
            Entry(
                wall_ns=decisions.wall_ns,
                monotonic_ns=decisions.monotonic_ns,
                tick=decisions.tick,
                who=about.by,
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
