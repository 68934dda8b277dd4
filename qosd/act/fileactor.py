"""The actor of kernel files: passes a tick's opinions to the reconciler, and journals the writes.

Invariants: it writes nothing that ``plan`` did not show; every write, failed ones included, and every change of a held
file by another writer has its row in the journal. Nothing that the kernel does raises here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

from koord.host.files import Target
from koord.host.reconcile.plan import Outcome, Plan
from koord.host.reconcile.reconciler import Reconciler
from koord.host.reconcile.wanted import Refusals
from koord.host.systemd_units import Units
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from qosd.act.actor import Actor, entry_of
from qosd.act.created import CreatedContainers
from qosd.act.filereport import FileReport
from qosd.act.intents import Changes, TickIntents
from qosd.act.journal import JournalWriter
from qosd.act.leftovers import Leftovers
from qosd.act.ownership import Ownership
from qosd.decide.runner import Decisions
from qosd.model.snapshot import PodView

_log = logging.getLogger(__name__)


class FileActor(Actor[Plan]):
    """Writes to the tree of ``writer``. ``owners``: the strategies that may have opinions on each row. For one thread.

    ``units``: those of the host's systemd, which is told of writes to their cgroups; None without one.
    ``refusals``: how many opinions were refused since the start. ``leftovers``: what another agent has left in files.
    """

    def __init__(
        self,
        writer: Writer,
        undo: UndoRecord,
        journal: JournalWriter,
        owners: Mapping[str, Ownership],
        page_bytes: int,
        units: Units | None,
    ) -> None:
        self._journal, self._owners = journal, owners
        self._created, self.leftovers = CreatedContainers(undo), Leftovers(writer, undo)
        self._reconciler = Reconciler(writer, undo, self._created, page_bytes, units, leftovers=self.leftovers)
        self._changes = Changes()
        self._decisions: Decisions | None = None
        self._refused: Refusals = MappingProxyType({})
        self.refusals = 0

    @property
    def report(self) -> FileReport:
        """The state of all files now; made in the loop's own thread, read in any."""
        reconciler = self._reconciler
        return FileReport(
            reconciler.states.frozen(),
            self._refused,
            self._created.originals,
            reconciler.unsynced,
            self._owners,
            self._decisions,
        )

    def follow(self, pods: tuple[PodView, ...], monotonic_ns: int) -> None:
        """Follows the containers of ``pods``, which are all, for what kubelet requested of them."""
        self._created.follow(pods, monotonic_ns)

    def touched(self, path: str) -> None:
        """Notes that the file at ``path`` was written: the next tick looks at it. From any thread."""
        self._reconciler.touched(path)

    def owns(self, path: str) -> bool:
        """Is the file at ``path`` held, or left to another writer for now? From any thread."""
        return self._reconciler.follows(path)

    def respelled(self) -> None:
        """Looks at all held weights and writes them again: shares are mapped to other weights from now on."""
        self._reconciler.respelled()

    def plan(self, decisions: Decisions) -> Plan:
        """Returns the writes that ``apply`` would make now. Reads kernel files; changes nothing."""
        changed = self._changes.since(decisions, self._reconciler.states)
        return self._reconciler.plan(TickIntents(decisions, self._owners), changed, decisions.monotonic_ns)

    def apply(self, decisions: Decisions, plan: Plan) -> tuple[Outcome, ...]:
        """Makes the plan's writes, in its order. Raises StalePlan if another was applied since it was made."""
        outcomes = self._reconciler.apply(plan)
        self._decisions = decisions
        self._changes.applied(decisions)
        for target, refused in plan.refused.items():
            self._note_refused(target, refused)
        for notice in self._reconciler.notices:
            self._journal.record(entry_of(decisions, notice, notice.result, notice.why))
        for outcome in outcomes:
            self._journal.record(entry_of(decisions, outcome.write, outcome.result, outcome.sentence))
        return outcomes

    def _note_refused(self, target: Target, refused: tuple[tuple[str, str], ...]) -> None:
        if refused == self._refused.get(target, ()):
            return
        others = {each: why for each, why in self._refused.items() if each != target}
        self._refused = MappingProxyType({**others, target: refused} if refused else others)
        self.refusals += len(refused)
        for strategy, why in refused:
            _log.warning("%s/%s: opinion of %s refused: %s", target.cgroup, target.name, strategy, why)
