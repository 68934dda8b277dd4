"""Memory QoS of kubelet's tiers: each tier protects the sum of what its pods protect.

    memory.min, memory.low    at least the sum over the pods of that Kubernetes QoS; of the root of all, over all pods
    memory.priority, memory.use_priority_oom    as the class that the tier stands for, on kernels that have them

The kernel protects a cgroup only as far as the one above it. kubelet with its gate MemoryQoS writes these files too, so
the value is at least the sum, and never less than kubelet's own. It is at most the node's allocatable memory: more
would be protected from all others on the node, the system's daemons and Koord's own (``MemoryMin=`` of koord.slice)
among them. A tier gets no ``memory.oom.group``: the kernel kills the highest cgroup that has it, which would be every
pod of the tier.

cgroup v1 of mainline has neither file. There a soft limit stands in for ``memory.low``: when the whole node runs short,
the kernel reclaims cgroups above their soft limit first. A soft limit of a protected pod alone would make that pod the
first, so best-effort pods get one, mostly 0, as soon as any pod has one. It is a hint: nothing stands in for
``memory.min``. Only pods' own cgroups get it.

Invariants: pure; a pod with an unknown request protects nothing, and the sentence counts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from koord.host.files import Target, Value
from koord.model import memory_qos_messages
from koord.model.formulas import FORMULA, Formula, Inputs, number
from koord.model.memory_qos_messages import SOFT_LIMIT
from koord.model.qos import KubeQoS, QoSClass
from qosd.decide.decision import Decision, Opinion, Stage, Strategy
from qosd.hooks import memoryqos
from qosd.hooks.memory import LOW, MIN, PRIORITY, USE_PRIORITY
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import PODS_MAX_AGE_S, NodeSnapshot, PodView, live
from qosd.strategies.perpod import count, of_each
from qosd.strategies.reconciler import pod_cgroup

HOOK = "memory"
_CLASSES = {KubeQoS.GUARANTEED: QoSClass.LSR, KubeQoS.BURSTABLE: QoSClass.LS, KubeQoS.BEST_EFFORT: QoSClass.BE}


@dataclass(frozen=True, slots=True)
class Protected:
    """The memory of one pod that is protected, in bytes. ``is_unknown``: a part of it is unknown."""

    min_bytes: int = 0
    low_bytes: int = 0
    is_unknown: bool = False


NOTHING = Protected()
_ByUid = Mapping[str, tuple[PodView, Protected | None]]


@dataclass(frozen=True, slots=True)
class TierMemo:
    """The last decision and its inputs. ``policy``: the parts of the policy that memory QoS depends on."""

    policy: tuple[object, ...]
    pods: tuple[PodView, ...]
    tiers: Mapping[KubeQoS, str]
    by_uid: _ByUid
    decision: Decision


def _bounded(inputs: Inputs) -> Value:
    total, allocatable = number(inputs, "sum_bytes"), number(inputs, "allocatable_bytes")
    return min(total, allocatable) if allocatable else total


class MemoryTiers(Strategy[TierMemo]):
    """The strategy ``memoryTiers``, on with the hook ``memory``."""

    name: ClassVar[str] = "memoryTiers"
    stage: ClassVar[Stage] = Stage.SPEC
    gate: ClassVar[str] = memoryqos.GATE
    rows: ClassVar[frozenset[str]] = frozenset({MIN, LOW, PRIORITY, USE_PRIORITY, SOFT_LIMIT})
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"pods": PODS_MAX_AGE_S})
    formulas: ClassVar[tuple[Formula, ...]] = (
        Formula("memory_tier", "sum_bytes, at most allocatable_bytes unless that is 0", _bounded),
    )

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return snapshot.policy.enabled(HOOK)

    def decide(self, snapshot: NodeSnapshot, last: TierMemo | None) -> tuple[Decision, TierMemo]:
        policy, pods, tiers = snapshot.policy, snapshot.pods, snapshot.tiers
        memory_policy = memoryqos.policy_of(policy)
        is_same = last is not None and memoryqos.is_same(last.policy, memory_policy)
        if last is not None and is_same and last.pods is pods and last.tiers is tiers:
            return last.decision, last
        by_uid = of_each(pods, last.by_uid if last is not None and is_same else {}, partial(of_pod, policy=policy))
        decision = _decision(policy, tiers, list(by_uid.values()))
        if last is not None and last.decision == decision:
            decision = last.decision
        return decision, TierMemo(memory_policy, pods, tiers, by_uid, decision)


def of_pod(pod: PodView, policy: EffectivePolicy) -> Protected | None:
    """Returns what the pod protects; None if no memory QoS is set for it, or it has no cgroup in use."""
    case = memoryqos.of(pod_cgroup(pod), policy) if pod.cgroup and live(pod) else None
    if case is None:
        return None
    minimum, low = case.min_bytes, case.low_bytes
    return Protected(minimum or 0, low or 0, case.request_bytes is None and None in (minimum, low))


def _decision(
    policy: EffectivePolicy, tiers: Mapping[KubeQoS, str], pods: list[tuple[PodView, Protected | None]]
) -> Decision:
    asked = [(pod, protected) for pod, protected in pods if protected is not None]
    unknown = sum(protected.is_unknown for _, protected in asked)
    silence = f"; the memory request of {unknown} of them is unknown (--kubelet-endpoint)" if unknown else ""
    if policy.host.cgroup_version == 2 or MIN in (policy.host.files or ()):
        opinions, bounded = _of_tiers(policy, tiers, asked)
        warnings = [] if not bounded else [_of_more(bounded, policy.allocatable_memory_bytes)]
        sentence = f"{_sum(asked, MIN)} bytes of {MIN} and {_sum(asked, LOW)} of {LOW}"
        return Decision(f"{sentence} of {count(len(asked), 'pod')}{silence}", opinions, warnings=tuple(warnings))
    opinions = _soft_limits(policy, pods) if SOFT_LIMIT in (policy.host.files or ()) else {}
    stand_in = f"{SOFT_LIMIT} of {count(len(opinions), 'pod')}" if opinions else ""
    return Decision(memory_qos_messages.without_protection(stand_in) + silence, opinions)


def _of_tiers(
    policy: EffectivePolicy, tiers: Mapping[KubeQoS, str], asked: list[tuple[PodView, Protected]]
) -> tuple[dict[Target, Opinion], Mapping[str, int]]:
    """Returns the opinions, and by row the sums over all pods that exceed the allocatable memory."""
    opinions: dict[Target, Opinion] = {}
    allocatable = policy.allocatable_memory_bytes
    for qos, cgroup in tiers.items():
        pods = [(pod, protected) for pod, protected in asked if qos in (KubeQoS.GUARANTEED, pod.kube_qos)]
        for row in (MIN, LOW):
            if total := _sum(pods, row):
                inputs: Inputs = {FORMULA: "memory_tier", "sum_bytes": total, "allocatable_bytes": allocatable}
                why = f"the sum of what {count(len(pods), 'pod')} may keep, at most what is allocatable"
                opinions[Target(cgroup, row)] = Opinion.at_least(_bounded(inputs), why, inputs)
        opinions.update(_oom_order(policy, qos, cgroup))
    sums = {row: _sum(asked, row) for row in (MIN, LOW)}
    return opinions, {row: total for row, total in sums.items() if 0 < allocatable < total}


def _sum(pods: Iterable[tuple[PodView, Protected]], row: str) -> int:
    return sum(protected.min_bytes if row == MIN else protected.low_bytes for _, protected in pods)


def _of_more(sums: Mapping[str, int], allocatable: int) -> str:
    asked = " and ".join(f"{total} bytes of {row}" for row, total in sums.items())
    return f"the pods ask for {asked}, more than the {allocatable} that are allocatable: the tiers protect no more"


def _oom_order(policy: EffectivePolicy, qos: KubeQoS, cgroup: str) -> Iterator[tuple[Target, Opinion]]:
    settings = policy.class_settings(_CLASSES[qos]).memory_qos
    if settings is None or not settings.enable:
        return
    for row, value in ((PRIORITY, settings.priority), (USE_PRIORITY, settings.priority_enable)):
        if value is not None and row in (policy.host.files or ()):
            why = f"memoryQOS of {_CLASSES[qos]}, which tier {qos} stands for"
            yield Target(cgroup, row), Opinion.set(value, why, {FORMULA: "given", "value": value})


def _soft_limits(policy: EffectivePolicy, pods: list[tuple[PodView, Protected | None]]) -> dict[Target, Opinion]:
    if not any(protected is not None and protected.low_bytes for _, protected in pods):
        return {}
    return {
        Target(pod.cgroup, SOFT_LIMIT): Opinion.set(value, why, {FORMULA: "given", "value": value}, pod.key)
        for pod, protected in pods
        if (found := _soft_limit(pod, protected, policy)) is not None
        for value, why in (found,)
    }


def _soft_limit(pod: PodView, protected: Protected | None, policy: EffectivePolicy) -> tuple[int, str] | None:
    """Returns the pod's soft limit and why; None: it has none, as without Koord."""
    if not pod.cgroup or not live(pod) or (protected is not None and protected.is_unknown):
        return None
    if protected is not None and protected.low_bytes:
        return protected.low_bytes, f"in place of {LOW}, which cgroup v1 lacks"
    if pod.context.treated_as(policy.node.derivation) is QoSClass.BE:
        return 0, "others have soft limits, and what is best-effort is to be reclaimed before them"
    return None
