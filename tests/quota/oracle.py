"""What each quota of a forest may use, by the definition alone, from the beginning, in exact fractions.

Knows nothing of `koord.quota.division` and `koord.quota.forest`: a quota is a record, a forest a list of them, and
everything is asked of everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

ROOT, SYSTEM, DEFAULT = "koordinator-root-quota", "koordinator-system-quota", "koordinator-default-quota"


@dataclass
class OracleQuota:
    """``pods``: of each its request, whether it is on a node."""

    name: str
    parent: str = ROOT
    tree: str = ""
    lends: bool = True
    minimum: dict[str, int] = field(default_factory=dict)
    maximum: dict[str, int] = field(default_factory=dict)
    weight: dict[str, int] = field(default_factory=dict)
    total: dict[str, int] | None = None
    ignores_default_tree: bool = False
    pods: list[tuple[dict[str, int], bool]] = field(default_factory=list)


@dataclass
class Oracle:
    quotas: list[OracleQuota]
    cluster: dict[str, int]
    scales: bool = True
    guarantees: bool = False

    def children(self, parent: str, tree: str) -> list[OracleQuota]:
        found = [q for q in self.quotas if q.parent == parent and q.tree == tree and q.name not in (SYSTEM, DEFAULT)]
        return sorted(found, key=lambda quota: quota.name)

    def request(self, quota: OracleQuota, resource: str) -> int:
        """What goes up: at most the maximum; who does not lend requests its minimum at least."""
        wanted = sum(pod.get(resource, 0) for pod, _ in quota.pods)
        wanted += sum(self.request(child, resource) for child in self.children(quota.name, quota.tree))
        if not quota.lends:
            wanted = max(wanted, quota.minimum.get(resource, 0))
        return min(wanted, quota.maximum[resource]) if resource in quota.maximum else wanted

    def used(self, quota: OracleQuota, resource: str) -> int:
        own = sum(pod.get(resource, 0) for pod, is_placed in quota.pods if is_placed)
        return own + sum(self.used(child, resource) for child in self.children(quota.name, quota.tree))

    def guarantee(self, quota: OracleQuota, resource: str) -> int:
        if not self.guarantees:
            return 0
        own = sum(pod.get(resource, 0) for pod, is_placed in quota.pods if is_placed)
        below = sum(self.guarantee(child, resource) for child in self.children(quota.name, quota.tree))
        return max(own + below, quota.minimum.get(resource, 0))

    def total(self, tree: str, resource: str) -> int:
        roots = [quota for quota in self.quotas if quota.total is not None]
        if tree:
            return sum((quota.total or {}).get(resource, 0) for quota in roots if quota.tree == tree)
        left = self.cluster.get(resource, 0)
        left -= sum((q.total or {}).get(resource, 0) for q in roots if not q.ignores_default_tree)
        return left - sum(self.used(quota, resource) for quota in self.quotas if quota.name in (SYSTEM, DEFAULT))

    def runtime(self, quota: OracleQuota, resource: str) -> int:
        if quota.name in (SYSTEM, DEFAULT):
            return quota.maximum[resource]
        if quota.parent == ROOT:
            total = self.total(quota.tree, resource)
        else:
            (parent,) = [each for each in self.quotas if each.name == quota.parent]
            total = self.runtime(parent, resource)
        return self.divided(self.children(quota.parent, quota.tree), resource, total)[quota.name]

    def divided(self, children: list[OracleQuota], resource: str, total: int) -> dict[str, int]:
        minima = {each.name: Fraction(each.minimum.get(resource, 0)) for each in children}
        if self.scales and sum(minima.values()) > max(total, 0):
            factor = Fraction(max(total, 0)) / sum(minima.values())
            minima = {name: Fraction(floor(minimum * factor)) for name, minimum in minima.items()}
        runtimes: dict[str, Fraction] = {}
        needers: dict[str, tuple[int, int]] = {}
        for each in children:
            minimum = max(minima[each.name], Fraction(self.guarantee(each, resource)))
            request = self.request(each, resource)
            runtimes[each.name] = minimum if request > minimum or not each.lends else Fraction(request)
            if request > minimum:
                needers[each.name] = each.weight.get(resource, 0), request
        left = total - sum(runtimes.values())
        while left > 0 and sum(weight for weight, _ in needers.values()) > 0:
            weights = sum(weight for weight, _ in needers.values())
            exact = {name: left * weight / weights for name, (weight, _) in needers.items()}
            shares = {name: floor(share) for name, share in exact.items()}
            over = left - sum(shares.values())
            for name in sorted(exact, key=lambda each: (shares[each] - exact[each], each))[: int(over)]:
                shares[name] += 1
            left = Fraction(0)
            for name, (_, request) in list(needers.items()):
                runtimes[name] += shares[name]
                if runtimes[name] >= request:
                    left += runtimes[name] - request
                    runtimes[name] = Fraction(request)
                    del needers[name]
        assert all(each.denominator == 1 for each in runtimes.values())
        return {name: int(each) for name, each in runtimes.items()}
