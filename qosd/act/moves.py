"""Moves of tasks between resctrl groups: state, findings, plans and outcomes, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from koord.host import placement
from koord.host.files import Target
from koord.host.placement import TASKS, Cgroup, Membership, Placed
from koord.host.reconcile.plan import Outcome, PlannedWrite
from qosd.act.actor import ActReport, ExplainedAct
from qosd.act.desired import DesiredActs
from qosd.decide.runner import Decisions
from qosd.model.snapshot import PodView

NEVER_NS = 1 << 63


class TasksState(msgspec.Struct, frozen=True):
    """The state of one cgroup between ticks. ``placed`` None: no task of it was moved.

    ``wanted`` None: moved by an earlier run, or to be given back. ``wait_s``: from the last look to the next one, which
    is at ``due_ns``. ``problem``: what was in the way then. ``late``: tasks moved and not journaled since ``told_ns``.
    """

    owner: str
    pod: str = ""
    wanted: Membership | None = None
    placed: Placed | None = None
    due_ns: int = NEVER_NS
    wait_s: float = 0.0
    failures: int = 0
    problem: str = ""
    late: int = 0
    told_ns: int | None = None

    def of(self, cgroup: Cgroup | None) -> TasksState:
        """Returns the state; without moved tasks if ``cgroup`` is another one of the same path."""
        placed = self.placed
        is_it = placed is not None and cgroup is not None and (placed.path, placed.inode) == (cgroup.path, cgroup.inode)
        return self if is_it or placed is None else replace(self, placed=None)


class PlannedMove(msgspec.Struct, frozen=True):
    """The tasks of ``cgroup`` go from resctrl group ``origin`` to ``to`` ("" = the root group).

    ``path``: the file that takes their ids. ``tasks``: how many are to be moved now; what they fork meanwhile follows.
    """

    cgroup: str
    path: str
    origin: str
    to: str
    tasks: int
    owner: str
    why: str
    pod: str = ""

    @property
    def target(self) -> Target:
        """The row TASKS of the cgroup, as if it were a file."""
        return Target(self.cgroup, TASKS)

    @property
    def before(self) -> str:
        return self.origin or placement.ROOT

    @property
    def after(self) -> str:
        return self.to or placement.ROOT

    @property
    def as_write(self) -> PlannedWrite:
        why = f"{self.why}: {placement.count(self.tasks)}"
        return PlannedWrite(self.target, self.path, self.before, self.after, True, self.owner, why, pod=self.pod)


class MoveFinding(msgspec.Struct, frozen=True):
    """One cgroup as a plan found it; ``found`` None: it is gone. ``state``: what was known, with what is wanted now.

    ``result`` and ``problem``: why nothing can be done, in the journal's words; "" = nothing is in the way.
    """

    cgroup: str
    state: TasksState
    found: Cgroup | None = None
    move: PlannedMove | None = None
    result: str = ""
    problem: str = ""


class Moves(msgspec.Struct, frozen=True):
    """The moves of one tick; ``desired`` and ``findings`` are for ``apply``."""

    desired: DesiredActs[Membership]
    moves: tuple[PlannedMove, ...] = ()
    findings: tuple[MoveFinding, ...] = ()

    @property
    def writes(self) -> tuple[PlannedWrite, ...]:
        """The moves, as if a cgroup's resctrl group were a value."""
        return tuple(move.as_write for move in self.moves)


class MoveOutcome(Outcome, frozen=True):
    """The outcome of one planned move, and how many tasks were moved."""

    tasks: int = 0


class MoveReport(ActReport, frozen=True, eq=False):
    """``placed``: the resctrl group in which the tasks of each cgroup are kept; ``root``: where these are."""

    root: Path
    placed: Mapping[str, str]

    def of_pod(self, decisions: Decisions, pod: PodView) -> Iterable[ExplainedAct]:
        """Yields the resctrl group in which the tasks of each container are kept."""
        memberships = list(decisions.acts(Membership))
        for cgroup in [container.cgroup for container in pod.containers if container.cgroup]:
            for owner, wanted in memberships:
                if wanted.cgroup == cgroup:
                    path, actual = self.root / wanted.resctrl_group / "tasks", self.placed.get(cgroup, "unknown")
                    target = Target(cgroup, TASKS)
                    yield ExplainedAct(target, str(path), owner, wanted.resctrl_group, wanted.why, actual, wanted.pod)
