"""Idle scheduling (``cpu.idle``) of BE pods: they run when nothing else wants the CPU.

Off unless ``beClass.cpuQOS`` is enabled with ``schedIdle: 1``. Only a pod's own cgroup below the BestEffort tier gets
it: a tier is kubelet's, and an idle cgroup cannot have shares, which kubelet writes there. The cgroup's shares keep
their opinion; while the cgroup is idle the kernel refuses them, so they are written when it no longer is.
"""

from __future__ import annotations

from koord.model.crifields import Field
from koord.model.qos import KubeQoS, QoSClass
from qosd.hooks.edits import Edit, Edits
from qosd.model.besteffort import BestEffortLimits
from qosd.model.pod import PodContext
from qosd.model.policy import EffectivePolicy

FILE = "cpu.idle"


def decide(pod: PodContext, policy: EffectivePolicy, limits: BestEffortLimits) -> Edits:
    settings = policy.class_settings(QoSClass.BE).cpu_qos
    wanted = settings is not None and bool(settings.enable) and settings.sched_idle == 1
    if not wanted or pod.kube_qos is not KubeQoS.BEST_EFFORT:
        return Edits()
    if pod.treated_as(policy.node.derivation) is not QoSClass.BE:
        return Edits()
    return Edits((Edit(Field.UNIFIED, "1", "schedIdle of BE in NodeSLO", key=FILE),))
