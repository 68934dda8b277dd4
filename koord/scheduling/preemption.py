"""Which pods of lower priority have to leave, and where, so that a pod has room: as Kubernetes' DefaultPreemption.

On a node all pods of lower priority go, and come back one by one, the most important first, as long as the pod fits
beside them; pods whose disruption budget is used up come back before the others. Those that cannot come back are the
victims. Of all nodes the one is taken with the fewest violated budgets, then the least important victims.

Source: pkg/scheduler/framework/preemption, plugins/defaultpreemption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from koord.model.core import unix_s
from koord.model.scheduling.policies import PodDisruptionBudget
from koord.scheduling.framework import Diagnosis, Framework
from koord.scheduling.plugin import EXTENDER
from koord.scheduling.plugins.resources import NodeResourcesFit
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState, Transaction
from koord.scheduling.table import Bools

NEVER = "Never"
DISRUPTED, BY_PREEMPTION = "DisruptionTarget", "PreemptionByScheduler"
_SHIFT = 2**31
"""Added to each priority that is summed, so that none is negative."""


class CandidateCount(NamedTuple):
    """How many nodes are found before the best of them is taken: a part of all, and no fewer than ``least``."""

    percent: int = 10
    least: int = 100


_DEFAULT_COUNT = CandidateCount()


class Preemption(NamedTuple):
    """The pod has room on ``node`` once ``victims`` have left it. ``violations``: budgets that this breaks."""

    node: str
    victims: tuple[PodInfo, ...]
    violations: int


def started_s(pod: PodInfo) -> float:
    """Returns when kubelet took the pod in; of one that it has not, the end of time."""
    started = unix_s(pod.pod.status.start_time)
    return float("inf") if started is None else started


def by_importance(pod: PodInfo) -> tuple[int, float]:
    """Sorts the more important pod first: the higher priority, then the longer run."""
    return -pod.priority, started_s(pod)


def _anybody(pod: PodInfo, other: PodInfo) -> bool:
    return True


@dataclass(frozen=True)
class Preemptor:
    """``budgets``: the cluster's, as they are now. ``may_leave``: whether for the first pod the second one, of a lower
    priority, may have to leave. ``nodes``: where pods that may help can be; None: anywhere.
    """

    framework: Framework
    budgets: Sequence[PodDisruptionBudget] = ()
    candidates: CandidateCount = _DEFAULT_COUNT
    may_leave: Callable[[PodInfo, PodInfo], bool] = _anybody
    nodes: frozenset[str] | None = None

    def why_not(self, pod: PodInfo, diagnosis: Diagnosis) -> str:
        """Returns why the pod must not preempt now; "" if it may."""
        if pod.spec.preemption_policy == NEVER:
            return "not eligible due to preemptionPolicy=Never."
        state = self.framework.state
        nominated = pod.pod.status.nominated_node_name or state.nominations.node_of(pod.uid)
        row = state.table.row(nominated) if nominated else None
        if nominated and row is not None and diagnosis.is_resolvable[row]:
            for each in state.pods_on(nominated):
                if each.is_terminating and each.priority < pod.priority and _is_victim(each):
                    return "not eligible due to a terminating pod on the nominated node."
        return ""

    def choose(self, pod: PodInfo, diagnosis: Diagnosis) -> Preemption | None:
        """Returns the best preemption of the nodes that the diagnosis calls resolvable; None where none helps."""
        return best(self.candidates_for(pod, diagnosis))

    def candidates_for(self, pod: PodInfo, diagnosis: Diagnosis) -> list[Preemption]:
        """Returns the preemptions of which one is taken, each on another node.

        Looks for as many candidates as upstream does, from a node on that pod and seed decide, but among all nodes.
        One that an extender alone rejects has no victims: without its pods it would do no more than with them. The same
        is true of one that a filter rejects, too, for which pods do not matter, after the one that the diagnosis names.
        """
        is_resolvable = diagnosis.is_resolvable
        if self.nodes is not None:
            is_resolvable = is_resolvable & self._rows(self.nodes)
        for each in self.framework.filters if is_resolvable.any() else ():
            if not each.goes_by_pods(self.framework.state, pod):
                passed = each.filter(self.framework.state, pod)
                is_resolvable = is_resolvable if passed is None else is_resolvable & passed
        if EXTENDER in diagnosis.plugins:
            is_resolvable = is_resolvable & ~self.framework.feasible(pod)
        rows = np.flatnonzero(is_resolvable)
        if not len(rows):
            return []
        wanted = max(len(rows) * self.candidates.percent // 100, self.candidates.least)
        start = self.framework.drawn_number(pod) % len(rows)
        amounts = self._amounts(pod)
        found: list[Preemption] = []
        for row in np.roll(rows, -start).tolist():
            preemption = self._on_node(pod, row, amounts)
            if preemption is not None:
                found.append(preemption)
                if len(found) >= wanted and any(not each.violations for each in found):
                    break
        return found

    def _rows(self, nodes: Iterable[str]) -> Bools:
        table = self.framework.state.table
        found = np.zeros(table.length, np.bool_)
        found[[row for name in nodes if (row := table.row(name)) is not None]] = True
        return found

    def helps(self, pod: PodInfo, preemption: Preemption) -> bool:
        """Returns whether the pod has room once the victims have left their node, by what the state is now. They are
        on that node, or have left already.
        """
        row = self.framework.state.table.row(preemption.node)
        if row is None:
            return False
        ahead = self.framework.state.nominations.ahead_on(preemption.node, pod)
        with (
            self.framework.state.removed([each.uid for each in preemption.victims]),
            self.framework.state.transaction() as transaction,
        ):
            return _StateTrial(self.framework, transaction, pod, row, ahead).fits()

    def _amounts(self, pod: PodInfo) -> Mapping[str, int] | None:
        """Returns what the pod needs, where no filter but that of amounts goes by pods."""
        going_by_pods = [each for each in self.framework.filters if each.goes_by_pods(self.framework.state, pod)]
        (fit, *others) = going_by_pods or (None,)
        return fit.needed(pod) if isinstance(fit, NodeResourcesFit) and not others else None

    def _on_node(self, pod: PodInfo, row: int, amounts: Mapping[str, int] | None) -> Preemption | None:
        """Returns the victims on one node; None if it will not do without all pods of lower priority.

        ``amounts``: as of ``_amounts``.
        """
        state = self.framework.state
        node = state.table.name(row)
        others = state.pods_on(node)
        lower = sorted(
            [each for each in others if each.priority < pod.priority and self.may_leave(pod, each)], key=by_importance
        )
        if not lower:
            return None
        breaking, others = by_budget(lower, self.budgets)
        ahead = state.nominations.ahead_on(node, pod)
        with self._trial(pod, row, lower, ahead, amounts) as trial:
            if not trial.fits():
                return None
            staying = {each.uid for each in (*breaking, *others) if trial.takes_back(each)}
        victims = tuple([each for each in lower if each.uid not in staying])
        return Preemption(node, victims, sum(each.uid not in staying for each in breaking))

    @contextmanager
    def _trial(
        self,
        pod: PodInfo,
        row: int,
        lower: Sequence[PodInfo],
        ahead: Sequence[PodInfo],
        amounts: Mapping[str, int] | None,
    ) -> Iterator[_Trial]:
        """For the block the node is without ``lower``."""
        framework = self.framework
        if amounts is not None and not ahead:
            yield _AmountsTrial(framework.state, amounts, row, lower)
            return
        with framework.state.removed([each.uid for each in lower]), framework.state.transaction() as transaction:
            yield _StateTrial(framework, transaction, pod, row, ahead)


class _Trial(Protocol):
    """A node without the pods that may have to leave it."""

    def fits(self) -> bool:
        """Returns whether the preemptor has room."""

    def takes_back(self, other: PodInfo) -> bool:
        """Returns whether ``other`` can stay beside the preemptor; if so, it is on the node again."""


class _StateTrial:
    """By all filters, on the state itself."""

    def __init__(
        self, framework: Framework, transaction: Transaction, pod: PodInfo, row: int, ahead: Sequence[PodInfo]
    ) -> None:
        self._framework, self._transaction = framework, transaction
        self._pod, self._row, self._ahead = pod, row, ahead

    def fits(self) -> bool:
        framework, pod, row = self._framework, self._pod, self._row
        return framework.fits(pod, row) and (not self._ahead or framework.fits_beside(pod, row, self._ahead))

    def takes_back(self, other: PodInfo) -> bool:
        state = self._framework.state
        self._transaction.assume(other, state.table.name(self._row))
        if self.fits():
            return True
        state.forget(other.uid)
        return False


class _AmountsTrial:
    """By amounts alone, where nothing else that the preemptor needs goes by pods: some microseconds a pod."""

    def __init__(self, state: ClusterState, needed: Mapping[str, int], row: int, lower: Sequence[PodInfo]) -> None:
        self._free = {
            resource: state.nodes.allocatable.at(row, resource)
            - state.requested.at(row, resource)
            + sum([each.counted.get(resource, 0) for each in lower])
            - amount
            for resource, amount in needed.items()
        }

    def fits(self) -> bool:
        return min(self._free.values(), default=0) >= 0

    def takes_back(self, other: PodInfo) -> bool:
        counted = other.counted
        left = {resource: free - counted.get(resource, 0) for resource, free in self._free.items()}
        if min(left.values(), default=0) < 0:
            return False
        self._free = left
        return True


def by_budget(pods: Iterable[PodInfo], budgets: Sequence[PodDisruptionBudget]) -> tuple[list[PodInfo], list[PodInfo]]:
    """Parts the pods, of which the most important comes first, into those whose leaving breaks a budget and others."""
    left = [budget.status.disruptions_allowed for budget in budgets]
    breaking: list[PodInfo] = []
    others: list[PodInfo] = []
    for pod in pods:
        breaks = False
        for index, budget in enumerate(budgets):
            if not is_about(budget, pod) or pod.name in budget.status.disrupted_pods:
                continue
            left[index] -= 1
            breaks |= left[index] < 0
        (breaking if breaks else others).append(pod)
    return breaking, others


def is_about(budget: PodDisruptionBudget, pod: PodInfo) -> bool:
    """Returns whether the pod's leaving counts in the budget. One with an empty selector is about no pod, and none is
    about a pod without labels.
    """
    selector = budget.spec.selector
    return (
        selector is not None
        and not selector.is_empty
        and bool(pod.labels)
        and budget.metadata.namespace == pod.namespace
        and selector.matches(pod.labels)
    )


def _is_victim(pod: PodInfo) -> bool:
    """Returns whether it is being deleted to make room."""
    condition = pod.pod.status.condition(DISRUPTED)
    return condition is not None and (condition.status, condition.reason) == ("True", BY_PREEMPTION)


def best(candidates: Iterable[Preemption]) -> Preemption | None:
    """Returns the one that costs others least; None where there is none."""
    return min(candidates, key=_cost, default=None)


def _cost(preemption: Preemption) -> tuple[int, int, int, int, float]:
    """Sorts the best preemption first: fewest violations, least important victim, smallest sum of priorities, fewest
    victims, the most important of them the youngest.
    """
    victims = preemption.victims
    highest = victims[0].priority if victims else -_SHIFT
    oldest = min((started_s(each) for each in victims if each.priority == highest), default=float("inf"))
    total = sum(each.priority + _SHIFT for each in victims)
    return preemption.violations, highest, total, len(victims), -oldest
