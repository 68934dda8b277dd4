"""Bounds quotas and CPU sets below kubelet's BestEffort tier by the tier's, and newcomers by the limit of all.

cgroup v1 takes no quota that is more than its parent's, neither the tier's smaller one above it nor the container's at
its creation. A container below a tier that has less than the container's own quota is bounded by the tier alone: so it
gets no quota of its own meanwhile, which is no more CPU, and is not written again each time the tier's quota moves.
cgroup v2 takes any. Nor does cgroup v1 take a CPU set that is not within the tier's, which another agent may have made:
no container below gets more than that meanwhile.

Where best-effort pods are bounded one by one (beside pods of other classes in their tier, or outside of it), one that
starts has no bound yet: the call that makes it carries the limit of all of them together.
"""

from __future__ import annotations

from msgspec.structs import replace

from koord.model import cfs, cpuset
from koord.model.cfs import UNLIMITED
from koord.model.cpuset import EMPTY
from koord.model.crifields import Field
from koord.model.formulas import FORMULA, Inputs
from koord.model.qos import KubeQoS
from koord.model.quantity import MilliCPU
from qosd.hooks.edits import Abstention, Edit, Edits
from qosd.model.besteffort import BestEffortLimits
from qosd.model.pod import PodContext
from qosd.model.policy import EffectivePolicy


def depends_on_tier(policy: EffectivePolicy) -> bool:
    """Returns whether the tier's quota changes quotas below it. It changes no other value there."""
    return policy.host.cgroup_version == 1


def below_tier(edits: Edits, pod: PodContext, policy: EffectivePolicy, limits: BestEffortLimits) -> Edits:
    """Returns ``edits`` without a quota or CPU set that cgroup v1 would refuse below the tier's."""
    if pod.kube_qos is not KubeQoS.BEST_EFFORT or not depends_on_tier(policy):
        return edits
    return _within_quota(_within_cpus(edits, limits), pod, limits)


def _within_cpus(edits: Edits, limits: BestEffortLimits) -> Edits:
    tier, edit = cpuset.parse(limits.tier_cpus), edits.get(Field.CPUSET_CPUS)
    wanted = cpuset.parse(str(edit.value)) if edit is not None and tier else EMPTY
    if edit is None or wanted <= tier:
        return edits
    why = f"{edit.why}; the BestEffort tier has no more than {tier}, as another agent left it"
    if not wanted & tier:
        others = tuple([each for each in edits.items if each is not edit])
        left_alone = Abstention(edit.field, why, stays=False, hook=edit.hook)
        return replace(edits, items=others, abstentions=(*edits.abstentions, left_alone))
    return _with(edits, edit, replace(edit, value=str(wanted & tier), why=why))


def _within_quota(edits: Edits, pod: PodContext, limits: BestEffortLimits) -> Edits:
    tier_milli = limits.tier_milli
    edit = edits.get(Field.CPU_QUOTA) if tier_milli else None
    most_milli = limits.below_tier_milli or tier_milli
    if edit is None or not isinstance(edit.value, int) or edit.value <= _quota_us(most_milli, pod):
        return edits
    why = f"{edit.why}; the BestEffort tier has less, or had just now ({limits.scheduling.why})"
    return _with(edits, edit, replace(edit, value=UNLIMITED, why=why, computed={}, factor=None))


def of_newcomer(edits: Edits, pod: PodContext, limits: BestEffortLimits) -> Edits:
    """Returns ``edits`` with the bound of a best-effort container that no tier bounds."""
    left = limits.scheduling
    is_bounded = bool(left.cpu_milli) and pod.is_container and pod.is_best_effort
    if not is_bounded or (pod.kube_qos is KubeQoS.BEST_EFFORT and limits.tier_milli == left.cpu_milli):
        return edits
    edit, most_us = edits.get(Field.CPU_QUOTA), _quota_us(left.cpu_milli, pod)
    quota_us = edit.value if edit is not None else pod.requested.cpu_quota_us
    if isinstance(quota_us, int) and 0 < quota_us <= most_us:
        return edits
    fed: Inputs = {FORMULA: "cpu_quota", "limit_milli": left.cpu_milli, "period_us": _period_us(pod)}
    why = f"no more than all best-effort pods have together ({left.why})"
    bound = Edit(Field.CPU_QUOTA, most_us, f"{edit.why}; {why}" if edit else why, computed=fed)
    return _with(edits, edit, replace(bound, hook=edit.hook if edit else "batchResource"))


def _period_us(pod: PodContext) -> int:
    return pod.requested.quota_period_us


def _quota_us(cpu_milli: int, pod: PodContext) -> int:
    return cfs.quota_us(MilliCPU(cpu_milli), _period_us(pod))


def _with(edits: Edits, old: Edit | None, new: Edit) -> Edits:
    items = tuple([new if each is old else each for each in edits.items])
    return replace(edits, items=items if old is not None else (*items, new))
