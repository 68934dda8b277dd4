"""Puts the limits of best-effort pods on kernel files: quotas of tier and containers, weights of pods.

A strategy that holds best-effort work back limits all best-effort pods together (``BestEffortScheduling``); the limits
hold for pods that run and for pods to come (``qosd.policy.scheduling``). On cgroups they become:

    CPU time        the quota of kubelet's BestEffort tier, if it holds all of these pods and no others, and no other
                    writer fights for it; else a quota for each of their containers, so that the tier's uncovered pods
                    keep theirs
    lowest weight   the shares of their pods that stand beside other pods, scaled to 2 for each on the average
    idle            ``cpu.idle`` of their pods

The hooks set CPUs, container by container, and ``bestEffortSlices`` sets slices of tasks. A tier itself gets no CPU
set and no ``cpu.idle``: cgroup v1 would start no container with more CPUs than its tier has, and kubelet
writes the tier's shares. Invariants: pure; a pod that is not covered (``is_covered``) is bounded by nothing here but a
tier's quota that has room for all that its limit allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from koord.host.files import Target
from koord.model import cfs
from koord.model.cfs import MIN_SHARES
from koord.model.formulas import FORMULA, Inputs
from koord.model.qos import KubeQoS
from koord.model.quantity import MilliCPU
from koord.model.readable import shorten_list
from qosd.decide.decision import Decision, Opinion, Opinions, Stage, Strategy
from qosd.model.besteffort import BestEffortLimits
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import ContainerView, NodeSnapshot, PodView, live, running_containers
from qosd.policy.scheduling import is_covered, is_uncovered
from qosd.strategies.besteffort.division import FLOOR_MILLI, Division, divide

QUOTA, SHARES, IDLE = "cpu_quota", "cpu_shares", "cpu.idle"
_NAMED = 5
"""Pods that the sentence names."""
_NO_DIVISION = Division()


class _Memo(msgspec.Struct, frozen=True, eq=False):
    """The last decision and the objects that it was made from."""

    policy: EffectivePolicy
    limits: BestEffortLimits
    pods: tuple[PodView, ...]
    tiers: Mapping[KubeQoS, str]
    is_contested: bool
    division: Division
    decision: Decision

    def holds(self, node: NodeSnapshot, is_contested: bool) -> bool:
        is_same = self.policy is node.policy and self.limits is node.limits
        is_same = is_same and self.pods is node.pods and self.tiers is node.tiers
        return is_same and self.is_contested == is_contested


class BestEffortStrategy(Strategy[_Memo]):
    """The strategy ``bestEffort``."""

    name: ClassVar[str] = "bestEffort"
    stage: ClassVar[Stage] = Stage.SUPPRESSION
    rows: ClassVar[frozenset[str]] = frozenset({QUOTA, SHARES, IDLE})
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({})

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        """Always: without limits it bounds nothing."""
        return True

    def decide(self, snapshot: NodeSnapshot, last: _Memo | None) -> tuple[Decision, _Memo]:
        """Depends on the policy, the limits, the pods, and, where containers are bounded one by one, on what they
        use."""
        is_contested = _is_contested(snapshot)
        holds = last is not None and last.holds(snapshot, is_contested)
        if last is not None and holds and last.division is _NO_DIVISION:
            return last.decision, last
        pods = BestEffortPods(snapshot, is_contested)
        division = _NO_DIVISION
        if pods.is_divided:
            before = last.division if last is not None else _NO_DIVISION
            division = divide(snapshot, pods.left.cpu_milli, pods.containers, before)
        if last is not None and holds and last.division is division:
            return last.decision, last
        decision = pods.decision(division)
        if last is not None and last.decision == decision:
            decision = last.decision
        return decision, _Memo(
            snapshot.policy, snapshot.limits, snapshot.pods, snapshot.tiers, is_contested, division, decision
        )


def _is_contested(snapshot: NodeSnapshot) -> bool:
    """Does another writer fight for the tier's quota?"""
    state = snapshot.files.get(Target(snapshot.tiers.get(KubeQoS.BEST_EFFORT, ""), QUOTA))
    return state is not None and state.is_contested


