"""Who leaves a quota that uses more than it may: the least important pods, and no more of them than that takes.

Pods leave in the order of their importance, the least first, until the quota is within its limit, in every resource
that the limit names; then they come back, the most important first, as long as it stays within. A pod that is not
preemptible stays. Pods of one gang leave together or stay together: a gang is as important as the most important of its
pods, and stays if one of them is not preemptible.

Source: Koordinator, pkg/scheduler/plugins/elasticquota/quota_overuse_revoke.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from koord.quota.forest import Forest, Quota
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import by_importance
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
    pods: Iterable[PodInfo], used: Mapping[str, int], limit: Mapping[str, int], gang_of: GangOf = no_gangs
) -> list[PodInfo]:
    """Returns those of a quota's ``pods`` that have to leave, the least important first. Where all that may leave are
    not enough, all of them that help do.
    """
    left = {name: limit[name] - used.get(name, 0) for name in limit}
    removed: list[_Group] = []
    for group in sorted(_groups(pods, gang_of), key=_importance, reverse=True):
        if all(amount >= 0 for amount in left.values()):
            break
        _add(left, group, 1)
        removed.append(group)
    staying: set[str] = set()
    lacking = {name for name, amount in left.items() if amount < 0}
    for group in sorted(removed, key=_importance):
        _add(left, group, -1)
        if all(amount >= 0 for name, amount in left.items() if name not in lacking) and not any(
            each.requests.get(name, 0) for each in group for name in lacking
        ):
            staying.update(each.uid for each in group)
        else:
            _add(left, group, 1)
    return [each for group in removed for each in group if each.uid not in staying]


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
