"""Who leaves a quota that uses more than it may: the least important pods, and no more of them than that takes.

Pods leave in the order of their importance, the least first, until the quota is within its limit, in every resource
that the limit names; then they come back, the most important first, as long as it stays within. A pod that is not
preemptible stays, and so does one whose leaving would break a disruption budget. Pods of one gang leave together or
stay together: a gang is as important as the most important of its pods, and stays if one of them has to.

Source: Koordinator, pkg/scheduler/plugins/elasticquota/quota_overuse_revoke.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from koord.model.scheduling.policies import PodDisruptionBudget
from koord.quota.forest import Forest, Quota
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import by_importance, is_about
from koord.scheduling.quotas import is_fixed

GangOf = Callable[[PodInfo], str]
"""Returns the name of the pod's gang; "": it has none."""
_Group = tuple[PodInfo, ...]


def no_gangs(_: PodInfo) -> str:
    return ""


def overused(forest: Forest, quota: Quota) -> tuple[str, ...]:
    """Returns the resources of which the quota uses more than it may."""
    return tuple([name for name, limit in forest.runtimes(quota).items() if quota.counted.used.get(name, 0) > limit])


def leaving(
    pods: Iterable[PodInfo],
    used: Mapping[str, int],
    limit: Mapping[str, int],
    gang_of: GangOf = no_gangs,
    budgets: Sequence[PodDisruptionBudget] = (),
) -> list[PodInfo]:
    """Returns those of a quota's ``pods`` that have to leave, the least important first. Where all that may leave are
    not enough, all of them that help do.
    """
    left = {name: limit[name] - used.get(name, 0) for name in limit}
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    removed: list[_Group] = []
    for group in sorted(_groups(pods, gang_of), key=_importance, reverse=True):
        if all(amount >= 0 for amount in left.values()):
            break
        counts = [sum([is_about(budget, pod) for pod in group]) for budget in budgets]
        if any(count > most for count, most in zip(counts, allowed, strict=True) if count):
            continue
        allowed = [most - count for count, most in zip(counts, allowed, strict=True)]
        _add(left, group, 1)
        removed.append(group)
    staying = {group[0].uid for group in _staying(removed, left)}
    return [pod for group in removed if group[0].uid not in staying for pod in group]


def _staying(removed: Sequence[_Group], left: dict[str, int]) -> list[_Group]:
    """Returns those that come back. ``left``: what is left of the limit without all of them."""
    left, staying = dict(left), list[_Group]()
    lacking = {name for name, amount in left.items() if amount < 0}
    for group in sorted(removed, key=_importance):
        _add(left, group, -1)
        helps = any(each.requests.get(name, 0) for each in group for name in lacking)
        if not helps and all(amount >= 0 for name, amount in left.items() if name not in lacking):
            staying.append(group)
        else:
            _add(left, group, 1)
    return staying


def _groups(pods: Iterable[PodInfo], gang_of: GangOf) -> list[_Group]:
    """Returns those that leave or stay together, the most important of each first; none that has to stay."""
    found: dict[tuple[str, str], list[PodInfo]] = {}
    for pod in sorted(pods, key=by_importance):
        gang = gang_of(pod)
        found.setdefault((gang, "" if gang else pod.uid), []).append(pod)
    return [tuple(group) for group in found.values() if not any(is_fixed(each) for each in group)]


def _importance(group: _Group) -> tuple[int, float, str]:
    return *by_importance(group[0]), group[0].uid


def _add(left: dict[str, int], group: _Group, sign: int) -> None:
    for pod in group:
        for name in left:
            left[name] += sign * pod.requests.get(name, 0)
