"""The CPUs that a container may use: those bound for it, its class's pool, or kubelet's.

The decisions are Koordinator's with three changes: under kubelet's CPU manager ``static`` a pod without a QoS label
keeps kubelet's set, wherever the scheduler placed it, and no pod is bound to a CPU that kubelet gave exclusively; where
the policy names a BE pool (all CPUs outside LSE), BE pods get it instead of the empty set, which means "the parent's".
A pool that the policy leaves out is no opinion. First match wins. While the CPUs that kubelet gave exclusively are
unknown, a container is made with kubelet's set; no CPU set of a running one is widened, no quota lifted.
"""

from __future__ import annotations

from koord.model import cpuset
from koord.model.cfs import UNLIMITED
from koord.model.crifields import Field
from koord.model.qos import KubeQoS, QoSClass
from qosd.hooks.edits import Abstention, Edit, Edits
from qosd.model.besteffort import BestEffortLimits
from qosd.model.pod import CGROUP_STAGES, HookStage, PodContext
from qosd.model.policy import CPUManagerPolicy, EffectivePolicy, join

_Choice = tuple[str, str] | None  # (CPU list, why); None = no opinion


def decide(pod: PodContext, policy: EffectivePolicy, limits: BestEffortLimits) -> Edits:
    if policy.node.cpus_unknown and pod.stage not in CGROUP_STAGES:
        return Edits()
    items = []
    of_sandbox = pod.stage is HookStage.SANDBOX_CGROUP
    bound, why_bound = _bound(pod, policy)
    choice = _cpus(pod, bound, why_bound, policy, limits) if pod.is_container or of_sandbox else None
    if choice is not None:
        items.append(Edit(Field.CPUSET_CPUS, *choice))
    if bound and policy.node.unset_cpu_quota and not of_sandbox:
        if policy.node.cpus_unknown:
            return Edits(tuple(items), abstentions=(Abstention(Field.CPU_QUOTA, policy.node.cpus_unknown, stays=True),))
        why = f"CPUs {bound} are bound for it, so a CFS quota would only throttle"
        items.append(Edit(Field.CPU_QUOTA, UNLIMITED, why))
    return Edits(tuple(items))


def keeps_kubelets(pod: PodContext) -> bool:
    """Returns whether the pod, if not bound, stays on the CPUs that kubelet's CPU manager gives it under ``static``."""
    return not pod.is_free and pod.raw_qos not in (QoSClass.LS, QoSClass.BE)


def _bound(pod: PodContext, policy: EffectivePolicy) -> tuple[str, str]:
    """Returns the CPUs that the scheduler bound, without those that kubelet gave exclusively, and why; "" = none."""
    why = "bound by the scheduler (annotation resource-status)"
    if not pod.bound_cpus or not policy.node.kubelet_cpus:
        return pod.bound_cpus, why
    wanted = cpuset.parse(pod.bound_cpus)
    taken = wanted & policy.node.kubelet_cpus
    return str(wanted - taken), f"{why}, less {taken}, which kubelet gave exclusively" if taken else why


def _cpus(pod: PodContext, bound: str, why_bound: str, policy: EffectivePolicy, limits: BestEffortLimits) -> _Choice:
    if bound:
        return bound, why_bound
    is_system = pod.raw_qos is QoSClass.SYSTEM and bool(policy.node.system_cpuset)
    if policy.node.cpu_manager_policy is CPUManagerPolicy.STATIC and keeps_kubelets(pod) and not is_system:
        return None
    placed = _numa_pool(pod, policy)
    if placed is not None:
        return placed
    if is_system:
        return policy.node.system_cpuset, "SYSTEM pods use the system-QoS CPUs"
    if pod.treated_as(policy.node.derivation) is QoSClass.BE:
        return _be_pool(pod, policy, limits)
    pool = join(policy.node.ls_pools)
    why = f"{pod.treated_as(policy.node.derivation)} without bound CPUs uses the LS pool (outside LSE and LSR)"
    return (pool, why) if pool else None


def _numa_pool(pod: PodContext, policy: EffectivePolicy) -> _Choice:
    is_be = pod.treated_as(policy.node.derivation) is QoSClass.BE
    if not pod.numa_nodes or (is_be and not policy.binds_best_effort):
        return None
    name, pools = ("BE", policy.node.be_pools) if is_be else ("LS", policy.node.ls_pools)
    cpus = join(pools, pod.numa_nodes)
    nodes = ",".join(map(str, sorted(pod.numa_nodes)))
    return (cpus, f"the {name} pool of NUMA node {nodes}, where the scheduler placed it") if cpus else None


def _be_pool(pod: PodContext, policy: EffectivePolicy, limits: BestEffortLimits) -> _Choice:
    who, left = "free pods" if pod.is_free else "BE pods", limits.scheduling
    is_held = pod.is_best_effort and bool(left.cpus)
    pool = join(limits.pools if is_held else policy.node.be_pools)
    if pool:
        why = f", as far as it is left to them ({left.why})" if is_held else ""
        return pool, f"{who} use the BE pool (outside LSE){why}"
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return "", f"{who} of the BestEffort tier use the tier's CPUs, whatever kubelet sent"
    return None
