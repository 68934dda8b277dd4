"""Group identity (``cpu.bvt_warp_ns``), the vendor kernel's scheduling rank: 2 highest, 0 neutral, -1 lowest.

It is set only where the kernel has the file. To containers it travels in CRI's ``unified`` map, so only on cgroup v2;
the pod's own cgroup gets it on either version, and a cgroup that is made below inherits it. Values are Koordinator's
with one change: SYSTEM pods take ``systemClass``, whatever their Kubernetes QoS suggests. An unlabelled Guaranteed pod
takes LSR's value if that is enabled and it counts as LSR, else LS's.

The feature is one: the same switches, gate and kernel file decide for pods, tiers, host applications and the kernel's
own switch (``why_off``), and one strategy keeps all of them up.
"""

from __future__ import annotations

from koord.host.order import IDENTITY
from koord.model.crifields import Field
from koord.model.qos import KubeQoS, QoSClass
from koord.model.qos_settings import CPUQOS
from koord.model.slo import CPUPolicy
from qosd.hooks.edits import Edit, Edits
from qosd.model.besteffort import BestEffortLimits
from qosd.model.pod import HookStage, PodContext
from qosd.model.policy import EffectivePolicy

FILE = IDENTITY
HOOK, GATE = "groupIdentity", "GroupIdentity"
_DECIDING = (QoSClass.LSR, QoSClass.LS, QoSClass.BE)
_OF_TIER = {KubeQoS.BURSTABLE: QoSClass.LS, KubeQoS.BEST_EFFORT: QoSClass.BE}


def decide(pod: PodContext, policy: EffectivePolicy, limits: BestEffortLimits) -> Edits:
    if why_off(policy) or not (policy.host.cgroup_version == 2 or pod.stage is HookStage.POD_CGROUP):
        return Edits()
    qos = pod.treated_as(policy.node.derivation)
    if qos is QoSClass.LSR and pod.raw_qos is None and not _enabled(policy, qos):
        qos = QoSClass.LS
    value, why = of_class(policy, qos)
    own = pod.cpu_qos
    if own is not None and pod.raw_qos is QoSClass.LS:
        value, why = _of_pod(own, value)
    return Edits((Edit(Field.UNIFIED, str(value), why, key=FILE),))


def wanted(policy: EffectivePolicy) -> bool:
    """Returns whether the policy uses group identity for any class that decides."""
    policies = policy.qos_strategy.policies
    by_policy = policies is None or policies.cpu_policy in (None, CPUPolicy.GROUP_IDENTITY)
    return by_policy and any(_enabled(policy, qos) for qos in _DECIDING)


def why_off(policy: EffectivePolicy) -> str:
    """Returns why no cgroup is given an identity; "" if they are."""
    if FILE not in (policy.host.files or ()):
        unknown = "before kubelet has made its cgroups nobody knows whether this kernel has it"
        return unknown if policy.host.files is None else f"this kernel has no {FILE}: only vendor kernels do"
    if not wanted(policy):
        return "no class has cpuQOS enabled, or cpuPolicy is another"
    if not policy.enabled(HOOK):
        return f"node.hooks switches {HOOK} off"
    is_on, source = policy.gate(GATE)
    if not is_on:
        return f"feature gate {GATE} is off ({source})"
    if policy.system_strategy.sched_group_identity_enabled == 0:
        return "systemStrategy.schedGroupIdentityEnabled is 0"
    return ""


def of_class(policy: EffectivePolicy, qos: QoSClass) -> tuple[int, str]:
    """Returns the value of a class and why; a class that is not enabled is neutral."""
    if not _enabled(policy, qos):
        return 0, f"group identity of {qos} is not enabled: neutral"
    return _cpu_qos(policy, qos).group_identity or 0, f"group identity of {qos} in NodeSLO"


def of_tier(policy: EffectivePolicy, tier: KubeQoS) -> tuple[int, str]:
    """Returns the value of one of kubelet's tiers and why; Guaranteed's is the root of the others, and neutral."""
    qos = _OF_TIER.get(tier)
    return of_class(policy, qos) if qos is not None else (0, "the root of all pods is neutral")


def _cpu_qos(policy: EffectivePolicy, qos: QoSClass) -> CPUQOS:
    return policy.class_settings(qos).cpu_qos or CPUQOS()


def _enabled(policy: EffectivePolicy, qos: QoSClass) -> bool:
    return bool(_cpu_qos(policy, qos).enable)


def _of_pod(own: CPUQOS, class_value: int) -> tuple[int, str]:
    """Returns the pod's own value. Upstream's rule: without ``enable: true`` the annotation means neutral."""
    if not own.enable:
        return 0, "annotation cpuQOS without enable: true means neutral"
    value = class_value if own.group_identity is None else own.group_identity
    return value, "the pod's own annotation cpuQOS"
