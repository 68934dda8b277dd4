"""The resctrl class, by the pod annotation that containerd and cri-o read when they start its containers.

It is set only where it is known to work: the policy says that the runtime's RDT support was verified, the group exists,
and the class has ``resctrlQOS`` enabled. A pod with a group of its own, or that already names a class, keeps it.
Elsewhere ``group_of`` and ``names_class`` tell which pods are to be moved after the start.
"""

from __future__ import annotations

from collections.abc import Mapping

from koord.model.annotations.pod import KEYS
from koord.model.crifields import Field
from koord.model.qos import QoSClass
from qosd.hooks.edits import Edit, Edits
from qosd.model.besteffort import BestEffortLimits
from qosd.model.pod import PodContext
from qosd.model.policy import EffectivePolicy

ANNOTATION = "rdt.resources.beta.kubernetes.io/pod"
_OF_CONTAINER = "rdt.resources.beta.kubernetes.io/container."  # and its name; a pod's annotation
_OF_SPEC = "io.kubernetes.cri.rdt-class"  # a container's own annotation
_GROUPS = {QoSClass.LSE: "LSR", QoSClass.LSR: "LSR", QoSClass.LS: "LS", QoSClass.BE: "BE"}
GATE = "RdtResctrl"
CLASS_GROUPS = frozenset(_GROUPS.values())


def decide(pod: PodContext, policy: EffectivePolicy, limits: BestEffortLimits) -> Edits:
    group, why = group_of(pod, policy)
    if not group or not policy.node.rdt_verified:
        return Edits()
    return Edits((Edit(Field.ANNOTATION, group, why, key=ANNOTATION),))


def group_of(pod: PodContext, policy: EffectivePolicy) -> tuple[str, str]:
    """Returns the group that the pod's tasks belong to by its class, and why; ("", "") = they stay where they are."""
    qos = pod.treated_as(policy.node.derivation)
    group = _GROUPS.get(qos)
    settings = policy.class_settings(qos).resctrl_qos
    wanted = settings is not None and bool(settings.enable)
    chosen_already = ANNOTATION in pod.request.annotations or KEYS["resctrl"].name in pod.request.annotations
    if group is None or not wanted or group not in policy.host.resctrl_groups or chosen_already:
        return "", ""
    return group, f"{qos} pods belong to resctrl group {group}"


def names_class(pod: PodContext, container: str, annotations: Mapping[str, str]) -> bool:
    """Returns whether the pod names a class for this one ``container``, which has these ``annotations``."""
    return f"{_OF_CONTAINER}{container}" in pod.request.annotations or _OF_SPEC in annotations
