"""Which lesser pods have to leave so that a whole gang has room: all of its minimum, or nobody leaves.

Victims are of a lower priority than every member. No budget (PodDisruptionBudget) is broken: of the pods of a budget
the least important may leave, as many as it allows. A gang among them loses members beyond its minimum one by one, and
else leaves whole: what is left of it would hold nodes in vain.

Members are placed without victims first, as many as there is room for; the others as if all that may leave had left,
where that costs others least. Then pods come back in the order of their importance, gangs whole, as long as every
member still fits on its node. Those that cannot come back are the victims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from koord.model.gang import GangKey
from koord.model.scheduling.policies import PodDisruptionBudget
from koord.scheduling.framework import Framework
from koord.scheduling.gangplacement import Holder, Member, PlacedMember, held
from koord.scheduling.gangs import Gangs
from koord.scheduling.plugin import Scope
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import NEVER, by_budget, by_importance
from koord.scheduling.state import ClusterState

LABEL_DISABLED = "scheduling.koordinator.sh/disable-preemptible"
LEAVING = "pods are leaving that make room for it"
_OF_A_POD, _OF_A_GANG = 10_000, 1_000_000_000
"""What it costs that a pod leaves, in points of a score; and what more that a gang does."""


class GroupPreemption(NamedTuple):
    """The members that need room have it on ``nodes``, by uid, once ``victims`` have left."""

    nodes: Mapping[str, str]
    victims: tuple[PodInfo, ...]


class _Unit(NamedTuple):
    """``pods`` leave together or not at all. ``extras``: leave if these do, or one by one."""

    pods: tuple[PodInfo, ...]
    extras: tuple[PodInfo, ...] = ()


class _Costs:
    """What it costs that those leave who may have to leave a node: with whoever leaves together with them, and once."""

    def __init__(self, state: ClusterState, units: Iterable[_Unit]) -> None:
        self._state = state
        self.column = np.zeros(state.length, np.int64)
        self._on_row: dict[int, list[list[tuple[int, int]]]] = {}
        units = tuple(units)
        priorities = {pod.priority for unit in units for pod in (*unit.pods, *unit.extras)}
        rank = {priority: number for number, priority in enumerate(sorted(priorities), 1)}
        for unit in units:
            of_gang = _OF_A_GANG if len(unit.pods) > 1 else 0
            self._put(unit.pods, of_gang, rank)
            for extra in unit.extras:
                self._put((extra,), 0, rank)

    def took(self, node: str) -> None:
        row = self._state.table.row(node)
        for parts in self._on_row.pop(-1 if row is None else row, ()):
            while parts:
                each, cost = parts.pop()
                self.column[each] += cost

    def _put(self, pods: Iterable[PodInfo], of_gang: int, rank: Mapping[int, int]) -> None:
        parts: list[tuple[int, int]] = []
        for pod in pods:
            row = self._state.table.row(self._state.node_of(pod.uid) or "")
            if row is not None:
                cost = rank[pod.priority] * _OF_A_POD + of_gang
                self.column[row] -= cost
                parts.append((row, cost))
                self._on_row.setdefault(row, []).append(parts)


@dataclass(frozen=True)
class GroupPreemptor:
    """``budgets``: the cluster's, as they are now."""

    state: ClusterState
    gangs: Gangs
    framework_of: Callable[[PodInfo], Framework]
    budgets: Sequence[PodDisruptionBudget] = ()

    def why_not(self, members: Iterable[Member]) -> str:
        """Returns why the group must not preempt now; "" if it may."""
        nominations = self.state.nominations
        for pod, _ in members:
            if pod.spec.preemption_policy == NEVER:
                return f"the preemptionPolicy of {pod.namespace}/{pod.name} is Never"
            node = nominations.node_of(pod.uid)
            if node is not None and any(
                each.is_terminating and each.priority < pod.priority for each in self.state.pods_on(node)
            ):
                return LEAVING
        return ""

    def choose(self, members: Sequence[Member], needs: Mapping[GangKey, int], holder: Holder) -> GroupPreemption | None:
        """Returns whose leaving makes room for the minimum of every gang; None: nobody's does. Changes nothing.
        Raises PluginError.
        """
        units = self._units(min(each.pod.priority for each in members))
        leaving = [pod for unit in units for pod in (*unit.pods, *unit.extras)]
        if not leaving:
            return None
        costs = _Costs(self.state, units)
        with held(self.state, holder) as attempt:
            first = attempt.fill(self.framework_of, members, needs)
            nodes = {pod.uid: str(self.state.node_of(pod.uid)) for pod in leaving}
            with self.state.removed(nodes):
                rest = attempt.fill(self.framework_of, first.unplaced, first.short, costs)
                if not rest.is_whole:
                    return None
                placed = (*first.placed, *rest.placed)
                victims = self._victims(units, nodes, placed)
        if victims is None:
            return None
        return GroupPreemption({each.member.pod.uid: each.placement.node for each in placed}, victims)

    def _units(self, priority: int) -> list[_Unit]:
        """Returns who may leave, the most important first."""
        lesser = [
            pod
            for row in np.flatnonzero(self.state.table.exists).tolist()
            for pod in self.state.pods_on(self.state.table.name(row))
            if pod.priority < priority
            and not self.state.is_assumed(pod.uid)
            and pod.labels.get(LABEL_DISABLED) != "true"
        ]
        _, free = by_budget(sorted(lesser, key=by_importance, reverse=True), self.budgets)
        units: list[_Unit] = []
        by_gang: dict[GangKey, list[PodInfo]] = {}
        for pod in free:
            key = self.gangs.of(pod.uid)
            if key is None:
                units.append(_Unit((pod,)))
            else:
                by_gang.setdefault(key, []).append(pod)
        for key, pods in by_gang.items():
            units.extend(self._gang_units(key, sorted(pods, key=by_importance)))
        return sorted(units, key=lambda unit: by_importance(unit.pods[0]))

    def _gang_units(self, key: GangKey, pods: Sequence[PodInfo]) -> list[_Unit]:
        """``pods``: those of the gang that may leave, the most important first."""
        gang = self.gangs.get(key)
        if gang is None:
            return [_Unit((pod,)) for pod in pods]
        placed, settings = self.gangs.placed_count(gang), gang.settings
        least = placed if settings is None else settings.min_member
        if least and len(pods) == placed:
            return [_Unit(tuple(pods[:least]), tuple(pods[least:]))]
        beyond = max(0, placed - least)
        return [_Unit((pod,)) for pod in pods[max(0, len(pods) - beyond) :]] if beyond else []

    def _victims(
        self, units: Iterable[_Unit], nodes: Mapping[str, str], placed: Sequence[PlacedMember]
    ) -> tuple[PodInfo, ...] | None:
        """Lets pods come back that need not leave; returns the others, or None where a member does not fit then."""
        on_node: dict[str, list[PodInfo]] = {}
        for each in placed:
            on_node.setdefault(each.placement.node, []).append(each.member.pod)
        victims: list[PodInfo] = []
        is_local = not any(self._goes_by_others(each.member.pod) for each in placed)

        def come_back(pods: Sequence[PodInfo]) -> bool:
            beside = {nodes[pod.uid] for pod in pods} & on_node.keys()
            if is_local and not beside:
                return True
            for pod in pods:
                transaction.assume(pod, nodes[pod.uid])
            if all(self._fits(member, node) for node in sorted(beside) for member in on_node[node]):
                return True
            for pod in pods:
                self.state.forget(pod.uid)
            victims.extend(pods)
            return False

        with self.state.transaction() as transaction:
            for unit in units:
                if come_back(unit.pods):
                    for extra in unit.extras:
                        come_back((extra,))
                else:
                    victims.extend(unit.extras)
            if not is_local and not all(
                self._fits(member, node) for node, members in on_node.items() for member in members
            ):
                return None
        return tuple(victims)

    def _fits(self, member: PodInfo, node: str) -> bool:
        """Returns whether the member, which is placed there, would get the node as it is now."""
        row = self.state.table.row(node)
        with self.state.removed([member.uid]):
            return row is not None and self.framework_of(member).fits(member, row)

    def _goes_by_others(self, pod: PodInfo) -> bool:
        """Returns whether pods on other nodes matter to it."""
        return any(
            each.filter_scope is Scope.CLUSTER and each.goes_by_pods(self.state, pod)
            for each in self.framework_of(pod).filters
        )
