"""Finds the tasks of a cgroup that are to be moved to a resctrl group, for the plan.

Reads, never writes, and changes no state. Invariants: a task that was in its resctrl group already, or in a group of no
class, was put there by others and stays; only tasks that are where Koord moved some are moved back to the root group. A
cgroup that cannot be read is left out alone, with the reason.
"""

from __future__ import annotations

from msgspec.structs import replace

from koord.host import placement, resctrl
from koord.host.cgroup import ReadError, Tree
from koord.host.placement import Census, Membership
from koord.host.reconcile.plan import UNREADABLE, UNSUPPORTED, YIELDED
from qosd.act.moves import MoveFinding, PlannedMove, TasksState


def examine(tree: Tree, census: Census, cgroup: str, state: TasksState, why_released: str) -> MoveFinding:
    """Returns what is to be done for ``state.wanted``, or to give the tasks back, for ``why_released``."""
    try:
        found = placement.look(tree, cgroup)
        finding = MoveFinding(cgroup, state.of(found), found)
        if found is None:
            return finding
        if state.wanted is None:
            return _released(finding, found.tasks, census, tree, why_released)
        return _wanted(finding, found.tasks, census, tree, state.wanted)
    except (ReadError, ValueError) as error:
        return MoveFinding(cgroup, state, result=UNREADABLE, problem=str(error))


def _wanted(
    finding: MoveFinding, tasks: frozenset[int], census: Census, tree: Tree, membership: Membership
) -> MoveFinding:
    resctrl_group = membership.resctrl_group
    inside = census.of(resctrl_group)
    if inside is None:
        return replace(finding, result=UNSUPPORTED, problem=f"there is no resctrl group {resctrl_group}")
    missing = census.missing(tasks, resctrl_group)
    if not missing:
        if tasks <= inside:
            return finding
        return replace(
            finding, result=YIELDED, problem="some of its tasks are in a resctrl group of someone else's, and stay"
        )
    return replace(finding, move=_move(finding, census, tree, missing, resctrl_group, membership.why))


def _released(finding: MoveFinding, tasks: frozenset[int], census: Census, tree: Tree, why: str) -> MoveFinding:
    placed = finding.state.placed
    back = frozenset[int]() if placed is None else census.among(tasks, placed.resctrl_groups)
    return replace(finding, move=_move(finding, census, tree, back, "", why)) if back else finding


def _move(finding: MoveFinding, census: Census, tree: Tree, tasks: frozenset[int], to: str, why: str) -> PlannedMove:
    state = finding.state
    known = () if state.placed is None else state.placed.resctrl_groups
    origin = next((one for one in reversed(known) if one != to and census.among(tasks, (one,))), "")
    path = str(resctrl.tasks_file(tree.resctrl, to))
    return PlannedMove(finding.cgroup, path, origin, to, len(tasks), state.owner, why, state.pod)
