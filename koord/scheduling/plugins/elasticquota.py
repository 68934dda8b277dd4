"""ElasticQuota: a pod gets a node only where its quota may use what the pod requests beside what it uses already.

Compares what the pod requests, and of that what the quota limits: a quota that is over its limit in one resource keeps
nobody out who asks for none of it. Of each quota above, where parents count, the same.

Source: Koordinator, pkg/scheduler/plugins/elasticquota, whose words for a pod these are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from koord.quota import names, spec, words
from koord.quota.forest import Forest, Quota, QuotaRules
from koord.scheduling.plugin import Event, Plugin, Rejection, Scope
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.quotas import is_fixed
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools


class QuotaObstacle(NamedTuple):
    """``quota`` may not use what the pod adds to ``used``: by resource, of those that the pod requests and the quota
    limits. ``is_minimum``: the limit is the minimum, as for pods that are not preemptible.
    """

    quota: Quota
    limit: Mapping[str, int]
    used: Mapping[str, int]
    request: Mapping[str, int]
    exceeded: tuple[str, ...]
    is_minimum: bool = False

    @property
    def text(self) -> str:
        if self.quota.problem:
            return f"Insufficient quotas, quotaName: {self.quota.name}, which cannot be used: {self.quota.problem}"
        said = (
            ("quotaName", self.quota.name),
            ("min" if self.is_minimum else "runtime", _text(self.limit)),
            ("nonPreemptibleUsed" if self.is_minimum else "used", _text(self.used)),
            ("pod's request", _text(self.request)),
            ("exceedDimensions", f"[{' '.join(self.exceeded)}]"),
        )
        what = "non-preemptible quotas" if self.is_minimum else "quotas"
        return f"Insufficient {what}, " + ", ".join(f"{name}: {value}" for name, value in said)


@dataclass(frozen=True)
class ElasticQuota(Plugin):
    """``limits_by_runtime`` False: a quota may use its maximum. ``checks_parents``: the quotas above it count, too.

    ``rules``, ``monitors``, ``overuse_s``, ``revoke_interval_s``, ``spares_default``: of the scheduler's only quotas,
    so the same in all its profiles: who uses more than its runtime for ``overuse_s`` gives back, if anybody
    ``monitors``; pods of no quota make no room by leaving, if ``spares_default``.
    """

    name: ClassVar[str] = "ElasticQuota"
    filter_scope: ClassVar[Scope] = Scope.CLUSTER
    goes_by_quotas: ClassVar[bool] = True
    limits_by_runtime: bool = True
    checks_parents: bool = False
    rules: QuotaRules = field(default_factory=QuotaRules)
    monitors: bool = False
    overuse_s: float = 120.0
    revoke_interval_s: float = 1.0
    spares_default: bool = True

    @property
    def counting(self) -> tuple[object, ...]:
        """What is the same in all profiles."""
        return self.rules, self.monitors, self.overuse_s, self.revoke_interval_s, self.spares_default

    def goes_by_pods(self, state: ClusterState, pod: PodInfo) -> bool:
        """Only where the quota keeps the pod out: no pod that leaves matters to one that it lets in."""
        return self.obstacle(state, pod) is not None

    def is_helped_by(self, state: ClusterState, pod: PodInfo, event: Event) -> bool:
        return self.obstacle(state, pod) is None

    def room(self, state: ClusterState, pod: PodInfo) -> int | None:
        quota, forest = state.quotas.of(pod), state.quotas.forest
        if quota is None or forest is None:
            return None
        if quota.problem:
            return 0
        rooms = [
            (limit[name] - used.get(name, 0)) // request[name]
            for _, limit, used, request, _ in self._limits(forest, quota, pod.requests, is_fixed(pod))
            for name in limit
        ]
        return max(0, min(rooms)) if rooms else None

    def filter(self, state: ClusterState, pod: PodInfo) -> Bools | None:
        return None if self.obstacle(state, pod) is None else np.zeros(state.length, np.bool_)

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        found = self.obstacle(state, pod)
        return () if found is None else (Rejection(found.text, state.table.exists, True, is_of_pod=True),)

    def helps(self, state: ClusterState, pod: PodInfo) -> Iterator[str]:
        """Yields what lets the pod in."""
        found = self.obstacle(state, pod)
        if found is None:
            return
        quota = found.quota
        if quota.problem:
            yield f"that quota {quota.name} can be used: {quota.problem}"
            return
        for name in found.exceeded:
            lacking = found.used.get(name, 0) + found.request[name] - found.limit[name]
            most = quota.spec.maximum.get(name)
            yield f"that quota {quota.name} uses {spec.text(name, lacking)} less {name}, or may use so much more"
            if most is not None and found.request[name] > most:
                yield f"a smaller request: quota {quota.name} may have {spec.text(name, most)} {name} at most"

    def figures(self, state: ClusterState, pod: PodInfo) -> Iterator[tuple[str, str]]:
        """Yields each quota from the tree down to the one that keeps the pod out, with why it may use no more."""
        found, forest = self.obstacle(state, pod), state.quotas.forest
        if found is None or forest is None or found.is_minimum or not self.limits_by_runtime:
            return
        for name in found.exceeded:
            for level in forest.levels(found.quota, name):
                yield level.quota, f"may use {words.line(level, name)}"

    def obstacle(self, state: ClusterState, pod: PodInfo) -> QuotaObstacle | None:
        """Returns what keeps the pod out; None: nothing."""
        quota, forest = state.quotas.of(pod), state.quotas.forest
        if quota is None or forest is None:
            return None
        return next(self._obstacles(forest, quota, pod.requests, is_fixed(pod)), None)

    def _obstacles(
        self, forest: Forest, quota: Quota, requests: Mapping[str, int], is_fixed: bool
    ) -> Iterator[QuotaObstacle]:
        if quota.problem:
            yield QuotaObstacle(quota, {}, {}, requests, ())
            return
        if self._is_well_within(forest, quota, requests, is_fixed):
            return
        for each, limit, used, request, is_minimum in self._limits(forest, quota, requests, is_fixed):
            exceeded = tuple([name for name, most in limit.items() if used.get(name, 0) + request[name] > most])
            if exceeded:
                of_limit = {name: used.get(name, 0) for name in limit}
                yield QuotaObstacle(each, limit, of_limit, request, exceeded, is_minimum)

    def _is_well_within(self, forest: Forest, quota: Quota, requests: Mapping[str, int], is_fixed: bool) -> bool:
        """Returns whether the pod is let in without that each limit has to be known; False: that is not known."""
        used = quota.counted.used
        return (
            self.limits_by_runtime
            and not self.checks_parents
            and not is_fixed
            and all(
                forest.allows(quota, name, used.get(name, 0) + amount)
                for name, amount in requests.items()
                if name in quota.spec.maximum
            )
        )

    def _limits(
        self, forest: Forest, quota: Quota, requests: Mapping[str, int], is_fixed: bool
    ) -> Iterator[tuple[Quota, dict[str, int], Mapping[str, int], dict[str, int], bool]]:
        """Yields each quota that counts, its limit, what it uses, what the pod requests of that, and whether the limit
        is its minimum.
        """
        for each in quota.upward():
            if each.name == names.ROOT:
                return
            request = {name: amount for name, amount in requests.items() if name in each.spec.maximum}
            limit = {
                name: (forest.runtime(each, name) or 0) if self.limits_by_runtime else each.spec.maximum[name]
                for name in request
            }
            yield each, limit, each.counted.used, request, False
            if is_fixed and each is quota:
                minimum = {name: each.spec.minimum[name] for name in requests if name in each.spec.minimum}
                yield each, minimum, each.counted.fixed_used, {name: requests[name] for name in minimum}, True
            if not self.checks_parents:
                return


def _text(amounts: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{text}" for name, text in spec.texts(amounts).items())