class BestEffortPods:
    """The best-effort pods of a snapshot, and their limits (``left``)."""

    def __init__(self, snapshot: NodeSnapshot, is_contested: bool) -> None:
        self._is_contested = is_contested
        self._policy: EffectivePolicy = snapshot.policy
        self.left = snapshot.limits.scheduling
        self._tier = snapshot.tiers.get(KubeQoS.BEST_EFFORT, "")
        node = snapshot.policy.node
        self._pods = [pod for pod in snapshot.pods if is_covered(pod, node) and pod.cgroup and live(pod)]
        self._has_uncovered = any(is_uncovered(pod, node) for pod in snapshot.pods)
        self._tier_milli = snapshot.limits.tier_milli if self._tier else 0

    @property
    def is_divided(self) -> bool:
        """Are containers bounded one by one? Not if the tier's quota bounds all of them and no others."""
        is_enough = not (self._is_contested or self._has_uncovered or any(map(_is_outside, self._pods)))
        return bool(self.left.cpu_milli) and not is_enough

    @property
    def containers(self) -> Sequence[tuple[PodView, ContainerView]]:
        """The containers that run, and so have quotas that may be written."""
        return [(pod, each) for pod in self._pods for each in running_containers(pod)]

    def decision(self, division: Division) -> Decision:
        times = self._marked("cpu_milli", {**self._of_tier(), **self._of_containers(division)})
        idle = self._marked("is_idle", self._of_idle())
        return Decision(self._sentence(division), {**times, **self._of_weights(), **idle})

    def _marked(self, field: str, opinions: Opinions) -> Opinions:
        """Returns ``opinions``, marked as temporary if the limit ``field`` that they put into force is on trial."""
        if self.left.on_trial != field:
            return opinions
        return {target: replace(opinion, is_temporary=True) for target, opinion in opinions.items()}

    def _of_tier(self) -> Opinions:
        """Returns the quota of the tier, of the kernel's own period: kubelet sets none there."""
        milli = self._tier_milli
        if not milli:
            return {}
        uncovered_milli = milli - self.left.cpu_milli
        room = f"; and {uncovered_milli}m for pods of other classes" if uncovered_milli else ""
        return {Target(self._tier, QUOTA): _quota(milli, f"{self.left.why}{room}")}

    def _of_containers(self, division: Division) -> Opinions:
        """Returns quotas of containers, without those above the tier's, which cgroup v1 refuses."""
        why = f"its part of {self.left.cpu_milli}m: {self.left.why}"
        most_milli = self._tier_milli if self._policy.host.cgroup_version == 1 else 0
        return {
            Target(container.cgroup, QUOTA): _quota(milli, why, pod.key, container.requested.quota_period_us)
            for pod, container, milli in self._divided(division)
            if not most_milli or _is_outside(pod) or milli <= max(FLOOR_MILLI, most_milli)
        }

    def _divided(self, division: Division) -> Iterator[tuple[PodView, ContainerView, int]]:
        """Yields each container with its part."""
        for pod, container in self.containers if division.parts else ():
            yield pod, container, division.parts[container.cgroup]

    def _of_weights(self) -> Opinions:
        """Returns lower shares for pods beside other pods: those outside the tier, and all if it has uncovered pods."""
        if not self.left.has_lowest_weight:
            return {}
        beside = [pod for pod in self._pods if _is_outside(pod) or self._has_uncovered]
        total = sum(map(_requested_shares, beside))
        factor = Fraction(MIN_SHARES * len(beside), total) if beside else Fraction(1)
        if factor >= 1:
            return {}
        why = f"beside pods of other classes it has the lowest weight: {self.left.why}"
        inputs: Inputs = {FORMULA: "given", "value": str(factor)}
        return {Target(pod.cgroup, SHARES): Opinion.scale(factor, why, inputs, pod.key) for pod in beside}

    def _of_idle(self) -> Opinions:
        if not self.left.is_idle:
            return {}
        inputs: Inputs = {FORMULA: "given", "value": 1}
        return {Target(pod.cgroup, IDLE): Opinion.at_least(1, self.left.why, inputs, pod.key) for pod in self._pods}

    def _sentence(self, division: Division) -> str:
        bounds = list(self._bounds(division))
        return "; ".join([*bounds, self._names()]) if bounds else "best-effort pods are let be"

    def _bounds(self, division: Division) -> Iterator[str]:
        left, tier_milli = self.left, self._tier_milli
        if left.cpus:
            yield f"CPUs {left.cpus}"
        if left.cpu_milli:
            contested = ", since another writer keeps setting the tier's quota" if self._is_contested else ""
            how = f"container by container{contested}" if self.is_divided else "by the BestEffort tier's quota"
            room = f" ({tier_milli}m, with room for others' pods)" if tier_milli > left.cpu_milli else ""
            yield f"{left.cpu_milli}m of CPU time, {how}{room}"
            yield from self._excess(division)
        if left.has_lowest_weight:
            yield "the lowest weight"
        if left.is_idle:
            yield "cpu.idle"
        if left.slice_us:
            yield f"slices of {left.slice_us} us"

    def _excess(self, division: Division) -> Iterator[str]:
        """Says by how much the least quotas of many containers exceed the limit, as far as the tier allows it."""
        within = outside = 0
        for pod, _, milli in self._divided(division):
            if _is_outside(pod):
                outside += milli
            else:
                within += milli
        if within + outside <= self.left.cpu_milli:
            return
        least, count = min(division.parts.values()), len(division.parts)
        tier_milli = 0 if self._is_contested else self._tier_milli
        used_milli = outside + (min(within, tier_milli) if tier_milli else within)
        by_tier = f", of which the BestEffort tier's quota lets {used_milli}m be used" if tier_milli else ""
        yield f"{count} containers with at least {least}m each come to {within + outside}m{by_tier}"

    def _names(self) -> str:
        names = sorted(pod.key for pod in self._pods)
        return f"covers {', '.join(shorten_list(names, _NAMED))}" if names else "there is no best-effort pod"


def _is_outside(pod: PodView) -> bool:
    return pod.kube_qos is not KubeQoS.BEST_EFFORT


def _requested_shares(pod: PodView) -> int:
    """Returns the shares that kubelet or the hooks give the pod's cgroup, as far as its containers show them."""
    native = [each.requested.cpu_shares or MIN_SHARES for each in pod.containers if not each.is_sandbox]
    amounts = [pod.context.amounts_of(name) for name in pod.context.extended]
    ours = [cfs.shares(MilliCPU(each.cpu_request_milli)) for each in amounts if each is not None]
    return max(MIN_SHARES, sum(native), sum(ours))


def _quota(milli: int, why: str, pod: str = "", period_us: int = cfs.PERIOD_US) -> Opinion:
    fed: Inputs = {FORMULA: "cpu_quota", "limit_milli": milli, "period_us": period_us}
    return Opinion.at_most(cfs.quota_us(MilliCPU(milli), period_us), why, fed, pod)
